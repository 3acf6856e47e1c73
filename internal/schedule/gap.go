package schedule

import "time"

// CloseTimes returns the first two occurrences of a rule in a row with less time between them
// than the least; zero if there are none among the next 1000 from starts to ends, both
// inclusive. A zero bound is none.
func CloseTimes(r Rule, after, starts, ends time.Time, least time.Duration) (first, second time.Time) {
	if after.Before(starts) {
		after = starts.Add(-1)
	}
	next := InOrder(r)
	first = next(after)
	for range maxOccurrences {
		second = next(first)
		if first.IsZero() || second.IsZero() || !ends.IsZero() && second.After(ends) {
			break
		}
		if second.Sub(first) < least {
			return first, second
		}
		first = second
	}
	return time.Time{}, time.Time{}
}
