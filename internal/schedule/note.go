package schedule

import (
	"fmt"
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

// Notes returns the Note of each of the occurrences that follow an instant, together
// with the NoteSkipped of the time before it.
func Notes(r Rule, after time.Time, list []Occurrence) []string {
	notes := make([]string, len(list))
	for i, o := range list {
		notes[i] = joinNotes(NoteSkipped(r, after, o.At), Note(r, o))
		after = o.At
	}
	return notes
}

// PreviewOccurrence is an occurrence as a preview shows it.
type PreviewOccurrence struct {
	At    time.Time
	Local time.Time // At in the zone of the rule
	Note  string    // see Notes; mostly empty
}

// Preview lists up to n occurrences of a rule after an instant, at most 1000, from
// starts to ends, both inclusive. A zero bound is none.
func Preview(r Rule, after, starts, ends time.Time, n int) []PreviewOccurrence {
	if after.Before(starts) {
		after = starts.Add(-1)
	}
	list := Occurrences(r, after, n)
	if end := slices.IndexFunc(list, func(o Occurrence) bool { return !ends.IsZero() && o.At.After(ends) }); end >= 0 {
		list = list[:end]
	}
	preview := make([]PreviewOccurrence, len(list))
	for i, note := range Notes(r, after, list) {
		preview[i] = PreviewOccurrence{list[i].At, list[i].At.In(Location(r)), note}
	}
	return preview
}

const maxNotedGaps = 3

// NoteSkipped lists what a rule left out because of Options.SkipGap after an instant
// and until another one, such as "02:30 does not exist on 8 March 2026: left out".
// It is empty for most.
func NoteSkipped(r Rule, after, until time.Time) string {
	local := until.In(Location(r))
	gaps := SkippedGaps(r, after, until)
	var list []string
	for _, g := range gaps[:min(len(gaps), maxNotedGaps)] {
		walls := []Wall{g.First, g.Last}
		if g.Count == 1 {
			walls = walls[:1]
		}
		list = append(list, fmt.Sprintf("%s not exist %s: left out", noteWalls(walls, g.Count), noteDay(g.First, local)))
	}
	if more := len(gaps) - len(list); more > 0 {
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
