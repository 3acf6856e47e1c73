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
		return nil, at(start+i, intervalExample, "an interval has no blanks")
	}
	parts := strings.Split(text[start:], "/")
	r := &intervalReader{text: text, options: o}
	if strings.ContainsAny(parts[0][:1], "Rr") {
		if err := r.repetitions(parts[0], start); err != nil {
			return nil, err
		}
		start += len(parts[0]) + 1
		parts = parts[1:]
	}
	switch {
	case len(parts) > 2:
		return nil, at(start+len(parts[0])+len(parts[1])+1, intervalExample, "an interval ends after the duration")
	case len(parts) == 2 && isDuration(parts[0]):
		return nil, at(start, intervalExample, "the start comes before the duration")
	case len(parts) == 2:
		if err := r.start(start, start+len(parts[0])); err != nil {
			return nil, err
		}
		start += len(parts[0]) + 1
	}
	if !isDuration(text[start:]) {
		return r.until(start)
	}
	d, err := readDuration(text, start)
	if err != nil {
		return nil, err
	}
	return r.rule(d)
}

func isDuration(part string) bool { return strings.HasPrefix(strings.ToUpper(part), "P") }

// intervalReader reads the parts of an interval.
type intervalReader struct {
	text    string
	options Options
	count   int64
	first   *reading // the start that the text gives
}

// maxCount is how many firings an interval can be limited to.
const maxCount = 1_000_000_000

// repetitions reads "R", "R5" or "R-1".
func (r *intervalReader) repetitions(part string, pos int) error {
	number := part[1:]
	if number == "" || number == "-1" {
		return nil
	}
	if strings.Trim(number, "0123456789") != "" {
		return at(pos+1, intervalExample, "%q is not the number of firings, such as R5, or R for no end", clip(number))
	}
	switch r.count = count(number, maxCount); {
	case r.count == 0:
		return at(pos+1, intervalExample, "an interval fires at least once")
	case r.count > maxCount:
		return at(pos+1, intervalExample, "an interval fires at most %d times, or R without a number for no end", maxCount)
	}
	return nil
}

// start reads the instant between two places.
func (r *intervalReader) start(from, to int) error {
	m, err := (&stamp{text: r.text[:to], pos: from, example: intervalExample}).instant(r.options.Timezone)
	if err != nil {
		return err
	}
	r.first = &m
	return nil
}

// until reads the end of an interval of which the start is given.
func (r *intervalReader) until(pos int) (Rule, error) {
	if r.first == nil {
		return nil, at(pos, intervalExample, "%q is not a duration such as PT15M or P1D", clip(r.text[pos:]))
	}
	end, err := (&stamp{text: r.text, pos: pos, example: intervalExample}).instant(r.options.Timezone)
	if err != nil {
		return nil, err
	}
	d := duration{micros: end.micros - r.first.micros}
	switch {
	case d.micros < microsPerSecond:
		return nil, at(pos, intervalExample, "the end is not a second after the start")
	case d.micros > longest*daysPerYear*secondsPerDay*microsPerSecond:
		return nil, at(pos, intervalExample, "the end is more than %d years after the start", longest)
	}
	return r.rule(d)
}

// rule puts the parts together.
func (r *intervalReader) rule(d duration) (Rule, error) {
	first := r.first
	if first == nil {
		start, err := optionStart(r.options)
		if err != nil {
			return nil, err
		}
		if first, err = readingOf(start, r.options.Timezone); err != nil {
			return nil, err
		}
	}
	a := anchor{start: first.micros, count: r.count, written: r.first != nil}
	if d.months == 0 && d.days == 0 {
		if first.skipped && r.options.SkipGap {
			return nil, refuseInterval("the clock in %s skips the start", r.options.Timezone)
		}
		return &elapsed{anchor: a, zone: first.zone, step: d.micros}, nil
	}
	if first.fraction && a.written {
		return nil, refuseInterval("an interval of days or months starts on a whole second")
	}
	a.start -= floorMod(a.start, microsPerSecond)
	p := newPath(first.wall, d.months, d.days)
	if d.micros > 0 {
		return &mixed{anchor: a, path: p, zone: first.zone, step: d.micros}, nil
	}
	s := &stepped{anchor: a, path: p}
	s.wallClock = newWallClock(s, first.zone, false, r.options)
	s.begin = a.start / microsPerSecond // The wall time of the start may be that of another instant too.
	return s, nil
}

// optionStart returns the start that stands beside the text, in microseconds.
func optionStart(o Options) (int64, error) {
	if o.Start.IsZero() {
		return 0, refuseInterval("an interval needs a start: write one, or give one beside the schedule")
	}
	if y := o.Start.UTC().Year(); y < firstYear || y > lastInstantYear {
		return 0, refuseInterval("the start beside the schedule is outside the years %d to %d in UTC", firstYear, lastInstantYear)
	}
	return o.Start.UnixMicro(), nil
}

// readingOf returns an instant as if it were written with an offset.
func readingOf(micros int64, timezone string) (*reading, error) {
	if timezone == "" {
		timezone = "UTC"
	}
	z, err := loadZone(timezone)
	if err != nil {
		return nil, err
	}
	t := time.UnixMicro(micros).Unix()
	return &reading{micros: micros, zone: z, wall: t + z.periods[z.at(t)].offset, fraction: micros%microsPerSecond != 0}, nil
}

// duration is a length of time in the form of ISO 8601, such as P1DT12H.
type duration struct {
	months, days int64
	micros       int64
}

// longest is the longest duration of an interval, in years. Each part keeps to it.
const longest = 100

const daysPerYear = 366

// unit is one of the designators of a duration. They come in this order.
type unit struct {
	letter byte
	name   string
	time   bool  // stands after the T
	most   int64 // how many make the longest duration
	one    duration
}

var units = [...]unit{
	{'Y', "years", false, longest, duration{months: 12}},
	{'M', "months", false, longest * 12, duration{months: 1}},
	{'W', "weeks", false, longest * daysPerYear / 7, duration{days: 7}},
	{'D', "days", false, longest * daysPerYear, duration{days: 1}},
	{'H', "hours", true, longest * daysPerYear * 24, duration{micros: 60 * 60 * microsPerSecond}},
	{'M', "minutes", true, longest * daysPerYear * 24 * 60, duration{micros: 60 * microsPerSecond}},
	{'S', "seconds", true, longest * daysPerYear * secondsPerDay, duration{micros: microsPerSecond}},
}

// durationReader reads one from left to right, beginning with the P.
type durationReader struct {
	text     string
	pos      int
	time     bool // the T has been read
	parts    int  // how many numbers have been read
	last     int  // index of the unit of the latest number, or -1
	weeks    bool
	fraction bool // the latest number had one
	out      duration
}

// readDuration reads the text from pos to its end.
func readDuration(text string, pos int) (duration, error) {
	r := &durationReader{text: text, pos: pos + 1, last: -1}
	for r.pos < len(text) {
		if r.upper() == 'T' && !r.time {
			r.time = true
			r.pos++
			if r.pos == len(text) {
				return duration{}, r.fail(r.pos-1, "the time is missing after T")
			}
		}
		if err := r.part(); err != nil {
			return duration{}, err
		}
	}
	if r.parts == 0 {
		return duration{}, r.fail(pos, "the duration is empty")
	}
	if r.weeks && r.parts > 1 {
		return duration{}, r.fail(pos, "weeks stand alone in a duration")
	}
	d := r.out
	switch {
	case d == duration{}:
		return duration{}, r.fail(pos, "the duration is zero")
	case d.months == 0 && d.days == 0 && d.micros < microsPerSecond:
		return duration{}, r.fail(pos, "the duration is under a second")
	case d.months > longest*12 || d.days > longest*daysPerYear || d.micros > longest*daysPerYear*secondsPerDay*microsPerSecond:
		return duration{}, r.fail(pos, "the duration is longer than %d years", longest)
	}
	return d, nil
}

func (r *durationReader) fail(pos int, format string, args ...any) error {
	return at(pos, intervalExample, format, args...)
}

// upper returns the next character in upper case, or 0 at the end.
func (r *durationReader) upper() byte {
	if r.pos == len(r.text) {
		return 0
	}
	c := r.text[r.pos]
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// part reads a number and its designator.
func (r *durationReader) part() error {
	start := r.pos
	if c := r.upper(); c == '-' || c == '+' {
		return r.fail(start, "numbers have no sign")
	}
	whole := r.digits()
	if r.pos == start {
		return r.fail(start, "a number is missing before %q", clip(r.text[start:]))
	}
	fraction, places := "", int64(1)
	if c := r.upper(); c == '.' || c == ',' {
		r.pos++
		if fraction = r.digits(); fraction == "" || len(fraction) > 6 {
			return r.fail(start, "a fraction has 1 to 6 digits")
		}
		for range fraction {
			places *= 10
		}
	}
	index, err := r.unit(start)
	if err != nil {
		return err
	}
	u := &units[index]
	if r.fraction {
		return r.fail(start, "only the last number of a duration can have a fraction")
	}
	if fraction != "" && !u.time {
		return r.fail(start, "%s cannot have a fraction", u.name)
	}
	n := count(whole, u.most)
	if n > u.most {
		return r.fail(start, "the duration is longer than %d years", longest)
	}
	r.out.months += n * u.one.months
	r.out.days += n * u.one.days
	r.out.micros += n*u.one.micros + count(fraction, places)*(u.one.micros/places)
	r.last, r.fraction = index, fraction != ""
	r.weeks = r.weeks || u.letter == 'W'
	r.parts++
	return nil
}

// unit reads a designator that fits the place where it stands.
func (r *durationReader) unit(start int) (int, error) {
	letter := r.upper()
	if letter == 0 || letter == 'T' && !r.time {
		return 0, r.fail(start, "%q has no designator, such as M or D", clip(r.text[start:r.pos]))
	}
	elsewhere := -1
	for i, u := range units {
		if u.letter != letter {
			continue
		}
		if u.time != r.time {
			elsewhere = i
			continue
		}
		switch {
		case i == r.last:
			return 0, r.fail(start, "%s are given twice", u.name)
		case i < r.last:
			return 0, r.fail(start, "%s come before %s", u.name, units[r.last].name)
		}
		r.pos++
		return i, nil
	}
	switch {
	case elsewhere < 0:
		return 0, r.fail(r.pos, "there is no designator %q; they are Y, M, W and D, and after a T H, M and S", letter)
	case r.time:
		return 0, r.fail(r.pos, "%s stand before the T", units[elsewhere].name)
	}
	return 0, r.fail(r.pos, "%s stand after a T, as in PT1%c", units[elsewhere].name, letter)
}

func (r *durationReader) digits() string {
	start := r.pos
	for c := r.upper(); '0' <= c && c <= '9'; c = r.upper() {
		r.pos++
	}
	return r.text[start:r.pos]
}

// count reads digits, and stops a little over most.
func count(digits string, most int64) (n int64) {
	for _, c := range digits {
		n = min(n*10+int64(c-'0'), most+1)
	}
	return n
}

// parseEvery reads the words "@every 1h30m".
func parseEvery(words []word, z *zone, o Options) (Rule, error) {
	const example = "R/2026-03-01T09:00:00Z/PT90S"
	if len(words) == 1 {
		return nil, at(words[0].pos+len(words[0].text), example, "a duration such as 90s is missing after @every")
	}
	w := words[1]
	if len(words) > 2 {
		return nil, at(words[2].pos, example, "unexpected %q after %q", clip(words[2].text), clip(w.text))
	}
	d, err := time.ParseDuration(strings.ToLower(w.text))
	switch {
	case err != nil:
		return nil, at(w.pos, example, "%q is not a duration such as 90s or 1h30m", clip(w.text))
	case d < time.Second:
		return nil, at(w.pos, example, "the duration is under a second")
	case d%time.Microsecond != 0:
		return nil, at(w.pos, example, "the duration is finer than a microsecond")
	case d > longest*daysPerYear*secondsPerDay*time.Second:
		return nil, at(w.pos, example, "the duration is longer than %d years", longest)
	}
	start, err := optionStart(o)
	if err != nil {
		return nil, err
	}
	return &elapsed{anchor: anchor{start: start}, zone: z, step: d.Microseconds()}, nil
}
