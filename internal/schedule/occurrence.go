package schedule

import (
	"time"
)

// Wall is what a clock on a wall shows, in seconds since it showed the beginning
// of 1970. It is not an instant: a clock may show it twice or never.
type Wall int64

// Time returns the wall time as if the clock stood in UTC.
func (w Wall) Time() time.Time { return time.Unix(int64(w), 0).UTC() }

// String returns a wall time such as "2026-03-08T02:30:00".
func (w Wall) String() string { return w.Time().Format("2006-01-02T15:04:05") }

// MarshalText writes a wall time like String.
func (w Wall) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// Repeat says what became of a wall time that the clock shows twice.
type Repeat uint8

const (
	RepeatNone  Repeat = iota // the clock shows it once, or the rule fires again the second time
	RepeatOnly                // this is the first time, and the second will not fire
	RepeatAgain               // this is the second time
)

func (r Repeat) String() string { return [...]string{"", "only", "again"}[r%3] }

// Occurrence is an instant of a rule and what a change of the clock has to do with
// it.
type Occurrence struct {
	At time.Time

	// Moved are the wall times that the clock skipped and that fire here instead, in
	// order: the first 100 of MovedCount.
	Moved      []Wall
	MovedCount int64

	Repeat Repeat
}

// maxMoved is how many moved wall times an occurrence lists.
const maxMoved = 100

// maxOccurrences is how many occurrences are listed at once.
const maxOccurrences = 1000

// Occurrences returns the next n occurrences of a rule after an instant, at most
// 1000.
func Occurrences(r Rule, after time.Time, n int) []Occurrence {
	var list []Occurrence
	for range min(n, maxOccurrences) {
		if after = r.Next(after); after.IsZero() {
			break
		}
		list = append(list, OccurrenceAt(r, after))
	}
	return list
}

// OccurrenceAt returns what a change of the clock has to do with an instant that
// the rule named.
func OccurrenceAt(r Rule, at time.Time) Occurrence {
	o := Occurrence{At: at}
	t := at.Unix()
	if r, ok := r.(*once); ok {
		if r.skipped {
			o.Moved, o.MovedCount = []Wall{Wall(r.wall)}, 1
		} else if other, _ := r.zone.twin(t); r.local && other != never {
			o.Repeat = RepeatOnly
		}
		return o
	}
	z, skipGap := clockOf(r)
	if z == nil {
		return o
	}
	if i := z.at(t); z.periods[i].start == t && !skipGap {
		for _, wall := range lost(r, i) {
			if o.MovedCount < maxMoved {
				o.Moved = append(o.Moved, Wall(wall))
			}
			o.MovedCount++
		}
	}
	switch other, later := z.twin(t); {
	case other == never:
	case later && !firesAt(r, other):
		o.Repeat = RepeatOnly
	case !later && firesAt(r, other):
		o.Repeat = RepeatAgain
	}
	return o
}

func firesAt(r Rule, t int64) bool {
	return r.Next(time.Unix(t-1, 0)).Equal(time.Unix(t, 0))
}

// clockOf returns the zone of a rule of wall times and whether it leaves out what
// the clock skips, or nil for any other rule.
func clockOf(r Rule) (z *zone, skipGap bool) {
	switch r := r.(type) {
	case waller:
		return r.onClock().zone, r.onClock().skipGap
	case *calendarRule:
		return r.zone, r.rules[0].skipGap
	}
	return nil, false
}
