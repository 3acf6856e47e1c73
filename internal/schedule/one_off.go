package schedule

import (
	"strings"
	"time"
)

// oneOff is a rule of a single instant.
type oneOff struct {
	at   time.Time
	zone *zone

	local   bool  // it was given as a wall time
	wall    int64 // which one
	skipped bool  // the clock skips it
}

func (o *oneOff) Next(after time.Time) time.Time {
	if after.Before(o.at) {
		return o.at
	}
	return time.Time{}
}

// parseOneOff reads an instant in the form of RFC 3339: a date, "T", a time of
// which the seconds may be left out, and "Z", an offset, or nothing for the wall
// clock of the time zone. It has the precision of a microsecond; the seventh to
// ninth digit of a fraction are read and dropped.
func parseOneOff(text string, o Options) (Rule, error) {
	r := &instantParser{text: text, example: instantExample}
	i, err := r.parse(o.Timezone)
	if err != nil {
		return nil, err
	}
	if i.skipped && o.SkipGap {
		return nil, errorf(r.example, "the clock in %s skips %s", o.Timezone, strings.TrimSpace(text))
	}
	return &oneOff{at: time.UnixMicro(i.micros).UTC(), zone: i.zone, local: i.local, wall: i.wall, skipped: i.skipped}, nil
}

// parsedInstant is what the text of an instant says.
type parsedInstant struct {
	micros   int64 // since 1970
	zone     *zone
	local    bool  // no offset is given
	wall     int64 // the wall time in the zone
	skipped  bool  // no clock of the zone shows it
	fraction bool  // it lies between two seconds
}

// parse reads the text to its end.
func (r *instantParser) parse(timezone string) (m parsedInstant, err error) {
	wall, micros := r.parseDateTime()
	offset, local := r.parseOffset()
	if r.err != nil {
		return m, r.err
	}
	if local && timezone == "" {
		return m, zoneErrorf(zoneExample, "an instant without an offset requires a time zone")
	}
	if timezone == "" {
		timezone = "UTC"
	}
	if m.zone, err = loadZone(timezone); err != nil {
		return m, err
	}
	t := wall - offset
	if m.local = local; local {
		m.wall = wall
		t, m.skipped = m.zone.resolve(wall)
	} else {
		m.wall = t + m.zone.periods[m.zone.at(t)].offset
	}
	if t < 0 || t >= dayNumber(lastInstantYear+1, 1, 1)*secondsPerDay {
		return m, errorf(r.example, "the instant is outside the years %d to %d in UTC", firstYear, lastInstantYear)
	}
	m.fraction = micros != 0
	if m.skipped {
		micros = 0
	}
	m.micros = t*microsPerSecond + micros
	return m, nil
}

// instantParser reads an instant from left to right. After the first fault it reads on
// without effect.
type instantParser struct {
	text    string
	pos     int
	example string // of a text that is right
	err     error
}

func (r *instantParser) setError(pos int, format string, args ...any) {
	if r.err == nil {
		r.err = errorAt(pos, r.example, format, args...)
	}
}

// parseDateTime reads up to the offset, and returns a wall time.
func (r *instantParser) parseDateTime() (wall, micros int64) {
	r.pos = len(r.text) - len(strings.TrimLeft(r.text[r.pos:], " \t"))
	year := r.parseNumber("year", 4, firstYear, lastInstantYear)
	r.expect("-", "the month")
	month := r.parseNumber("month", 2, 1, 12)
	r.expect("-", "the day")
	if r.err != nil {
		return 0, 0
	}
	day := r.parseNumber("day", 2, 1, monthLength(year, month))
	r.expect("Tt", "the time")
	hour := r.parseNumber("hour", 2, 0, 23)
	r.expect(":", "the minute")
	minute := r.parseNumber("minute", 2, 0, 59)
	second := 0
	if r.peek() == ':' {
		r.pos++
		second = r.parseNumber("second", 2, 0, 59)
		micros = r.parseFraction()
	}
	return dayNumber(year, month, day)*secondsPerDay + int64((hour*60+minute)*60+second), micros
}

// parseOffset reads the end of the text, and returns the seconds east of UTC. It is
// local if there is none.
func (r *instantParser) parseOffset() (seconds int64, local bool) {
	switch sign := r.peek(); sign {
	case 'Z', 'z':
		r.pos++
	case '+', '-':
		r.pos++
		hours := r.parseNumber("offset's hour", 2, 0, 23)
		r.expect(":", "the offset's minute")
		minutes := r.parseNumber("offset's minute", 2, 0, 59)
		if seconds = int64(hours*60+minutes) * 60; sign == '-' {
			seconds = -seconds
		}
	default:
		local = true
	}
	if rest := strings.TrimRight(r.text[min(r.pos, len(r.text)):], " \t"); strings.HasPrefix(rest, "/") {
		r.example = intervalExample
		r.setError(r.pos, "an interval begins with R, as in R/%s", truncate(strings.TrimSpace(r.text)))
	} else if rest != "" {
		r.setError(r.pos, "%q is neither an offset such as +02:00 nor Z", truncate(rest))
	}
	return seconds, local
}

func (r *instantParser) peek() byte {
	if r.err == nil && r.pos < len(r.text) {
		return r.text[r.pos]
	}
	return 0
}

// expect reads one of the given characters, which stands before what is named.
func (r *instantParser) expect(any, before string) {
	if c := r.peek(); c == 0 || !strings.ContainsRune(any, rune(c)) {
		r.setError(r.pos, "%q is missing before %s", any[:1], before)
		return
	}
	r.pos++
}

// parseNumber reads exactly so many digits of a number between low and high.
func (r *instantParser) parseNumber(name string, digits, low, high int) (n int) {
	start := r.pos
	for ; digits > 0; digits-- {
		c := r.peek()
		if c < '0' || c > '9' {
			r.setError(start, "the %s has too few digits", name)
			return low
		}
		n = n*10 + int(c-'0')
		r.pos++
	}
	if n < low || n > high {
		r.setError(start, "the %s %d is out of range, it goes from %d to %d", name, n, low, high)
		return low
	}
	return n
}

// parseFraction reads a point and up to nine digits, and returns microseconds.
func (r *instantParser) parseFraction() (micros int64) {
	if r.peek() != '.' {
		return 0
	}
	r.pos++
	start := r.pos
	for unit := int64(100_000); r.peek() >= '0' && r.peek() <= '9'; unit /= 10 {
		micros += int64(r.peek()-'0') * unit
		r.pos++
	}
	if n := r.pos - start; n == 0 || n > 9 {
		r.setError(start, "a fraction of a second has 1 to 9 digits")
	}
	return micros
}
