package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// referenceRule is a recurrence rule that decides about one wall time after the other,
// by the tables of RFC 5545. Wall times are written as if they were in UTC. It
// shares nothing with the rules under test.
type referenceRule struct {
	freq     string
	interval int
	by       map[string][]int // without BYDAY
	byDay    []referenceWeekday
	wkst     time.Weekday
	start    time.Time

	periods map[string][]time.Time // what there is to choose from for BYSETPOS
}

type referenceWeekday struct {
	n   int
	day time.Weekday
}

var referenceParts = []string{"BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYHOUR", "BYMINUTE", "BYSECOND", "BYSETPOS"}

// String returns the rule as the value of an RRULE.
func (r *referenceRule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "FREQ=%s;INTERVAL=%d;WKST=%s", r.freq, r.interval, strings.ToUpper(r.wkst.String()[:2]))
	for _, part := range referenceParts {
		for i, n := range r.by[part] {
			if i == 0 {
				b.WriteString(";" + part + "=")
			} else {
				b.WriteString(",")
			}
			b.WriteString(strconv.Itoa(n))
		}
	}
	for i, d := range r.byDay {
		b.WriteString([]string{";BYDAY=", ","}[min(i, 1)])
		if d.n != 0 {
			b.WriteString(strconv.Itoa(d.n))
		}
		b.WriteString(strings.ToUpper(d.day.String()[:2]))
	}
	return b.String()
}

// is says whether the rule, without its bounds, names a wall time.
func (r *referenceRule) is(wall time.Time) bool {
	if !r.fits(wall) {
		return false
	}
	choice := r.by["BYSETPOS"]
	if choice == nil {
		return true
	}
	all := r.peers(wall)
	i, _ := slices.BinarySearchFunc(all, wall, time.Time.Compare)
	return slices.Contains(choice, i+1) || slices.Contains(choice, i-len(all))
}

// peers lists the wall times of the period of one.
func (r *referenceRule) peers(wall time.Time) []time.Time {
	key, first, length := "", wall, 24*time.Hour
	year, month, day := wall.Date()
	switch r.freq {
	case "YEARLY":
		first = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		length = first.AddDate(1, 0, 0).Sub(first)
	case "MONTHLY":
		first = time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
		length = first.AddDate(0, 1, 0).Sub(first)
	case "WEEKLY":
		first = r.weekOf(wall)
		length *= 7
	case "DAILY":
		first = time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	case "HOURLY":
		first, length = wall.Truncate(time.Hour), time.Hour
	case "MINUTELY":
		first, length = wall.Truncate(time.Minute), time.Minute
	case "SECONDLY":
		return []time.Time{wall}
	}
	key = first.String()
	if all, ok := r.periods[key]; ok {
		return all
	}
	all := r.between(first, first.Add(length))
	r.periods[key] = all
	return all
}

// between lists what fits from one wall time to another.
func (r *referenceRule) between(from, to time.Time) (all []time.Time) {
	steps := func(t time.Time, length, unit time.Duration, fits func(time.Time) bool, inside func(time.Time)) {
		for end := t.Add(length); t.Before(end) && t.Before(to); t = t.Add(unit) {
			if t.Add(unit).After(from) && fits(t) {
				inside(t)
			}
		}
	}
	const day = 24 * time.Hour
	steps(from.Truncate(day), to.Sub(from)+day, day, r.dayFits, func(t time.Time) {
		steps(t, day, time.Hour, r.hourFits, func(t time.Time) {
			steps(t, time.Hour, time.Minute, r.minuteFits, func(t time.Time) {
				steps(t, time.Minute, time.Second, r.fits, func(t time.Time) { all = append(all, t) })
			})
		})
	})
	return all
}

// fits says whether a wall time has all that the rule asks for, but for BYSETPOS.
func (r *referenceRule) fits(t time.Time) bool {
	return r.secondFits(t) && r.minuteFits(t) && r.hourFits(t) && r.dayFits(t) && r.periodFits(t)
}

// periodFits says whether a wall time is in a period that INTERVAL leaves.
func (r *referenceRule) periodFits(t time.Time) bool {
	var n int64
	day := 24 * time.Hour
	switch s := r.start; r.freq {
	case "YEARLY":
		n = int64(t.Year() - s.Year())
	case "MONTHLY":
		n = int64((t.Year()-s.Year())*12 + int(t.Month()) - int(s.Month()))
	case "WEEKLY":
		n = int64(r.weekOf(t).Sub(r.weekOf(s)) / (7 * day))
	case "DAILY":
		n = (t.Truncate(day).Unix() - s.Truncate(day).Unix()) / 86400
	case "HOURLY":
		n = (t.Truncate(time.Hour).Unix() - s.Truncate(time.Hour).Unix()) / 3600
	case "MINUTELY":
		n = (t.Truncate(time.Minute).Unix() - s.Truncate(time.Minute).Unix()) / 60
	case "SECONDLY":
		n = t.Unix() - s.Unix()
	}
	return n%int64(r.interval) == 0
}

// finer says whether the periods of the rule are at most as long as those of
// another frequency.
func (r *referenceRule) finer(freq string) bool {
	all := []string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"}
	return slices.Index(all, r.freq) >= slices.Index(all, freq)
}

// named says whether a part lists a value, or if it is missing, whether the value
// is that of DTSTART or the periods are short enough to take all.
func (r *referenceRule) named(part string, value, atStart int, freq string) bool {
	if list := r.by[part]; list != nil {
		return slices.Contains(list, value)
	}
	return r.finer(freq) || value == atStart
}

func (r *referenceRule) secondFits(t time.Time) bool {
	return r.named("BYSECOND", t.Second(), r.start.Second(), "SECONDLY")
}

func (r *referenceRule) minuteFits(t time.Time) bool {
	return r.named("BYMINUTE", t.Minute(), r.start.Minute(), "MINUTELY")
}

func (r *referenceRule) hourFits(t time.Time) bool {
	return r.named("BYHOUR", t.Hour(), r.start.Hour(), "HOURLY")
}

func (r *referenceRule) dayFits(t time.Time) bool {
	year, month, day := t.Date()
	yearLength := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).YearDay()
	monthLength := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	either := func(part string, fromStart, fromEnd int) bool {
		list := r.by[part]
		return list == nil || slices.Contains(list, fromStart) || slices.Contains(list, fromEnd)
	}
	if !either("BYMONTH", int(month), 0) || !either("BYMONTHDAY", day, day-monthLength-1) ||
		!either("BYYEARDAY", t.YearDay(), t.YearDay()-yearLength-1) {
		return false
	}
	if r.by["BYWEEKNO"] != nil {
		week := r.weekOf(t)
		weekYear := week.AddDate(0, 0, 3).Year() // that of the fourth day
		number := int(week.Sub(r.weekOf(time.Date(weekYear, 1, 4, 0, 0, 0, 0, time.UTC)))/(7*24*time.Hour)) + 1
		weeks := int(r.weekOf(time.Date(weekYear+1, 1, 4, 0, 0, 0, 0, time.UTC)).Sub(week)/(7*24*time.Hour)) + number - 1
		if !either("BYWEEKNO", number, number-weeks-1) {
			return false
		}
	}
	if r.byDay != nil {
		n, last := (t.YearDay()+6)/7, -(yearLength-t.YearDay())/7-1
		if r.freq == "MONTHLY" || r.by["BYMONTH"] != nil {
			n, last = (day+6)/7, -(monthLength-day)/7-1
		}
		return slices.ContainsFunc(r.byDay, func(d referenceWeekday) bool {
			return d.day == t.Weekday() && (d.n == 0 || d.n == n || d.n == last)
		})
	}
	if r.by["BYMONTHDAY"] != nil || r.by["BYYEARDAY"] != nil || r.by["BYWEEKNO"] != nil {
		return true
	}
	switch r.freq {
	case "YEARLY":
		return day == r.start.Day() && (r.by["BYMONTH"] != nil || month == r.start.Month())
	case "MONTHLY":
		return day == r.start.Day()
	case "WEEKLY":
		return t.Weekday() == r.start.Weekday()
	}
	return true
}

// weekOf returns the beginning of the week of a wall time.
func (r *referenceRule) weekOf(t time.Time) time.Time {
	for t = t.Truncate(24 * time.Hour); t.Weekday() != r.wkst; {
		t = t.Add(-24 * time.Hour)
	}
	return t
}
