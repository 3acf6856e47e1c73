package schedule

import "time"

// maxCounted is how many occurrences are counted one by one.
const maxCounted = 100_000

// counter is a rule that counts its occurrences after one instant and before
// another without visiting them.
type counter interface {
	between(from, end time.Time) int64
}

// Newest returns the newest n occurrences after from and not after end, oldest
// first, and how many older ones there are after from. If atLeast is true there
// may be more. It looks back from the end, so that its cost depends on n and not
// on how many occurrences a long outage missed; those of most rules are counted
// all the same, others up to 100,000.
func Newest(r Rule, from, end time.Time, n int) (newest []time.Time, skipped int64, atLeast bool) {
	if !from.Before(end) {
		return nil, 0, false
	}
	next := end.Add(1) // no occurrence from here back to end
	gap := time.Duration(0)
	for len(newest) < n {
		at := previous(r, from, next, gap)
		if at.IsZero() {
			break
		}
		gap, next = next.Sub(at), at
		newest = append(newest, at)
	}
	for i, j := 0, len(newest)-1; i < j; i, j = i+1, j-1 {
		newest[i], newest[j] = newest[j], newest[i]
	}
	if len(newest) < n {
		return newest, 0, false
	}
	skipped, atLeast = number(r, from, next)
	return newest, skipped, atLeast
}

// previous returns the latest occurrence after from and before end, or the zero
// time. It expects it about so far before the end as gap says. It comes to an end
// also with a rule that names something that is not after the given instant.
func previous(r Rule, from, end time.Time, gap time.Duration) time.Time {
	var latest time.Time
	high := end // no occurrence from here on
	for back := max(gap, time.Second) + 1; latest.IsZero(); back *= 2 {
		if back <= 0 || back >= end.Sub(from) {
			if latest = r.Next(from); !latest.After(from) || !latest.Before(end) {
				return time.Time{}
			}
			break
		}
		low := end.Add(-back)
		if at := r.Next(low); at.After(low) && at.Before(end) {
			latest = at
		} else {
			high = low.Add(1)
		}
	}
	for {
		at := r.Next(latest)
		if !at.After(latest) || !at.Before(end) {
			return latest
		}
		latest = at
		middle := latest.Add(high.Sub(latest) / 2)
		if at = r.Next(middle); at.After(latest) && at.Before(end) {
			latest = at
		} else {
			high = middle.Add(1)
		}
	}
}

// number counts the occurrences after from and before end.
func number(r Rule, from, end time.Time) (n int64, atLeast bool) {
	switch r := r.(type) {
	case counter:
		return r.between(from, end), false
	case *calendarRule:
		if n, exact := r.between(from, end); exact {
			return n, false
		}
	}
	for at := r.Next(from); !at.IsZero() && at.Before(end); at = r.Next(at) {
		if n == maxCounted {
			return n, true
		}
		n++
	}
	return n, false
}
