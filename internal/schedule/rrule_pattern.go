package schedule

// pattern is the endless part of a rule: the wall times it names if nothing begins
// or ends it. Only its phase comes from DTSTART.
type pattern struct {
	freq     frequency
	every    int64
	dates    [4][7]daySet // by kind of year
	everyDay bool         // every day is a date
	origin   int64        // the number of a period of the rule; for HOURLY and finer, its first second
	times    timeSet      // in a day, or in a unit
	setPos   *positions   // what is chosen in a period, or nil
	empty    bool         // nothing is

	weekStart int64 // a day on which a week begins

	// For HOURLY and finer:
	unit     int64    // seconds in an hour, a minute or a second
	step     int64    // seconds from one unit of the rule to the next
	within   *timeSet // the beginnings of units that BYHOUR and so on leave, or nil
	residues []uint64 // bit n: a time of within is n units after a multiple of step; or nil
	counts   []int32  // how many times of within are; only while COUNT is worked out
}

// newPattern prepares a rule that begins at a wall time.
func newPattern(r *recurrence, start int64) pattern {
	day := floorDiv(start, secondsPerDay)
	second := int(start - day*secondsPerDay)
	year, month, date := dateOf(day)
	if r.weeks == nil && r.yearDays == nil && r.days == nil && r.weekdays == nil {
		r = r.completed(year, month, date, day)
	}
	p := pattern{freq: r.freq, every: r.every, dates: r.yearTable(), setPos: newPositions(r.setPos)}
	p.everyDay = allDays(&p.dates)
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
	switch r.freq {
	case yearly:
		p.origin = int64(year)
	case monthly:
		p.origin = int64(year)*12 + int64(month) - 1
	case weekly:
		p.origin = 0
	case daily:
		p.origin = day
	case hourly:
		p.unit, p.times = 3600, newTimeSet(1, minutes, seconds)
		minutes, seconds = 1, 1
	case minutely:
		p.unit, p.times = 60, newTimeSet(1, 1, seconds)
		seconds = 1
	case secondly:
		p.unit, p.times = 1, newTimeSet(1, 1, 1)
	}
	if r.freq < hourly {
		p.times = newTimeSet(hours, minutes, seconds)
		p.empty = r.freq == daily && p.setPos.none(p.times.len) || r.freq == weekly && p.setPos.none(len(r.weekdays)*p.times.len)
		return p
	}
	p.empty = p.setPos.none(p.times.len)
	p.origin = start - floorMod(start, p.unit)
	p.step = p.unit * p.every
	if r.limits() {
		within := newTimeSet(hours, minutes, seconds)
		p.within = &within
		p.residues = p.reach()
	}
	return p
}

// completed returns the rule with what it does not say about days, taken from a
// date.
func (r *recurrence) completed(year, month, date int, day int64) *recurrence {
	c := &recurrence{
		freq: r.freq, every: r.every, wkst: r.wkst, setPos: r.setPos,
		months: r.months, hours: r.hours, minutes: r.minutes, seconds: r.seconds,
	}
	switch {
	case r.freq == yearly && r.months == nil:
		c.months, c.days = []int{month}, []int{date}
	case r.freq == yearly, r.freq == monthly:
		c.days = []int{date}
	case r.freq == weekly:
		c.weekdays = []nthWeekday{{weekday: weekdayOf(day)}}
	}
	return c
}

// next returns the first wall time that is not before one and not after a limit,
// or never.
func (p *pattern) next(from, limit int64) (wall int64) {
	switch {
	case from > limit || p.empty:
		return never
	case p.unit > 0:
		wall = p.nextInUnit(from, limit)
	case p.setPos != nil:
		wall = p.nextChosen(from, limit)
	default:
		wall = p.nextOnDay(from, limit)
	}
	if wall > limit {
		return never
	}
	return wall
}

// has says whether a wall time is one of the pattern's.
func (p *pattern) has(wall int64) bool { return p.next(wall, wall) == wall }

// nextOnDay is next for rules of days and longer periods.
func (p *pattern) nextOnDay(from, limit int64) int64 {
	today, last := floorDiv(from, secondsPerDay), floorDiv(limit, secondsPerDay)
	day := p.nextDay(today, last)
	if day == today {
		if s := p.times.next(int(from - today*secondsPerDay)); s >= 0 {
			return today*secondsPerDay + int64(s)
		}
		day = p.nextDay(today+1, last)
	}
	if day == never {
		return never
	}
	return day*secondsPerDay + int64(p.times.next(0))
}

// nextChosen is nextOnDay with a choice of positions in each period.
func (p *pattern) nextChosen(from, limit int64) int64 {
	today, last := floorDiv(from, secondsPerDay), floorDiv(limit, secondsPerDay)
	for day := p.nextDay(today, last); day != never; {
		begin, end := p.period(day)
		n := 0
		if today >= begin {
			n = p.countDates(begin, today) * p.times.len
			if day == today {
				n += p.times.rank(int(from - today*secondsPerDay))
			}
		}
		if n = p.setPos.next(n, p.countDates(begin, end)*p.times.len); n >= 0 {
			day = p.nthDate(begin, n/p.times.len)
			return day*secondsPerDay + int64(p.times.nth(n%p.times.len))
		}
		day = p.nextDay(end, last)
	}
	return never
}
