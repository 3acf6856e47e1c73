// Package schedule answers one question: when is the next time after this one?
//
// Parse turns the text of a schedule into a Rule, and Rule.Next names the
// occurrences. A rule is a cron expression, a calendar rule (RRULE), a repeating
// interval or a single instant. All but the times of intervals are read on the
// wall clock of a time zone, and a change of that clock neither loses nor doubles
// an occurrence:
//
//   - A wall time that the clock skips fires when the skipped stretch ends,
//     unless Options.SkipGap says otherwise. An interval-like rule makes up
//     only what its later times do not cover, so "every 15 minutes" keeps its
//     pace and "every 15 minutes from 2 to 3" still fires once.
//   - A wall time that the clock shows twice fires the first time if the rule
//     is fixed-time, and both times if it is interval-like.
//
// A cron expression is interval-like if its second, minute or hour field holds
// "*" or "/" or names every value of its range, a calendar rule if it repeats
// hourly or more often. Intervals of days and months are fixed-time; those of
// hours and less pass whatever the clock shows. Only offsets from UTC count, never
// whether a zone calls one of them daylight saving.
//
// Occurrences and Skipped tell what a change of the clock moved, repeated or left
// out, Describe and Warnings say it in English. Newest catches up with what an
// outage missed, Jitter spreads what is due at once, and Resolve does so with the
// H of cron expressions.
//
// All of it is pure: no clock, no file and no setting of the machine is read.
// The zone database is part of the binary, so that every node agrees on it.
package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Rule names instants. Next returns the first occurrence strictly after the
// given instant, in UTC; the zero time means never again. It depends on nothing
// but after, and a Rule is safe for concurrent use. No occurrence lies beyond
// the year 2499.
type Rule interface {
	Next(after time.Time) time.Time
}

// DSTOverlap says which instants a wall time names that the clock shows twice.
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

	// Overlap decides about wall times that the clock shows twice. An instant
	// without an offset is always the first.
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

// Once returns the instant of a rule that names exactly one.
func Once(r Rule) (time.Time, bool) {
	if o, ok := r.(*oneOff); ok {
		return o.at, true
	}
	return time.Time{}, false
}

// Error says why a schedule or its time zone is refused.
type Error struct {
	Field   string // what is at fault: "schedule" or "timezone"
	Column  int    // where in the field, counted from 1; 0 means all of it
	Message string // what is wrong
	Example string // a correct value of the field
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Field)
	if e.Column > 0 {
		fmt.Fprintf(&b, ", column %d", e.Column)
	}
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Example != "" {
		fmt.Fprintf(&b, "; for example %q", e.Example)
	}
	return b.String()
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

// errorf returns an Error about the schedule as a whole.
func errorf(example, format string, args ...any) error {
	return &Error{Field: "schedule", Message: fmt.Sprintf(format, args...), Example: example}
}

// errorAt returns an Error about one place of a schedule, counted from 0.
func errorAt(pos int, example, format string, args ...any) error {
	return &Error{Field: "schedule", Column: pos + 1, Message: fmt.Sprintf(format, args...), Example: example}
}

// zoneErrorf returns an Error about the time zone.
func zoneErrorf(example, format string, args ...any) error {
	return &Error{Field: "timezone", Message: fmt.Sprintf(format, args...), Example: example}
}

// truncate shortens text that a message repeats.
func truncate(s string) string {
	const most = 24
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
