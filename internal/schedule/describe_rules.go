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
	first, onTheMinute := bits.TrailingZeros64(c.times.minutes), c.times.seconds == 1
	every := evenStep(c.times.hours, 24)
	switch {
	case onTheMinute && c.times.perHour == 1 && every > 0 && every < 12:
		if times = "Every " + unitCount(int64(every), "hour"); first > 0 {
			times += fmt.Sprintf(" at minute %02d", first)
		}
		if every == 1 && first > 0 {
			times = fmt.Sprintf("At minute %02d of every hour", first)
		}
		return times, ""
	case c.times.len <= maxDescribedTimes:
		return "At " + c.times.list(), ""
	case onTheMinute && c.times.minutes == 1:
		if from, to, ok := singleRange(c.times.hours, 24); ok {
			return "Every hour", "from " + clockTime(from*3600) + " to " + clockTime(to*3600)
		}
	}
	within = c.describeHours()
	of := ""
	if within == "" {
		of = " of every hour"
	}
	times = describeSixtieths(c.times.seconds, "second", "minute")
	switch {
	case onTheMinute:
		times = describeSixtieths(c.times.minutes, "minute", "hour")
	case c.times.minutes == allBits(60):
		of = " of every minute"
	default:
		return times + ", in " + describeNumbers(c.times.minutes, 60, "minute") + of, within
	}
	if strings.HasPrefix(times, "Every ") {
		of = ""
	}
	return times + of, within
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
	case f.everyDay():
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
			list = append(list, "the "+which+" "+day)
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

// describe writes an uncommon rule in the form of RFC 5545.
func (r *rruleSet) describe() string {
	s := &sentence{}
	var texts []string
	for _, rule := range r.rules {
		text, ok := rule.describe(r)
		if !ok {
			text = "By the rule " + rule.rfc5545()
		}
		texts = append(texts, text)
	}
	s.text = strings.Join(texts, "; or ")
	if n := len(r.rdates); n > 0 {
		s.add("and on " + plural(int64(n), "other date"))
	}
	if n := len(r.exdates); n > 0 {
		s.add("except on " + plural(int64(n), "date"))
	}
	return s.withZone(r.zone)
}

func (r *rrule) describe(set *rruleSet) (string, bool) {
	if r.setPos != nil || r.weeks != nil || r.yearDays != nil || r.wkst != 1 && r.freq == weekly && r.interval > 1 {
		return "", false
	}
	unit := strings.TrimSuffix(strings.ToLower(r.freq.String()), "ly")
	if r.freq == daily {
		unit = "day"
	}
	s := &sentence{text: "Every " + unitCount(r.interval, unit)}
	days, daysOK := r.describeDays(set)
	clock, within, timesOK := r.describeTimes()
	if !daysOK || !timesOK {
		return "", false
	}
	if r.freq >= hourly {
		s.add(clock)
		s.add(within)
		s.add(days)
	} else {
		s.add(days)
		s.commas = s.commas || strings.Contains(days, ",")
		s.add(clock)
	}
	if u := r.until; u != nil {
		at := time.Unix(u.at, 0).UTC()
		switch {
		case u.dateOnly:
			s.add("until " + longDate(at))
		case u.isInstant:
			s.add("until " + dateAndTime(at) + " UTC")
		default:
			s.add("until " + dateAndTime(at))
		}
	}
	s.add(describeCount(r.count))
	return s.text, true
}

// describeTimes returns the times of the day or of the unit, and the hours of a rule
// of hours or less.
func (r *rrule) describeTimes() (clockTimes, within string, ok bool) {
	t := &r.wallPattern.times
	switch {
	case r.freq < hourly && t.len > maxDescribedTimes, r.freq == hourly && t.seconds != 1,
		r.freq >= minutely && r.minutes != nil, r.freq == secondly && r.seconds != nil:
		return "", "", false
	case r.freq < hourly:
		return "at " + t.list(), "", true
	case r.freq == hourly && t.minutes != 1:
		clockTimes = "at " + describeNumbers(t.minutes, 60, "minute")
	case r.freq == minutely && t.seconds != 1:
		clockTimes = "at " + describeNumbers(t.seconds, 60, "second")
	}
	if r.hours != nil {
		within = "in " + describeNumbers(bitsOf(r.hours), 24, "hour")
	}
	return clockTimes, within, true
}

func (r *rrule) describeDays(set *rruleSet) (string, bool) {
	r = r.withStartDate(set.start)
	days, month := r.days, ""
	if r.months != nil {
		month = joinWithAnd(rangeNames(bitsOf(r.months)>>1, 12, 1, monthName))
	}
	of := " of the month"
	switch {
	case month != "":
		of = " of " + month
	case r.freq == yearly && r.weekdays != nil && days == nil:
		of = " of the year"
	case r.freq == monthly:
		of = "" // The frequency says it.
	}
	switch {
	case days != nil && r.weekdays != nil:
		when, ok := r.listWeekdays("", " of the month")
		return "on " + listMonthDays(days) + of + ", when it is " + strings.TrimPrefix(when, "on "), ok
	case days != nil:
		if len(days) == 1 && days[0] > 0 && month != "" && !strings.Contains(month, " ") {
			return "on " + strconv.Itoa(days[0]) + " " + month, true
		}
		text := "on " + listMonthDays(days) + of
		if days[0] > 28 {
			text += " (left out where the month is shorter)"
		}
		return text, true
	case r.weekdays != nil:
		return r.listWeekdays(month, of)
	case month != "":
		return "in " + month, true
	}
	return "", true
}

func (r *rrule) listWeekdays(month, of string) (string, bool) {
	var plain uint64
	var counted []string
	for _, d := range r.weekdays {
		if d.n == 0 {
			plain |= 1 << d.weekday
		} else {
			counted = append(counted, "the "+nthName(d.n)+" "+weekdayName(d.weekday))
		}
	}
	text := "on " + joinWithAnd(append(rangeNames(plain, 7, 0, weekdayName), counted...))
	switch {
	case plain == 0:
		text += of
	case month != "":
		text += " in " + month
	}
	return text, plain == 0 || counted == nil
}

// nthName writes "second" or "2nd-last".
func nthName(n int) string {
	switch {
	case n == -1:
		return "last"
	case n < 0:
		return ordinal(-n) + "-last"
	case n <= len(nthNames):
		return nthNames[n-1]
	}
	return ordinal(n)
}

func listMonthDays(days []int) string {
	var f dayFields
	for _, n := range days {
		if n > 0 {
			f.days |= 1 << (n - 1)
		} else {
			f.last |= 1 << (-n - 1)
		}
	}
	return f.listDays()
}

func (r *rrule) rfc5545() string {
	parts := []string{"FREQ=" + r.freq.String()}
	add := func(name string, given bool, value string) {
		if given {
			parts = append(parts, name+"="+value)
		}
	}
	add("INTERVAL", r.interval > 1, strconv.FormatInt(r.interval, 10))
	add("COUNT", r.count > 0, strconv.FormatInt(r.count, 10))
	if u := r.until; u != nil {
		form := "20060102T150405"
		if u.dateOnly {
			form = "20060102"
		} else if u.isInstant {
			form += "Z"
		}
		add("UNTIL", true, time.Unix(u.at, 0).UTC().Format(form))
	}
	var weekdays []string
	for _, d := range r.weekdays {
		name := weekdayNames[2*d.weekday:][:2]
		if d.n != 0 {
			name = strconv.Itoa(d.n) + name
		}
		weekdays = append(weekdays, name)
	}
	for _, l := range r.numberLists() {
		if l.name == "BYHOUR" {
			add("BYDAY", weekdays != nil, strings.Join(weekdays, ","))
		}
		add(l.name, *l.values != nil, strings.Trim(strings.ReplaceAll(fmt.Sprint(*l.values), " ", ","), "[]"))
	}
	add("WKST", r.wkst != 1, weekdayNames[2*r.wkst:][:2])
	return strings.Join(parts, ";")
}
