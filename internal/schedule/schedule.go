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
	"time"
)

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
