package schedule

import (
	"math"
	"math/bits"
	"time"
)

// Days are counted from 1 January 1970, in the Gregorian calendar both ways.
// Wall times are seconds on that calendar as if it had no zone.

const (
	never         = math.MaxInt64 // a time that no clock reaches
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

// instant returns the time of a second since 1970, or the zero time beyond the horizon.
func instant(t int64) time.Time {
	if t >= horizon {
		return time.Time{}
	}
	return time.Unix(t, 0).UTC()
}

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
func weekdayOf(n int64) int { return int(floorMod(n+4, 7)) }

var monthLengths = [12]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func monthLength(year, month int) int {
	if month == 2 && isLeap(year) {
		return 29
	}
	return monthLengths[month-1]
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

func isLeap(year int) bool { return year&3 == 0 && (year%100 != 0 || year%400 == 0) }

func yearLength(leap bool) int {
	if leap {
		return 366
	}
	return 365
}

// timeSet is a set of times of day, in seconds: every hour with every minute with
// every second of three sets.
type timeSet struct {
	hours, minutes, seconds uint64
	perHour, perMinute, len int
}

func newTimeSet(hours, minutes, seconds uint64) timeSet {
	s := timeSet{hours: hours, minutes: minutes, seconds: seconds}
	s.perMinute = bits.OnesCount64(seconds)
	s.perHour = s.perMinute * bits.OnesCount64(minutes)
	s.len = s.perHour * bits.OnesCount64(hours)
	return s
}

func (s *timeSet) has(t int) bool {
	return s.hours>>(t/3600)&(s.minutes>>(t/60%60))&(s.seconds>>(t%60))&1 != 0
}

// next returns the first time that is not before the given one, or -1.
func (s *timeSet) next(from int) int {
	hour, minute, second := from/3600, from/60%60, from%60
	if s.hours>>hour&1 != 0 {
		if left := s.seconds >> second; left != 0 && s.minutes>>minute&1 != 0 {
			return from + bits.TrailingZeros64(left)
		}
		if left := s.minutes >> (minute + 1); left != 0 {
			minute += 1 + bits.TrailingZeros64(left)
			return (hour*60+minute)*60 + bits.TrailingZeros64(s.seconds)
		}
	}
	left := s.hours >> (hour + 1)
	if left == 0 {
		return -1
	}
	hour += 1 + bits.TrailingZeros64(left)
	return (hour*60+bits.TrailingZeros64(s.minutes))*60 + bits.TrailingZeros64(s.seconds)
}

// rank returns the number of times before the given one.
func (s *timeSet) rank(t int) int {
	hour, minute, second := t/3600, t/60%60, t%60
	n := bits.OnesCount64(s.hours&(1<<hour-1)) * s.perHour
	if s.hours>>hour&1 != 0 {
		n += bits.OnesCount64(s.minutes&(1<<minute-1)) * s.perMinute
		if s.minutes>>minute&1 != 0 {
			n += bits.OnesCount64(s.seconds & (1<<second - 1))
		}
	}
	return n
}

// nth returns the n-th time, counted from 0.
func (s *timeSet) nth(n int) int {
	hour := nthBit(s.hours, n/s.perHour)
	minute := nthBit(s.minutes, n%s.perHour/s.perMinute)
	return (hour*60+minute)*60 + nthBit(s.seconds, n%s.perMinute)
}

// bitset is a set of numbers, large enough for the years of a cron expression.
type bitset [9]uint64

func (s *bitset) add(n int)      { s[n/64] |= 1 << (n % 64) }
func (s *bitset) has(n int) bool { return n >= 0 && n < len(s)*64 && s[n/64]>>(n%64)&1 != 0 }
func (s *bitset) next(n int) int { return nextBit(s[:], max(n, 0)) }
func (s *bitset) len() int       { return countBits(s[:]) }

// daySet is a set of days of a year, bit 0 for 1 January.
type daySet [6]uint64

func (s *daySet) add(n int)      { s[n/64] |= 1 << (n % 64) }
func (s *daySet) has(n int) bool { return s[n/64]>>(n%64)&1 != 0 }
func (s *daySet) next(n int) int { return nextBit(s[:], n) }
func (s *daySet) len() int       { return countBits(s[:]) }

// addBits adds a day for every bit of a set of up to 31, counted from the first.
func (s *daySet) addBits(first int, set uint64) {
	s[first/64] |= set << (first % 64)
	if first%64 > 32 {
		s[first/64+1] |= set >> (64 - first%64)
	}
}

func (s *daySet) intersect(o daySet) {
	for i := range s {
		s[i] &= o[i]
	}
}

// rank returns the number of days before the given one.
func (s *daySet) rank(n int) int {
	rank := countBits(s[:n/64])
	if n%64 > 0 {
		rank += bits.OnesCount64(s[n/64] << (64 - n%64))
	}
	return rank
}

// nth returns the n-th day, counted from 0; there must be so many.
func (s *daySet) nth(n int) int {
	for i, word := range s {
		if here := bits.OnesCount64(word); n >= here {
			n -= here
		} else {
			return i*64 + nthBit(word, n)
		}
	}
	return -1
}

// nextBit returns the first bit from n on that is set, or -1.
func nextBit(words []uint64, n int) int {
	i := n / 64
	if i >= len(words) {
		return -1
	}
	for word := words[i] >> (n % 64) << (n % 64); ; word = words[i] {
		if word != 0 {
			return i*64 + bits.TrailingZeros64(word)
		}
		if i++; i == len(words) {
			return -1
		}
	}
}

func countBits(words []uint64) (n int) {
	for _, word := range words {
		n += bits.OnesCount64(word)
	}
	return n
}

// nthBit returns the n-th of the bits that are set, counted from 0.
func nthBit(set uint64, n int) int {
	for ; n > 0; n-- {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}

// bitsOf returns a set with the bit n for every number n from 0 to 63.
func bitsOf(list []int) (set uint64) {
	for _, n := range list {
		set |= 1 << n
	}
	return set
}
