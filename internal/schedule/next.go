package schedule

import (
	"math"
	"math/bits"
	"time"
)

// cron is a parsed cron expression. Its sets have bit n for the n-th value of
// their range.
type cron struct {
	zone *zone

	seconds, minutes, hours uint64
	months                  uint64
	years                   *set // from 1970 on; nil means every year
	days                    days

	interval bool // interval-like rather than fixed-time
	repeat   bool // fires at both instants of a wall time shown twice
	skipGap  bool // makes nothing up for skipped wall times
}

// days holds the matching days of a month, bit 0 for the first. All a month's
// days depend on is how long it is and on which weekday it begins.
type days [4][7]uint32

// never is a wall time that no clock reaches.
const never = math.MaxInt64

// Next walks the periods of the zone. In each it looks for the next matching
// wall time; between two of them it settles what the change of the clock skips
// or repeats.
func (c *cron) Next(after time.Time) time.Time {
	t := max(after.Unix(), firstInstant)
	if t >= horizon {
		return time.Time{}
	}
	periods := c.zone.periods
	i := c.zone.at(t)
	from := t + 1 + periods[i].offset
	if i > 0 && !c.repeat {
		from = max(from, periods[i].start+periods[i-1].offset)
	}
	wall := c.nextWall(from) // always the first match that is not before from
	for ; i+1 < len(periods); i++ {
		next := &periods[i+1]
		end := next.start + periods[i].offset // of the wall times of this period
		if wall < end {
			break
		}
		first := next.start + next.offset // of the wall times of the next one
		if wall < first && c.makesUp(wall, first, first-end) {
			return instant(next.start)
		}
		if wall < first || c.repeat && first < from {
			from, wall = first, c.nextWall(first)
		}
	}
	if wall == never {
		return time.Time{}
	}
	return instant(wall - periods[i].offset)
}

func instant(t int64) time.Time {
	if t >= horizon {
		return time.Time{}
	}
	return time.Unix(t, 0).UTC()
}

// makesUp reports whether the rule fires at the end of a skipped stretch of which
// wall is the first matching time and end the end. Shift is how far the clock
// jumps. A skipped time of an interval-like rule is covered, and not made up, if
// the time that lies as much later matches too.
func (c *cron) makesUp(wall, end, shift int64) bool {
	if c.skipGap || !c.interval {
		return !c.skipGap
	}
	// A jump of whole minutes leaves the seconds alone, so all times of one minute
	// are covered or none is. The same holds for hours and days.
	grain := int64(1)
	for _, g := range [...]int64{60, 60 * 60, secondsPerDay} {
		if shift%g == 0 {
			grain = g
		}
	}
	for wall < end {
		if c.nextWall(wall+shift) != wall+shift {
			return true
		}
		wall = c.nextWall(wall - floorMod(wall, grain) + grain)
	}
	return false
}

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
