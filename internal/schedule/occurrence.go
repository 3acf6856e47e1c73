package schedule

import (
	"iter"
	"time"
)

// Wall is what a clock on a wall shows, in seconds since it showed the beginning
// of 1970. It is not an instant: a clock may show it twice or never.
type Wall int64

// Time returns the wall time as if the clock stood in UTC.
func (w Wall) Time() time.Time { return time.Unix(int64(w), 0).UTC() }

// String returns a wall time such as "2026-03-08T02:30:00".
func (w Wall) String() string { return w.Time().Format("2006-01-02T15:04:05") }

// MarshalText writes a wall time like String.
func (w Wall) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// Repeat says what became of a wall time that the clock shows twice.
type Repeat uint8

const (
	RepeatNone  Repeat = iota // the clock shows it once, or the rule fires again the second time
	RepeatOnly                // this is the first time, and the second will not fire
	RepeatAgain               // this is the second time
)

func (r Repeat) String() string { return [...]string{"", "only", "again"}[r%3] }

// Occurrence is an instant of a rule and what a change of the clock has to do with
// it.
type Occurrence struct {
	At time.Time

	// Moved are the wall times that the clock skipped and that fire here instead, in
	// order: the first 100 of MovedCount.
	Moved      []Wall
	MovedCount int64

	Repeat Repeat
}

// maxMoved is how many moved wall times an occurrence lists.
const maxMoved = 100

// maxOccurrences is how many occurrences are listed at once.
const maxOccurrences = 1000

// Occurrences returns the next n occurrences of a rule after an instant, at most
// 1000.
func Occurrences(r Rule, after time.Time, n int) []Occurrence {
	var list []Occurrence
	for range min(n, maxOccurrences) {
		if after = r.Next(after); after.IsZero() {
			break
		}
		list = append(list, OccurrenceAt(r, after))
	}
	return list
}

// OccurrenceAt returns what a change of the clock has to do with an instant that
// the rule named.
func OccurrenceAt(r Rule, at time.Time) Occurrence {
	o := Occurrence{At: at}
	switch r := r.(type) {
	case *once:
		if r.skipped {
			o.Moved, o.MovedCount = []Wall{Wall(r.wall)}, 1
		} else if again, _ := r.zone.repeats(at.Unix()); r.local && again {
			o.Repeat = RepeatOnly
		}
	case waller:
		r.onClock().note(r, &o)
	}
	return o
}

// note says what a change of the clock did.
func (c *civil) note(w waller, o *Occurrence) {
	t := o.At.Unix()
	i := c.zone.at(t)
	if c.zone.periods[i].start == t && !c.skipGap {
		for wall := range c.lost(w, i) {
			if o.MovedCount < maxMoved {
				o.Moved = append(o.Moved, Wall(wall))
			}
			o.MovedCount++
		}
	}
	wall := t + c.zone.periods[i].offset
	switch again, before := c.zone.repeats(t); {
	case w.nextWall(wall) != wall:
	case again && !c.repeat:
		o.Repeat = RepeatOnly
	case before && c.repeat:
		o.Repeat = RepeatAgain
	}
}

// repeats reports whether the clock will show what it shows at an instant again,
// and whether it has shown it before.
func (z *zone) repeats(t int64) (again, before bool) {
	i := z.at(t)
	wall := t + z.periods[i].offset
	if i+1 < len(z.periods) {
		next := z.periods[i+1]
		again = wall >= next.start+next.offset
	}
	return again, i > 0 && wall < z.periods[i].start+z.periods[i-1].offset
}

// lost lists the wall times of a rule that the clock skips at the beginning of a
// period and that nothing covers.
func (c *civil) lost(w waller, i int) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		if i == 0 {
			return
		}
		p := c.zone.periods[i]
		from, end := p.start+c.zone.periods[i-1].offset, p.start+p.offset
		if from >= end {
			return
		}
		shift := end - from
		for wall := c.nextLost(w, from, end, shift); wall < end; wall = c.nextLost(w, wall+1, end, shift) {
			if !yield(wall) {
				return
			}
		}
	}
}

// Gap is a stretch of wall times that the clock skipped, with times of a rule in
// it that did not fire.
type Gap struct {
	At          time.Time // its end
	First, Last Wall
	Count       int64 // how many times of the rule, from the first to the last
}

// maxGaps is how many gaps are listed at once: two a year, for all the years.
const maxGaps = 1060

// Skipped returns what a rule left out because of Options.SkipGap in the gaps that
// end after from and not after to.
func Skipped(r Rule, from, to time.Time) []Gap {
	w, ok := r.(waller)
	if !ok || !w.onClock().skipGap {
		return nil
	}
	c := w.onClock()
	var list []Gap
	for i := c.zone.at(max(from.Unix(), firstInstant)) + 1; i < len(c.zone.periods) && len(list) < maxGaps; i++ {
		start := c.zone.periods[i].start
		if start > to.Unix() || start >= horizon {
			break
		}
		if g := c.gap(w, i); g.Count > 0 {
			list = append(list, g)
		}
	}
	return list
}

// gap sums up the lost times at the beginning of a period.
func (c *civil) gap(w waller, i int) Gap {
	g := Gap{At: time.Unix(c.zone.periods[i].start, 0).UTC()}
	for wall := range c.lost(w, i) {
		if g.Count++; g.Count == 1 {
			g.First = Wall(wall)
		}
		g.Last = Wall(wall)
	}
	return g
}
