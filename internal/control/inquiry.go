package control

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

// Why says what was decided for an instant of a job and by which rule; for a run
// that waits, what for; and for the future what is planned. The zero instant stands
// for the latest occurrence that was decided, or a later run that somebody asked for
// and that is not over, or else for the next occurrence. A job that has ended can be
// asked about as well.
func (c *Control) Why(ctx context.Context, namespace string, id belfry.ID, at time.Time) (Why, error) {
	job, err := c.Get(ctx, namespace, id)
	if err != nil {
		return Why{}, err
	}
	q := &inquiry{c: c, job: job, now: c.now()}
	if q.plan, err = c.planOf(ctx, id); err != nil {
		return Why{}, err
	}
	if at.IsZero() {
		if at, err = q.latest(ctx); err != nil {
			return Why{}, err
		}
	}
	q.At = at.UTC().Truncate(time.Microsecond)
	for range movedMeanwhile {
		if err = q.answer(ctx); !gone(err) && !errors.Is(err, errMoved) {
			break
		}
	}
	return q.Why, err
}

// errMoved tells that a run went on while it was looked at.
var errMoved = belfry.Errorf(belfry.Unavailable, "the run is changing; ask again")

// movedMeanwhile is how often a question is asked because the run that it is about
// went on, or was settled, while it was asked.
const movedMeanwhile = 3

// inquiry is a question about a job under way.
type inquiry struct {
	c    *Control
	job  belfry.Job
	plan plan.Plan // the zero plan if there is none any more
	now  time.Time

	policy *plan.Policy // that the instant is judged by; nil if its schedule cannot be read
	words  words
	Why
}

// planOf finds the plan of a job; it is zero if there is none.
func (c *Control) planOf(ctx context.Context, id belfry.ID) (p plan.Plan, err error) {
	var due []store.Due
	err = insist(ctx, "look up a plan", func() error {
		due, err = c.store.Find(ctx, []belfry.ID{id})
		return err
	})
	if err != nil || len(due) == 0 {
		return plan.Plan{}, err
	}
	return due[0].Plan, nil
}

// latest is the latest occurrence that was decided, or a later run that is not over,
// or else the next occurrence, or else the latest run of any kind, or else now.
func (q *inquiry) latest(ctx context.Context) (time.Time, error) {
	const enough = 100 // runs that nobody scheduled and that may come before one that was
	runs, err := q.c.Runs(ctx, q.job.Namespace, q.job.ID, RunPage{Limit: enough})
	if err != nil {
		return time.Time{}, err
	}
	for _, r := range runs {
		if r.Kind != belfry.KindScheduled && !alive(r.Status) {
			continue
		}
		if r.SkippedTo != nil {
			return *r.SkippedTo, nil
		}
		return r.ScheduledAt, nil
	}
	switch {
	case !q.plan.NominalAt.IsZero():
		return q.plan.NominalAt, nil
	case len(runs) > 0:
		return runs[0].ScheduledAt, nil
	}
	return q.now, nil
}

// alive tells whether a run is not over.
func alive(s belfry.RunStatus) bool {
	return s == belfry.RunReady || s == belfry.RunRunning || s == belfry.RunRetry || s == belfry.RunWaiting
}

// answer looks for what was decided, or else at what is planned.
func (q *inquiry) answer(ctx context.Context) error {
	q.Why = Why{At: q.At, Job: q.job}
	rows, err := q.decided(ctx)
	if err != nil {
		return err
	}
	for i, row := range rows {
		if err := q.judgeBy(ctx, row.Revision); err != nil {
			return err
		}
		// A record of many occurrences covers the time between them as well.
		if is, _, _ := q.around(); is || row.ScheduledAt.Equal(q.At) {
			return q.tell(ctx, row, rows[i+1:])
		}
	}
	revision, err := q.inForce(ctx)
	if err != nil {
		return err
	}
	if err := q.judgeBy(ctx, revision); err != nil {
		return err
	}
	return q.undecided(ctx)
}

// decided finds the records of the instant, the one that tells most of it first.
func (q *inquiry) decided(ctx context.Context) (rows []belfry.Run, err error) {
	err = insist(ctx, "look up what was decided", func() error {
		rows, err = q.c.store.Decided(ctx, q.job.Namespace, q.job.ID, q.At)
		return err
	})
	slices.SortStableFunc(rows, func(a, b belfry.Run) int { return cmp.Compare(q.closeness(a), q.closeness(b)) })
	return rows, err
}

// closeness orders records of an instant: first what became of the occurrence, then
// what stands beside it, then ranges that it lies in, then what people asked for.
func (q *inquiry) closeness(r belfry.Run) int {
	switch {
	case r.Kind == belfry.KindManual:
		return 4
	case r.Kind == belfry.KindBackfill:
		return 3
	case !r.ScheduledAt.Equal(q.At):
		return 2
	case r.Reason == belfry.ReasonDSTGap || r.Reason == belfry.ReasonZoneChange:
		return 1
	}
	return 0
}

// inForce is the number of the revision that the job had at the instant.
func (q *inquiry) inForce(ctx context.Context) (int, error) {
	const page = 100
	number, before := q.job.Revision, 0
	for {
		list, err := q.c.Revisions(ctx, q.job.Namespace, q.job.ID, before, page)
		if err != nil {
			return 0, err
		}
		for _, r := range list {
			if !r.ReplacedAt.After(q.At) {
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

// judgeBy takes the rule of a revision for that of the instant.
func (q *inquiry) judgeBy(ctx context.Context, revision int) error {
	spec, err := q.c.specOf(ctx, belfry.Run{Namespace: q.job.Namespace, JobID: q.job.ID, Revision: revision})
	if gone(err) { // It is as old as the records that are forgotten.
		spec, revision, err = q.job.Spec, q.job.Revision, nil
	}
	if err != nil {
		return err
	}
	q.Revision = revision
	q.Rule = belfry.RuleSummary{Schedule: spec.Schedule, Resolved: spec.Resolved, Timezone: spec.Timezone}
	q.words = words{zone: time.UTC, at: q.At}
	if q.policy, err = q.c.defaults.Compile(spec); err != nil {
		q.policy = nil
		return nil
	}
	q.words.zone = schedule.Location(q.policy.Whole)
	q.Rule.Description = schedule.Describe(q.policy.Whole)
	_, before, after := q.around()
	q.Before, q.After = given(before), given(after)
	return nil
}

// around tells whether the rule names the instant, and what it names next to it.
func (q *inquiry) around() (is bool, before, after time.Time) {
	if q.policy == nil {
		return false, time.Time{}, time.Time{}
	}
	return q.policy.Around(q.At)
}

// given is nil for the zero time.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
