package schedule

import "math/bits"

// Dates are the days that fit the parts that name days. Days are those of them
// that also lie in a period of the rule: with INTERVAL=2, in every second one.

// yearOf returns the year of a day and the day of its 1 January.
func yearOf(day int64) (year int, first int64) {
	year, _, _ = dateOf(day)
	return year, dayNumber(year, 1, 1)
}

// datesOf returns the dates of a year that begins on a day.
func (p *pattern) datesOf(year int, first int64) *daySet {
	return &p.dates[kindRow(year)][weekdayOf(first)]
}

// nextDate returns the first date that is not before a day and not after a limit,
// or never.
func (p *pattern) nextDate(day, limit int64) int64 {
	if day > limit {
		return never
	}
	if p.everyDay {
		return day
	}
	year, first := yearOf(day)
	for n := int(day - first); first <= limit; n = 0 {
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
func (p *pattern) countDates(from, to int64) (n int) {
	year, first := yearOf(from)
	for from < to {
		next := first + int64(yearLength(isLeap(year)))
		dates := p.datesOf(year, first)
		n += dates.rank(int(min(to, next)-first)) - dates.rank(int(from-first))
		from, first, year = next, next, year+1
	}
	return n
}

// nthDate returns the n-th date from a day on, counted from 0.
func (p *pattern) nthDate(from int64, n int) int64 {
	year, first := yearOf(from)
	n += p.datesOf(year, first).rank(int(from - first))
	for {
		dates := p.datesOf(year, first)
		length := yearLength(isLeap(year))
		if here := dates.rank(length); n < here {
			return first + int64(dates.nth(n))
		} else {
			n -= here
		}
		first += int64(length)
		year++
	}
}

// nextDay returns the first date in a period of the rule that is not before a day
// and not after a limit, or never.
func (p *pattern) nextDay(day, limit int64) int64 {
	for {
		day = p.nextDate(day, limit)
		if day == never || p.every == 1 {
			return day
		}
		begin, _ := p.period(day)
		if begin <= day {
			return day
		}
		day = begin
	}
}

// period returns the period of the rule that a day lies in, or else the next one,
// by its first day and the one after its last.
func (p *pattern) period(day int64) (begin, end int64) {
	switch p.freq {
	case yearly:
		year, _, _ := dateOf(day)
		year = int(p.align(int64(year)))
		if year > lastYear {
			return never, never
		}
		return dayNumber(year, 1, 1), dayNumber(year+1, 1, 1)
	case monthly:
		year, month, _ := dateOf(day)
		n := p.align(int64(year)*12 + int64(month) - 1)
		if n >= (lastYear+1)*12 {
			return never, never
		}
		year, month = int(n/12), int(n%12)+1
		begin = dayNumber(year, month, 1)
		return begin, begin + int64(monthLength(year, month))
	case weekly:
		begin = p.align(floorDiv(day-p.weekStart, 7))*7 + p.weekStart
		return begin, begin + 7
	}
	begin = p.align(day)
	return begin, begin + 1
}

// align returns the first number of a period that is not before the given one.
func (p *pattern) align(n int64) int64 {
	if rest := floorMod(n-p.origin, p.every); rest > 0 {
		return n + p.every - rest
	}
	return n
}

// allDays says whether a table names every day of every year.
func allDays(table *[4][7]daySet) bool {
	for row := range table {
		for weekday := range table[row] {
			days := 0
			for _, word := range table[row][weekday] {
				days += bits.OnesCount64(word)
			}
			if days < 365 || row == 0 && days < 366 {
				return false
			}
		}
	}
	return true
}
