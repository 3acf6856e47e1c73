package schedule

import (
	"fmt"
	"math/bits"
	"strings"
)

// field describes one position of a cron expression.
type field struct {
	name    string
	low     int
	high    int    // the last value of "*"
	most    int    // the largest number that may be written
	names   string // three letters for each value from low on
	example string // a correct expression that shows the field
}

var (
	secondField  = &field{name: "second", high: 59, most: 59, example: "*/10 * * * * *"}
	minuteField  = &field{name: "minute", high: 59, most: 59, example: "*/15 * * * *"}
	hourField    = &field{name: "hour", high: 23, most: 23, example: "0 9-17 * * *"}
	dayField     = &field{name: "day of month", low: 1, high: 31, most: 31, example: "0 9 1,15 * *"}
	monthField   = &field{name: "month", low: 1, high: 12, most: 12, names: "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC", example: "0 9 1 JAN,JUL *"}
	weekdayField = &field{name: "weekday", high: 6, most: 7, names: "SUNMONTUEWEDTHUFRISAT", example: cronExample}
	yearField    = &field{name: "year", low: firstYear, high: lastYear, most: lastYear, example: "0 0 9 1 1 * 2030-2035"}
)

// isDay says whether the field is one of the two that name days.
func (f *field) isDay() bool { return f == dayField || f == weekdayField }

// values is what a field names. Bit n of its sets stands for low+n, except where
// dayFields says otherwise.
type values struct {
	set         set
	last        uint64
	nearest     uint64
	lastNearest uint64
	nth         [5]uint64
	lastWeekday uint64
}

// addRange adds every step-th value from a to b, across the end of the range if b
// lies before a. Weekday 7 falls on 0 that way.
func (v *values) addRange(f *field, a, b, step int) {
	span := f.high - f.low + 1
	if a > b {
		b += span
	}
	for x := a; x <= b; x += step {
		v.set.add((x - f.low) % span)
	}
}

// set is a set of small numbers, large enough for the years.
type set [9]uint64

func (s *set) add(n int) { s[n/64] |= 1 << (n % 64) }

func (s *set) has(n int) bool {
	return n >= 0 && n < len(s)*64 && s[n/64]>>(n%64)&1 != 0
}

func (s *set) len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// from returns the smallest member that is not below n, or -1.
func (s *set) from(n int) int {
	n = max(n, 0)
	for i := n / 64; i < len(s); i++ {
		word := s[i]
		if i == n/64 {
			word = word >> (n % 64) << (n % 64)
		}
		if word != 0 {
			return i*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// at returns an Error about one place of a schedule, counted from 0.
func at(pos int, example, format string, args ...any) error {
	return &Error{Field: "schedule", Column: pos + 1, Message: fmt.Sprintf(format, args...), Example: example}
}

// word is one field of an expression, or a part of it, and where it stands.
type word struct {
	text string
	pos  int
}

// split cuts a text into the words between blanks.
func split(text string, pos int) (words []word) {
	for {
		pos += len(text[pos:]) - len(strings.TrimLeft(text[pos:], " \t"))
		if pos == len(text) {
			return words
		}
		end := pos + strings.IndexAny(text[pos:]+" ", " \t")
		words = append(words, word{text[pos:end], pos})
		pos = end
	}
}
