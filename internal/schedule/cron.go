package schedule

import "math/bits"

// cron is a parsed cron expression. Its sets have bit n for the n-th value of
// their range.
type cron struct {
	wallClock

	times  timeSet
	months uint64
	years  *bitset // from 1970 on; nil means every year
	days   monthTable

	dayFields *dayFields // the source of days
	text      string     // the fields as they were written, macros expanded
}

// monthTable holds the matching days of a month, bit 0 for the first. All a month's
// days depend on is how long it is and on which weekday it begins.
type monthTable [4][7]uint32

func (c *cron) nextWall(wall, _ int64) int64 {
	today := floorDiv(wall, secondsPerDay)
	day := c.nextDay(today)
	if day == today {
		if s := c.times.next(int(wall - today*secondsPerDay)); s >= 0 {
			return today*secondsPerDay + int64(s)
		}
		day = c.nextDay(today + 1)
	}
	if day == never {
		return never
	}
	return day*secondsPerDay + int64(c.times.next(0))
}

func (c *cron) hasWall(wall int64) bool { return c.nextWall(wall, wall) == wall }

// nextDay returns the first matching day from the given one on, or never.
func (c *cron) nextDay(from int64) int64 {
	year, month, day := dateOf(from)
	for ; year <= lastYear+1; year, month, day = year+1, 1, 1 {
		if c.years != nil {
			next := c.years.next(year - firstYear)
			if next < 0 {
				return never
			}
			if next += firstYear; next != year {
				year, month, day = next, 1, 1
			}
		}
		for left := c.months >> (month - 1) << (month - 1); left != 0; left &= left - 1 {
			if m := bits.TrailingZeros64(left) + 1; m != month {
				month, day = m, 1
			}
			first := dayNumber(year, month, 1)
			matching := c.days[monthLength(year, month)-28][weekdayOf(first)]
			if matching = matching >> (day - 1) << (day - 1); matching != 0 {
				return first + int64(bits.TrailingZeros32(matching))
			}
		}
	}
	return never
}

// dayFields holds the two day fields of an expression. Bit n of a set of days
// stands for day n+1; bit n of a set counted from the end for the
// day n days before the last; bit n of a set of weekdays for weekday n.
type dayFields struct {
	days        uint64 // 15
	last        uint64 // L, L-3
	nearest     uint64 // 15W: the weekday nearest to the day
	lastNearest uint64 // LW, L-3W

	weekdays    uint64    // FRI
	nth         [5]uint64 // FRI#2 is in nth[1]
	lastWeekday uint64    // FRIL

	eitherField bool // both fields are restricted, so that one of them is enough
}

func (f *dayFields) monthTable() (d monthTable) {
	for length := 28; length <= 31; length++ {
		for first := range 7 {
			byDay, byWeekday := f.byDay(length, first), f.byWeekday(length, first)
			if f.eitherField {
				d[length-28][first] = byDay | byWeekday
			} else {
				d[length-28][first] = byDay & byWeekday
			}
		}
	}
	return d
}

func (f *dayFields) byDay(length, first int) uint32 {
	fromEnd := func(set uint64) uint64 { return bits.Reverse64(set) >> (64 - length) }
	matching := f.days | fromEnd(f.last)
	for near := f.nearest | fromEnd(f.lastNearest); near != 0; near &= near - 1 {
		if day := bits.TrailingZeros64(near) + 1; day <= length {
			matching |= 1 << (workday(day, length, first) - 1)
		}
	}
	return uint32(matching & (1<<length - 1))
}

func (f *dayFields) byWeekday(length, first int) uint32 {
	// week lays a set of weekdays out from the first of the month on.
	week := func(set uint64) uint64 { return (set>>first | set<<(7-first)) & (1<<7 - 1) }
	var matching uint64
	for i, nth := range f.nth {
		seven := 7 * i
		matching |= week(f.weekdays|nth) << seven
		matching |= week(f.lastWeekday) << seven & ((1<<7 - 1) << (length - 7))
	}
	return uint32(matching & (1<<length - 1))
}

// workday returns the day from Monday to Friday that is nearest to the given one
// and in the same month.
func workday(day, length, first int) int {
	switch (first + day - 1) % 7 {
	case 6: // Saturday
		if day == 1 {
			return 3
		}
		return day - 1
	case 0: // Sunday
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

func (c *cron) countWalls(from, end int64) int64 {
	firstDay, lastDay := floorDiv(from, secondsPerDay), floorDiv(end, secondsPerDay)
	n := c.countDays(firstDay, lastDay) * int64(c.times.len)
	if c.nextDay(lastDay) == lastDay {
		n += int64(c.times.rank(int(end - lastDay*secondsPerDay)))
	}
	if c.nextDay(firstDay) == firstDay {
		n -= int64(c.times.rank(int(from - firstDay*secondsPerDay)))
	}
	return n
}

func (c *cron) countDays(from, end int64) (n int64) {
	year, month, day := dateOf(from)
	for first := from - int64(day) + 1; first < end; {
		length := monthLength(year, month)
		if c.months>>(month-1)&1 != 0 && (c.years == nil || c.years.has(year-firstYear)) {
			matching := c.days[length-28][weekdayOf(first)]
			if first < from {
				matching = matching >> (from - first) << (from - first)
			}
			if left := end - first; left < int64(length) {
				matching &= 1<<left - 1
			}
			n += int64(bits.OnesCount32(matching))
		}
		first += int64(length)
		if month++; month > 12 {
			year, month = year+1, 1
		}
	}
	return n
}
