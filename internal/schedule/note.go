package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Location returns the time zone that a rule is read in, which may be named by its
// own text.
func Location(r Rule) *time.Location {
	switch r := r.(type) {
	case clockRule:
		return r.clock().zone.location
	case *oneOff:
		return r.zone.location
	case *durationInterval:
		return r.zone.location
	case *mixedInterval:
		return r.zone.location
	}
	return time.UTC
}

// Note says in a few English words what a change of the clock has to do with an
// occurrence of a rule, such as "02:30 does not exist that day: runs at 03:00". It
// is empty if there is nothing to say.
func Note(r Rule, o Occurrence) string {
	local := o.At.In(Location(r))
	var list []string
	if o.MovedCount > 0 {
		then := "runs at"
		switch {
		case namesLocal(r, local):
			then = "merged into the run at"
		case o.MovedCount > 1:
			then = "runs once, at"
		}
		list = append(list, fmt.Sprintf("%s not exist %s: %s %s", noteWalls(o.Moved, o.MovedCount), noteDay(o.Moved[0], local), then, timeOfDay(local)))
	}
	switch o.Repeat {
	case RepeatOnly:
		list = append(list, timeOfDay(local)+" comes twice: runs the first time")
	case RepeatAgain:
		list = append(list, "second "+timeOfDay(local))
	}
	return strings.Join(list, "; ")
}

// Notes returns the Note of each of the occurrences that follow an instant. With
// Options.SkipGap it also says what was left out before one.
func Notes(r Rule, after time.Time, list []Occurrence) []string {
	notes := make([]string, len(list))
	for i, o := range list {
		notes[i] = NoteSkipped(r, after, o.At)
		if note := Note(r, o); note != "" && notes[i] != "" {
			notes[i] += "; " + note
		} else if note != "" {
			notes[i] = note
		}
		after = o.At
	}
	return notes
}

// maxNotedGaps is how many gaps a note tells of.
const maxNotedGaps = 3

// NoteSkipped says what a rule left out because of Options.SkipGap after an instant
// and until another one, such as "02:30 does not exist on 8 March 2026: left out".
// It is empty if that is nothing.
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

// noteDay says on which day a wall time is, to somebody who looks at another one.
func noteDay(w Wall, seen time.Time) string {
	if sameDay(w.Time(), seen) {
		return "that day"
	}
	return "on " + w.Time().Format("2 January 2006")
}

// noteWalls names wall times that the clock skips, and the verb that follows them.
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

func sameDay(a, b time.Time) bool {
	return a.Year() == b.Year() && a.YearDay() == b.YearDay()
}

// namesLocal reports whether a rule itself names the local time of an occurrence.
func namesLocal(r Rule, local time.Time) bool {
	_, offset := local.Zone()
	c, ok := r.(clockRule)
	return ok && c.namesWall(local.Unix()+int64(offset), local.Unix())
}
