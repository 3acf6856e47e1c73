package schedule

import (
	"slices"
	"time"
)

// Wall is what a clock on a wall shows, in seconds since it showed the beginning
// of 1970. It is not an instant: a clock may show it twice or never.
type Wall int64

// Time returns the wall time as if the clock stood in UTC.
func (w Wall) Time() time.Time { return time.Unix(int64(w), 0).UTC() }

// Repeat is what happened to a wall time that the clock shows twice.
type Repeat uint8

const (
	RepeatNone  Repeat = iota // the clock shows it once, or the rule fires again the second time
	RepeatOnly                // this is the first time, and the second will not fire
	RepeatAgain               // this is the second time
)

// Occurrence is an instant of a rule and what a clock change did to it.
type Occurrence struct {
	At time.Time

	// Moved are the wall times that the clock skipped and that fire here instead, in
	// order: the first 100 of MovedCount.
	Moved      []Wall
	MovedCount int64

	Repeat Repeat
}

const (
	maxMoved       = 100     // wall times in Occurrence.Moved
	maxOccurrences = 1000    // of Preview
	maxEnumerated  = 100_000 // occurrences that are counted one by one
	maxAsked       = 150_000 // how often the rules of a set are asked for them
	maxGaps        = 1060    // gaps that are listed at once: two a year, for all the years
)

// OccurrenceAt returns the occurrence at an instant that Rule.Next returned.
func OccurrenceAt(r Rule, at time.Time) Occurrence {
	o := Occurrence{At: at}
	t := at.Unix()
	if r, ok := r.(*oneOff); ok {
		if r.skipped {
			o.Moved, o.MovedCount = []Wall{Wall(r.wall)}, 1
		} else if other, _ := r.zone.otherInstant(t); r.local && other != never {
			o.Repeat = RepeatOnly
		}
		return o
	}
	c, ok := r.(clockRule)
	if !ok {
		return o
	}
	z := c.clock().zone
	if i := z.at(t); z.periods[i].start == t && !c.clock().skipGap {
		for _, wall := range c.gapTimes(i) {
			if o.MovedCount < maxMoved {
				o.Moved = append(o.Moved, Wall(wall))
			}
			o.MovedCount++
		}
	}
	switch other, later := z.otherInstant(t); {
	case other == never:
	case later && !firesAt(r, other):
		o.Repeat = RepeatOnly
	case !later && firesAt(r, other):
		o.Repeat = RepeatAgain
	}
	return o
}

func firesAt(r Rule, t int64) bool {
	return nextUntil(r, time.Unix(t-1, 0), time.Unix(t+1, 0)).Equal(time.Unix(t, 0))
}

// clockRule is a rule that changes of the clock affect.
type clockRule interface {
	clock() *wallClock

	// gapTimes lists the wall times in the gap at the beginning of the i-th period of
	// the zone that no later time covers, in order.
	gapTimes(i int) []int64

	// hasGapTimes reports whether there are any.
	hasGapTimes(i int) bool

	// namesWall reports whether the rule itself names the wall time of an instant.
	namesWall(wall, t int64) bool
}

// Gap is a gap of the wall clock with times of a rule that did not fire.
type Gap struct {
	At          time.Time // its end
	First, Last Wall
	Count       int64 // of the times from the first to the last
}

// SkippedGaps returns what a rule left out because of Options.SkipGap in the gaps that
// end after from and not after to.
func SkippedGaps(r Rule, from, to time.Time) []Gap {
	list, _ := skippedGaps(r, from, to, maxGaps)
	return list
}

// skippedGaps returns the first n of SkippedGaps, and the number of the others.
func skippedGaps(r Rule, from, to time.Time, n int) (list []Gap, more int) {
	c, ok := r.(clockRule)
	if !ok || !c.clock().skipGap {
		return nil, 0
	}
	z := c.clock().zone
	last := min(to.Unix(), horizon-1)
	for i := z.at(max(from.Unix(), firstInstant)) + 1; i < len(z.periods) && z.periods[i].start <= last && len(list)+more < maxGaps; i++ {
		if !c.hasGapTimes(i) {
			continue
		}
		if len(list) == n {
			more++
			continue
		}
		walls := c.gapTimes(i)
		list = append(list, Gap{instant(z.periods[i].start), Wall(walls[0]), Wall(walls[len(walls)-1]), int64(len(walls))})
	}
	return list, more
}

// Newest returns the newest n occurrences after from and not after end, oldest
// first, and the number of older ones after from. If atLeast is true there may be
// more. It searches backwards from the end, so its cost depends on n and not on how
// many occurrences a long outage missed. Most rules count the older ones without
// visiting them; those of others are counted up to 100,000, or less far if they are
// named by many rules at the same time.
func Newest(r Rule, from, end time.Time, n int) (newest []time.Time, skipped int64, atLeast bool) {
	if !from.Before(end) {
		return nil, 0, false
	}
	next := end.Add(1) // no occurrence from here back to end
	gap := time.Duration(0)
	for len(newest) < n {
		at := previousOccurrence(r, from, next, gap)
		if at.IsZero() {
			break
		}
		gap, next = next.Sub(at), at
		newest = append(newest, at)
	}
	slices.Reverse(newest)
	if len(newest) < n {
		return newest, 0, false
	}
	skipped, atLeast = countOccurrences(r, from, next)
	return newest, skipped, atLeast
}

// previousOccurrence returns the latest occurrence after from and before end, or the zero
// time. Gap is the expected distance to the end. It terminates even if a rule returns
// an instant that is not after the given one.
func previousOccurrence(r Rule, from, end time.Time, gap time.Duration) time.Time {
	var latest time.Time
	high := end // no occurrence from here on
	for back := max(gap, time.Second) + 1; latest.IsZero(); back *= 2 {
		if back <= 0 || back >= end.Sub(from) {
			if latest = nextUntil(r, from, end); !latest.After(from) || !latest.Before(end) {
				return time.Time{}
			}
			break
		}
		low := end.Add(-back)
		if at := nextUntil(r, low, end); at.After(low) && at.Before(end) {
			latest = at
		} else {
			high = low.Add(1)
		}
	}
	for {
		at := nextUntil(r, latest, end)
		if !at.After(latest) || !at.Before(end) {
			return latest
		}
		latest = at
		middle := latest.Add(high.Sub(latest) / 2)
		if at = nextUntil(r, middle, end); at.After(latest) && at.Before(end) {
			latest = at
		} else {
			high = middle.Add(1)
		}
	}
}

func countOccurrences(r Rule, from, end time.Time) (n int64, atLeast bool) {
	type counter interface {
		countBetween(from, end time.Time) (n int64, ok bool) // not ok if it has to visit them
	}
	if c, ok := r.(counter); ok {
		if n, ok := c.countBetween(from, end); ok {
			return n, false
		}
	}
	if set, ok := r.(*rruleSet); ok {
		return set.visitBetween(from, end)
	}
	for at := r.Next(from); !at.IsZero() && at.Before(end); at = r.Next(at) {
		if n == maxEnumerated {
			return n, true
		}
		n++
	}
	return n, false
}
