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
	s := &stepped{anchor: a, path: p, skipped: first.skipped && r.options.SkipGap}
	s.follow(first.zone, r.options)
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
