package schedule

import (
	"math"
	"math/bits"
	"time"
)

// cron is a parsed cron expression. Its sets have bit n for the n-th value of
// their range.
type cron struct {
	civil

	seconds, minutes, hours uint64
	months                  uint64
	years                   *set // from 1970 on; nil means every year
	days                    days

	named *dayFields // what days was made from
	text  string     // the fields as they were written, macros expanded
}

// days holds the matching days of a month, bit 0 for the first. All a month's
// days depend on is how long it is and on which weekday it begins.
type days [4][7]uint32

// never is a wall time that no clock reaches.
const never = math.MaxInt64

func (c *cron) Next(after time.Time) time.Time { return c.next(c, after) }

// nextWall returns the first matching wall time that is not before the given
// one, or never.
func (c *cron) nextWall(wall int64) int64 {
	today := floorDiv(wall, secondsPerDay)
	day := c.nextDay(today)
	if day == today {
		if s := c.nextSecond(int(wall - today*secondsPerDay)); s >= 0 {
			return today*secondsPerDay + int64(s)
		}
		day = c.nextDay(today + 1)
	}
	if day == never {
		return never
	}
	return day*secondsPerDay + int64(c.nextSecond(0))
}

// nextSecond returns the first matching second of the day that is not before the
// given one, or -1.
func (c *cron) nextSecond(from int) int {
	hour, minute, second := from/3600, from/60%60, from%60
	if c.hours>>hour&1 != 0 {
		if left := c.seconds >> second; left != 0 && c.minutes>>minute&1 != 0 {
			return from + bits.TrailingZeros64(left)
		}
		if left := c.minutes >> (minute + 1); left != 0 {
			minute += 1 + bits.TrailingZeros64(left)
			return (hour*60+minute)*60 + bits.TrailingZeros64(c.seconds)
		}
	}
	left := c.hours >> (hour + 1)
	if left == 0 {
		return -1
	}
	hour += 1 + bits.TrailingZeros64(left)
	return (hour*60+bits.TrailingZeros64(c.minutes))*60 + bits.TrailingZeros64(c.seconds)
}

// nextDay returns the first matching day that is not before the given one, or
// never.
func (c *cron) nextDay(from int64) int64 {
	year, month, day := dateOf(from)
	for ; year <= lastYear+1; year, month, day = year+1, 1, 1 {
		if c.years != nil {
			next := c.years.from(year - firstYear)
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
