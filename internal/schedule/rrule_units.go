package schedule

import "math/bits"

// A rule of hours, minutes or seconds repeats a unit of that length at a fixed
// distance from DTSTART on. Its dates and unit times leave some of the units.

// nextInUnit is nextMatch for these rules.
func (p *rrulePattern) nextInUnit(from, limit int64) int64 {
	begin := from - floorMod(from, p.unit)
	unit := p.nextUnit(begin, limit)
	if unit == begin {
		if s := p.nextTime(int(from - begin)); s >= 0 {
			return begin + int64(s)
		}
		unit = p.nextUnit(begin+p.unit, limit)
	}
	if s := p.nextTime(0); unit != never && s >= 0 {
		return unit + int64(s)
	}
	return never
}

// nextTime returns the first second in a unit from the given one on, or -1.
func (p *rrulePattern) nextTime(second int) int {
	if p.setPos == nil {
		return p.times.next(second)
	}
	n := p.setPos.next(p.times.rank(second), p.times.len)
	if n < 0 {
		return -1
	}
	return p.times.nth(n)
}

// nextUnit returns the first unit of the rule that does not begin before a second
// and not after a limit, or never.
func (p *rrulePattern) nextUnit(from, limit int64) int64 {
	last := floorDiv(limit, secondsPerDay)
	for from = align(from, p.origin, p.step); from <= limit; {
		today := floorDiv(from, secondsPerDay)
		day := p.nextDate(today, last)
		switch {
		case day == never:
			return never
		case day > today:
			from = align(day*secondsPerDay, p.origin, p.step)
			continue
		case p.unitTimes == nil:
			return from
		}
		if s := p.nextUnitTime(from - today*secondsPerDay); s >= 0 {
			return today*secondsPerDay + s
		}
		from = p.skipDays(today+1, last)
	}
	return never
}

// nextUnitTime returns the first unit time at whole steps from a second of a day, or -1.
func (p *rrulePattern) nextUnitTime(s int64) int64 {
	if p.residues != nil && !p.hasResidue(s%p.step) {
		return -1
	}
	for s < secondsPerDay {
		named := int64(p.unitTimes.next(int(s)))
		if named <= s {
			return named
		}
		s += (named - s + p.step - 1) / p.step * p.step
	}
	return -1
}

// skipDays returns the first unit of the rule from a day on that begins on a day
// that may have unit times. The first unit of a day decides that, by its residue.
func (p *rrulePattern) skipDays(day, last int64) int64 {
	from := align(day*secondsPerDay, p.origin, p.step)
	switch {
	case p.residues != nil:
		// Each day the first unit comes earlier by shift, or later by the rest of a step.
		shift := secondsPerDay % p.step
		first := from - day*secondsPerDay
		for day <= last && !p.hasResidue(first) {
			day++
			if first -= shift; first < 0 {
				first += p.step
			}
		}
		return day*secondsPerDay + first
	case p.step >= secondsPerDay:
		for from < (last+1)*secondsPerDay && !p.unitTimes.has(int(floorMod(from, secondsPerDay))) {
			from += p.step
		}
	}
	return from
}

// hasResidue reports whether a unit time is so many seconds after a multiple of step.
func (p *rrulePattern) hasResidue(seconds int64) bool {
	n := seconds / p.unit
	return p.residues[n/64]>>(n%64)&1 != 0
}

// COUNT counts wall times: one that the clock skips counts if the rule fires for it,
// even if it fires once for several, and one that the clock shows twice counts as
// often as it fires. What an EXDATE removes has been counted.

// countEnd returns the instant at which the rule fires for the COUNT-th time, or the horizon.
func (r *rrule) countEnd() int64 {
	if r.residues != nil {
		r.residueCounts = make([]int32, r.interval)
		for s := r.unitTimes.next(0); s >= 0; s = r.unitTimes.next(s + 1) {
			r.residueCounts[int64(s)%r.step/r.unit]++
		}
		defer func() { r.residueCounts = nil }()
	}
	periods := r.zone.periods
	i := r.zone.at(r.begin - 1)
	from := r.firstWall(i, r.begin)
	left := r.count
	for ; ; i++ {
		end := horizon + secondsPerDay
		if i+1 < len(periods) {
			end = periods[i+1].start + periods[i].offset
		}
		wall, n := r.nthMatch(max(from, r.floor), end, left)
		if wall != never {
			return min(wall-periods[i].offset, horizon)
		}
		if i+1 == len(periods) || periods[i+1].start >= horizon {
			return horizon
		}
		left -= n
		if !r.skipGap {
			if left -= min(left, int64(len(r.gapTimes(i+1)))); left == 0 {
				return periods[i+1].start
			}
		}
		from = r.firstWall(i+1, periods[i+1].start)
	}
}

// nthMatch returns the n-th match from one wall time to before another, counted from
// 1, or never and how many there are.
func (r *rrule) nthMatch(from, end, n int64) (wall, count int64) {
	if r.needsEnumeration() && r.residueCounts == nil {
		for wall = r.nextMatch(from, end-1); wall != never; wall = r.nextMatch(wall+1, end-1) {
			if count++; count == n {
				break
			}
		}
		return wall, count
	}
	if count = r.countMatches(from, end); count < n {
		return never, count
	}
	// Less than n matches lie before from, whatever is added to it.
	left := n
	for size := int64(1) << bits.Len64(uint64(end-from)); size > 0; size /= 2 {
		if from+size > end {
			continue
		}
		if m := r.countMatches(from, from+size); m < left {
			from, left = from+size, left-m
		}
	}
	return from, n
}

func (r *rrule) countWalls(from, end int64) int64 {
	return r.countMatches(max(from, r.floor), min(end, r.ceiling+1))
}

// countMatches counts the wall times from one to before another, mostly without visits.
func (p *rrulePattern) countMatches(from, end int64) (n int64) {
	first, last := floorDiv(from, secondsPerDay), floorDiv(end, secondsPerDay)
	switch {
	case from >= end || p.neverMatches:
		return 0
	case p.unit > 0 && p.unitTimes == nil && p.everyDay:
		return p.matchesBefore(end) - p.matchesBefore(from)
	case p.unit > 0 && p.unitTimes == nil:
		for day := p.nextDate(first, last); day != never; day = p.nextDate(day+1, last) {
			n += p.matchesBefore(min(end, (day+1)*secondsPerDay)) - p.matchesBefore(max(from, day*secondsPerDay))
		}
	case p.residueCounts != nil:
		for day := p.nextDate(first, last); day != never; day = p.nextDate(day+1, last) {
			today, tomorrow := day*secondsPerDay, (day+1)*secondsPerDay
			if from <= today && tomorrow <= end {
				n += int64(p.residueCounts[(align(today, p.origin, p.step)-today)/p.unit]) * p.unitMatchesBefore(p.unit)
			} else {
				n += p.enumerate(max(from, today), min(end, tomorrow))
			}
		}
	case p.unit > 0 && p.interval == 1 || p.unit == 0 && p.setPos == nil:
		n = p.countDays(first, last) * p.dayMatchesBefore(secondsPerDay)
		if p.countDays(last, last+1) > 0 {
			n += p.dayMatchesBefore(int(end - last*secondsPerDay))
		}
		if p.countDays(first, first+1) > 0 {
			n -= p.dayMatchesBefore(int(from - first*secondsPerDay))
		}
	default:
		return p.enumerate(from, end)
	}
	return n
}

func (p *rrulePattern) enumerate(from, end int64) (n int64) {
	for wall := p.nextMatch(from, end-1); wall != never; wall = p.nextMatch(wall+1, end-1) {
		n++
	}
	return n
}

// matchesBefore counts the matches from the origin to before a wall time, for a rule
// of units on every date.
func (p *rrulePattern) matchesBefore(wall int64) int64 {
	steps := floorDiv(wall-p.origin, p.step)
	return steps*p.unitMatchesBefore(p.unit) + p.unitMatchesBefore(wall-p.origin-steps*p.step)
}

func (p *rrulePattern) unitMatchesBefore(second int64) int64 {
	n := p.times.len
	if second < p.unit {
		n = p.times.rank(int(second))
	}
	return int64(p.setPos.rank(n, p.times.len))
}

func (p *rrulePattern) dayMatchesBefore(second int) int64 {
	if p.unit == 0 {
		return int64(p.times.rank(second))
	}
	rest := second % int(p.unit)
	n := int64(p.unitTimes.rank(second-rest)) * p.unitMatchesBefore(p.unit)
	if rest > 0 && p.unitTimes.has(second-rest) {
		n += p.unitMatchesBefore(int64(rest))
	}
	return n
}

// countDays counts the days from one to before another that may have matches.
func (p *rrulePattern) countDays(from, to int64) (n int64) {
	if p.unit > 0 || p.interval == 1 {
		return int64(p.countDates(from, to))
	}
	for day := p.nextDay(from, to-1); day != never; day = p.nextDay(day+1, to-1) {
		n++
	}
	return n
}
