package schedule

import (
	"slices"
	"time"
)

// Gap is a stretch of wall times that the clock skipped, with times of a rule in
// it that did not fire.
type Gap struct {
	At          time.Time // its end
	First, Last Wall
	Count       int64 // how many times of the rule there are from the first to the last
}

// maxGaps is how many gaps are listed at once: two a year, for all the years.
const maxGaps = 1060

// Skipped returns what a rule left out because of Options.SkipGap in the gaps that
// end after from and not after to.
func Skipped(r Rule, from, to time.Time) []Gap {
	z, skipGap := clockOf(r)
	if z == nil || !skipGap {
		return nil
	}
	var list []Gap
	last := min(to.Unix(), horizon-1)
	for i := z.at(max(from.Unix(), firstInstant)) + 1; i < len(z.periods) && z.periods[i].start <= last && len(list) < maxGaps; i++ {
		if walls := lost(r, i); len(walls) > 0 {
			list = append(list, gapOf(z, i, walls))
		}
	}
	return list
}

func gapOf(z *zone, i int, walls []int64) Gap {
	at := time.Unix(z.periods[i].start, 0).UTC()
	return Gap{At: at, First: Wall(walls[0]), Last: Wall(walls[len(walls)-1]), Count: int64(len(walls))}
}

// lost lists the wall times of a rule that the clock skips at the beginning of the
// i-th period and that nothing covers, in order.
func lost(r Rule, i int) (walls []int64) {
	switch r := r.(type) {
	case waller:
		return lostOf(r, i)
	case *calendarRule:
		start := r.zone.periods[i].start
		for _, rule := range r.rules {
			if start <= rule.last {
				walls = append(walls, lostOf(rule, i)...)
			}
		}
		for _, d := range r.rdates {
			if t, skipped := r.zone.resolve(d.at); !d.exact && skipped && t == start && d.at >= r.start {
				walls = append(walls, d.at)
			}
		}
		slices.Sort(walls)
		walls = slices.DeleteFunc(slices.Compact(walls), func(wall int64) bool {
			_, removed := slices.BinarySearch(r.lost, wall)
			return removed
		})
	}
	return walls
}

func lostOf(w waller, i int) (walls []int64) {
	c := w.onClock()
	from, end := c.zone.gap(i)
	if from >= end {
		return nil
	}
	for wall := c.nextLost(w, from, end, end-from); wall < end; wall = c.nextLost(w, wall+1, end, end-from) {
		walls = append(walls, wall)
	}
	return walls
}

// gap returns the wall times that the clock skips at the beginning of a period:
// from the first to before the second. Elsewhere the second is not after the
// first; then the clock repeats what lies between them, or nothing.
func (z *zone) gap(i int) (from, end int64) {
	if i == 0 {
		return 0, 0
	}
	p := z.periods[i]
	return p.start + z.periods[i-1].offset, p.start + p.offset
}
