package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
	t := &r.rrulePattern.times
	switch {
	case r.freq < hourly:
		if t.len > maxDescribedTimes {
			return "", "", false
		}
		return "at " + t.list(), "", true
	case r.freq == hourly && t.seconds == 1 && t.minutes != 1:
		clockTimes = "at " + describeNumbers(t.minutes, 60, "minute")
	case r.freq == minutely && t.seconds != 1:
		clockTimes = "at " + describeNumbers(t.seconds, 60, "second")
	case r.freq == hourly && t.seconds != 1:
		return "", "", false
	}
	if r.hours != nil {
		within = "in " + describeNumbers(bitsOf(r.hours), 24, "hour")
	}
	if r.freq >= minutely && r.minutes != nil || r.freq == secondly && r.seconds != nil {
		return "", "", false
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
