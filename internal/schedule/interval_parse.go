package schedule

import (
	"strings"
	"time"
)

// parseInterval parses a repeating interval in the form of ISO 8601, such as
// R5/2026-03-01T09:00:00Z/PT15M, or a duration alone. An end may stand in place of
// the duration. R5 means five firings: the start is the first, and a time that the
// clock skips counts too. R and R-1 mean no end.
func parseInterval(text string, o Options) Rule {
	start := len(text) - len(strings.TrimLeft(text, " \t"))
	text = strings.TrimRight(text, " \t")
	if i := strings.IndexAny(text[start:], " \t"); i >= 0 {
		panic(errorAt(start+i, intervalExample, "an interval cannot contain blanks"))
	}
	parts := strings.Split(text[start:], "/")
	r := &intervalParser{text: text, options: o}
	if strings.ContainsAny(parts[0][:1], "Rr") {
		r.parseRepetitions(parts[0], start)
		start += len(parts[0]) + 1
		parts = parts[1:]
	}
	switch {
	case len(parts) > 2:
		panic(errorAt(start+len(parts[0])+len(parts[1])+1, intervalExample, "an interval ends after the duration"))
	case len(parts) == 2 && isDuration(parts[0]):
		panic(errorAt(start, intervalExample, "the start must precede the duration"))
	case len(parts) == 2:
		first := parseInstant(text[:start+len(parts[0])], start, intervalExample, o.Timezone)
		r.first = &first
		start += len(parts[0]) + 1
	}
	if !isDuration(text[start:]) {
		return r.parseEnd(start)
	}
	return r.build(parseDuration(text, start))
}

func isDuration(part string) bool { return strings.HasPrefix(strings.ToUpper(part), "P") }

type intervalParser struct {
	text    string
	options Options
	count   int64
	first   *parsedInstant // the start that the text gives
}

func (p *intervalParser) parseRepetitions(part string, pos int) {
	number := part[1:]
	if number == "" || number == "-1" {
		return
	}
	if strings.Trim(number, "0123456789") != "" {
		panic(errorAt(pos+1, intervalExample, "%q is not the number of firings, such as R5, or R for no end", number))
	}
	switch p.count = parseDigits(number, maxCount); {
	case p.count == 0:
		panic(errorAt(pos+1, intervalExample, "an interval fires at least once"))
	case p.count > maxCount:
		panic(errorAt(pos+1, intervalExample, "an interval fires at most %d times, or R without a number for no end", maxCount))
	}
}

func (p *intervalParser) parseEnd(pos int) Rule {
	if p.first == nil {
		panic(errorAt(pos, intervalExample, "%q is not a duration such as PT15M or P1D", p.text[pos:]))
	}
	end := parseInstant(p.text, pos, intervalExample, p.options.Timezone)
	d := duration{micros: end.micros - p.first.micros}
	switch {
	case d.micros < microsPerSecond:
		panic(errorAt(pos, intervalExample, "the end is not a second after the start"))
	case d.micros > maxDurationYears*daysPerYear*secondsPerDay*microsPerSecond:
		panic(errorAt(pos, intervalExample, "the end is more than %d years after the start", maxDurationYears))
	}
	return p.build(d)
}

func (p *intervalParser) build(d duration) Rule {
	first := p.first
	if first == nil {
		t, z := startOption(p.options), zoneOrUTC(p.options.Timezone)
		first = &parsedInstant{micros: t, zone: z, wall: z.wallAt(floorDiv(t, microsPerSecond))}
	}
	a := anchor{start: first.micros, count: p.count, written: p.first != nil}
	if d.months == 0 && d.days == 0 {
		if first.skipped && p.options.SkipGap {
			panic(errorf(intervalExample, "the clock in %s skips the start", p.options.Timezone))
		}
		return &durationInterval{anchor: a, zone: first.zone, step: d.micros}
	}
	if first.fraction && a.written {
		panic(errorf(intervalExample, "an interval of days or months starts on a whole second"))
	}
	a.start -= floorMod(a.start, microsPerSecond)
	date := floorDiv(first.wall, secondsPerDay)
	steps := wallSequence{second: first.wall - date*secondsPerDay, months: d.months, days: d.days}
	steps.year, steps.month, steps.day = dateOf(date)
	if d.micros > 0 {
		return &durationInterval{anchor: a, zone: first.zone, step: d.micros, calendar: &steps}
	}
	c := &calendarInterval{anchor: a, wallSequence: steps}
	c.wallClock = newWallClock(c, first.zone, false, p.options)
	c.begin = a.start / microsPerSecond // The clock may also show its wall time earlier.
	return c
}

// startOption returns Options.Start in microseconds.
func startOption(o Options) int64 {
	if o.Start.IsZero() {
		panic(errorf(intervalExample, "an interval needs a start: write one in the schedule, or set starts_at"))
	}
	if y := o.Start.UTC().Year(); y < firstYear || y > lastInstantYear {
		panic(errorf(intervalExample, "starts_at is outside the years %d to %d in UTC", firstYear, lastInstantYear))
	}
	return o.Start.UnixMicro()
}

// duration is one in the sense of ISO 8601, such as P1DT12H.
type duration struct {
	months, days int64
	micros       int64
}

const (
	maxCount         = 1_000_000_000 // firings
	maxDurationYears = 100           // of every part of a duration
	daysPerYear      = 366
)

type durationUnit struct {
	letter byte
	name   string
	time   bool  // after the T
	most   int64 // the largest number
	one    duration
}

// durationUnits is in the order in which designators must appear.
var durationUnits = [...]durationUnit{
	{'Y', "years", false, maxDurationYears, duration{months: 12}},
	{'M', "months", false, maxDurationYears * 12, duration{months: 1}},
	{'W', "weeks", false, maxDurationYears * daysPerYear / 7, duration{days: 7}},
	{'D', "days", false, maxDurationYears * daysPerYear, duration{days: 1}},
	{'H', "hours", true, maxDurationYears * daysPerYear * 24, duration{micros: 60 * 60 * microsPerSecond}},
	{'M', "minutes", true, maxDurationYears * daysPerYear * 24 * 60, duration{micros: 60 * microsPerSecond}},
	{'S', "seconds", true, maxDurationYears * daysPerYear * secondsPerDay, duration{micros: microsPerSecond}},
}

type durationParser struct {
	scanner
	time     bool // the T has been read
	parts    int  // how many numbers have been read
	last     int  // index of the unit of the latest number, or -1
	weeks    bool
	fraction bool // the latest number had one
	out      duration
}

// parseDuration parses the text from pos, where the P is, to its end.
func parseDuration(text string, pos int) duration {
	p := &durationParser{scanner: scanner{text, pos + 1}, last: -1}
	for p.pos < len(text) {
		if !p.time && p.accept('T') {
			p.time = true
			if p.pos == len(text) {
				panic(p.errorAt(p.pos-1, "the time is missing after T"))
			}
		}
		p.parsePart()
	}
	d := p.out
	switch {
	case p.parts == 0:
		panic(p.errorAt(pos, "the duration is empty"))
	case p.weeks && p.parts > 1:
		panic(p.errorAt(pos, "weeks cannot be combined with other units"))
	case d == duration{}:
		panic(p.errorAt(pos, "the duration is zero"))
	case d.months == 0 && d.days == 0 && d.micros < microsPerSecond:
		panic(p.errorAt(pos, "the duration is under a second"))
	case d.months > maxDurationYears*12 || d.days > maxDurationYears*daysPerYear || d.micros > maxDurationYears*daysPerYear*secondsPerDay*microsPerSecond:
		panic(p.errorAt(pos, "the duration is longer than %d years", maxDurationYears))
	}
	return d
}

func (p *durationParser) errorAt(pos int, format string, args ...any) error {
	return errorAt(pos, intervalExample, format, args...)
}

func (p *durationParser) parsePart() {
	start := p.pos
	if c := p.peek(); c == '-' || c == '+' {
		panic(p.errorAt(start, "numbers cannot have a sign"))
	}
	whole := p.digits()
	if p.pos == start {
		panic(p.errorAt(start, "a number is missing before %q", p.text[start:]))
	}
	fraction, places := "", int64(1)
	if p.accept('.') || p.accept(',') {
		if fraction = p.digits(); fraction == "" || len(fraction) > 6 {
			panic(p.errorAt(start, "a fraction has 1 to 6 digits"))
		}
		for range fraction {
			places *= 10
		}
	}
	p.parseUnit(start)
	u := &durationUnits[p.last]
	n := parseDigits(whole, u.most)
	switch {
	case p.fraction:
		panic(p.errorAt(start, "only the last number of a duration can have a fraction"))
	case fraction != "" && !u.time:
		panic(p.errorAt(start, "%s cannot have a fraction", u.name))
	case n > u.most:
		panic(p.errorAt(start, "the duration is longer than %d years", maxDurationYears))
	}
	p.out.months += n * u.one.months
	p.out.days += n * u.one.days
	p.out.micros += n*u.one.micros + parseDigits(fraction, places)*(u.one.micros/places)
	p.fraction = fraction != ""
	p.weeks = p.weeks || u.letter == 'W'
	p.parts++
}

// parseUnit parses the designator of the number that begins at start.
func (p *durationParser) parseUnit(start int) {
	letter := p.peek()
	if letter == 0 || letter == 'T' && !p.time {
		panic(p.errorAt(start, "%q has no designator, such as M or D", p.text[start:p.pos]))
	}
	elsewhere := ""
	for i, u := range durationUnits {
		switch {
		case u.letter != letter:
		case u.time != p.time:
			elsewhere = u.name
		case i == p.last:
			panic(p.errorAt(start, "%s are given twice", u.name))
		case i < p.last:
			panic(p.errorAt(start, "%s must precede %s", u.name, durationUnits[p.last].name))
		default:
			p.pos++
			p.last = i
			return
		}
	}
	switch {
	case elsewhere == "":
		panic(p.errorAt(p.pos, "unknown designator %q; use Y, M, W or D, and after a T H, M or S", letter))
	case p.time:
		panic(p.errorAt(p.pos, "%s must precede the T", elsewhere))
	}
	panic(p.errorAt(p.pos, "%s must follow a T, as in PT1%c", elsewhere, letter))
}

// parseEvery parses the words "@every 1h30m".
func parseEvery(words []word, z *zone, o Options) Rule {
	if len(words) == 1 {
		panic(errorAt(words[0].pos+len(words[0].text), everyExample, "a duration such as 90s is missing after @every"))
	}
	w := words[1]
	if len(words) > 2 {
		panic(errorAt(words[2].pos, everyExample, "unexpected %q after %q", words[2].text, w.text))
	}
	d, err := time.ParseDuration(strings.ToLower(w.text))
	switch {
	case err != nil:
		panic(errorAt(w.pos, everyExample, "%q is not a duration such as 90s or 1h30m", w.text))
	case d < time.Second:
		panic(errorAt(w.pos, everyExample, "the duration is under a second"))
	case d%time.Microsecond != 0:
		panic(errorAt(w.pos, everyExample, "the duration is finer than a microsecond"))
	case d > maxDurationYears*daysPerYear*secondsPerDay*time.Second:
		panic(errorAt(w.pos, everyExample, "the duration is longer than %d years", maxDurationYears))
	}
	return &durationInterval{anchor: anchor{start: startOption(o)}, zone: z, step: d.Microseconds()}
}
