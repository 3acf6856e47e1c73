// Package explain says in English sentences what was decided for an instant of a job
// and why, or what is planned for it.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

// Store is what an explanation reads; see package store.
type Store interface {
	Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error)
	DeletedJob(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error)
	Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error)
	PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error)
	Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error)
	JobRuns(ctx context.Context, namespace string, job belfry.ID, filter belfry.JobRunFilter, page store.Page) ([]belfry.Run, store.Position, error)
	RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error)
	RunWait(ctx context.Context, namespace string, run belfry.ID) (store.RunWait, error)
	Workers(ctx context.Context) ([]store.Worker, error)
}

// Compile parses the schedule of a spec as the server does. An error other than
// Unavailable means that it cannot be parsed.
type Compile func(ctx context.Context, spec belfry.Spec) (*plan.Policy, error)

// errChanging reports that a run changed while it was read.
var errChanging = belfry.Errorf(belfry.Unavailable, "the run is changing; try again")

// maxRequested is how many requested runs may precede a scheduled one.
const maxRequested = 100

// maxTries is how often an explanation starts again because its run changed, or was
// settled, while it was read.
const maxTries = 3

// Explain explains an instant of a job: what was decided for it and by which schedule;
// for a run that waits, what it waits for; and for the future, what is planned. The
// zero instant means the next occurrence of a paused job, or else the latest run or skip,
// or else the next occurrence.
func Explain(ctx context.Context, s Store, compile Compile, job belfry.Job, at, now time.Time) (belfry.Explanation, error) {
	e := explainer{store: s, compile: compile, job: job, now: now}
	due, err := s.PlansByJob(ctx, []belfry.ID{job.ID})
	if err != nil {
		return belfry.Explanation{}, err
	}
	if len(due) > 0 {
		e.plan = due[0].Plan
	}
	if at.IsZero() {
		if at, err = e.latest(ctx); err != nil {
			return belfry.Explanation{}, err
		}
	}
	at = at.UTC().Truncate(time.Microsecond)
	var out belfry.Explanation
	for range maxTries {
		out, err = e.explain(ctx, at)
		if belfry.CodeOf(err) != belfry.NotFound && !errors.Is(err, errChanging) {
			break
		}
	}
	return out, err
}

type explainer struct {
	store   Store
	compile Compile
	job     belfry.Job
	plan    plan.Plan // zero if there is none any more
	now     time.Time
}

// latest is the next occurrence of a paused job, or else the latest run or skip, or else
// the next occurrence, or else now.
func (e *explainer) latest(ctx context.Context) (time.Time, error) {
	if e.job.State == belfry.JobPaused && !e.plan.NominalAt.IsZero() {
		return e.plan.NominalAt, nil
	}
	runs, _, err := e.store.JobRuns(ctx, e.job.Namespace, e.job.ID, belfry.JobRunFilter{}, store.Page{Limit: maxRequested})
	if err != nil {
		return time.Time{}, err
	}
	runs = slices.DeleteFunc(runs, e.plannedAgain)
	switch {
	case len(runs) > 0 && runs[0].SkippedTo != nil:
		return *runs[0].SkippedTo, nil
	case len(runs) > 0:
		return runs[0].ScheduledAt, nil
	case !e.plan.NominalAt.IsZero():
		return e.plan.NominalAt, nil
	}
	return e.now, nil
}

// explain looks for a record of the instant, or else at what is planned.
func (e *explainer) explain(ctx context.Context, at time.Time) (belfry.Explanation, error) {
	records, err := e.store.RunsAt(ctx, e.job.Namespace, e.job.ID, at)
	if err != nil {
		return belfry.Explanation{}, err
	}
	slices.SortStableFunc(records, func(a, b belfry.Run) int { return cmp.Compare(relevance(a, at), relevance(b, at)) })
	for i, record := range records {
		if e.plannedAgain(record) {
			continue
		}
		t, err := e.instant(ctx, at, record.Revision)
		if err != nil {
			return belfry.Explanation{}, err
		}
		// A record of many occurrences covers the time between them as well.
		if t.occurs || record.ScheduledAt.Equal(at) {
			return t.recorded(ctx, record, records[i+1:])
		}
	}
	revision, err := e.revisionAt(ctx, at)
	if err != nil {
		return belfry.Explanation{}, err
	}
	t, err := e.instant(ctx, at, revision)
	if err != nil {
		return belfry.Explanation{}, err
	}
	return t.unrecorded(ctx)
}

// plannedAgain reports whether a record says that the job was cancelled before an
// occurrence that is planned now: it was resumed, or edited.
func (e *explainer) plannedAgain(r belfry.Run) bool {
	return r.Reason == belfry.ReasonCancelled && !e.plan.NominalAt.IsZero() && !r.ScheduledAt.Before(e.plan.NominalAt)
}

// relevance orders records of an instant: first the occurrence itself, then notes about
// it, then ranges that include it, then requested runs.
func relevance(r belfry.Run, at time.Time) int {
	switch {
	case r.Kind == belfry.KindManual:
		return 4
	case r.Kind == belfry.KindBackfill:
		return 3
	case !r.ScheduledAt.Equal(at):
		return 2
	case r.Reason == belfry.ReasonDSTGap || r.Reason == belfry.ReasonZoneChange || r.Reason == belfry.ReasonCancelled:
		return 1
	}
	return 0
}

func (e *explainer) revisionAt(ctx context.Context, at time.Time) (int, error) {
	const page = 100
	number, before := e.job.Revision, 0
	for {
		list, err := e.store.Revisions(ctx, e.job.Namespace, e.job.ID, before, page)
		if err != nil {
			return 0, err
		}
		for _, r := range list {
			if r.ReplacedAt != nil && !r.ReplacedAt.After(at) {
				return number, nil
			}
			number = r.Number
		}
		if len(list) < page {
			return number, nil
		}
		before = number
	}
}

// instant is an instant by the schedule of one revision.
func (e *explainer) instant(ctx context.Context, at time.Time, revision int) (*instant, error) {
	spec, err := specAt(ctx, e.store, e.job, revision)
	if belfry.CodeOf(err) == belfry.NotFound { // It was pruned.
		spec, revision, err = e.job.Spec, e.job.Revision, nil
	}
	if err != nil {
		return nil, err
	}
	t := &instant{explainer: e, at: at, spec: spec, format: timeFormat{time.UTC, at}}
	t.out = belfry.Explanation{
		At: at, Revision: revision,
		Rule: belfry.RuleSummary{Schedule: spec.Schedule, Resolved: spec.Resolved, Timezone: spec.Timezone},
	}
	t.policy, err = e.compile(ctx, spec)
	switch {
	case belfry.CodeOf(err) == belfry.Unavailable:
		return nil, err
	case err != nil:
		return t, nil // without a policy
	}
	t.format.zone = schedule.Location(t.policy.Unbounded)
	t.out.Rule.Description = schedule.Describe(t.policy.Unbounded)
	t.occurs, t.previous, t.next = t.policy.Around(at)
	t.out.Previous, t.out.Next = pointer(t.previous), pointer(t.next)
	return t, nil
}

// specAt is the spec of a revision of a job; NotFound if there is none.
func specAt(ctx context.Context, s Store, job belfry.Job, revision int) (belfry.Spec, error) {
	if job.Revision == revision {
		return job.Spec, nil
	}
	earlier, err := s.Revisions(ctx, job.Namespace, job.ID, revision+1, 1)
	if err != nil {
		return belfry.Spec{}, err
	}
	if len(earlier) == 0 || earlier[0].Number != revision {
		return belfry.Spec{}, belfry.Errorf(belfry.NotFound, "the job has no revision %d", revision)
	}
	return earlier[0].Spec, nil
}

// Note says how a clock change affected a run or a skip, by the schedule of the
// revision that it was fired from. It is empty for most, and if it cannot be found out.
func Note(ctx context.Context, s Store, compile Compile, run belfry.Run) string {
	switch {
	case run.Kind != belfry.KindScheduled:
		return ""
	case run.Reason == belfry.ReasonZoneChange:
		return "newer time-zone data moved the occurrence to another instant"
	}
	job, err := s.Job(ctx, run.Namespace, run.JobID)
	if belfry.CodeOf(err) == belfry.NotFound {
		job, err = s.DeletedJob(ctx, run.Namespace, run.JobID)
	}
	if err != nil {
		return ""
	}
	spec, err := specAt(ctx, s, job, run.Revision)
	if err != nil {
		return ""
	}
	policy, err := compile(ctx, spec)
	if err != nil {
		return ""
	}
	at := run.ScheduledAt
	switch {
	case run.Reason == belfry.ReasonDSTGap:
		return skippedAt(policy.Unbounded, at)
	case policy.Rule.Next(at.Add(-time.Microsecond)).Equal(at):
		return schedule.Note(policy.Unbounded, schedule.OccurrenceAt(policy.Unbounded, at))
	}
	return ""
}

// timeFormat writes instants in the time zone of a job, beside the instant that is
// explained.
type timeFormat struct {
	zone *time.Location
	at   time.Time
}

func (f timeFormat) full(t time.Time) string {
	t = t.In(f.zone)
	offset := t.Format("-07:00")
	if f.zone == time.UTC {
		offset = "UTC"
	}
	return t.Format(time.DateOnly) + " " + timeOfDay(t) + " " + offset
}

// short writes an instant without day and offset if they are those of the instant that
// is explained.
func (f timeFormat) short(t time.Time) string {
	t, at := t.In(f.zone), f.at.In(f.zone)
	_, offset := t.Zone()
	_, other := at.Zone()
	if offset != other || t.Format(time.DateOnly) != at.Format(time.DateOnly) {
		return f.full(t)
	}
	return timeOfDay(t)
}

// seconds is short for an instant that no schedule names, which needs no fractions.
func (f timeFormat) seconds(t time.Time) string { return f.short(t.Truncate(time.Second)) }

// run names a run by its instant.
func (f timeFormat) run(run belfry.Run) string {
	switch run.Kind {
	case belfry.KindManual:
		return "the manual run of " + f.seconds(run.ScheduledAt)
	case belfry.KindBackfill:
		return "the backfill of " + f.short(run.ScheduledAt)
	}
	return "the run of " + f.short(run.ScheduledAt)
}

// timeOfDay writes a time of day with as many places as it needs.
func timeOfDay(t time.Time) string {
	switch {
	case t.Nanosecond() != 0:
		return t.Format("15:04:05.999999")
	case t.Second() != 0:
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}

func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// quote shortens what a target or handler said to one line.
func quote(text string) string {
	line := strings.Join(strings.Fields(sanitize.Text(text, 400)), " ")
	if short := sanitize.Text(line, 200); short != line {
		return short + "…"
	}
	return line
}

// duration writes a length of time with its two largest units.
func duration(d time.Duration) string {
	units := []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}}
	for i, u := range units {
		if d < u.length {
			continue
		}
		text := count(int64(d/u.length), u.name)
		if rest := d % u.length; i+1 < len(units) && rest >= units[i+1].length {
			text += " " + count(int64(rest/units[i+1].length), units[i+1].name)
		}
		return text
	}
	return "less than a second"
}

// pointer is nil for the zero time.
func pointer(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
