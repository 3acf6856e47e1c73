package schedule

import (
	"math/bits"
	"strings"
	"time"
)

// describer is a rule that says in English when it fires.
type describer interface {
	describe() string
}

// Describe says in one English sentence when a rule fires, such as "At 09:00,
// Monday through Friday". It is made from what the rule does, so that expressions
// that mean the same are described the same. The time zone is named unless it is
// UTC.
func Describe(r Rule) string {
	if d, ok := r.(describer); ok {
		return d.describe()
	}
	return "At times of its own"
}

// sentence puts phrases together. Short ones follow each other without commas.
type sentence struct {
	text   string
	commas bool
}

// add appends a phrase. It gets a comma unless it begins with one of the words
// that lead on, and none has been set yet.
func (s *sentence) add(phrase string) {
	if phrase == "" {
		return
	}
	word, _, _ := strings.Cut(phrase, " ")
	if word != "on" && word != "every" && word != "in" && word != "at" {
		s.commas = true
	}
	if s.commas {
		s.text += ","
	}
	s.text += " " + phrase
}

// in appends the name of a zone.
func (s *sentence) in(z *zone) string {
	if name := z.location.String(); name != "UTC" {
		s.commas = s.commas || strings.Contains(s.text, ",")
		s.add("in " + name)
	}
	return s.text
}

func (c *cron) describe() string {
	times, within := c.describeTimes()
	s := &sentence{text: times}
	s.add(within)
	days, months := c.describeDays()
	if days == "" && within == "" && !strings.Contains(times, " every ") && !strings.HasPrefix(times, "Every ") {
		days = "every day"
	}
	s.add(days)
	s.commas = s.commas || c.named.either && days != "" || strings.Contains(days, ",")
	s.add(months)
	if c.years != nil {
		s.add("in " + c.describeYears())
	}
	return s.in(c.zone)
}

// fewTimes is how many times of day a sentence lists.
const fewTimes = 6

// describeTimes says at which times of day the rule fires, and within which hours
// if that is a phrase of its own.
func (c *cron) describeTimes() (times, within string) {
	hours, minutes, seconds := bits.OnesCount64(c.hours), bits.OnesCount64(c.minutes), bits.OnesCount64(c.seconds)
	first, onTheMinute := bits.TrailingZeros64(c.minutes), c.seconds == 1
	every := evenly(c.hours, 24)
	switch {
	case onTheMinute && minutes == 1 && every > 0 && (every < 12 || hours == 24):
		if times = "Every " + several(every, "hour"); first > 0 {
			times += " at minute " + digits(first)
		}
		if every == 1 && first > 0 {
			times = "At minute " + digits(first) + " of every hour"
		}
		return times, ""
	case hours*minutes*seconds <= fewTimes:
		return "At " + c.listTimes(), ""
	case onTheMinute && c.minutes == 1:
		if from, to, ok := run(c.hours, 24); ok {
			return "Every hour", "from " + clock(from, 0, 0) + " to " + clock(to, 0, 0)
		}
	}
	within = c.describeHours()
	if onTheMinute {
		times = values60(c.minutes, "minute", "hour")
		if within == "" && !strings.HasPrefix(times, "Every ") {
			times += " of every hour"
		}
		return times, within
	}
	times = values60(c.seconds, "second", "minute")
	if c.minutes == all(60) {
		if !strings.HasPrefix(times, "Every ") {
			times += " of every minute"
		}
		return times, within
	}
	times += ", in " + numbers(c.minutes, 60, "minute")
	if within == "" {
		times += " of every hour"
	}
	return times, within
}

// describeHours says within which hours the rule fires, and nothing if that is all
// of them.
func (c *cron) describeHours() string {
	if c.hours == all(24) {
		return ""
	}
	if from, to, ok := run(c.hours, 24); ok {
		return "from " + clock(from, 0, 0) + " to " + clock(to, 59, 0)
	}
	return "in " + numbers(c.hours, 24, "hour")
}

// listTimes lists all times of day.
func (c *cron) listTimes() string {
	var list []string
	for s := c.nextSecond(0); s >= 0; {
		if c.seconds == 1 {
			list = append(list, clock(s/3600, s/60%60, 0))
		} else {
			list = append(list, clock(s/3600, s/60%60, 0)+":"+digits(s%60))
		}
		if s++; s == secondsPerDay {
			break
		}
		s = c.nextSecond(s)
	}
	return enumerate(list)
}

// describeYears lists the years of the rule.
func (c *cron) describeYears() string {
	var list []int
	for y := c.years.from(0); y >= 0; y = c.years.from(y + 1) {
		list = append(list, firstYear+y)
	}
	return years(list)
}

func (o *once) describe() string {
	s := &sentence{text: "Once", commas: true}
	s.add("on " + date(o.at.In(o.zone.location)) + " at " + timeOfDay(o.at.In(o.zone.location)))
	if name := o.zone.location.String(); name != "UTC" {
		return s.text + " in " + name
	}
	return s.text + " UTC"
}

// date returns a date such as "Tuesday 1 December 2026".
func date(t time.Time) string { return t.Format("Monday 2 January 2006") }

// timeOfDay returns the time of day, with seconds if there are any.
func timeOfDay(t time.Time) string {
	switch {
	case t.Nanosecond() != 0:
		return t.Format("15:04:05.999999")
	case t.Second() != 0:
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}
