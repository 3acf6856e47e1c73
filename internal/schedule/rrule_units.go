package schedule

import "slices"

// A rule of hours, minutes or seconds repeats a unit of that length at a fixed
// distance from DTSTART on. Its dates and unit times leave some of the units.

// skipUnits returns the first unit of the rule, from one of them on, on a day that may have
// unit times, until a day. The first unit of a day decides that, by its residue.
func (p *wallPattern) skipUnits(from, last int64) int64 {
	day, tried := floorDiv(from, secondsPerDay), int64(0) // days or units
	switch {
	case p.residues != nil:
		// Each day the first unit comes earlier by shift, or later by the rest of a step.
		shift := secondsPerDay % p.step / p.unit
		first := (from - day*secondsPerDay) / p.unit % p.interval
		for ; day <= last && !p.hasResidue(first); day++ {
			tried++
			if first -= shift; first < 0 {
				first += p.interval
			}
		}
		if tried > 0 {
			from = day*secondsPerDay + first*p.unit
		}
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
func (p *wallPattern) nextResidue(day, limit int64) (int64, int64) {
	for {
		p.budget.spend(1)
		if day = p.nextDate(day, limit); day == never {
			return never, 0
		}
		first := (align(day*secondsPerDay, p.origin, p.step) - day*secondsPerDay) / p.unit
		if p.hasResidue(first) {
			return day, first
		}
		day = floorDiv(p.skipUnits(align((day+1)*secondsPerDay, p.origin, p.step), limit), secondsPerDay)
	}
}

const tinySteps = 16 // iterations of the shortest loops that count as one step

// setResidues sets where units can be found at all: by how many units they are after a
// multiple of step.
func (p *wallPattern) setResidues() {
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
func (p *wallPattern) hasResidue(n int64) bool { return p.residues[n/64]>>(n%64)&1 != 0 }

// COUNT counts wall times: one that the clock skips counts if the rule fires for it,
// even if it fires once for several, and one that the clock shows twice counts as
// often as it fires. What an EXDATE removes has been counted.

// countEnd returns the instant at which the rule fires for the COUNT-th time, or the horizon.
func (r *rrule) countEnd() int64 {
	if r.residues != nil && r.wallPattern.setPos == nil {
		r.residueCounts = make([]int32, r.interval)
		for s := r.unitTimes.next(0); s >= 0; s = r.unitTimes.next(s + 1) {
			r.residueCounts[int64(s)%r.step/r.unit]++
		}
		r.wallPattern.budget.spend(int64(r.unitTimes.len+int(r.interval)) / tinySteps)
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
func (p *wallPattern) nthMatch(from, end, n int64) (wall, count int64) {
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
func (p *wallPattern) bisectMatches(from, end, n int64) int64 {
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
func (p *wallPattern) countMatches(from, end int64) (n int64) {
	p.budget.spend(2)
	first, last := floorDiv(from, secondsPerDay), floorDiv(end, secondsPerDay)
	switch {
	case from >= end || p.neverMatches:
		return 0
	case p.unit > 0 && p.unitTimes == nil && p.setPos == nil:
		if p.everyDay {
			return p.matchesBefore(end) - p.matchesBefore(from)
		}
		for day := p.nextDate(first, last); day != never; day = p.nextDate(day+1, last) {
			p.budget.spend(1)
			n += p.matchesBefore(min(end, (day+1)*secondsPerDay)) - p.matchesBefore(max(from, day*secondsPerDay))
		}
	case p.interval == 1 && p.setPos == nil:
		return p.countElements(from, end)
	case p.residueCounts != nil:
		for day, residue := p.nextResidue(first, last); day != never; day, residue = p.nextResidue(day+1, last) {
			today, tomorrow := day*secondsPerDay, (day+1)*secondsPerDay
			if from <= today && tomorrow <= end {
				n += int64(p.residueCounts[residue]) * int64(p.unitLen)
			} else {
				n += p.countInDay(max(from, today), min(end, tomorrow))
			}
		}
	case p.freq == daily && p.setPos == nil:
		n = p.countDays(first, last) * int64(p.times.len)
		if p.countDays(last, last+1) > 0 {
			n += int64(p.times.rank(int(end - last*secondsPerDay)))
		}
		if p.countDays(first, first+1) > 0 {
			n -= int64(p.times.rank(int(from - first*secondsPerDay)))
		}
	default:
		return p.countInPeriods(from, end)
	}
	return n
}

// countInPeriods is countMatches period by period.
func (p *wallPattern) countInPeriods(from, end int64) (n int64) {
	for {
		wall, begin, next := p.nextInPeriod(from, end-1)
		if wall == never {
			return n
		}
		if p.setPos == nil {
			n += p.countElements(wall, min(next, end))
		} else {
			total := int(p.countElements(begin, next))
			low, high := int(p.countElements(begin, max(begin, from))), int(p.countElements(begin, min(next, end)))
			p.budget.spend(2 + int64(len(p.setPos.back))/tinySteps)
			n += int64(p.setPos.rank(high, total) - p.setPos.rank(low, total))
		}
		from = next
	}
}

// countInDay counts the matches of a stretch of one date, with steps of less than a day.
func (p *wallPattern) countInDay(from, end int64) (n int64) {
	p.budget.spend((end - from) / p.step / tinySteps)
	today := from - floorMod(from, secondsPerDay)
	for unit := align(from-floorMod(from, p.unit), p.origin, p.step); unit < end; unit += p.step {
		if p.unitTimes.has(int(unit - today)) {
			n += p.unitMatchesBefore(end-unit) - p.unitMatchesBefore(max(0, from-unit))
		}
	}
	return n
}

// matchesBefore counts the matches from the origin to before a wall time, for a rule
// of units on every date.
func (p *wallPattern) matchesBefore(wall int64) int64 {
	steps := floorDiv(wall-p.origin, p.step)
	return steps*int64(p.unitLen) + p.unitMatchesBefore(wall-p.origin-steps*p.step)
}

// unitMatchesBefore counts the elements of a unit before a second of it.
func (p *wallPattern) unitMatchesBefore(second int64) int64 {
	if second >= p.unit {
		return int64(p.unitLen)
	}
	// All units that have any have the same.
	first := p.times.nth(0) / int(p.unit) * int(p.unit)
	return int64(p.times.rank(first + int(second)))
}

// countDays counts the days of a rule of every n-th day, from one to before another.
func (p *wallPattern) countDays(from, to int64) (n int64) {
	if p.everyDay {
		return max(0, floorDiv(to-1-p.origin, p.interval)-floorDiv(from-1-p.origin, p.interval))
	}
	for day := align(from, p.origin, p.interval); day < to; { // All days of a year at once.
		year, first := yearOf(day)
		dates, end := p.datesOf(year, first), first+int64(yearLength(isLeap(year)))
		p.budget.spend(2 + (end-day)/p.interval/tinySteps)
		for ; day < min(to, end); day += p.interval {
			if dates.has(int(day - first)) {
				n++
			}
		}
	}
	return n
}

// setPositions is BYSETPOS. Here elements of a period are counted from 0.
type setPositions struct {
	front []int // in order
	back  []int // in order, to be added to the number of elements
}

func newSetPositions(setPos []int) *setPositions {
	if setPos == nil {
		return nil
	}
	negative, _ := slices.BinarySearch(setPos, 0)
	p := &setPositions{back: setPos[:negative]}
	for _, n := range setPos[negative:] {
		p.front = append(p.front, n-1)
	}
	return p
}

// next returns the first chosen element from the n-th of total on, or -1. Nil chooses
// every element.
func (p *setPositions) next(n, total int) int {
	if p != nil {
		chosen := total
		if i, _ := slices.BinarySearch(p.front, n); i < len(p.front) {
			chosen = p.front[i]
		}
		if i, _ := slices.BinarySearch(p.back, n-total); i < len(p.back) {
			chosen = min(chosen, total+p.back[i])
		}
		n = chosen
	}
	if n >= total {
		return -1
	}
	return n
}

// selectsNone reports whether nothing is chosen from any set of up to most elements.
func (p *setPositions) selectsNone(most int) bool {
	return p != nil && (len(p.front) == 0 || p.front[0] >= most) && (len(p.back) == 0 || -p.back[len(p.back)-1] > most)
}

// rank returns how many of the first n of total elements are chosen.
func (p *setPositions) rank(n, total int) int {
	n = min(n, total)
	front, _ := slices.BinarySearch(p.front, n)
	first, _ := slices.BinarySearch(p.back, -total)
	last, _ := slices.BinarySearch(p.back, n-total)
	rank := front + last - first
	for _, b := range p.back[first:last] {
		if _, twice := slices.BinarySearch(p.front[:front], total+b); twice {
			rank--
		}
	}
	return rank
}
