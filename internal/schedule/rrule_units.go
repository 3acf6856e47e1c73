package schedule

// Rules of hours, minutes and seconds are units that repeat every so many seconds
// from DTSTART on, of which BYHOUR and so on and the dates leave some.

// nextInUnit is next for them.
func (p *pattern) nextInUnit(from, limit int64) int64 {
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
func (p *pattern) nextTime(second int) int {
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
func (p *pattern) nextUnit(from, limit int64) int64 {
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
		case p.within == nil:
			return from
		}
		if s := p.nextWithin(from - today*secondsPerDay); s >= 0 {
			return today*secondsPerDay + s
		}
		from = p.skipDays(today+1, last)
	}
	return never
}

// alignUnit returns when the first unit begins that does not begin before a
// second.
func (p *pattern) alignUnit(from int64) int64 {
	if rest := floorMod(from-p.origin, p.step); rest > 0 {
		return from + p.step - rest
	}
	return from
}

// nextWithin returns the first time of within that is a whole number of steps after
// the given one on the same day, or -1.
func (p *pattern) nextWithin(s int64) int64 {
	if p.residues != nil && !p.reaches(s%p.step) {
		return -1
	}
	for s < secondsPerDay {
		named := int64(p.within.next(int(s)))
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
func (p *pattern) skipDays(day, last int64) int64 {
	from := p.alignUnit(day * secondsPerDay)
	switch {
	case p.residues != nil:
		// Each day the first unit comes earlier by shift, or later by the rest of a step.
		shift := secondsPerDay % p.step
		first := from - day*secondsPerDay
		for day <= last && !p.reaches(first) {
			day++
			if first -= shift; first < 0 {
				first += p.step
			}
		}
		return day*secondsPerDay + first
	case p.step >= secondsPerDay:
		for from < (last+1)*secondsPerDay && !p.within.has(int(floorMod(from, secondsPerDay))) {
			from += p.step
		}
	}
	return from
}

// reach returns the residues of within; see there.
func (p *pattern) reach() []uint64 {
	if p.every == 1 || p.step >= secondsPerDay {
		return nil
	}
	residues := make([]uint64, p.every/64+1)
	for s := p.within.next(0); s >= 0; s = p.within.next(s + 1) {
		n := int64(s) % p.step / p.unit
		residues[n/64] |= 1 << (n % 64)
	}
	return residues
}

// reaches says whether a time of within is so many seconds after a multiple of
// step.
func (p *pattern) reaches(seconds int64) bool {
	n := seconds / p.unit
	return p.residues[n/64]>>(n%64)&1 != 0
}

// count fills counts, for a rule that reaches the times of within on some days.
func (p *pattern) count() {
	if p.residues == nil {
		return
	}
	p.counts = make([]int32, p.every)
	for s := p.within.next(0); s >= 0; s = p.within.next(s + 1) {
		p.counts[int64(s)%p.step/p.unit]++
	}
}

// unitsOn returns how many units within begin on a day that is a date, or -1 if
// that takes a look at each.
func (p *pattern) unitsOn(day int64) int64 {
	switch {
	case p.every == 1:
		return int64(p.within.len)
	case p.counts != nil:
		return int64(p.counts[(p.alignUnit(day*secondsPerDay)-day*secondsPerDay)/p.unit])
	}
	return -1
}
