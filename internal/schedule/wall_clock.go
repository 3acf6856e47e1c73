package schedule

import (
	"slices"
	"time"
)

// wallClockRule is a rule of wall times: a cron expression, an RRULE or an interval
// of days and months. It knows nothing of zones; wallClock turns its wall times into
// instants.
type wallClockRule interface {
	// nextWall returns the first wall time from the given one on, or never. If that is
	// after the limit it may return anything after the limit instead.
	nextWall(from, limit int64) int64

	// hasWall reports whether the rule names a wall time, regardless of where it
	// begins and ends.
	hasWall(wall int64) bool

	// countWalls counts the wall times from one to before another.
	countWalls(from, end int64) int64
}

// wallClock turns the wall times of a rule into instants. It alone decides what a
// change of the clock does to them: see the package comment. The rule embeds it.
type wallClock struct {
	rule         wallClockRule
	zone         *zone
	intervalLike bool  // rather than fixed-time
	repeat       bool  // fires at both instants of a wall time that the clock shows twice
	skipGap      bool  // does not fire for wall times that the clock skips
	begin        int64 // no instant before it
	last         int64 // no instant after it

	excluded []int64 // wall times in gaps that an EXDATE removes, in order

	// periodicity is the length of the unit that a rule with BYSETPOS repeats. Other
	// rules match each of second, minute, hour and day separately; theirs is 0.
	periodicity int64

	budget *budget // nil unless the rule is being read
}

func (c *wallClock) clock() *wallClock { return c }

func newWallClock(rule wallClockRule, z *zone, intervalLike bool, o Options) wallClock {
	return wallClock{
		rule: rule, zone: z, intervalLike: intervalLike,
		repeat:  o.Overlap == DSTBoth || o.Overlap == DSTAuto && intervalLike,
		skipGap: o.SkipGap,
		begin:   firstInstant + 1, last: horizon - 1,
	}
}

func (c *wallClock) Next(after time.Time) time.Time { return instant(c.next(after.Unix(), horizon)) }

// next returns the first instant after the given one, and not after the last, at which
// a rule fires, or never. It walks the periods of the zone. In each it looks for the
// next matching wall time; between two periods it handles what the clock change skips
// or repeats.
func (c *wallClock) next(t, last int64) int64 {
	t, last = max(t, c.begin-1), min(last, c.last)
	if t >= last {
		return never
	}
	limit := last + maxOffset
	periods := c.zone.periods
	i := c.zone.at(t)
	from := c.firstWall(i, t+1)
	wall := c.rule.nextWall(from, limit) // always the first match that is not before from
	for ; i+1 < len(periods) && periods[i+1].start <= last; i++ {
		c.budget.spend(1)
		next := &periods[i+1]
		end := next.start + periods[i].offset // of the wall times of this period
		if wall < end {
			break
		}
		first := next.start + next.offset // of the wall times of the next one
		if wall < first && c.firesAfterGap(wall, first, first-end) {
			return next.start
		}
		if wall < first || first < from && c.repeats(i+1) {
			from, wall = first, c.rule.nextWall(first, limit)
		}
	}
	if wall == never || wall-periods[i].offset > last {
		return never
	}
	return wall - periods[i].offset
}

// repeats reports whether the wall times fire that the clock shows for the second
// time when a period begins: the rule fires both times, or it began after the first.
func (c *wallClock) repeats(i int) bool {
	return c.repeat || c.begin >= c.zone.periods[i].start
}

// firstWall returns the first wall time that fires in a period, from an instant of it on.
func (c *wallClock) firstWall(i int, t int64) int64 {
	periods := c.zone.periods
	wall := t + periods[i].offset
	if i > 0 && !c.repeats(i) {
		wall = max(wall, periods[i].start+periods[i-1].offset)
	}
	return wall
}

// firesAfterGap reports whether the rule fires at the end of a gap in which wall is
// the first matching time. Shift is how far the clock jumps.
func (c *wallClock) firesAfterGap(wall, end, shift int64) bool {
	return !c.skipGap && c.hasUncovered(wall, end, shift)
}

// hasUncovered reports whether there is a wall time from a matching one on, in a gap with
// that end, that no later time covers and no EXDATE removes.
func (c *wallClock) hasUncovered(wall, end, shift int64) bool {
	for wall = c.nextUncovered(wall, end, shift); wall < end; wall = c.nextUncovered(c.rule.nextWall(wall+1, end), end, shift) {
		c.budget.spend(1)
		if _, excluded := slices.BinarySearch(c.excluded, wall); !excluded {
			return true
		}
	}
	return false
}

// nextUncovered returns the first wall time from a matching one on that no later
// time covers, in a gap with that end, or something not before end. A time of an
// interval-like rule is covered if the time that lies a shift later matches too.
func (c *wallClock) nextUncovered(wall, end, shift int64) int64 {
	if !c.intervalLike {
		return wall
	}
	step := c.coverStep(shift)
	for wall < end && c.rule.hasWall(wall+shift) {
		c.budget.spend(1)
		wall = c.rule.nextWall(wall-floorMod(wall, step)+step, end)
	}
	return wall
}

// coverStep returns the length of stretches of which a shift covers all wall times
// or none. A jump of whole minutes leaves the seconds alone, so all times of one
// minute are covered or none is; the same holds for hours and days.
func (c *wallClock) coverStep(shift int64) int64 {
	step, lengths := int64(1), []int64{60, 60 * 60, secondsPerDay}
	if c.periodicity > 0 {
		lengths = []int64{c.periodicity}
	}
	for _, s := range lengths {
		if shift%s == 0 {
			step = s
		}
	}
	return step
}

// hasGapTimes is that of clockRule.
func (c *wallClock) hasGapTimes(i int) bool {
	from, end := c.zone.gap(i)
	return from < end && c.hasUncovered(c.rule.nextWall(from, end), end, end-from)
}

// gapTimes is that of clockRule.
func (c *wallClock) gapTimes(i int) (walls []int64) {
	from, end := c.zone.gap(i)
	if from >= end {
		return nil
	}
	for wall := c.nextUncovered(c.rule.nextWall(from, end), end, end-from); wall < end; wall = c.nextUncovered(c.rule.nextWall(wall+1, end), end, end-from) {
		c.budget.spend(1)
		walls = append(walls, wall)
	}
	return walls
}

// namesWall is that of clockRule.
func (c *wallClock) namesWall(wall, _ int64) bool { return c.rule.nextWall(wall, wall) == wall }

func (c *wallClock) countBetween(from, end time.Time) (n int64, ok bool) {
	first, last := max(from.Unix()+1, c.begin), min(end.Add(-1).Unix(), c.last)
	if first > last {
		return 0, true
	}
	periods := c.zone.periods
	for i := c.zone.at(first); i < len(periods) && periods[i].start <= last; i++ {
		if gap, end := c.zone.gap(i); gap < end && first <= periods[i].start && c.rule.nextWall(end, end) != end {
			if wall := c.rule.nextWall(gap, end); wall < end && c.firesAfterGap(wall, end, end-gap) {
				n++
			}
		}
		low, high := c.firstWall(i, max(first, periods[i].start)), last+1+periods[i].offset
		if i+1 < len(periods) {
			high = min(high, periods[i+1].start+periods[i].offset)
		}
		if low < high {
			n += c.rule.countWalls(low, high)
		}
	}
	return n, true
}

// wallList is a rule of wall times that are given one by one, in order.
type wallList []int64

func (l wallList) nextWall(from, _ int64) int64 {
	if i, _ := slices.BinarySearch(l, from); i < len(l) {
		return l[i]
	}
	return never
}

func (l wallList) hasWall(wall int64) bool { return l.nextWall(wall, wall) == wall }

func (l wallList) countWalls(from, end int64) int64 {
	first, _ := slices.BinarySearch(l, from)
	last, _ := slices.BinarySearch(l, end)
	return int64(last - first)
}
