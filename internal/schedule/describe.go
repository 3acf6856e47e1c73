package schedule

import (
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Describe returns an English sentence about when a rule fires, such as "At 09:00,
// Monday through Friday". Equivalent expressions have the same description. The
// time zone is named unless it is UTC.
func Describe(r Rule) string {
	if d, ok := r.(interface{ describe() string }); ok {
		return d.describe()
	}
	return "At times of its own"
}

// sentence joins phrases. Short ones follow each other without commas.
type sentence struct {
	text   string
	commas bool
}

// add appends a phrase. The first one that does not begin with a preposition or
// "every" gets a comma, and so do all after it.
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

func (s *sentence) withZone(z *zone) string {
	if name := z.location.String(); name != "UTC" {
		s.commas = s.commas || strings.Contains(s.text, ",")
		s.add("in " + name)
	}
	return s.text
}

func (o *oneOff) describe() string {
	text := "Once, on " + dateAndTime(o.at.In(o.zone.location))
	if name := o.zone.location.String(); name != "UTC" {
		return text + " in " + name
	}
	return text + " UTC"
}

func (d *durationInterval) describe() string {
	s := &sentence{text: "Every "}
	if d.calendar != nil {
		s.text += d.calendar.describeUnits() + " and "
	}
	s.text += describeDuration(d.step)
	if !d.written && d.calendar == nil {
		s.add(describeCount(d.count))
		return s.text
	}
	text := "from " + dateAndTime(time.UnixMicro(d.start).In(d.zone.location))
	if d.calendar == nil && d.zone.location.String() == "UTC" {
		text += " UTC"
	}
	s.add(text)
	s.add(describeCount(d.count))
	return s.withZone(d.zone)
}

func (c *calendarInterval) describe() string {
	text := &sentence{}
	weekday := weekdayName(weekdayOf(dayNumber(c.year, c.month, c.day)))
	several := c.months+c.days > 1
	switch {
	case c.months == 0 && c.days%7 == 0:
		text.text = "Every " + unitCount(c.days/7, "week") + " on " + weekday
		several = c.days > 7
	case c.months == 0:
		text.text = "Every " + unitCount(c.days, "day")
	case c.days == 0 && c.months%12 == 0:
		text.text = "Every " + unitCount(c.months/12, "year") + " on " + strconv.Itoa(c.day) + " " + monthName(c.month)
		several = c.months > 12
	case c.days == 0:
		text.text = "Every " + unitCount(c.months, "month") + " on day " + strconv.Itoa(c.day)
	default:
		text.text = "Every " + c.describeUnits()
	}
	text.text += " at " + clockTime(int(c.second))
	switch leapDay := c.month == 2 && c.day == 29; {
	case c.days == 0 && c.months%12 == 0 && leapDay:
		text.text += " (28 February where there is no 29th)"
	case c.days == 0 && c.months%12 != 0 && c.day > 28:
		text.text += " (the last day where the month is shorter)"
	}
	if c.written && several {
		text.add("from " + longDate(time.Unix(c.wall(0), 0).UTC()))
	}
	text.add(describeCount(c.count))
	return text.withZone(c.zone)
}

func (s *wallSequence) describeUnits() string {
	return joinUnits([3]int64{s.months / 12, s.months % 12, s.days}, [3]string{"year", "month", "day"})
}

// joinUnits writes the units of which there are any, such as "1 month and 10 days".
func joinUnits(counts [3]int64, units [3]string) string {
	var list []string
	for i, n := range counts {
		if n > 0 {
			list = append(list, plural(n, units[i]))
		}
	}
	return joinWithAnd(list)
}

// describeDuration writes microseconds, such as "90 seconds" or "1 hour and 1 second".
func describeDuration(micros int64) string {
	seconds := micros / microsPerSecond
	if micros%microsPerSecond != 0 {
		return strconv.FormatFloat(float64(micros)/microsPerSecond, 'f', -1, 64) + " seconds"
	}
	const most = 120 // of one unit
	switch {
	case seconds%3600 == 0:
		return unitCount(seconds/3600, "hour")
	case seconds%60 == 0 && seconds/60 < most:
		return unitCount(seconds/60, "minute")
	case seconds < most:
		return unitCount(seconds, "second")
	}
	return joinUnits([3]int64{seconds / 3600, seconds / 60 % 60, seconds % 60}, [3]string{"hour", "minute", "second"})
}

func describeCount(count int64) string {
	switch count {
	case 0:
		return ""
	case 1:
		return "once"
	}
	return plural(count, "time")
}

// unitCount writes "day" or "2 days".
func unitCount(n int64, unit string) string {
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

func allBits(n int) uint64 { return 1<<n - 1 }

// singleRange reports whether a set of a circle of n values has no holes, and its ends. The
// whole circle is no run.
func singleRange(set uint64, n int) (from, to int, ok bool) {
	if set == 0 || set == allBits(n) {
		return 0, 0, false
	}
	first := set &^ (set<<1 | set>>(n-1)) // members without one before them
	if first&(first-1) != 0 {
		return 0, 0, false
	}
	from = bits.TrailingZeros64(first)
	return from, (from + bits.OnesCount64(set) - 1) % n, true
}

// evenStep returns n if a set holds every n-th value of a circle from the first on,
// all the way round, or 0.
func evenStep(set uint64, size int) int {
	from, _, step := progression(set)
	if from != 0 || step*bits.OnesCount64(set) != size {
		return 0
	}
	return step
}

// progression returns the ends of a set and the distance of its members if that is
// always the same, or else 0.
func progression(set uint64) (from, to, step int) {
	from, to = bits.TrailingZeros64(set), 63-bits.LeadingZeros64(set)
	for last, left := from, set&(set-1); left != 0; left &= left - 1 {
		next := bits.TrailingZeros64(left)
		if step != 0 && next-last != step {
			return from, to, 0
		}
		last, step = next, next-last
	}
	return from, to, step
}

// minProgression is how many members a set has that is called a progression.
const minProgression = 4

func describeSixtieths(set uint64, unit, whole string) string {
	if n := evenStep(set, 60); n > 0 {
		return "Every " + unitCount(int64(n), unit)
	}
	from, to, step := progression(set)
	if count := bits.OnesCount64(set); count >= minProgression && step > 1 {
		return "Every " + unitCount(int64(step), unit) + " from " + unit + " " + strconv.Itoa(from) + " to " + strconv.Itoa(to) + " of the " + whole
	}
	return "At " + describeNumbers(set, 60, unit)
}

// describeNumbers writes "hour 9", "hours 9 and 17" or "every 2nd hour from 1 to 23".
func describeNumbers(set uint64, n int, unit string) string {
	from, to, step := progression(set)
	switch count := bits.OnesCount64(set); {
	case count == 1:
		return unit + " " + strconv.Itoa(from)
	case count >= minProgression && step > 1:
		return "every " + ordinal(step) + " " + unit + " from " + strconv.Itoa(from) + " to " + strconv.Itoa(to)
	}
	return unit + "s " + joinWithAnd(rangeNames(set, n, 0, strconv.Itoa))
}

// rangeNames lists the members of a set, three or more in a row as "a through b". Bit 0
// stands for low. A set that is a single range across the end of a circle of n values
// is listed as one.
func rangeNames(set uint64, n, low int, name func(int) string) (list []string) {
	if from, to, ok := singleRange(set, n); ok && from > to && bits.OnesCount64(set) > 2 {
		return []string{name(low+from) + " through " + name(low+to)}
	}
	for set != 0 {
		from := bits.TrailingZeros64(set)
		length := bits.TrailingZeros64(^(set >> from))
		if length > 2 {
			list = append(list, name(low+from)+" through "+name(low+from+length-1))
		} else {
			for i := range length {
				list = append(list, name(low+from+i))
			}
		}
		set &^= allBits(length) << from
	}
	return list
}

// joinWithAnd writes "a, b and c".
func joinWithAnd(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// ordinal writes "2nd" or "11th".
func ordinal(n int) string {
	suffixes := [10]string{"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"}
	if n%100/10 == 1 {
		return strconv.Itoa(n) + "th"
	}
	return strconv.Itoa(n) + suffixes[n%10]
}

// clockTime writes a second of the day like timeOfDay.
func clockTime(second int) string { return timeOfDay(Wall(second).Time()) }

func longDate(t time.Time) string { return t.Format("Monday 2 January 2006") }

func dateAndTime(t time.Time) string { return longDate(t) + " at " + timeOfDay(t) }

// timeOfDay returns the time of day, with seconds if there are any.
func timeOfDay(t time.Time) string {
	if t.Second() != 0 || t.Nanosecond() != 0 {
		return t.Format("15:04:05.999999")
	}
	return t.Format("15:04")
}
