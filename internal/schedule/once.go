package schedule

import (
	"fmt"
	"strings"
	"time"
)

// once is a rule of a single instant.
type once struct {
	at time.Time
}

func (o *once) Next(after time.Time) time.Time {
	if after.Before(o.at) {
		return o.at
	}
	return time.Time{}
}

// parseOnce reads an instant in the form of RFC 3339: a date, "T", a time of
// which the seconds may be left out, and "Z", an offset, or nothing for the wall
// clock of the time zone. It has the precision of a microsecond; the seventh to
// ninth digit of a fraction are read and dropped.
func parseOnce(text string, o Options) (Rule, error) {
	r := &stamp{text: text}
	wall, micros := r.dateAndTime()
	offset, local := r.offset()
	if r.err != nil {
		return nil, r.err
	}
	if local && o.Timezone == "" {
		return nil, refuseZone(zoneExample, "an instant without an offset requires a time zone")
	}
	t := wall - offset
	if o.Timezone != "" {
		z, err := loadZone(o.Timezone)
		if err != nil {
			return nil, err
		}
		if local {
			skipped := false
			if t, skipped = z.resolve(wall); skipped && o.SkipGap {
				return nil, r.refuse(0, "the clock in %s skips %s", o.Timezone, strings.TrimSpace(text))
			} else if skipped {
				micros = 0
			}
		}
	}
	if t < 0 || t >= dayNumber(lastInstantYear+1, 1, 1)*secondsPerDay {
		return nil, r.refuse(0, "the instant is outside the years %d to %d in UTC", firstYear, lastInstantYear)
	}
	return &once{at: time.Unix(t, micros*1000).UTC()}, nil
}

// stamp reads an instant from left to right. After the first fault it reads on
// without effect.
type stamp struct {
	text string
	pos  int
	err  error
}

func (r *stamp) refuse(column int, format string, args ...any) error {
	return &Error{Field: "schedule", Column: column, Message: fmt.Sprintf(format, args...), Example: instantExample}
}

func (r *stamp) fail(pos int, format string, args ...any) {
	if r.err == nil {
		r.err = r.refuse(pos+1, format, args...)
	}
}

// dateAndTime reads up to the offset, and returns a wall time.
func (r *stamp) dateAndTime() (wall, micros int64) {
	r.pos = len(r.text) - len(strings.TrimLeft(r.text, " \t"))
	year := r.number("year", 4, firstYear, lastInstantYear)
	r.mark("-", "the month")
	month := r.number("month", 2, 1, 12)
	r.mark("-", "the day")
	if r.err != nil {
		return 0, 0
	}
	day := r.number("day", 2, 1, monthLength(year, month))
	r.mark("Tt", "the time")
	hour := r.number("hour", 2, 0, 23)
	r.mark(":", "the minute")
	minute := r.number("minute", 2, 0, 59)
	second := 0
	if r.peek() == ':' {
		r.pos++
		second = r.number("second", 2, 0, 59)
		micros = r.fraction()
	}
	return dayNumber(year, month, day)*secondsPerDay + int64((hour*60+minute)*60+second), micros
}

// offset reads the end of the text, and returns the seconds east of UTC. It is
// local if there is none.
func (r *stamp) offset() (seconds int64, local bool) {
	switch sign := r.peek(); sign {
	case 'Z', 'z':
		r.pos++
	case '+', '-':
		r.pos++
		hours := r.number("offset's hour", 2, 0, 23)
		r.mark(":", "the offset's minute")
		minutes := r.number("offset's minute", 2, 0, 59)
		if seconds = int64(hours*60+minutes) * 60; sign == '-' {
			seconds = -seconds
		}
	default:
		local = true
	}
	if rest := strings.TrimRight(r.text[min(r.pos, len(r.text)):], " \t"); rest != "" {
		r.fail(r.pos, "%q is neither an offset such as +02:00 nor Z", clip(rest))
	}
	return seconds, local
}

func (r *stamp) peek() byte {
	if r.err == nil && r.pos < len(r.text) {
		return r.text[r.pos]
	}
	return 0
}

// mark reads one of the given characters, which stands before what is named.
func (r *stamp) mark(any, before string) {
	if c := r.peek(); c == 0 || !strings.ContainsRune(any, rune(c)) {
		r.fail(r.pos, "%q is missing before %s", any[:1], before)
		return
	}
	r.pos++
}

// number reads exactly so many digits of a number between low and high.
func (r *stamp) number(name string, digits, low, high int) (n int) {
	start := r.pos
	for ; digits > 0; digits-- {
		c := r.peek()
		if c < '0' || c > '9' {
			r.fail(start, "the %s has too few digits", name)
			return low
		}
		n = n*10 + int(c-'0')
		r.pos++
	}
	if n < low || n > high {
		r.fail(start, "the %s %d is out of range, it goes from %d to %d", name, n, low, high)
		return low
	}
	return n
}

// fraction reads a point and up to nine digits, and returns microseconds.
func (r *stamp) fraction() (micros int64) {
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
		r.fail(start, "a fraction of a second has 1 to 9 digits")
	}
	return micros
}
