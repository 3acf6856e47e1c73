package schedule

import "math/bits"

// dayFields is what the two day fields of an expression say together. Bit n of a
// set of days stands for day n+1; bit n of a set counted from the end for the
// day n days before the last; bit n of a set of weekdays for weekday n.
type dayFields struct {
	days        uint64 // 15
	last        uint64 // L, L-3
	nearest     uint64 // 15W: the weekday nearest to the day
	lastNearest uint64 // LW, L-3W

	weekdays    uint64    // FRI
	nth         [5]uint64 // FRI#2 is in nth[1]
	lastWeekday uint64    // FRIL

	either bool // both fields are restricted, so that one of them is enough
}

// table works out the matching days of every kind of month.
func (f *dayFields) table() (d days) {
	for length := 28; length <= 31; length++ {
		for first := range 7 {
			byDay, byWeekday := f.byDay(length, first), f.byWeekday(length, first)
			if f.either {
				d[length-28][first] = byDay | byWeekday
			} else {
				d[length-28][first] = byDay & byWeekday
			}
		}
	}
	return d
}

// byDay returns the days that the day-of-month field names in a month.
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

// byWeekday returns the days that the weekday field names in a month.
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
