package schedule

// Rules of hours, minutes and seconds are units that repeat every so many seconds
// from DTSTART on, of which BYHOUR and so on and the dates leave some.

// nextInUnit is next for them.
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

// nextTime returns the first second in a unit that is not before the given one,
// or -1.
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
	for from = p.alignUnit(from); from <= limit; {
		today := floorDiv(from, secondsPerDay)
		day := p.nextDate(today, last)
		switch {
		case day == never:
			return never
		case day > today:
			from = p.alignUnit(day * secondsPerDay)
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

// alignUnit returns when the first unit begins that does not begin before a
// second.
func (p *rrulePattern) alignUnit(from int64) int64 {
	if rest := floorMod(from-p.origin, p.step); rest > 0 {
		return from + p.step - rest
	}
	return from
}

// nextUnitTime returns the first time of within that is a whole number of steps after
// the given one on the same day, or -1.
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
// on which within may be met. It tells by the time of the first unit of a day,
// without looking at the others.
func (p *rrulePattern) skipDays(day, last int64) int64 {
	from := p.alignUnit(day * secondsPerDay)
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

// newResidues returns the residues of within; see there.
func (p *rrulePattern) newResidues() []uint64 {
	if p.interval == 1 || p.step >= secondsPerDay {
		return nil
	}
	residues := make([]uint64, p.interval/64+1)
	for s := p.unitTimes.next(0); s >= 0; s = p.unitTimes.next(s + 1) {
		n := int64(s) % p.step / p.unit
		residues[n/64] |= 1 << (n % 64)
	}
	return residues
}

// hasResidue says whether a time of within is so many seconds after a multiple of
// step.
func (p *rrulePattern) hasResidue(seconds int64) bool {
	n := seconds / p.unit
	return p.residues[n/64]>>(n%64)&1 != 0
}

// countResidues fills counts, for a rule that reaches the times of within on some days.
func (p *rrulePattern) countResidues() {
	if p.residues == nil {
		return
	}
	p.residueCounts = make([]int32, p.interval)
	for s := p.unitTimes.next(0); s >= 0; s = p.unitTimes.next(s + 1) {
		p.residueCounts[int64(s)%p.step/p.unit]++
	}
}

// unitsOnDay returns how many units within begin on a day that is a date, or -1 if
// that takes a look at each.
func (p *rrulePattern) unitsOnDay(day int64) int64 {
	switch {
	case p.interval == 1:
		return int64(p.unitTimes.len)
	case p.residueCounts != nil:
		return int64(p.residueCounts[(p.alignUnit(day*secondsPerDay)-day*secondsPerDay)/p.unit])
	}
	return -1
}

// COUNT counts what the rule names on the clock: a wall time that the clock skips
// counts if it is made up, also if several are made up at once, and one that the
// clock shows twice counts as often as it fires. What an EXDATE takes away has
// been counted.

// countEnd returns the instant at which the rule has fired COUNT times, or the
// horizon.
func (r *rrule) countEnd() int64 {
	r.rrulePattern.countResidues()
	defer func() { r.rrulePattern.residueCounts = nil }()
	periods := r.zone.periods
	i := r.zone.at(r.begin - 1)
	from := r.firstWall(i, r.begin)
	left := r.count
	for ; ; i++ {
		end := horizon + secondsPerDay
		if i+1 < len(periods) {
			end = periods[i+1].start + periods[i].offset
		}
		var wall int64
		if wall, left = r.skipMatches(max(from, r.floor), end, left); left == 0 {
			return min(wall-periods[i].offset, horizon)
		}
		if i+1 == len(periods) || periods[i+1].start >= horizon {
			return horizon
		}
		if !r.skipGap {
			if left -= min(left, int64(len(r.gapTimes(i+1)))); left == 0 {
				return periods[i+1].start
			}
		}
		from = r.firstWall(i+1, periods[i+1].start)
	}
}

// skipMatches passes over so many matches from one wall time to another. It returns the
// last of them, or how many are left.
func (r *rrule) skipMatches(from, to, left int64) (int64, int64) {
	whole := floorMod(from, secondsPerDay) == 0 // from is the beginning of a day
	wall := r.nextMatch(from, to-1)
	for wall != never {
		tomorrow := (floorDiv(wall, secondsPerDay) + 1) * secondsPerDay
		if n, resume := r.skipWholeDays(wall, to, left-1, whole); n > 0 {
			left -= n
			wall = r.nextMatch(resume, to-1)
			whole = floorMod(resume, secondsPerDay) == 0
			continue
		}
		if left--; left == 0 {
			return wall, 0
		}
		wall = r.nextMatch(wall+1, to-1)
		whole = wall >= tomorrow
	}
	return never, left
}

// skipWholeDays counts the matches from one on that need no look at each, before a wall
// time and up to a limit, and returns where to go on. Whole says that the match is
// the first of its day.
func (p *rrulePattern) skipWholeDays(wall, to, limit int64, whole bool) (n, resume int64) {
	day := floorDiv(wall, secondsPerDay)
	tomorrow := (day + 1) * secondsPerDay
	switch {
	case p.unit > 0 && p.unitTimes == nil:
		begin := wall - floorMod(wall, p.unit)
		if wall-begin != int64(p.nextTime(0)) {
			return 0, 0
		}
		if !p.everyDay {
			to = min(to, tomorrow)
		}
		times := int64(p.setPos.len(p.times.len))
		n = min((to-p.unit-begin+p.step)/p.step, limit/times)
		return n * times, begin + n*p.step
	case !whole || tomorrow > to || p.unit == 0 && p.setPos != nil:
		return 0, 0
	case p.unit > 0:
		n = p.unitsOnDay(day) * int64(p.setPos.len(p.times.len))
	case p.interval == 1:
		last, times := floorDiv(to, secondsPerDay), int64(p.times.len)
		dates := int64(p.countDates(day, last))
		if n = min(dates, limit/times); n < dates {
			last = p.nthDate(day, int(n))
		}
		return n * times, last * secondsPerDay
	default:
		n = int64(p.times.len)
	}
	if n > limit {
		return 0, 0
	}
	return n, tomorrow
}

// countWalls counts the wall times from one to before another.
func (r *rrule) countWalls(from, end int64) (n int64) {
	from, end = max(from, r.floor), min(end, r.ceiling+1)
	if from >= end {
		return 0
	}
	if r.unit > 0 && r.unitTimes == nil && r.setPos == nil {
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
	_, left := r.skipMatches(from, end, many)
	return n + many - left
}

// countUnits counts the wall times from one to before another of the same day, for
// a rule of hours or less that takes all of a unit's times.
func (p *rrulePattern) countUnits(from, end int64) int64 {
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
