package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// leniency is how long ago the instant of a new one-off may lie.
const leniency = 30 * time.Minute

// maxRules bounds how many schedules an examiner remembers.
const maxRules = 1000

// ruleText is a schedule as it is written.
type ruleText struct{ schedule, zone string }

// reading is what a schedule comes to: a rule and the zone that is stored, or what
// is wrong.
type reading struct {
	rule   schedule.Rule
	zone   string
	faults []belfry.Fault
}

// schedule checks the schedule and its time zone, both even if one is wrong, and
// settles which zone is stored. A rule that an edit leaves alone is not looked at:
// it may be over by now.
func (e *examination) schedule(s *belfry.Spec) schedule.Rule {
	if e.leaves(s) {
		return nil
	}
	text := ruleText{s.Schedule, s.Timezone}
	r, known := e.rules[text]
	if !known {
		r = read(text, e.now)
		if len(e.rules) >= maxRules {
			clear(e.rules)
		}
		e.rules[text] = r
	}
	if len(r.faults) > 0 {
		e.faults = append(e.faults, r.faults...)
		return nil
	}
	if at, once := schedule.Once(r.rule); once && e.now.Sub(at) >= leniency && !e.hadInstant(at) {
		e.fault("schedule", "%s is over: it is %s now, and an instant may lie at most %.0f minutes in the past",
			at.Format(time.RFC3339Nano), e.now.Format(time.RFC3339), leniency.Minutes())
	}
	s.Schedule, s.Timezone = strings.TrimSpace(s.Schedule), r.zone
	return r.rule
}

// leaves reports whether an edit leaves the rule of the job as it was, and gives
// it the form that is stored.
func (e *examination) leaves(s *belfry.Spec) bool {
	if e.job == nil {
		return false
	}
	text, zone := strings.TrimSpace(s.Schedule), s.Timezone
	if zone == "" {
		zone = ownZone(text)
	}
	if text != e.job.Schedule || zone != e.job.Timezone {
		return false
	}
	s.Schedule, s.Timezone = text, zone
	return true
}

// hadInstant reports whether the job was a one-off at that instant before, in other
// words.
func (e *examination) hadInstant(at time.Time) bool {
	if e.job == nil {
		return false
	}
	rule, err := schedule.Parse(e.job.Schedule, schedule.Options{Timezone: e.job.Timezone})
	if err != nil {
		return false
	}
	before, once := schedule.Once(rule)
	return once && before.Equal(at)
}

// read parses a schedule and loads its zone.
func read(text ruleText, now time.Time) (r reading) {
	r.zone = text.zone
	if r.zone != "" {
		if _, err := schedule.LoadZone(r.zone); err != nil {
			r.refused(err)
			r.zone = ""
		}
	}
	if strings.TrimSpace(text.schedule) == "" {
		r.faults = append(r.faults, belfry.Fault{Field: "schedule", Message: `is missing; for example "30 9 * * MON-FRI" or "2030-03-01T09:00:00Z"`})
		return r
	}
	rule, err := schedule.Parse(text.schedule, schedule.Options{Timezone: r.zone, Now: now})
	if err != nil {
		r.refused(err)
		return r
	}
	if r.rule = rule; r.zone == "" {
		r.zone = ownZone(strings.TrimSpace(text.schedule))
	}
	return r
}

// refused adds what package schedule refuses, unless the field is at fault
// already.
func (r *reading) refused(err error) {
	fault := belfry.Fault{Field: "schedule", Message: "cannot be read"}
	var refusal *schedule.Error
	if errors.As(err, &refusal) {
		fault = belfry.Fault{Field: refusal.Field, Message: refusal.Message}
		if refusal.Column > 0 {
			fault.Message = fmt.Sprintf("column %d: %s", refusal.Column, fault.Message)
		}
		if refusal.Example != "" {
			fault.Message = fmt.Sprintf("%s; for example %q", fault.Message, refusal.Example)
		}
	}
	if !slices.ContainsFunc(r.faults, func(f belfry.Fault) bool { return f.Field == fault.Field }) {
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

// namedZone is the zone that a schedule names itself.
func namedZone(text string) (string, bool) {
	first, _, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	for _, prefix := range [...]string{"TZ=", "CRON_TZ="} {
		if name, ok := strings.CutPrefix(first, prefix); ok {
			return name, true
		}
	}
	return "", false
}
