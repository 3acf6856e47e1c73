package schedule

import "time"

// between counts the occurrences of a rule as Next would find them. Only the
// occurrences of a set of one rule are not looked at one by one.
func (r *calendarRule) between(from, end time.Time) (n int64, exact bool) {
	rule := r.rules[0]
	if len(r.rules) > 1 || len(r.added) > 0 || rule.countsSlowly() {
		return 0, false
	}
	first, last := max(from.Unix()+1, r.begin), min(end.Add(-1).Unix(), rule.last, horizon-1)
	if first > last {
		return 0, true
	}
	n = rule.between(first, last)
	for i, t := range r.removed {
		if t >= first && t <= last && (i == 0 || r.removed[i-1] != t) && rule.next(t-1) == t {
			n--
		}
	}
	return n, true
}

// between counts the instants from one to another as next would find them.
func (r *recurrence) between(first, last int64) (n int64) {
	periods := r.zone.periods
	for i := r.zone.at(first); i < len(periods) && periods[i].start <= last; i++ {
		low, high := max(first, periods[i].start)+periods[i].offset, last+1+periods[i].offset
		if i+1 < len(periods) {
			high = min(high, periods[i+1].start+periods[i].offset)
		}
		n += r.countWalls(r.enter(i, low), high)
		if begin, end := r.zone.gap(i); first <= periods[i].start && begin < end && r.nextWall(end) != end {
			if wall := r.nextWall(begin); wall < end && r.nextLost(wall, end, end-begin) < end {
				n++
			}
		}
	}
	return n
}

// countWalls counts the wall times from one to before another.
func (r *recurrence) countWalls(from, end int64) (n int64) {
	from, end = max(from, r.floor), min(end, r.ceiling+1)
	if from >= end {
		return 0
	}
	if r.unit > 0 && r.within == nil && r.setPos == nil {
		// What is left of the first day need not be looked at one by one.
		tomorrow := (floorDiv(from, secondsPerDay) + 1) * secondsPerDay
		n = r.countUnits(from, min(end, tomorrow))
		if from = tomorrow; from >= end {
			return n
		}
		today := floorDiv(end, secondsPerDay) * secondsPerDay
		n += r.countUnits(today, end)
		end = today
	}
	const many = 1 << 62
	_, left := r.skip(from, end, many)
	return n + many - left
}

// countUnits counts the wall times from one to before another of the same day, for
// a rule of hours or less that takes all of a unit's times.
func (p *pattern) countUnits(from, end int64) int64 {
	day := floorDiv(from, secondsPerDay)
	first := p.alignUnit(from - p.unit + 1)
	if first >= end || p.nextDate(day, day) != day {
		return 0
	}
	n := (end-first-1)/p.step + 1
	last := first + (n-1)*p.step
	n *= int64(p.times.len)
	if first < from {
		n -= int64(p.times.rank(int(from - first)))
	}
	if last+p.unit > end {
		n -= int64(p.times.len - p.times.rank(int(end-last)))
	}
	return n
}
