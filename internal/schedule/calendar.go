package schedule

// Days are counted from 1 January 1970, in the Gregorian calendar both ways.
// Wall times are seconds on that calendar as if it had no zone.

const (
	secondsPerDay = 24 * 60 * 60

	daysPer400Years = 146097
	daysPer100Years = 36524
	daysPer4Years   = 1461

	// marchDay is the number of days from 1 March of the year 0 to 1 January 1970.
	// Years that begin in March end with the leap day.
	marchDay = 719468
)

// A year field can name the years from firstYear to lastYear, a single instant
// those up to lastInstantYear: nanoseconds since 1970 end there in 64 bits.
const (
	firstYear       = 1970
	lastInstantYear = 2262
	lastYear        = 2499
)

var (
	horizon      = dayNumber(lastYear+1, 1, 1) * secondsPerDay // the end of all occurrences
	firstInstant = dayNumber(1, 1, 1) * secondsPerDay          // that of the zero time
)

// dayNumber returns the day of a date.
func dayNumber(year, month, day int) int64 {
	y, m := int64(year), int64(month)-3
	if m < 0 {
		y, m = y-1, m+12
	}
	era := floorDiv(y, 400)
	y -= era * 400
	// Months from March on have 31, 30, 31, 30, 31 days, again and again.
	inYear := (153*m+2)/5 + int64(day) - 1
	return era*daysPer400Years + y*365 + y/4 - y/100 + inYear - marchDay
}

// dateOf is the inverse of dayNumber.
func dateOf(n int64) (year, month, day int) {
	n += marchDay
	era := floorDiv(n, daysPer400Years)
	n -= era * daysPer400Years
	y := (n - n/(daysPer4Years-1) + n/daysPer100Years - n/(daysPer400Years-1)) / 365
	n -= y*365 + y/4 - y/100
	m := (5*n + 2) / 153
	day = int(n - (153*m+2)/5 + 1)
	y += era * 400
	if m += 3; m > 12 {
		y, m = y+1, m-12
	}
	return int(y), int(m), day
}

// weekdayOf returns 0 for a Sunday to 6 for a Saturday.
func weekdayOf(n int64) int {
	return int(floorMod(n+4, 7))
}

func monthLength(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 {
	return a - floorDiv(a, b)*b
}
