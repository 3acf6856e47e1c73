package schedule

import "slices"

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
		p.budget.spend(1)
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
	if p.residues != nil && !p.hasResidue(s%p.step/p.unit) {
		return -1
	}
	for s < secondsPerDay {
		p.budget.spend(1)
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
	tried := int64(0) // days or units
	switch {
	case p.residues != nil:
		// Each day the first unit comes earlier by shift, or later by the rest of a step.
		shift := secondsPerDay % p.step / p.unit
		first := (from - day*secondsPerDay) / p.unit
		for ; day <= last && !p.hasResidue(first); day++ {
			tried++
			if first -= shift; first < 0 {
				first += p.interval
			}
		}
		from = day*secondsPerDay + first*p.unit
	case p.step >= secondsPerDay:
		shift, second := p.step%secondsPerDay, floorMod(from, secondsPerDay)
		for ; from < (last+1)*secondsPerDay && !p.unitTimes.has(int(second)); from += p.step {
			tried++
			if second += shift; second >= secondsPerDay {
				second -= secondsPerDay
			}
		}
	}
	p.budget.spend(tried / tinySteps)
	return from
}

// nextResidue returns the first date from a day on and not after a limit that has unit
// times, and the residue of its first unit, or never.
func (p *rrulePattern) nextResidue(day, limit int64) (int64, int64) {
	for {
		p.budget.spend(1)
		if day = p.nextDate(day, limit); day == never {
			return never, 0
		}
		first := (align(day*secondsPerDay, p.origin, p.step) - day*secondsPerDay) / p.unit
		if p.hasResidue(first) {
			return day, first
		}
		day = floorDiv(p.skipDays(day+1, limit), secondsPerDay)
	}
}

const tinySteps = 16 // iterations of the shortest loops that count as one step

// setResidues sets where units can be found at all: by how many units they are after a
// multiple of step.
func (p *rrulePattern) setResidues() {
	p.residues = make([]uint64, p.interval/64+1)
	left := p.interval
	for s := p.unitTimes.next(0); s >= 0 && left > 0; s = p.unitTimes.next(s + 1) {
		if n := int64(s) % p.step / p.unit; !p.hasResidue(n) {
			p.residues[n/64] |= 1 << (n % 64)
			left--
		}
	}
	p.budget.spend(int64(p.unitTimes.len) / tinySteps)
}

// hasResidue reports whether a unit time is so many units after a multiple of step.
func (p *rrulePattern) hasResidue(n int64) bool { return p.residues[n/64]>>(n%64)&1 != 0 }

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
		r.rrulePattern.budget.spend(int64(r.unitTimes.len+int(r.interval)) / tinySteps)
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
			skipped := r.gapTimes(i + 1)
			if left <= int64(len(skipped)) {
				// What else fires at the end of the gap comes after the last one, although it is
				// the same instant: an EXDATE may remove that one.
				r.ceiling = min(r.ceiling, skipped[left-1])
				return periods[i+1].start
			}
			left -= int64(len(skipped))
		}
		from = r.firstWall(i+1, periods[i+1].start)
	}
}

// nthMatch returns the n-th match from one wall time to before another, counted from
// 1, or never and how many there are. Its cost depends on how far away that is.
func (p *rrulePattern) nthMatch(from, end, n int64) (wall, count int64) {
	// After the first part all begin at midnight: whole days are easier to count.
	for next := from - floorMod(from, secondsPerDay) + secondsPerDay; from < end; next += countedDays * secondsPerDay {
		next = min(next, end)
		here := p.countMatches(from, next)
		if count+here >= n {
			return p.bisectMatches(from, next, n-count), n
		}
		from, count = next, count+here
	}
	return never, count
}

const countedDays = 400 // what nthMatch counts at once

// bisectMatches returns the n-th match from one wall time to before another, first by
// days and then by seconds.
func (p *rrulePattern) bisectMatches(from, end, n int64) int64 {
	// Less than n matches lie before from, whatever is added to it.
	for size := int64(512 * secondsPerDay); size > 0; size /= 2 {
		if from+size <= end {
			if m := p.countMatches(from, from+size); m < n {
				from, n = from+size, n-m
			}
		}
		if size == secondsPerDay {
			size = 1 << 17 // more than a day has
		}
	}
	return from
}

func (r *rrule) countWalls(from, end int64) int64 {
	return r.countMatches(max(from, r.floor), min(end, r.ceiling+1))
}

// countMatches counts the wall times from one to before another, mostly without visits.
func (p *rrulePattern) countMatches(from, end int64) (n int64) {
	p.budget.spend(2)
	first, last := floorDiv(from, secondsPerDay), floorDiv(end, secondsPerDay)
	switch {
	case from >= end || p.neverMatches:
		return 0
	case p.unit > 0 && p.unitTimes == nil && p.everyDay:
		return p.matchesBefore(end) - p.matchesBefore(from)
	case p.unit > 0 && p.unitTimes == nil:
		for day := p.nextDate(first, last); day != never; day = p.nextDate(day+1, last) {
			p.budget.spend(1)
			n += p.matchesBefore(min(end, (day+1)*secondsPerDay)) - p.matchesBefore(max(from, day*secondsPerDay))
		}
	case p.residueCounts != nil:
		for day, residue := p.nextResidue(first, last); day != never; day, residue = p.nextResidue(day+1, last) {
			today, tomorrow := day*secondsPerDay, (day+1)*secondsPerDay
			if from <= today && tomorrow <= end {
				n += int64(p.residueCounts[residue]) * p.unitMatchesBefore(p.unit)
			} else {
				n += p.countInDay(max(from, today), min(end, tomorrow))
			}
		}
	case p.unit > 0 && p.interval > 1:
		return p.countInUnits(from, end)
	case p.setPos != nil && p.freq < daily:
		return p.countChosen(from, end)
	default:
		n = p.countDays(first, last) * p.dayMatchesBefore(secondsPerDay)
		if p.countDays(last, last+1) > 0 {
			n += p.dayMatchesBefore(int(end - last*secondsPerDay))
		}
		if p.countDays(first, first+1) > 0 {
			n -= p.dayMatchesBefore(int(from - first*secondsPerDay))
		}
	}
	return n
}

// countInUnits is countMatches unit by unit.
func (p *rrulePattern) countInUnits(from, end int64) (n int64) {
	for unit := p.nextUnit(from-floorMod(from, p.unit), end-1); unit < end; unit = p.nextUnit(unit+p.unit, end-1) {
		n += p.matchesInUnit(unit, from, end)
	}
	return n
}

// countInDay is countInUnits for a stretch of one date, with steps of less than a day.
func (p *rrulePattern) countInDay(from, end int64) (n int64) {
	p.budget.spend((end - from) / p.step / tinySteps)
	today := from - floorMod(from, secondsPerDay)
	for unit := align(from-floorMod(from, p.unit), p.origin, p.step); unit < end; unit += p.step {
		if p.unitTimes.has(int(unit - today)) {
			n += p.matchesInUnit(unit, from, end)
		}
	}
	return n
}

// matchesInUnit counts the matches in a unit from one wall time to before another.
func (p *rrulePattern) matchesInUnit(unit, from, end int64) int64 {
	return p.unitMatchesBefore(end-unit) - p.unitMatchesBefore(max(0, from-unit))
}

// countChosen is countMatches period by period, for rules with BYSETPOS.
func (p *rrulePattern) countChosen(from, end int64) (n int64) {
	last := floorDiv(end-1, secondsPerDay)
	for day := p.nextDay(floorDiv(from, secondsPerDay), last); day != never; {
		begin, next := p.period(day)
		total := p.countDates(begin, next) * p.times.len
		low, high := 0, total
		if begin*secondsPerDay < from {
			low = p.elementsBefore(begin, from)
		}
		if next*secondsPerDay > end {
			high = p.elementsBefore(begin, end)
		}
		p.budget.spend(4 + int64(len(p.setPos.back))/tinySteps)
		n += int64(p.setPos.rank(high, total) - p.setPos.rank(low, total))
		day = p.nextDay(next, last)
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
	if p.setPos != nil {
		n, _ = slices.BinarySearch(p.chosen, n)
	}
	return int64(n)
}

func (p *rrulePattern) dayMatchesBefore(second int) int64 {
	if p.unit == 0 {
		n := p.times.rank(second)
		if p.setPos != nil {
			n, _ = slices.BinarySearch(p.chosen, n)
		}
		return int64(n)
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
	switch {
	case p.unit > 0 || p.interval == 1:
		return int64(p.countDates(from, to))
	case p.freq == daily && p.everyDay:
		return max(0, floorDiv(to-1-p.origin, p.interval)-floorDiv(from-1-p.origin, p.interval))
	}
	for from < to {
		p.budget.spend(2)
		begin, end := p.period(from)
		if begin >= to {
			break
		}
		if p.freq == daily { // All days of a year at once.
			year, first := yearOf(begin)
			dates := p.datesOf(year, first)
			end = first + int64(yearLength(isLeap(year)))
			for from = begin; from < min(to, end); from += p.interval {
				if dates.has(int(from - first)) {
					n++
				}
			}
			p.budget.spend((end - begin) / p.interval / tinySteps)
			continue
		}
		n += int64(p.countDates(max(from, begin), min(to, end)))
		from = end
	}
	return n
}
