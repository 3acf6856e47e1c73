package schedule

import (
	"strings"
	"time"
)

// oneOff is a rule with a single occurrence.
type oneOff struct {
	at time.Time
	parsedInstant
}

func (o *oneOff) Next(after time.Time) time.Time {
	if after.Before(o.at) {
		return o.at
	}
	return time.Time{}
}

// Once returns the instant of a rule that is a single instant.
func Once(r Rule) (time.Time, bool) {
	if o, ok := r.(*oneOff); ok {
		return o.at, true
	}
	return time.Time{}, false
}

// parseOneOff parses an instant in the form of RFC 3339. The seconds may be left
// out, and without an offset it is a wall time of the time zone. It has the
// precision of a microsecond; more digits of a fraction are dropped.
func parseOneOff(text string, o Options) Rule {
	i := parseInstant(text, 0, instantExample, o.Timezone)
	if i.skipped && o.SkipGap {
		panic(errorf(instantExample, "the clock in %s skips %s", o.Timezone, strings.TrimSpace(text)))
	}
	return &oneOff{time.UnixMicro(i.micros).UTC(), i}
}

type parsedInstant struct {
	micros   int64 // since 1970
	zone     *zone
	local    bool  // the text has no offset
	wall     int64 // the wall time in the zone
	skipped  bool  // the clock skips the wall time
	fraction bool  // it is no whole second
}

// parseInstant parses the text from pos to its end.
func parseInstant(text string, pos int, example, timezone string) (m parsedInstant) {
	p := &instantParser{scanner: scanner{text, pos}, example: example}
	wall, micros := p.parseDateTime()
	offset, local := p.parseOffset()
	if local && timezone == "" {
		panic(zoneErrorf(zoneExample, "an instant without an offset requires a time zone"))
	}
	m.zone = zoneOrUTC(timezone)
	t := wall - offset
	if m.local = local; local {
		m.wall = wall
		t, m.skipped = m.zone.resolve(wall)
	} else {
		m.wall = m.zone.wallAt(t)
	}
	if t < 0 || t >= dayNumber(lastInstantYear+1, 1, 1)*secondsPerDay {
		panic(errorf(p.example, "the instant is outside the years %d to %d in UTC", firstYear, lastInstantYear))
	}
	m.fraction = micros != 0
	if m.skipped {
		micros = 0
	}
	m.micros = t*microsPerSecond + micros
	return m
}

type instantParser struct {
	scanner
	example string // a correct text
}

func (p *instantParser) errorAt(pos int, format string, args ...any) error {
	return errorAt(pos, p.example, format, args...)
}

// parseDateTime parses up to the offset, and returns a wall time.
func (p *instantParser) parseDateTime() (wall, micros int64) {
	p.pos = len(p.text) - len(strings.TrimLeft(p.text[p.pos:], " \t"))
	year := p.parseNumber("year", 4, firstYear, lastInstantYear)
	p.expect('-', "the month")
	month := p.parseNumber("month", 2, 1, 12)
	p.expect('-', "the day")
	day := p.parseNumber("day", 2, 1, monthLength(year, month))
	p.expect('T', "the time")
	hour := p.parseNumber("hour", 2, 0, 23)
	p.expect(':', "the minute")
	minute := p.parseNumber("minute", 2, 0, 59)
	second := 0
	if p.accept(':') {
		second = p.parseNumber("second", 2, 0, 59)
		if start := p.pos + 1; p.accept('.') {
			digits := p.digits()
			if n := len(digits); n == 0 || n > 9 {
				panic(p.errorAt(start, "a fraction of a second has 1 to 9 digits"))
			}
			micros = parseDigits((digits + "000000")[:6], microsPerSecond)
		}
	}
	return dayNumber(year, month, day)*secondsPerDay + int64((hour*60+minute)*60+second), micros
}

// parseOffset parses the end of the text, and returns the seconds east of UTC, or
// that there is no offset and the time is local.
func (p *instantParser) parseOffset() (seconds int64, local bool) {
	switch sign := p.peek(); sign {
	case 'Z':
		p.pos++
	case '+', '-':
		p.pos++
		hours := p.parseNumber("offset's hour", 2, 0, 23)
		p.expect(':', "the offset's minute")
		minutes := p.parseNumber("offset's minute", 2, 0, 59)
		if seconds = int64(hours*60+minutes) * 60; sign == '-' {
			seconds = -seconds
		}
	default:
		local = true
	}
	if rest := strings.TrimRight(p.text[p.pos:], " \t"); strings.HasPrefix(rest, "/") {
		panic(errorAt(p.pos, intervalExample, "an interval begins with R, as in R/%s", strings.TrimSpace(p.text)))
	} else if rest != "" {
		panic(p.errorAt(p.pos, "%q is neither an offset such as +02:00 nor Z", rest))
	}
	return seconds, local
}

func (p *instantParser) expect(c byte, before string) {
	if !p.accept(c) {
		panic(p.errorAt(p.pos, "%q is missing before %s", string(c), before))
	}
}

func (p *instantParser) parseNumber(name string, digits, low, high int) (n int) {
	start := p.pos
	for range digits {
		c := p.peek()
		if c < '0' || c > '9' {
			panic(p.errorAt(start, "the %s has too few digits", name))
		}
		n = n*10 + int(c-'0')
		p.pos++
	}
	if n < low || n > high {
		panic(p.errorAt(start, "the %s %d is out of range, it goes from %d to %d", name, n, low, high))
	}
	return n
}
