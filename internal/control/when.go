package control

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// leniency is how long ago the instant of a new one-off may lie.
const leniency = 30 * time.Minute

// schedule checks the schedule and its time zone, both even if one is wrong, and
// settles which zone is stored.
func (e *examination) schedule(s *belfry.Spec) {
	zone := s.Timezone
	if zone != "" {
		if _, err := schedule.LoadZone(zone); err != nil {
			e.refused(err)
			zone = ""
		}
	}
	if strings.TrimSpace(s.Schedule) == "" {
		e.fault("schedule", `is missing; for example "30 9 * * MON-FRI" or "2030-03-01T09:00:00Z"`)
		return
	}
	rule, err := schedule.Parse(s.Schedule, schedule.Options{Timezone: zone, Now: e.now})
	if err != nil {
		e.refused(err)
		return
	}
	if at, once := schedule.Once(rule); once && e.now.Sub(at) >= leniency {
		e.fault("schedule", "%s is over: it is %s now, and an instant may lie at most %.0f minutes in the past",
			at.Format(time.RFC3339Nano), e.now.Format(time.RFC3339), leniency.Minutes())
	}
	s.Schedule = strings.TrimSpace(s.Schedule)
	if zone == "" {
		s.Timezone = ownZone(s.Schedule)
	}
}

// refused adds what package schedule refuses, unless the field is at fault
// already.
func (e *examination) refused(err error) {
	var refusal *schedule.Error
	if !errors.As(err, &refusal) {
		e.fault("schedule", "cannot be read")
		return
	}
	for _, f := range e.faults {
		if f.Field == refusal.Field {
			return
		}
	}
	message := refusal.Message
	if refusal.Column > 0 {
		message = fmt.Sprintf("column %d: %s", refusal.Column, message)
	}
	if refusal.Example != "" {
		message = fmt.Sprintf("%s; for example %q", message, refusal.Example)
	}
	e.fault(refusal.Field, "%s", message)
}

// ownZone is the zone that a schedule without a timezone is read in: the one that
// it names itself as in "CRON_TZ=Europe/Paris 0 9 * * *", or UTC.
func ownZone(text string) string {
	first, _, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	for _, prefix := range [...]string{"TZ=", "CRON_TZ="} {
		if name, ok := strings.CutPrefix(first, prefix); ok {
			return name
		}
	}
	return "UTC"
}
