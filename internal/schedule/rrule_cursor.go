package schedule

import (
	"math"
	"slices"
	"time"
)

// setCursor finds the occurrences of a set one after another. It asks no rule about a
// stretch of time twice, nor more than a day beyond what it finds, so that rules that
// fire rarely cost little beside one that fires often.
type setCursor struct {
	set    *rruleSet
	clocks [maxRRules + 1]struct {
		found int64 // the next instant; unknown unless it is after the last one asked for
		empty int64 // there is none until then
	}
	asked int // how often a rule was
}

func newSetCursor(r *rruleSet) (c setCursor) {
	c.set = r
	for i := range r.clocks {
		c.clocks[i].found, c.clocks[i].empty = math.MinInt64, math.MinInt64
	}
	return c
}

// next returns the first occurrence after an instant and not after the last, or never.
// The instant must not be before that of the call before.
func (c *setCursor) next(t, last int64) int64 {
	t = max(t, c.set.begin-1)
	for span := int64(secondsPerDay); t < last; {
		until := last
		if len(c.set.clocks) > 1 {
			until = min(t+span, last)
		}
		switch next := c.earliest(t, until); {
		case next > until:
			t, span = until, 4*span
		case c.set.excludes(next):
			t = next
		default:
			return next
		}
	}
	return never
}

// earliest returns the first instant after one and not after another of any rule or
// RDATE, or never.
func (c *setCursor) earliest(t, until int64) int64 {
	r, next := c.set, int64(never)
	if i, _ := slices.BinarySearch(r.rdateInstants, t+1); i < len(r.rdateInstants) && r.rdateInstants[i] <= until {
		next = r.rdateInstants[i]
	}
	for i, clock := range r.clocks {
		k := &c.clocks[i]
		if last := min(max(next, t+secondsPerDay), until); k.found <= t && k.empty < last {
			clock.budget.spend(1)
			c.asked++
			if at := clock.next(max(t, k.empty), last); at == never {
				k.empty = last
			} else {
				k.found = at
			}
		}
		if k.found > t && k.found <= until {
			next = min(next, k.found)
		}
	}
	return next
}

func (r *rruleSet) excludes(t int64) bool {
	_, removed := slices.BinarySearch(r.exdateInstants, t)
	return removed
}

// visitBetween counts the occurrences after an instant and before another, or says that
// there may be more.
func (r *rruleSet) visitBetween(from, end time.Time) (n int64, atLeast bool) {
	c := newSetCursor(r)
	last := min(end.Add(-1).Unix(), horizon-1)
	for at := c.next(from.Unix(), last); at != never; at = c.next(at, last) {
		if n == maxEnumerated || c.asked > maxAsked {
			return n, true
		}
		n++
	}
	return n, false
}

// nextUntil is Next for an occurrence before an end; without one it may return any that
// is not before the end, or the zero time.
func nextUntil(r Rule, after, end time.Time) time.Time {
	if set, ok := r.(*rruleSet); ok {
		c := newSetCursor(set)
		return instant(c.next(after.Unix(), min(end.Add(-1).Unix(), horizon)))
	}
	return r.Next(after)
}

// InOrder returns Next of a rule for a caller that asks for one occurrence after
// another, which costs less than asking for each of them alone. The function is not
// safe for concurrent use, and must not be asked for an earlier instant than before.
func InOrder(r Rule) func(after time.Time) time.Time {
	if set, ok := r.(*rruleSet); ok {
		c := newSetCursor(set)
		return func(after time.Time) time.Time { return instant(c.next(after.Unix(), horizon)) }
	}
	return r.Next
}
