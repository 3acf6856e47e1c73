package schedule

import (
	"strings"
	"time"
)

// isInterval tells an interval by its first letter.
func isInterval(upper string) bool {
	return upper[0] == 'P' || upper[0] == 'R' && strings.Contains(upper, "/")
}

// parseInterval reads a repeating interval in the form of ISO 8601, such as
// R5/2026-03-01T09:00:00Z/PT15M, or a duration alone. An end in place of the
// duration stands for the time that passes until then. R5 means five firings, of
// which the start is the first, and one that the clock skips another; R and R-1
// mean no end.
func parseInterval(text string, o Options) (Rule, error) {
	start := len(text) - len(strings.TrimLeft(text, " \t"))
	text = strings.TrimRight(text, " \t")
	if i := strings.IndexAny(text[start:], " \t"); i >= 0 {
		return nil, errorAt(start+i, intervalExample, "an interval has no blanks")
	}
	parts := strings.Split(text[start:], "/")
	r := &intervalParser{text: text, options: o}
	if strings.ContainsAny(parts[0][:1], "Rr") {
		if err := r.parseRepetitions(parts[0], start); err != nil {
			return nil, err
		}
		start += len(parts[0]) + 1
		parts = parts[1:]
	}
	switch {
	case len(parts) > 2:
		return nil, errorAt(start+len(parts[0])+len(parts[1])+1, intervalExample, "an interval ends after the duration")
	case len(parts) == 2 && isDuration(parts[0]):
		return nil, errorAt(start, intervalExample, "the start comes before the duration")
	case len(parts) == 2:
		if err := r.parseStart(start, start+len(parts[0])); err != nil {
			return nil, err
		}
		start += len(parts[0]) + 1
	}
	if !isDuration(text[start:]) {
		return r.parseEnd(start)
	}
	d, err := parseDuration(text, start)
	if err != nil {
		return nil, err
	}
	return r.build(d)
}

func isDuration(part string) bool { return strings.HasPrefix(strings.ToUpper(part), "P") }

// intervalParser reads the parts of an interval.
type intervalParser struct {
	text    string
	options Options
	count   int64
	first   *parsedInstant // the start that the text gives
}

// maxCount is how many firings an interval can be limited to.
const maxCount = 1_000_000_000

// parseRepetitions reads "R", "R5" or "R-1".
func (r *intervalParser) parseRepetitions(part string, pos int) error {
	number := part[1:]
	if number == "" || number == "-1" {
		return nil
	}
	if strings.Trim(number, "0123456789") != "" {
		return errorAt(pos+1, intervalExample, "%q is not the number of firings, such as R5, or R for no end", truncate(number))
	}
	switch r.count = parseDigits(number, maxCount); {
	case r.count == 0:
		return errorAt(pos+1, intervalExample, "an interval fires at least once")
	case r.count > maxCount:
		return errorAt(pos+1, intervalExample, "an interval fires at most %d times, or R without a number for no end", maxCount)
	}
	return nil
}

// parseStart reads the instant between two places.
func (r *intervalParser) parseStart(from, to int) error {
	m, err := (&instantParser{text: r.text[:to], pos: from, example: intervalExample}).parse(r.options.Timezone)
	if err != nil {
		return err
	}
	r.first = &m
	return nil
}

// parseEnd reads the end of an interval of which the start is given.
func (r *intervalParser) parseEnd(pos int) (Rule, error) {
	if r.first == nil {
		return nil, errorAt(pos, intervalExample, "%q is not a duration such as PT15M or P1D", truncate(r.text[pos:]))
	}
	end, err := (&instantParser{text: r.text, pos: pos, example: intervalExample}).parse(r.options.Timezone)
	if err != nil {
		return nil, err
	}
	d := duration{micros: end.micros - r.first.micros}
	switch {
	case d.micros < microsPerSecond:
		return nil, errorAt(pos, intervalExample, "the end is not a second after the start")
	case d.micros > maxDurationYears*daysPerYear*secondsPerDay*microsPerSecond:
		return nil, errorAt(pos, intervalExample, "the end is more than %d years after the start", maxDurationYears)
	}
	return r.build(d)
}

// build puts the parts together.
func (r *intervalParser) build(d duration) (Rule, error) {
	first := r.first
	if first == nil {
		start, err := startOption(r.options)
		if err != nil {
			return nil, err
		}
		if first, err = instantAt(start, r.options.Timezone); err != nil {
			return nil, err
		}
	}
	a := anchor{start: first.micros, count: r.count, written: r.first != nil}
	if d.months == 0 && d.days == 0 {
		if first.skipped && r.options.SkipGap {
			return nil, errorf(intervalExample, "the clock in %s skips the start", r.options.Timezone)
		}
		return &durationInterval{anchor: a, zone: first.zone, step: d.micros}, nil
	}
	if first.fraction && a.written {
		return nil, errorf(intervalExample, "an interval of days or months starts on a whole second")
	}
	a.start -= floorMod(a.start, microsPerSecond)
	p := newWallSequence(first.wall, d.months, d.days)
	if d.micros > 0 {
		return &mixedInterval{anchor: a, wallSequence: p, zone: first.zone, step: d.micros}, nil
	}
	s := &calendarInterval{anchor: a, wallSequence: p}
	s.wallClock = newWallClock(s, first.zone, false, r.options)
	s.begin = a.start / microsPerSecond // The wall time of the start may be that of another instant too.
	return s, nil
}

// startOption returns the start that stands beside the text, in microseconds.
func startOption(o Options) (int64, error) {
	if o.Start.IsZero() {
		return 0, errorf(intervalExample, "an interval needs a start: write one, or give one beside the schedule")
	}
	if y := o.Start.UTC().Year(); y < firstYear || y > lastInstantYear {
		return 0, errorf(intervalExample, "the start beside the schedule is outside the years %d to %d in UTC", firstYear, lastInstantYear)
	}
	return o.Start.UnixMicro(), nil
}

// instantAt returns an instant as if it were written with an offset.
func instantAt(micros int64, timezone string) (*parsedInstant, error) {
	if timezone == "" {
		timezone = "UTC"
	}
	z, err := loadZone(timezone)
	if err != nil {
		return nil, err
	}
	t := time.UnixMicro(micros).Unix()
	return &parsedInstant{micros: micros, zone: z, wall: t + z.periods[z.at(t)].offset, fraction: micros%microsPerSecond != 0}, nil
}

// duration is a length of time in the form of ISO 8601, such as P1DT12H.
type duration struct {
	months, days int64
	micros       int64
}

// maxDurationYears is the longest duration of an interval, in years. Each part keeps to it.
const maxDurationYears = 100

const daysPerYear = 366

// durationUnit is one of the designators of a duration. They come in this order.
type durationUnit struct {
	letter byte
	name   string
	time   bool  // stands after the T
	most   int64 // how many make the longest duration
	one    duration
}

var durationUnits = [...]durationUnit{
	{'Y', "years", false, maxDurationYears, duration{months: 12}},
	{'M', "months", false, maxDurationYears * 12, duration{months: 1}},
	{'W', "weeks", false, maxDurationYears * daysPerYear / 7, duration{days: 7}},
	{'D', "days", false, maxDurationYears * daysPerYear, duration{days: 1}},
	{'H', "hours", true, maxDurationYears * daysPerYear * 24, duration{micros: 60 * 60 * microsPerSecond}},
	{'M', "minutes", true, maxDurationYears * daysPerYear * 24 * 60, duration{micros: 60 * microsPerSecond}},
	{'S', "seconds", true, maxDurationYears * daysPerYear * secondsPerDay, duration{micros: microsPerSecond}},
}

// durationParser reads one from left to right, beginning with the P.
type durationParser struct {
	text     string
	pos      int
	time     bool // the T has been read
	parts    int  // how many numbers have been read
	last     int  // index of the unit of the latest number, or -1
	weeks    bool
	fraction bool // the latest number had one
	out      duration
}

// parseDuration reads the text from pos to its end.
func parseDuration(text string, pos int) (duration, error) {
	r := &durationParser{text: text, pos: pos + 1, last: -1}
	for r.pos < len(text) {
		if r.peek() == 'T' && !r.time {
			r.time = true
			r.pos++
			if r.pos == len(text) {
				return duration{}, r.errorAt(r.pos-1, "the time is missing after T")
			}
		}
		if err := r.parsePart(); err != nil {
			return duration{}, err
		}
	}
	if r.parts == 0 {
		return duration{}, r.errorAt(pos, "the duration is empty")
	}
	if r.weeks && r.parts > 1 {
		return duration{}, r.errorAt(pos, "weeks stand alone in a duration")
	}
	d := r.out
	switch {
	case d == duration{}:
		return duration{}, r.errorAt(pos, "the duration is zero")
	case d.months == 0 && d.days == 0 && d.micros < microsPerSecond:
		return duration{}, r.errorAt(pos, "the duration is under a second")
	case d.months > maxDurationYears*12 || d.days > maxDurationYears*daysPerYear || d.micros > maxDurationYears*daysPerYear*secondsPerDay*microsPerSecond:
		return duration{}, r.errorAt(pos, "the duration is longer than %d years", maxDurationYears)
	}
	return d, nil
}

func (r *durationParser) errorAt(pos int, format string, args ...any) error {
	return errorAt(pos, intervalExample, format, args...)
}

// peek returns the next character in upper case, or 0 at the end.
func (r *durationParser) peek() byte {
	if r.pos == len(r.text) {
		return 0
	}
	c := r.text[r.pos]
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// parsePart reads a number and its designator.
func (r *durationParser) parsePart() error {
	start := r.pos
	if c := r.peek(); c == '-' || c == '+' {
		return r.errorAt(start, "numbers have no sign")
	}
	whole := r.digits()
	if r.pos == start {
		return r.errorAt(start, "a number is missing before %q", truncate(r.text[start:]))
	}
	fraction, places := "", int64(1)
	if c := r.peek(); c == '.' || c == ',' {
		r.pos++
		if fraction = r.digits(); fraction == "" || len(fraction) > 6 {
			return r.errorAt(start, "a fraction has 1 to 6 digits")
		}
		for range fraction {
			places *= 10
		}
	}
	index, err := r.parseUnit(start)
	if err != nil {
		return err
	}
	u := &durationUnits[index]
	if r.fraction {
		return r.errorAt(start, "only the last number of a duration can have a fraction")
	}
	if fraction != "" && !u.time {
		return r.errorAt(start, "%s cannot have a fraction", u.name)
	}
	n := parseDigits(whole, u.most)
	if n > u.most {
		return r.errorAt(start, "the duration is longer than %d years", maxDurationYears)
	}
	r.out.months += n * u.one.months
	r.out.days += n * u.one.days
	r.out.micros += n*u.one.micros + parseDigits(fraction, places)*(u.one.micros/places)
	r.last, r.fraction = index, fraction != ""
	r.weeks = r.weeks || u.letter == 'W'
	r.parts++
	return nil
}

// parseUnit reads a designator that fits the place where it stands.
func (r *durationParser) parseUnit(start int) (int, error) {
	letter := r.peek()
	if letter == 0 || letter == 'T' && !r.time {
		return 0, r.errorAt(start, "%q has no designator, such as M or D", truncate(r.text[start:r.pos]))
	}
	elsewhere := -1
	for i, u := range durationUnits {
		if u.letter != letter {
			continue
		}
		if u.time != r.time {
			elsewhere = i
			continue
		}
		switch {
		case i == r.last:
			return 0, r.errorAt(start, "%s are given twice", u.name)
		case i < r.last:
			return 0, r.errorAt(start, "%s come before %s", u.name, durationUnits[r.last].name)
		}
		r.pos++
		return i, nil
	}
	switch {
	case elsewhere < 0:
		return 0, r.errorAt(r.pos, "there is no designator %q; they are Y, M, W and D, and after a T H, M and S", letter)
	case r.time:
		return 0, r.errorAt(r.pos, "%s stand before the T", durationUnits[elsewhere].name)
	}
	return 0, r.errorAt(r.pos, "%s stand after a T, as in PT1%c", durationUnits[elsewhere].name, letter)
}

func (r *durationParser) digits() string {
	start := r.pos
	for c := r.peek(); '0' <= c && c <= '9'; c = r.peek() {
		r.pos++
	}
	return r.text[start:r.pos]
}

// parseDigits reads digits, and stops a little over most.
func parseDigits(digits string, most int64) (n int64) {
	for _, c := range digits {
		n = min(n*10+int64(c-'0'), most+1)
	}
	return n
}

// parseEvery reads the words "@every 1h30m".
func parseEvery(words []word, z *zone, o Options) (Rule, error) {
	if len(words) == 1 {
		return nil, errorAt(words[0].pos+len(words[0].text), everyExample, "a duration such as 90s is missing after @every")
	}
	w := words[1]
	if len(words) > 2 {
		return nil, errorAt(words[2].pos, everyExample, "unexpected %q after %q", truncate(words[2].text), truncate(w.text))
	}
	d, err := time.ParseDuration(strings.ToLower(w.text))
	switch {
	case err != nil:
		return nil, errorAt(w.pos, everyExample, "%q is not a duration such as 90s or 1h30m", truncate(w.text))
	case d < time.Second:
		return nil, errorAt(w.pos, everyExample, "the duration is under a second")
	case d%time.Microsecond != 0:
		return nil, errorAt(w.pos, everyExample, "the duration is finer than a microsecond")
	case d > maxDurationYears*daysPerYear*secondsPerDay*time.Second:
		return nil, errorAt(w.pos, everyExample, "the duration is longer than %d years", maxDurationYears)
	}
	start, err := startOption(o)
	if err != nil {
		return nil, err
	}
	return &durationInterval{anchor: anchor{start: start}, zone: z, step: d.Microseconds()}, nil
}
