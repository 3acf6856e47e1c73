package schedule

import "slices"

// yearKind is all that the days of a year can depend on: its length and, for the
// numbers of the weeks at its ends, the lengths of its neighbours.
type yearKind struct {
	weekday  int // of 1 January
	leap     bool
	previous bool // the year before is a leap year
	next     bool // the year after is one
}

// yearRow numbers the lengths of a year and its neighbours.
func yearRow(year int) int {
	switch {
	case isLeap(year):
		return 0
	case isLeap(year - 1):
		return 2
	case isLeap(year + 1):
		return 3
	}
	return 1
}

// yearTable has the dates of every kind of year, by yearRow and the weekday of 1 January.
type yearTable [4]*[7]daySet

func (r *rrule) yearTable() (table yearTable) {
	for row := range table {
		if row > 1 && r.weeks == nil {
			table[row] = table[1]
			continue
		}
		table[row] = new([7]daySet)
		for weekday := range 7 {
			table[row][weekday] = r.daysOf(yearKind{weekday, row == 0, row == 2, row == 3})
		}
	}
	return table
}

// mostDates returns how many dates a period of the rule has at most. A week has as many
// as there are weekdays.
func (p *wallPattern) mostDates(weekdays int) (most int) {
	if p.freq == weekly {
		return weekdays
	}
	for row := range p.dates {
		for weekday := range p.dates[row] {
			dates, first := &p.dates[row][weekday], 0
			for month := 1; month <= 12 && p.freq == monthly; month++ {
				end := first + yearMonthLength(row == 0, month)
				most = max(most, dates.rank(end)-dates.rank(first))
				first = end
			}
			if p.freq == yearly {
				most = max(most, dates.len())
			}
		}
	}
	return most
}

func (r *rrule) daysOf(k yearKind) daySet {
	set := r.byMonth(k)
	if r.yearDays != nil {
		var named daySet
		named.addNumbers(r.yearDays, 0, yearLength(k.leap))
		set.intersect(named)
	}
	if r.weeks != nil {
		set.intersect(r.byWeek(k))
	}
	if r.weekdays != nil {
		set.intersect(r.byWeekday(k))
	}
	return set
}

// addNumbers adds days of a stretch of days by their numbers, which count from 1 on, or
// from its end if they are negative.
func (s *daySet) addNumbers(numbers []int, first, length int) {
	for _, n := range numbers {
		if n < 0 {
			n += length + 1
		}
		if n >= 1 && n <= length {
			s.add(first + n - 1)
		}
	}
}

// byMonth returns the days that BYMONTH and BYMONTHDAY leave.
func (r *rrule) byMonth(k yearKind) (set daySet) {
	first := 0
	for month := 1; month <= 12; month++ {
		length := yearMonthLength(k.leap, month)
		switch {
		case r.months != nil && !slices.Contains(r.months, month):
		case r.days == nil:
			for day := range length {
				set.add(first + day)
			}
		default:
			set.addNumbers(r.days, first, length)
		}
		first += length
	}
	return set
}

func yearMonthLength(leap bool, month int) int {
	if leap {
		return monthLength(2000, month)
	}
	return monthLength(2001, month)
}

// byWeekday returns the days that BYDAY names. Its numbers count in the month if
// the rule names months, and in the year otherwise.
func (r *rrule) byWeekday(k yearKind) (set daySet) {
	add := func(d nthWeekday, from, length int) {
		first := from + int(floorMod(int64(d.weekday-k.weekday-from), 7))
		count := (from+length-1-first)/7 + 1
		switch {
		case d.n == 0:
			for i := range count {
				set.add(first + 7*i)
			}
		case d.n > 0 && d.n <= count:
			set.add(first + 7*(d.n-1))
		case d.n < 0 && -d.n <= count:
			set.add(first + 7*(count+d.n))
		}
	}
	for _, d := range r.weekdays {
		if d.n == 0 || r.freq == yearly && r.months == nil {
			add(d, 0, yearLength(k.leap))
			continue
		}
		for month, first := 1, 0; month <= 12; month++ {
			length := yearMonthLength(k.leap, month)
			add(d, first, length)
			first += length
		}
	}
	return set
}

// byWeek returns the days in the weeks that BYWEEKNO names. The first week of a
// year is the first with at least four days in it; the days at both ends of a
// year may belong to a week of its neighbours.
func (r *rrule) byWeek(k yearKind) (set daySet) {
	// The days on which the first weeks begin of the years before, here and on.
	var firsts [4]int
	begin := -yearLength(k.previous)
	for i, leap := range [...]bool{k.previous, k.leap, k.next, false} {
		days := int(floorMod(int64(r.wkst-k.weekday-begin), 7)) // until the next week begins
		if days > 3 {
			days -= 7
		}
		firsts[i] = begin + days
		begin += yearLength(leap)
	}
	var named, fromEnd uint64 // bit n for week n, and for -n
	for _, n := range r.weeks {
		if n > 0 {
			named |= 1 << n
		} else {
			fromEnd |= 1 << -n
		}
	}
	for day := range yearLength(k.leap) {
		i := 0
		for day >= firsts[i+1] && i < 2 {
			i++
		}
		first, weeks := firsts[i], (firsts[i+1]-firsts[i])/7
		number := (day-first)/7 + 1
		if named>>number&1 != 0 || fromEnd>>(weeks+1-number)&1 != 0 {
			set.add(day)
		}
	}
	return set
}
