package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

func (c *cron) describe() string {
	times, within := c.describeTimes()
	s := &sentence{text: times}
	s.add(within)
	days, months := c.describeDays()
	if days == "" && within == "" && !strings.Contains(times, " every ") && !strings.HasPrefix(times, "Every ") {
		days = "every day"
	}
	s.add(days)
	s.commas = s.commas || c.dayFields.eitherField && days != "" || strings.Contains(days, ",")
	s.add(months)
	if c.years != nil {
		s.add("in " + c.describeYears())
	}
	return s.withZone(c.zone)
}

const maxDescribedTimes = 6

// describeTimes returns the times of day, and the hours if they need their own phrase.
func (c *cron) describeTimes() (times, within string) {
	hours, minutes, seconds := bits.OnesCount64(c.times.hours), bits.OnesCount64(c.times.minutes), bits.OnesCount64(c.times.seconds)
	first, onTheMinute := bits.TrailingZeros64(c.times.minutes), c.times.seconds == 1
	every := evenStep(c.times.hours, 24)
	switch {
	case onTheMinute && minutes == 1 && every > 0 && (every < 12 || hours == 24):
		if times = "Every " + unitCount(int64(every), "hour"); first > 0 {
			times += fmt.Sprintf(" at minute %02d", first)
		}
		if every == 1 && first > 0 {
			times = fmt.Sprintf("At minute %02d of every hour", first)
		}
		return times, ""
	case hours*minutes*seconds <= maxDescribedTimes:
		return "At " + c.times.list(), ""
	case onTheMinute && c.times.minutes == 1:
		if from, to, ok := singleRange(c.times.hours, 24); ok {
			return "Every hour", "from " + clockTime(from*3600) + " to " + clockTime(to*3600)
		}
	}
	within = c.describeHours()
	if onTheMinute {
		times = describeSixtieths(c.times.minutes, "minute", "hour")
		if within == "" && !strings.HasPrefix(times, "Every ") {
			times += " of every hour"
		}
		return times, within
	}
	times = describeSixtieths(c.times.seconds, "second", "minute")
	if c.times.minutes == allBits(60) {
		if !strings.HasPrefix(times, "Every ") {
			times += " of every minute"
		}
		return times, within
	}
	times += ", in " + describeNumbers(c.times.minutes, 60, "minute")
	if within == "" {
		times += " of every hour"
	}
	return times, within
}

func (c *cron) describeHours() string {
	if c.times.hours == allBits(24) {
		return ""
	}
	if from, to, ok := singleRange(c.times.hours, 24); ok {
		return "from " + clockTime(from*3600) + " to " + clockTime(to*3600+59*60)
	}
	return "in " + describeNumbers(c.times.hours, 24, "hour")
}

func (s *timeSet) list() string {
	form := "15:04"
	if s.seconds != 1 {
		form = "15:04:05"
	}
	var list []string
	for n := range s.len {
		list = append(list, Wall(s.nth(n)).Time().Format(form))
	}
	return joinWithAnd(list)
}

func (c *cron) describeYears() string {
	var list []int
	var names []string
	even := true
	for y := c.years.next(0); y >= 0; y = c.years.next(y + 1) {
		list, names = append(list, y), append(names, strconv.Itoa(firstYear+y))
		n := len(list)
		even = even && (n < 3 || y-list[n-2] == list[1]-list[0])
	}
	last := len(list) - 1
	switch {
	case even && len(list) > 2 && list[1]-list[0] == 1:
		return names[0] + " through " + names[last]
	case even && len(list) >= minProgression:
		return "every " + ordinal(list[1]-list[0]) + " year from " + names[0] + " to " + names[last]
	}
	return joinWithAnd(names)
}

var nthNames = [...]string{"first", "second", "third", "fourth", "fifth"}

func weekdayName(n int) string { return time.Weekday(n % 7).String() }

func monthName(n int) string { return time.Month(n).String() }

// describeDays returns the days, and the months if they need a phrase of their own.
// Nothing means all of them.
func (c *cron) describeDays() (days, months string) {
	month := ""
	if c.months != allBits(12) {
		month = joinWithAnd(rangeNames(c.months, 12, 1, monthName))
		months = "in " + month
	}
	f := c.dayFields
	anyDay, anyWeekday := f.days == allBits(31), f.weekdays == allBits(7)
	switch {
	case anyDay && anyWeekday, f.eitherField && (anyDay || anyWeekday):
		return "", months
	case f.eitherField:
		return "on " + f.listDays() + " of the month or on " + f.listWeekdays(), months
	case !anyDay && !anyWeekday:
		return "on " + f.listDays() + " of the month, when it is " + f.listWeekdays(), months
	case anyDay:
		days = f.listWeekdays()
		if !strings.Contains(days, " of the month") {
			if _, _, ok := singleRange(f.weekdays, 7); !ok || bits.OnesCount64(f.weekdays) < 3 {
				days = "on " + days
			}
			return days, months
		}
		days = "on " + strings.TrimSuffix(days, " of the month")
	default:
		if plain := f.last|f.nearest|f.lastNearest == 0; plain && bits.OnesCount64(f.days) <= 2 && bits.OnesCount64(c.months) == 1 {
			return "on " + joinWithAnd(rangeNames(f.days, 31, 1, strconv.Itoa)) + " " + month, ""
		}
		days = "on " + f.listDays()
	}
	if month == "" {
		return days + " of the month", ""
	}
	return days + " of " + month, ""
}

// listDays lists the days of the day-of-month field; "of the month" may follow.
func (f *dayFields) listDays() string {
	var list []string
	if f.days != 0 {
		list = append(list, describeNumbers(f.days<<1, 64, "day"))
	}
	each := func(set uint64, name func(int) string) {
		for ; set != 0; set &= set - 1 {
			list = append(list, name(bits.TrailingZeros64(set)))
		}
	}
	fromEnd := func(n int) string {
		if n == 0 {
			return "the last day"
		}
		return "the " + ordinal(n+1) + "-last day"
	}
	each(f.nearest, func(n int) string { return "the working day nearest to day " + strconv.Itoa(n+1) })
	each(f.last, fromEnd)
	each(f.lastNearest, func(n int) string {
		if n == 0 {
			return "the last working day"
		}
		return "the working day nearest to " + fromEnd(n)
	})
	return joinWithAnd(list)
}

func (f *dayFields) listWeekdays() string {
	list := rangeNames(f.weekdays, 7, 0, weekdayName)
	counted := false
	each := func(set uint64, which string) {
		for _, day := range rangeNames(set, 64, 0, weekdayName) {
			first, rest, ranged := strings.Cut(day, " through ")
			if ranged {
				rest = " through " + rest
			}
			list = append(list, "the "+which+" "+first+rest)
			counted = true
		}
	}
	for i, set := range f.nth {
		each(set, nthNames[i])
	}
	each(f.lastWeekday, "last")
	if counted {
		return joinWithAnd(list) + " of the month"
	}
	return joinWithAnd(list)
}
