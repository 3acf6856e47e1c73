// Package schedule computes the occurrences of schedules.
//
// Parse turns the text of a schedule into a Rule, and Rule.Next returns its
// occurrences. A rule is a cron expression, a calendar rule (RRULE), a repeating
// interval or a single instant. Except for intervals of hours and less, a rule names
// wall times of a time zone, and a clock change neither loses nor doubles an
// occurrence:
//
//   - In a gap, which the clock skips, a wall time fires at the end of the gap, or
//     not at all with Options.SkipGap. An interval-like rule fires only for times
//     that its later times do not cover, so "every 15 minutes" keeps its pace and
//     "every 15 minutes from 2 to 3" still fires once.
//   - In an overlap, which the clock shows twice, a wall time fires the first time if
//     the rule is fixed-time, and both times if it is interval-like, or as
//     Options.Overlap decides.
//
// A cron expression is interval-like if its second, minute or hour field contains
// "*" or "/" or names every value of its range, a calendar rule if it repeats hourly
// or more often. Intervals of days and months are fixed-time. Only offsets from UTC
// matter, never whether a zone calls one of them daylight saving time. All of this
// is implemented once, in wallClock.
//
// OccurrenceAt and SkippedGaps return what a clock change moved, repeated or left
// out; Describe, Note and Warnings explain it in English. Newest catches up after an
// outage, Jitter spreads jobs that are due at the same time, and Resolve does so
// with the H of cron expressions.
//
// All functions are pure: they read no clock, no file and no setting of the machine.
// The zone database is part of the binary, so that every node agrees on it.
package schedule

import (
	"fmt"
	"slices"
	"time"
)

// Wall is what a clock on a wall shows, in seconds since it showed the beginning
// of 1970. It is not an instant: a clock may show it twice or never.
type Wall int64

// Time returns the wall time as if the clock stood in UTC.
func (w Wall) Time() time.Time { return time.Unix(int64(w), 0).UTC() }

// Repeat is what happened to a wall time that the clock shows twice.
type Repeat uint8

const (
	RepeatNone  Repeat = iota // the clock shows it once, or the rule fires again the second time
	RepeatOnly                // this is the first time, and the second will not fire
	RepeatAgain               // this is the second time
)

// Occurrence is an instant of a rule and what a clock change did to it.
type Occurrence struct {
	At time.Time

	// Moved are the wall times that the clock skipped and that fire here instead, in
	// order: the first 100 of MovedCount.
	Moved      []Wall
	MovedCount int64

	Repeat Repeat
}

const (
	maxMoved       = 100     // wall times in Occurrence.Moved
	maxOccurrences = 1000    // of Preview
	maxEnumerated  = 100_000 // occurrences that are counted one by one
	maxAsked       = 150_000 // how often the rules of a set are asked for them
	maxGaps        = 1060    // gaps that are listed at once: two a year, for all the years
)

// OccurrenceAt returns the occurrence at an instant that Rule.Next returned.
func OccurrenceAt(r Rule, at time.Time) Occurrence {
	o := Occurrence{At: at}
	t := at.Unix()
	if r, ok := r.(*oneOff); ok {
		if r.skipped {
			o.Moved, o.MovedCount = []Wall{Wall(r.wall)}, 1
		} else if other, _ := r.zone.otherInstant(t); r.local && other != never {
			o.Repeat = RepeatOnly
		}
		return o
	}
	c, ok := r.(clockRule)
	if !ok {
		return o
	}
	z := c.clock().zone
	if i := z.at(t); z.periods[i].start == t && !c.clock().skipGap {
		for _, wall := range c.gapTimes(i) {
			if o.MovedCount < maxMoved {
				o.Moved = append(o.Moved, Wall(wall))
			}
			o.MovedCount++
		}
	}
	switch other, later := z.otherInstant(t); {
	case other == never:
	case later && !firesAt(r, other):
		o.Repeat = RepeatOnly
	case !later && firesAt(r, other):
		o.Repeat = RepeatAgain
	}
	return o
}

func firesAt(r Rule, t int64) bool {
	return nextUntil(r, time.Unix(t-1, 0), time.Unix(t+1, 0)).Equal(time.Unix(t, 0))
}

// clockRule is a rule that changes of the clock affect.
type clockRule interface {
	clock() *wallClock

	// gapTimes lists the wall times in the gap at the beginning of the i-th period of
	// the zone that no later time covers, in order.
	gapTimes(i int) []int64

	// hasGapTimes reports whether there are any.
	hasGapTimes(i int) bool

	// namesWall reports whether the rule itself names the wall time of an instant.
	namesWall(wall, t int64) bool
}

// Gap is a gap of the wall clock with times of a rule that did not fire.
type Gap struct {
	At          time.Time // its end
	First, Last Wall
	Count       int64 // of the times from the first to the last
}

// SkippedGaps returns what a rule left out because of Options.SkipGap in the gaps that
// end after from and not after to.
func SkippedGaps(r Rule, from, to time.Time) []Gap {
	list, _ := skippedGaps(r, from, to, maxGaps)
	return list
}

// skippedGaps returns the first n of SkippedGaps, and the number of the others.
func skippedGaps(r Rule, from, to time.Time, n int) (list []Gap, more int) {
	c, ok := r.(clockRule)
	if !ok || !c.clock().skipGap {
		return nil, 0
	}
	z := c.clock().zone
	last := min(to.Unix(), horizon-1)
	for i := z.at(max(from.Unix(), firstInstant)) + 1; i < len(z.periods) && z.periods[i].start <= last && len(list)+more < maxGaps; i++ {
		if !c.hasGapTimes(i) {
			continue
		}
		if len(list) == n {
			more++
			continue
		}
		walls := c.gapTimes(i)
		list = append(list, Gap{instant(z.periods[i].start), Wall(walls[0]), Wall(walls[len(walls)-1]), int64(len(walls))})
	}
	return list, more
}

// Newest returns the newest n occurrences after from and not after end, oldest
// first, and the number of older ones after from. If atLeast is true there may be
// more. It searches backwards from the end, so its cost depends on n and not on how
// many occurrences a long outage missed. Most rules count the older ones without
// visiting them; those of others are counted up to 100,000, or less far if they are
// named by many rules at the same time.
func Newest(r Rule, from, end time.Time, n int) (newest []time.Time, skipped int64, atLeast bool) {
	if !from.Before(end) {
		return nil, 0, false
	}
	next := end.Add(1) // no occurrence from here back to end
	gap := time.Duration(0)
	for len(newest) < n {
		at := previousOccurrence(r, from, next, gap)
		if at.IsZero() {
			break
		}
		gap, next = next.Sub(at), at
		newest = append(newest, at)
	}
	slices.Reverse(newest)
	if len(newest) < n {
		return newest, 0, false
	}
	skipped, atLeast = countOccurrences(r, from, next)
	return newest, skipped, atLeast
}

// previousOccurrence returns the latest occurrence after from and before end, or the zero
// time. Gap is the expected distance to the end. It terminates even if a rule returns
// an instant that is not after the given one.
func previousOccurrence(r Rule, from, end time.Time, gap time.Duration) time.Time {
	var latest time.Time
	high := end // no occurrence from here on
	for back := max(gap, time.Second) + 1; latest.IsZero(); back *= 2 {
		if back <= 0 || back >= end.Sub(from) {
			if latest = nextUntil(r, from, end); !latest.After(from) || !latest.Before(end) {
				return time.Time{}
			}
			break
		}
		low := end.Add(-back)
		if at := nextUntil(r, low, end); at.After(low) && at.Before(end) {
			latest = at
		} else {
			high = low.Add(1)
		}
	}
	for {
		at := nextUntil(r, latest, end)
		if !at.After(latest) || !at.Before(end) {
			return latest
		}
		latest = at
		middle := latest.Add(high.Sub(latest) / 2)
		if at = nextUntil(r, middle, end); at.After(latest) && at.Before(end) {
			latest = at
		} else {
			high = middle.Add(1)
		}
	}
}

// Count counts the occurrences after an instant and before another without visiting them;
// not ok if the rule cannot do that.
func Count(r Rule, from, end time.Time) (n int64, ok bool) {
	if c, can := r.(interface {
		countBetween(from, end time.Time) (n int64, ok bool)
	}); can && from.Before(end) {
		return c.countBetween(from, end)
	}
	return 0, false
}

// Step returns the distance of the occurrences of a rule that fires for ever at equal
// distances from its start, whatever clocks do; zero for all others.
func Step(r Rule) time.Duration {
	if d, ok := r.(*durationInterval); ok && d.calendar == nil && d.count == 0 {
		return time.Duration(d.step) * time.Microsecond
	}
	return 0
}

func countOccurrences(r Rule, from, end time.Time) (n int64, atLeast bool) {
	if n, ok := Count(r, from, end); ok {
		return n, false
	}
	if set, ok := r.(*rruleSet); ok {
		return set.visitBetween(from, end)
	}
	for at := r.Next(from); !at.IsZero() && at.Before(end); at = r.Next(at) {
		if n == maxEnumerated {
			return n, true
		}
		n++
	}
	return n, false
}

// Rule is a sequence of instants, its occurrences. Next returns the first one
// strictly after the given instant, in UTC, or the zero time if there is none. It
// depends only on after. A Rule is safe for concurrent use. No occurrence lies
// beyond the year 2499.
type Rule interface {
	Next(after time.Time) time.Time
}

// DSTOverlap selects the instants of a wall time that the clock shows twice.
type DSTOverlap uint8

const (
	DSTAuto  DSTOverlap = iota // both for interval-like rules, the first for others
	DSTFirst                   // the first
	DSTBoth                    // both
)

// Options are the settings of a schedule that are not part of its text.
type Options struct {
	// Timezone is an IANA name such as "Europe/Paris". Rules without one are read in
	// UTC, but an instant or a start without an offset requires it.
	Timezone string

	// SkipGap leaves out the occurrences whose wall time the clock skips, and
	// refuses an instant at such a time.
	SkipGap bool

	// Overlap selects the instants of wall times that the clock shows twice. An
	// instant without an offset is always the first.
	Overlap DSTOverlap

	// Start is where a rule begins that needs a start and has none in its text: see
	// NeedsStart. It has the precision of a microsecond, and of a second in rules of
	// days, weeks, months and years.
	Start time.Time

	// Now, if set, makes Parse refuse a rule with no occurrence in the 45 years after
	// it: set it for a new schedule. The zero time refuses only a rule with no
	// occurrence from 1970 to 2499: use it for a stored schedule, whose last
	// occurrence may have passed.
	Now time.Time
}

// Error is a syntax error or an invalid value in a schedule or its time zone.
type Error struct {
	Field   string // "schedule" or "timezone"
	Column  int    // in the field, counted from 1; 0 means all of it
	Message string
	Example string // a correct value of the field
}

func (e *Error) Error() string {
	text := e.Field
	if e.Column > 0 {
		text += fmt.Sprintf(", column %d", e.Column)
	}
	text += ": " + e.Message
	if e.Example != "" {
		text += fmt.Sprintf("; for example %q", e.Example)
	}
	return text
}

const (
	cronExample    = "30 9 * * MON-FRI"
	instantExample = "2026-03-01T09:00:00Z"
	zoneExample    = "Europe/Paris"

	intervalExample = "R5/2026-03-01T09:00:00Z/PT15M"
	everyExample    = "R/2026-03-01T09:00:00Z/PT90S"

	rruleExample      = "FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9"
	rruleStartExample = "DTSTART:20260302T090000 RRULE:" + rruleExample
)

// errorf returns an Error about the schedule as a whole. Like errorAt and zoneErrorf it
// shortens arguments that are strings: they repeat what a person wrote.
func errorf(example, format string, args ...any) error {
	return newError("schedule", 0, example, format, args)
}

// errorAt returns an Error about one place of a schedule, counted from 0.
func errorAt(pos int, example, format string, args ...any) error {
	return newError("schedule", pos+1, example, format, args)
}

func zoneErrorf(example, format string, args ...any) error {
	return newError("timezone", 0, example, format, args)
}

func newError(field string, column int, example, format string, args []any) error {
	const most = 40 // longer than the longest name of a time zone
	for i, a := range args {
		if s, ok := a.(string); ok && len(s) > most {
			args[i] = s[:most] + "..."
		}
	}
	return &Error{Field: field, Column: column, Message: fmt.Sprintf(format, args...), Example: example}
}
