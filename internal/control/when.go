package control

import (
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// leniency is how long ago the instant of a new one-off may lie.
const leniency = 30 * time.Minute

// Limits on what may stand beside a schedule.
const (
	maxRuns         = 1_000_000_000
	maxDelaySeconds = 24 * 60 * 60
	firstYear       = 1970
	lastYear        = 2499
)

// schedule checks the schedule and all that stands beside it, everything even if
// something is wrong, and settles what is stored. It reports whether there is
// another rule now: one that an edit leaves alone is not looked at, since it may be
// over by now.
func (e *examination) schedule(s *belfry.Spec, id belfry.ID) (another bool) {
	e.clockChanges(s)
	e.bounds(s)
	e.between("max_runs", float64(s.MaxRuns), 0, maxRuns)
	e.between("jitter_seconds", float64(s.JitterSeconds), 0, maxDelaySeconds)
	if e.leaves(s) {
		if at, once := e.before(); once && s.MaxRuns != 0 {
			e.onlyOnce(s, at)
		}
		return false
	}
	r := e.reading(s, id)
	if len(r.faults) > 0 {
		e.faults = append(e.faults, r.faults...)
		return false
	}
	s.Schedule, s.Resolved, s.Timezone = strings.TrimSpace(s.Schedule), r.resolved, r.zone
	if s.StartsAt.IsZero() {
		s.StartsAt = r.start
	}
	if at, once := schedule.Once(r.rule); once {
		e.onlyOnce(s, at)
	} else {
		e.fires(s, r.rule)
	}
	return true
}

// clockChanges checks what happens when the clock changes.
func (e *examination) clockChanges(s *belfry.Spec) {
	switch gap := strings.ToLower(strings.TrimSpace(string(s.DSTGap))); belfry.DSTGap(gap) {
	case "", belfry.GapRun, belfry.GapSkip:
		s.DSTGap = belfry.DSTGap(gap)
	default:
		e.fault("dst_gap", "must be %q or %q", belfry.GapRun, belfry.GapSkip)
		s.DSTGap = ""
	}
	switch overlap := strings.ToLower(strings.TrimSpace(string(s.DSTOverlap))); belfry.DSTOverlap(overlap) {
	case "auto":
		s.DSTOverlap = belfry.DSTAuto
	case belfry.DSTAuto, belfry.DSTFirst, belfry.DSTBoth:
		s.DSTOverlap = belfry.DSTOverlap(overlap)
	default:
		e.fault("dst_overlap", "must be %q, %q or %q", "auto", belfry.DSTFirst, belfry.DSTBoth)
		s.DSTOverlap = belfry.DSTAuto
	}
}

// bounds checks when the rule begins and ends. What is wrong is taken away, so that
// nothing else is said about it.
func (e *examination) bounds(s *belfry.Spec) {
	s.StartsAt, s.EndsAt = e.bound("starts_at", s.StartsAt), e.bound("ends_at", s.EndsAt)
	if !s.StartsAt.IsZero() && !s.EndsAt.IsZero() && !s.EndsAt.After(s.StartsAt) {
		e.fault("ends_at", "must be after starts_at, which is %s", s.StartsAt.Format(time.RFC3339Nano))
		s.EndsAt = time.Time{}
	}
}

func (e *examination) bound(field string, at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	at = at.UTC().Truncate(time.Microsecond)
	if y := at.Year(); y < firstYear || y > lastYear {
		e.fault(field, "must lie in the years %d to %d", firstYear, lastYear)
		return time.Time{}
	}
	return at
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
	if text != e.job.Schedule {
		return false
	}
	start := s.StartsAt
	if start.IsZero() && !e.job.StartsAt.IsZero() && e.needsStart() {
		start = e.job.StartsAt
	}
	if zone != e.job.Timezone || s.SkipsGap() != e.job.SkipsGap() || s.DSTOverlap != e.job.DSTOverlap ||
		!start.Equal(e.job.StartsAt) || !s.EndsAt.Equal(e.job.EndsAt) {
		s.StartsAt = start
		return false
	}
	s.Schedule, s.Resolved, s.Timezone, s.StartsAt = text, e.job.Resolved, zone, start
	return true
}

// needsStart reports whether the schedule of the job counts from its start.
func (e *examination) needsStart() bool {
	o := plan.Options(e.job.Spec)
	o.Start = time.Time{}
	_, err := schedule.Parse(plan.Text(e.job.Spec), o)
	return err != nil
}

// before is the instant of the job before the edit, if it was a one-off.
func (e *examination) before() (time.Time, bool) {
	if e.job == nil {
		return time.Time{}, false
	}
	rule, err := schedule.Parse(plan.Text(e.job.Spec), plan.Options(e.job.Spec))
	if err != nil {
		return time.Time{}, false
	}
	return schedule.Once(rule)
}

// onlyOnce checks a one-off. One that has passed is left alone if the job had the
// same before, in other words.
func (e *examination) onlyOnce(s *belfry.Spec, at time.Time) {
	if before, once := e.before(); e.now.Sub(at) >= leniency && !(once && before.Equal(at)) && !e.lenient {
		e.fault("schedule", "%s is over: it is %s now, and an instant may lie at most %.0f minutes in the past",
			at.Format(time.RFC3339Nano), e.now.Format(time.RFC3339), leniency.Minutes())
	}
	const says = "leave it out: the schedule is a single instant"
	if e.job != nil && s.StartsAt.Equal(e.job.StartsAt) {
		s.StartsAt = time.Time{} // That of the rule before may not even have been asked for.
	}
	if !s.StartsAt.IsZero() {
		e.fault("starts_at", says)
	}
	if !s.EndsAt.IsZero() {
		e.fault("ends_at", says)
	}
	if s.MaxRuns > 0 {
		e.fault("max_runs", says)
	}
}

// fires checks that a rule names something within its bounds. It does so without
// them.
func (e *examination) fires(s *belfry.Spec, rule schedule.Rule) {
	if !plan.Within(rule, s.StartsAt, s.EndsAt).Next(e.now).IsZero() {
		return
	}
	next := plan.Within(rule, s.StartsAt, time.Time{}).Next(e.now)
	switch {
	case next.IsZero():
		e.fault("starts_at", "the schedule never fires: it is over by then")
	case !s.EndsAt.After(e.now):
		e.fault("ends_at", "the schedule never fires: it is %s now", e.now.Format(time.RFC3339))
	default:
		e.fault("ends_at", "the schedule never fires: its next time is %s", next.Format(time.RFC3339Nano))
	}
}
