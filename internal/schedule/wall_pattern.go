package schedule

// wallPattern is the wall times of a cron expression, or of an RRULE without its bounds:
// only its phase depends on DTSTART.
//
// A date is a day that matches all day parts of the rule, and an element a time of day of
// the rule on a date. The rule names the elements that lie in one of its periods, with
// INTERVAL=2 in every second one, or those of them that BYSETPOS chooses.
type wallPattern struct {
	freq         frequency
	interval     int64
	dates        yearTable
	years        *bitset       // of a cron expression, from 1970 on; nil means every year
	everyDay     bool          // every day is a date; a cron expression then has no table
	times        timeSet       // of day
	origin       int64         // the number of a period of the rule; for HOURLY and finer, its first second
	setPos       *setPositions // what BYSETPOS chooses in a period, or nil
	neverMatches bool          // it chooses nothing

	weekStart int64 // a day on which a week begins

	budget *budget // nil unless the rule is being read

	// For HOURLY and finer:
	unit          int64    // seconds in an hour, a minute or a second
	step          int64    // seconds from one unit of the rule to the next
	unitTimes     *timeSet // the starts of the units that BYHOUR, BYMINUTE and BYSECOND allow; nil for all
	unitLen       int      // elements in a unit
	residues      []uint64 // bit n: a unit time is n units after a multiple of step; or nil
	residueCounts []int32  // how many unit times are; only while COUNT is computed
}

func newWallPattern(r *rrule, start int64, b *budget) wallPattern {
	day := floorDiv(start, secondsPerDay)
	second := int(start - day*secondsPerDay)
	year, month, _ := dateOf(day)
	r = r.withStartDate(start)
	p := wallPattern{freq: r.freq, interval: r.interval, dates: r.yearTable(), setPos: newSetPositions(r.setPos), budget: b}
	p.everyDay = true
	for row := range p.dates {
		for weekday := range p.dates[row] {
			p.everyDay = p.everyDay && p.dates[row][weekday].len() == yearLength(row == 0)
		}
	}
	p.weekStart = day - floorMod(int64(weekdayOf(day)-r.wkst), 7)
	choose := func(list []int, n int, expanded bool) uint64 {
		switch {
		case list != nil:
			return bitsOf(list)
		case expanded:
			return 1 << n
		}
		return 1<<60 - 1
	}
	hours := choose(r.hours, second/3600, r.freq < hourly) & (1<<24 - 1)
	minutes := choose(r.minutes, second/60%60, r.freq < minutely)
	seconds := choose(r.seconds, second%60, r.freq < secondly)
	if p.setPos != nil && r.freq >= daily {
		hours, minutes, seconds = p.chooseTimes(hours, minutes, seconds)
	}
	p.times = newTimeSet(hours, minutes, seconds)
	units := p.times // the units of a day, by their starts
	switch r.freq {
	case yearly:
		p.origin = int64(year)
	case monthly:
		p.origin = int64(year)*12 + int64(month) - 1
	case daily:
		p.origin = day
	case hourly:
		p.unit, units = 3600, newTimeSet(hours, 1, 1)
	case minutely:
		p.unit, units = 60, newTimeSet(hours, minutes, 1)
	case secondly:
		p.unit = 1
	}
	if r.freq < daily {
		p.neverMatches = p.setPos.selectsNone(p.mostDates(len(r.weekdays)) * p.times.len)
	}
	if p.unit > 0 {
		p.unitLen = p.times.len / units.len
		p.origin = start - floorMod(start, p.unit)
		p.step = p.unit * p.interval
		if r.limitsTimeOfDay() {
			p.unitTimes = &units
		}
		if p.unitTimes != nil && p.interval > 1 && p.step < secondsPerDay {
			p.setResidues()
		}
	}
	return p
}

// chooseTimes applies BYSETPOS to the times of a rule of days or less, whose periods all
// have the same ones. It leaves them as they are if what it chooses is not every hour
// with every minute with every second of three sets.
func (p *wallPattern) chooseTimes(hours, minutes, seconds uint64) (_, _, _ uint64) {
	sets := [3]uint64{hours, minutes, seconds}
	for i := range p.freq - daily {
		sets[i] = 1
	}
	period, n := newTimeSet(sets[0], sets[1], sets[2]), 0
	var chosen [3]uint64
	for i := p.setPos.next(0, period.len); i >= 0; i = p.setPos.next(i+1, period.len) {
		t := period.nth(i)
		chosen[0], chosen[1], chosen[2] = chosen[0]|1<<(t/3600), chosen[1]|1<<(t/60%60), chosen[2]|1<<(t%60)
		n++
	}
	p.neverMatches = n == 0
	if newTimeSet(chosen[0], chosen[1], chosen[2]).len != n || n == 0 {
		return hours, minutes, seconds
	}
	p.setPos = nil
	switch p.freq {
	case daily:
		return chosen[0], chosen[1], chosen[2]
	case hourly:
		return hours, chosen[1], chosen[2]
	case minutely:
		return hours, minutes, chosen[2]
	}
	return hours, minutes, seconds
}

// withStartDate returns the rule with the day parts that it takes from DTSTART if it
// has none itself.
func (r *rrule) withStartDate(start int64) *rrule {
	if r.weeks != nil || r.yearDays != nil || r.days != nil || r.weekdays != nil {
		return r
	}
	day := floorDiv(start, secondsPerDay)
	_, month, date := dateOf(day)
	c := *r
	switch {
	case r.freq == yearly && r.months == nil:
		c.months, c.days = []int{month}, []int{date}
	case r.freq == yearly, r.freq == monthly:
		c.days = []int{date}
	case r.freq == weekly:
		c.weekdays = []nthWeekday{{weekday: weekdayOf(day)}}
	}
	return &c
}

// nextMatch returns the first wall time from one on and not after a limit, or never.
func (p *wallPattern) nextMatch(from, limit int64) int64 {
	for from <= limit && !p.neverMatches {
		wall, begin, end := p.nextInPeriod(from, limit)
		if p.setPos != nil && wall != never {
			p.budget.spend(2)
			n := p.setPos.next(int(p.countElements(begin, max(begin, from))), int(p.countElements(begin, end)))
			if n < 0 {
				from = end
				continue
			}
			wall = p.nthElement(begin, n)
		}
		if wall > limit {
			return never
		}
		return wall
	}
	return never
}

func (p *wallPattern) hasWall(wall int64) bool { return p.nextMatch(wall, wall) == wall }

// nextInPeriod returns the first element from a wall time on and not after a limit that
// lies in a period of the rule, and the period unless nothing depends on it, or never.
func (p *wallPattern) nextInPeriod(from, limit int64) (wall, begin, end int64) {
	for from <= limit {
		wall = p.nextElement(from, limit)
		if wall == never || p.interval == 1 && p.setPos == nil {
			return wall, 0, 0
		}
		p.budget.spend(1)
		if wall < begin || wall >= end { // The element need not be in the period that was found last.
			begin, end = p.period(wall)
		}
		if begin <= wall {
			return wall, begin, end
		}
		from = p.skip(begin, limit)
	}
	return never, 0, 0
}

// nextElement returns the first element from a wall time on, unless that is on a day after
// a limit, or never.
func (p *wallPattern) nextElement(from, limit int64) int64 {
	today, last := floorDiv(from, secondsPerDay), floorDiv(limit, secondsPerDay)
	day := p.nextDate(today, last)
	if day == today {
		if s := p.times.next(int(from - today*secondsPerDay)); s >= 0 {
			return today*secondsPerDay + int64(s)
		}
		day = p.nextDate(today+1, last)
	}
	if day == never {
		return never
	}
	return day*secondsPerDay + int64(p.times.next(0))
}

// countElements counts the elements from a wall time to before another.
func (p *wallPattern) countElements(from, end int64) int64 {
	if from >= end {
		return 0
	}
	first, last := floorDiv(from, secondsPerDay), floorDiv(end, secondsPerDay)
	n := int64(p.countDates(first, last)) * int64(p.times.len)
	if rest := end - last*secondsPerDay; rest > 0 && p.nextDate(last, last) == last {
		n += int64(p.times.rank(int(rest)))
	}
	if rest := from - first*secondsPerDay; rest > 0 && p.nextDate(first, first) == first {
		n -= int64(p.times.rank(int(rest)))
	}
	return n
}

// nthElement returns the n-th element of a period, counted from 0.
func (p *wallPattern) nthElement(begin int64, n int) int64 {
	day := floorDiv(begin, secondsPerDay)
	n += p.times.rank(int(begin - day*secondsPerDay)) // Only a unit begins within a day, which is a date.
	return p.nthDate(day, n/p.times.len)*secondsPerDay + int64(p.times.nth(n%p.times.len))
}

// yearOf returns the year of a day and the day of its 1 January.
func yearOf(day int64) (year int, first int64) {
	year, _, _ = dateOf(day)
	return year, dayNumber(year, 1, 1)
}

func (p *wallPattern) datesOf(year int, first int64) *daySet {
	return &p.dates[yearRow(year)][weekdayOf(first)]
}

// nextDate returns the first date from a day on and not after a limit, or never.
func (p *wallPattern) nextDate(day, limit int64) int64 {
	if day > limit {
		return never
	}
	if p.everyDay {
		return day
	}
	year, first := yearOf(day)
	for n := int(day - first); first <= limit; n = 0 {
		p.budget.spend(1)
		if p.years != nil && !p.years.has(year-firstYear) {
			next := p.years.next(year - firstYear)
			if next < 0 {
				return never
			}
			year, first = firstYear+next, dayNumber(firstYear+next, 1, 1)
			continue
		}
		if n = p.datesOf(year, first).next(n); n >= 0 {
			if day = first + int64(n); day > limit {
				return never
			}
			return day
		}
		first += int64(yearLength(isLeap(year)))
		year++
	}
	return never
}

// countDates returns how many dates there are from one day to another.
func (p *wallPattern) countDates(from, to int64) (n int) {
	if p.everyDay {
		return int(max(to-from, 0))
	}
	year, first := yearOf(from)
	for from < to {
		p.budget.spend(1)
		next := first + int64(yearLength(isLeap(year)))
		if p.years == nil || p.years.has(year-firstYear) {
			dates := p.datesOf(year, first)
			n += dates.rank(int(min(to, next)-first)) - dates.rank(int(from-first))
		}
		from, first, year = next, next, year+1
	}
	return n
}

// nthDate returns the n-th date from a day on, counted from 0.
func (p *wallPattern) nthDate(from int64, n int) int64 {
	year, first := yearOf(from)
	n += p.datesOf(year, first).rank(int(from - first))
	for {
		dates := p.datesOf(year, first)
		length := yearLength(isLeap(year))
		here := dates.rank(length)
		if n < here {
			return first + int64(dates.nth(n))
		}
		n -= here
		first += int64(length)
		year++
	}
}

// skip returns a wall time not after the next match from the beginning of a period on, and
// mostly on its day: it passes over the periods of a day or less that have no elements.
func (p *wallPattern) skip(begin, limit int64) int64 {
	switch day, last := floorDiv(begin, secondsPerDay), floorDiv(limit, secondsPerDay); {
	case p.unitTimes != nil:
		return p.skipUnits(begin, last)
	case p.freq != daily || p.interval == 1:
		return begin
	default:
		if day = p.nextDayOfYears(day, last); day == never {
			return never
		}
		return day * secondsPerDay
	}
}

// nextDayOfYears returns the first date of a rule of every n-th day, from a day of the
// rule on and not after a limit, or never. It goes year by year.
func (p *wallPattern) nextDayOfYears(day, limit int64) int64 {
	for day <= limit {
		year, first := yearOf(day)
		dates, next := p.datesOf(year, first), first+int64(yearLength(isLeap(year)))
		p.budget.spend(1 + (next-day)/p.interval/tinySteps)
		for ; day < next && day <= limit; day += p.interval {
			if dates.has(int(day - first)) {
				return day
			}
		}
	}
	return never
}

// period returns the period of the rule that a wall time lies in, or else the next one, by
// its first second and the one after its last.
func (p *wallPattern) period(wall int64) (begin, end int64) {
	if p.unit > 0 {
		begin = align(wall-floorMod(wall, p.unit), p.origin, p.step)
		return begin, begin + p.unit
	}
	begin, end = p.periodOfDay(floorDiv(wall, secondsPerDay))
	if begin == never {
		return never, never
	}
	return begin * secondsPerDay, end * secondsPerDay
}

// periodOfDay is period by days, for rules of days and longer periods.
func (p *wallPattern) periodOfDay(day int64) (begin, end int64) {
	switch p.freq {
	case yearly:
		year, _, _ := dateOf(day)
		year = int(align(int64(year), p.origin, p.interval))
		if year > lastYear {
			return never, never
		}
		return dayNumber(year, 1, 1), dayNumber(year+1, 1, 1)
	case monthly:
		year, month, _ := dateOf(day)
		n := align(int64(year)*12+int64(month)-1, p.origin, p.interval)
		if n >= (lastYear+1)*12 {
			return never, never
		}
		year, month = int(n/12), int(n%12)+1
		begin = dayNumber(year, month, 1)
		return begin, begin + int64(monthLength(year, month))
	case weekly:
		begin = align(floorDiv(day-p.weekStart, 7), p.origin, p.interval)*7 + p.weekStart
		return begin, begin + 7
	}
	begin = align(day, p.origin, p.interval)
	return begin, begin + 1
}

// align returns the first number that is not before the given one and a whole number
// of steps away from an origin.
func align(n, origin, step int64) int64 {
	if rest := floorMod(n-origin, step); rest > 0 {
		return n + step - rest
	}
	return n
}
