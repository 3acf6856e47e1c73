package control

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// maxRules bounds how many schedules an examiner remembers.
const maxRules = 10_000

// ruleText is a schedule as it is written, and what it depends on beside that.
type ruleText struct {
	text    string
	options schedule.Options
}

// reading is what a schedule comes to: a rule, the zone and the start that are
// stored, or what is wrong.
type reading struct {
	rule     schedule.Rule
	resolved string // the text with every H replaced; empty if there is none
	zone     string
	start    time.Time // that it counts from, if none was given
	faults   []belfry.FieldError
}

// reading reads the schedule of a spec for the job of that id.
func (e *examination) reading(s *belfry.Spec, id belfry.ID) reading {
	text, hashed, err := schedule.Resolve(s.Schedule, id)
	if err != nil {
		text = s.Schedule
	}
	key := ruleText{text, plan.Options(*s)}
	r, known := e.rules[key]
	if !known {
		r = key.read(e.now, err)
		if len(e.rules) >= maxRules {
			clear(e.rules)
		}
		if !hashed {
			e.rules[key] = r
		}
	}
	if hashed {
		r.resolved = strings.TrimSpace(text)
	}
	return r
}

// read parses a schedule and loads its zone, and tells of an error that its text
// led to before.
func (t ruleText) read(now time.Time, err error) (r reading) {
	r.zone = t.options.Timezone
	if r.zone != "" {
		if _, err := schedule.LoadZone(r.zone); err != nil {
			r.refused(err)
			r.zone = ""
		}
	}
	if strings.TrimSpace(t.text) == "" {
		r.faults = append(r.faults, belfry.FieldError{Field: "schedule", Message: `is missing; for example "30 9 * * MON-FRI" or "2030-03-01T09:00:00Z"`})
		return r
	}
	o := t.options
	o.Timezone, o.Now = r.zone, now
	if err == nil {
		r.rule, err = schedule.Parse(t.text, o)
		if err != nil && o.Start.IsZero() { // It may only lack an instant to count from.
			o.Start = startFor(t.text, now)
			if r.rule, err = schedule.Parse(t.text, o); err == nil {
				r.start = o.Start
			}
		}
	}
	if err != nil {
		r.refused(err)
		return r
	}
	if r.zone == "" {
		r.zone = ownZone(strings.TrimSpace(t.text))
	}
	return r
}

// startFor is what a rule counts from that does not say: the present second, or the
// next one for a rule that ends after so many times, so that none of them has
// passed.
func startFor(text string, now time.Time) time.Time {
	start := now.UTC().Truncate(time.Second)
	if limited.MatchString(text) {
		start = start.Add(time.Second)
	}
	return start
}

var limited = regexp.MustCompile(`(?i)^\s*R[0-9]|COUNT=`)

// refused adds what package schedule refuses, unless the field is at fault
// already.
func (r *reading) refused(err error) {
	fault := belfry.FieldError{Field: "schedule", Message: "cannot be read"}
	var refusal *schedule.Error
	if errors.As(err, &refusal) {
		fault = belfry.FieldError{Field: refusal.Field, Message: refusal.Message}
		if refusal.Column > 0 {
			fault.Message = fmt.Sprintf("column %d: %s", refusal.Column, fault.Message)
		}
		if refusal.Example != "" {
			fault.Message = fmt.Sprintf("%s; for example %q", fault.Message, refusal.Example)
		}
	}
	if !slices.ContainsFunc(r.faults, func(f belfry.FieldError) bool { return f.Field == fault.Field }) {
		r.faults = append(r.faults, fault)
	}
}

// ownZone is the zone that a schedule without a timezone is read in: the one that
// it names itself as in "CRON_TZ=Europe/Paris 0 9 * * *", or UTC.
func ownZone(text string) string {
	if name, ok := namedZone(text); ok {
		return name
	}
	return "UTC"
}

// begins finds the zone of the start that a calendar rule names.
var begins = regexp.MustCompile(`(?i)(?:^|\s)DTSTART(?:;[^:;\s]*)*?;TZID="?([^":;\s]+)`)

// namedZone is the zone that a schedule names itself.
func namedZone(text string) (string, bool) {
	first, _, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	for _, prefix := range [...]string{"TZ=", "CRON_TZ="} {
		if name, ok := strings.CutPrefix(first, prefix); ok {
			return name, true
		}
	}
	if found := begins.FindStringSubmatch(text); found != nil {
		return found[1], true
	}
	return "", false
}
