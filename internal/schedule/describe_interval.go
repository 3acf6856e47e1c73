package schedule

import (
	"strconv"
	"strings"
	"time"
)

func (e *elapsed) describe() string {
	s := &sentence{text: "Every " + length(e.step)}
	if e.written {
		from := time.UnixMicro(e.start).In(e.zone.location)
		text := "from " + date(from) + " at " + timeOfDay(from)
		if e.zone.location.String() == "UTC" {
			text += " UTC"
		}
		s.add(text)
	}
	s.add(times(e.count))
	if e.written {
		return s.in(e.zone)
	}
	return s.text
}

func (m *mixed) describe() string {
	s := &sentence{text: "Every " + strings.Join([]string{m.units(), length(m.step)}, " and ")}
	from := time.UnixMicro(m.start).In(m.zone.location)
	s.add("from " + date(from) + " at " + timeOfDay(from))
	s.add(times(m.count))
	return s.in(m.zone)
}

func (s *stepped) describe() string {
	text := &sentence{}
	weekday := weekdayName(weekdayOf(dayNumber(s.year, s.month, s.day)))
	several := s.months+s.days > 1
	switch {
	case s.months == 0 && s.days%7 == 0:
		text.text = "Every " + counted(s.days/7, "week") + " on " + weekday
		several = s.days > 7
	case s.months == 0:
		text.text = "Every " + counted(s.days, "day")
	case s.days == 0 && s.months%12 == 0:
		text.text = "Every " + counted(s.months/12, "year") + " on " + strconv.Itoa(s.day) + " " + monthName(s.month)
		several = s.months > 12
	case s.days == 0:
		text.text = "Every " + counted(s.months, "month") + " on day " + strconv.Itoa(s.day)
	default:
		text.text = "Every " + s.units()
	}
	second := int(s.second)
	text.text += " at " + clock(second/3600, second/60%60, second%60)
	switch leapDay := s.month == 2 && s.day == 29; {
	case s.days == 0 && s.months%12 == 0 && leapDay:
		text.text += " (28 February where there is no 29th)"
	case s.days == 0 && s.months%12 != 0 && s.day > 28:
		text.text += " (the last day where the month is shorter)"
	}
	if s.written && several {
		text.add("from " + date(time.Unix(s.wall(0), 0).UTC()))
	}
	text.add(times(s.count))
	return text.in(s.zone)
}

// units writes the calendar part of a step, such as "1 month and 10 days".
func (p *path) units() string {
	var list []string
	for _, u := range []struct {
		n    int64
		name string
	}{{p.months / 12, "year"}, {p.months % 12, "month"}, {p.days, "day"}} {
		if u.n > 0 {
			list = append(list, plural(u.n, u.name))
		}
	}
	return enumerate(list)
}

// length writes a time in microseconds, such as "90 seconds" or "1 hour and 1
// second".
func length(micros int64) string {
	seconds := micros / microsPerSecond
	if rest := micros % microsPerSecond; rest != 0 {
		text := strconv.FormatFloat(float64(rest)/microsPerSecond, 'f', 6, 64)
		return strconv.FormatInt(seconds, 10) + strings.TrimRight(text[1:], "0") + " seconds"
	}
	const most = 120 // of one unit
	switch {
	case seconds%3600 == 0:
		return counted(seconds/3600, "hour")
	case seconds%60 == 0 && seconds/60 < most:
		return counted(seconds/60, "minute")
	case seconds < most:
		return counted(seconds, "second")
	}
	var list []string
	for _, u := range []struct {
		n    int64
		name string
	}{{seconds / 3600, "hour"}, {seconds / 60 % 60, "minute"}, {seconds % 60, "second"}} {
		if u.n > 0 {
			list = append(list, plural(u.n, u.name))
		}
	}
	return enumerate(list)
}

// times writes how often a rule fires, if it ends.
func times(count int64) string {
	switch count {
	case 0:
		return ""
	case 1:
		return "once"
	}
	return strconv.FormatInt(count, 10) + " times"
}

// counted writes "day" or "2 days".
func counted(n int64, unit string) string {
	if n == 1 {
		return unit
	}
	return plural(n, unit)
}

// plural writes "1 day" or "2 days".
func plural(n int64, unit string) string {
	text := strconv.FormatInt(n, 10) + " " + unit
	if n != 1 {
		text += "s"
	}
	return text
}
