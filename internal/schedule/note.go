package schedule

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Location returns the time zone of a rule.
func Location(r Rule) *time.Location {
	switch r := r.(type) {
	case clockRule:
		return r.clock().zone.location
	case *oneOff:
		return r.zone.location
	case *durationInterval:
		return r.zone.location
	}
	return time.UTC
}

// Note explains in a few English words what a clock change did to an occurrence,
// such as "02:30 does not exist that day: runs at 03:00". It is empty for most.
func Note(r Rule, o Occurrence) string {
	local := o.At.In(Location(r))
	moved, repeated := "", ""
	if o.MovedCount > 0 {
		then := "runs at"
		_, offset := local.Zone()
		c, ok := r.(clockRule)
		switch {
		case ok && c.namesWall(local.Unix()+int64(offset), local.Unix()):
			then = "merged into the run at"
		case o.MovedCount > 1:
			then = "runs once, at"
		}
		moved = fmt.Sprintf("%s not exist %s: %s %s", noteWalls(o.Moved, o.MovedCount), noteDay(o.Moved[0], local), then, timeOfDay(local))
	}
	switch o.Repeat {
	case RepeatOnly:
		repeated = timeOfDay(local) + " comes twice: runs the first time"
	case RepeatAgain:
		repeated = "second " + timeOfDay(local)
	}
	return joinNotes(moved, repeated)
}

func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// PreviewOccurrence is an occurrence as a preview shows it.
type PreviewOccurrence struct {
	At    time.Time
	Local time.Time // At in the zone of the rule
	Note  string    // NoteSkipped since the one before, and Note; mostly empty
}

// maxNotedTimes is how many wall times that a clock skips the notes of a preview are
// about in detail. Only rules of seconds have so many, and they take long to count.
const maxNotedTimes = 50_000

// Preview lists up to n occurrences of a rule after an instant, at most 1000, from
// starts to ends, both inclusive. A zero bound is none. It stops early if ctx ends.
func Preview(ctx context.Context, r Rule, after, starts, ends time.Time, n int) []PreviewOccurrence {
	if after.Before(starts) {
		after = starts.Add(-1)
	}
	preview := []PreviewOccurrence{}
	next := InOrder(r)
	noted := int64(0)
	for len(preview) < min(n, maxOccurrences) && ctx.Err() == nil {
		at := next(after)
		if at.IsZero() || !ends.IsZero() && at.After(ends) {
			break
		}
		note := ""
		if noted <= maxNotedTimes {
			o := OccurrenceAt(r, at)
			gaps, more := skippedGaps(r, after, at, maxNotedGaps)
			note = joinNotes(noteGaps(gaps, more, at.In(Location(r))), Note(r, o))
			for _, g := range gaps {
				noted += g.Count
			}
			noted += o.MovedCount
		} else if hasGap(r, after, at) {
			note = "times of the schedule do not exist here either"
		}
		preview = append(preview, PreviewOccurrence{at, at.In(Location(r)), note})
		after = at
	}
	return preview
}

// CloseTimes returns the first two occurrences of a rule in a row with less time between them
// than the least; zero if there are none among the next 1000 from starts to ends, both
// inclusive. A zero bound is none.
func CloseTimes(r Rule, after, starts, ends time.Time, least time.Duration) (first, second time.Time) {
	if after.Before(starts) {
		after = starts.Add(-1)
	}
	next := InOrder(r)
	first = next(after)
	for range maxOccurrences {
		second = next(first)
		if first.IsZero() || second.IsZero() || !ends.IsZero() && second.After(ends) {
			break
		}
		if second.Sub(first) < least {
			return first, second
		}
		first = second
	}
	return time.Time{}, time.Time{}
}

// hasGap reports whether the clock skips times of a rule after an instant and until
// another one.
func hasGap(r Rule, after, until time.Time) bool {
	c, ok := r.(clockRule)
	if !ok {
		return false
	}
	z := c.clock().zone
	for i := z.at(after.Unix()) + 1; i < len(z.periods) && z.periods[i].start <= until.Unix(); i++ {
		if c.hasGapTimes(i) {
			return true
		}
	}
	return false
}

const maxNotedGaps = 3

// NoteSkipped lists what a rule left out because of Options.SkipGap after an instant
// and until another one, such as "02:30 does not exist on 8 March 2026: left out".
// It is empty for most.
func NoteSkipped(r Rule, after, until time.Time) string {
	gaps, more := skippedGaps(r, after, until, maxNotedGaps)
	return noteGaps(gaps, more, until.In(Location(r)))
}

// noteGaps describes gaps beside an occurrence, and that there are more.
func noteGaps(gaps []Gap, more int, local time.Time) string {
	var list []string
	for _, g := range gaps {
		walls := []Wall{g.First, g.Last}
		if g.Count == 1 {
			walls = walls[:1]
		}
		list = append(list, fmt.Sprintf("%s not exist %s: left out", noteWalls(walls, g.Count), noteDay(g.First, local)))
	}
	if more > 0 {
		list = append(list, "and so at "+plural(int64(more), "clock change")+" after that")
	}
	return strings.Join(list, "; ")
}

// noteDay writes the day of a wall time beside an occurrence, which is mostly on the same day.
func noteDay(w Wall, local time.Time) string {
	day := w.Time().Format("2 January 2006")
	if day == local.Format("2 January 2006") {
		return "that day"
	}
	return "on " + day
}

// noteWalls lists wall times that the clock skips, and the verb that follows them.
func noteWalls(walls []Wall, count int64) string {
	first, last := timeOfDay(walls[0].Time()), timeOfDay(walls[len(walls)-1].Time())
	switch {
	case count == 1:
		return first + " does"
	case count == 2:
		return first + " and " + last + " do"
	case count > maxMoved && len(walls) == maxMoved: // The last is not among them.
		return fmt.Sprintf("%s and %d later times do", first, count-1)
	default:
		return fmt.Sprintf("%s to %s (%d times) do", first, last, count)
	}
}

const maxWarnings = 6

// Warnings returns English sentences about what may surprise the author of a rule:
// day fields that combine in an unexpected way, steps that do not divide their range,
// long waits, and the clock changes within a year from now that affect it.
func Warnings(r Rule, now time.Time) []string {
	var list []string
	if c, ok := r.(*cron); ok {
		list = append(c.dayWarnings(), c.stepWarnings()...)
	}
	if text := rareWarning(r, now); text != "" {
		list = append(list, text)
	}
	return append(list, clockWarnings(r, now)...)
}

func (c *cron) dayWarnings() (list []string) {
	f := c.dayFields
	words := strings.Fields(c.text)
	first := slices.Index(cronLayouts[len(words)], dayField)
	day, month, weekday := words[first], words[first+1], words[first+2]
	anyDay, anyWeekday := f.days == allBits(31), f.weekdays == allBits(7)
	stepped := func(text string) bool { return strings.HasPrefix(text, "*/") || strings.HasPrefix(text, "?/") }
	switch {
	case f.eitherField && !anyDay && !anyWeekday:
		list = append(list, fmt.Sprintf("day of month %s and weekday %s are alternatives: it runs on %s of the month and also on %s",
			day, weekday, f.listDays(), f.listWeekdays()))
	case stepped(day) && !anyDay && !anyWeekday, stepped(weekday) && !anyDay && !anyWeekday:
		list = append(list, fmt.Sprintf("a day field that begins with * restricts the other one: it runs only on days that fit both %s and %s", day, weekday))
	}
	if n, _, _ := strings.Cut(strings.TrimPrefix(day, "*/"), ","); stepped(day) && !anyDay {
		list = append(list, fmt.Sprintf("day of month %s begins anew on the 1st of each month: there are not always %s days between two runs", day, n))
	}
	plain := f.last|f.nearest|f.lastNearest == 0
	if c.months == 1<<1 && plain && f.days == 1<<28 && anyWeekday {
		list = append(list, "29 February comes only in leap years, every 4 years and not in 2100")
	} else if beyond := f.days &^ allBits(28); plain && anyWeekday && f.days != 0 && f.days == beyond && month == "*" {
		list = append(list, fmt.Sprintf("not every month has a day %d: the others are left out; L is the last day of a month", bits.TrailingZeros64(f.days)+1))
	}
	return list
}

func (c *cron) stepWarnings() (list []string) {
	words := strings.Fields(c.text)
	for i, f := range cronLayouts[len(words)] {
		size := f.size()
		if f == dayField || f == weekdayField || f == yearField {
			continue
		}
		for item := range strings.SplitSeq(words[i], ",") {
			bounds, after, ok := strings.Cut(item, "/")
			step := int(parseDigits(after, maxNumber))
			if !ok || strings.Contains(bounds, "-") {
				continue
			}
			first := 0
			if bounds != "*" && bounds != "?" {
				first = int(parseDigits(bounds, int64(f.most))) - f.low
			}
			switch last := first + (size-1-first)/step*step; {
			case first+step >= size:
				list = append(list, fmt.Sprintf("%s in the %s field is a single value: the step is larger than the range", item, f.name))
			case (first+size-last)%step != 0:
				list = append(list, fmt.Sprintf("%s in the %s field begins anew each time: from %d to %d it is %s",
					item, f.name, last+f.low, first+f.low, plural(int64(first+size-last), f.name)))
			}
		}
	}
	return list
}

func rareWarning(r Rule, now time.Time) string {
	next := r.Next(now)
	if _, single := r.(*oneOff); single || next.IsZero() {
		return ""
	}
	const year = 367 * 24 * time.Hour
	local := func(t time.Time) string { return t.Format("2 Jan 2006") }
	after := r.Next(next)
	switch {
	case next.Sub(now) > year:
		return fmt.Sprintf("it does not run before %s", local(next))
	case !after.IsZero() && after.Sub(next) > year:
		return fmt.Sprintf("it runs rarely: on %s, and not again before %s", local(next), local(after))
	}
	return ""
}

func clockWarnings(r Rule, now time.Time) (list []string) {
	if o, ok := r.(*oneOff); ok {
		place := o.zone.location
		switch occurrence := OccurrenceAt(o, o.at); {
		case o.skipped:
			return []string{fmt.Sprintf("%s does not exist in %s: runs %s", wallDate(o.wall), place, timeOfDay(o.at.In(place)))}
		case occurrence.Repeat == RepeatOnly:
			return []string{fmt.Sprintf("%s happens twice in %s: runs at the first", wallDate(o.wall), place)}
		}
		return nil
	}
	c, ok := r.(clockRule)
	if !ok {
		return nil
	}
	z := c.clock().zone
	last := now.AddDate(1, 0, 0).Unix()
	for i := z.at(now.Unix()) + 1; i < len(z.periods) && z.periods[i].start <= last && len(list) < maxWarnings; i++ {
		text := ""
		if from, end := z.gap(i); from < end {
			text = gapWarning(c, i)
		} else {
			text = overlapWarning(r, z, i)
		}
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

func gapWarning(c clockRule, i int) string {
	z, walls := c.clock().zone, c.gapTimes(i)
	if len(walls) == 0 {
		return ""
	}
	verb, then := "does", "is left out"
	if !c.clock().skipGap {
		then = "runs " + timeOfDay(time.Unix(z.periods[i].start, 0).In(z.location))
	}
	if len(walls) > 1 {
		verb, then = "do", strings.Replace(strings.Replace(then, "runs ", "runs once, at ", 1), "is left", "are left", 1)
	}
	return fmt.Sprintf("%s %s not exist in %s: %s", wallDates(walls), verb, z.location, then)
}

// overlapWarning is for the overlap at the beginning of a period. A rule that keeps
// its pace through it needs no warning.
func overlapWarning(r Rule, z *zone, i int) string {
	end, begin := z.gap(i) // The clock goes back from end to begin.
	first := time.Unix(begin-z.periods[i-1].offset-1, 0)
	var walls []int64
	both, steady := false, true
	next := InOrder(r)
	for at := next(first); !at.IsZero() && at.Unix() < z.periods[i].start; at = next(at) {
		wall := at.Unix() + z.periods[i-1].offset
		walls = append(walls, wall)
		both = both || firesAt(r, wall-z.periods[i].offset)
		steady = steady && firesAt(r, wall-z.periods[i].offset) && firesAt(r, wall+end-begin-z.periods[i].offset)
	}
	if len(walls) == 0 || steady {
		return ""
	}
	verb, then := "happens", "runs at the first"
	if len(walls) > 1 {
		verb = "happen"
	}
	if both {
		then = "runs both times"
	}
	return fmt.Sprintf("%s %s twice in %s: %s", wallDates(walls), verb, z.location, then)
}

// wallDate writes a wall time such as "8 Mar 2026 02:30".
func wallDate(wall int64) string {
	t := Wall(wall).Time()
	return t.Format("2 Jan 2006 ") + timeOfDay(t)
}

// wallDates writes up to three wall times, or the first, the last and their number.
func wallDates(walls []int64) string {
	if len(walls) > 3 {
		return fmt.Sprintf("%s to %s (%d times)", wallDate(walls[0]), timeOfDay(Wall(walls[len(walls)-1]).Time()), len(walls))
	}
	list := []string{wallDate(walls[0])}
	for _, wall := range walls[1:] {
		list = append(list, timeOfDay(Wall(wall).Time()))
	}
	return joinWithAnd(list)
}
