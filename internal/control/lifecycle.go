package control

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Pause stops a job from firing until it is resumed. What is due already still runs. A
// paused job stays as it is.
func (c *Control) Pause(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	return c.setPaused(ctx, "pause a job", namespace, ref, true, false)
}

// Resume lets a paused job fire again. The occurrences during the pause are recorded as
// skipped, or with CatchUp treated as missed; an overdue one-off runs in any case. A
// cancelled job is planned again, from now on. Any other job stays as it is.
func (c *Control) Resume(ctx context.Context, namespace, ref string, r belfry.Resume) (belfry.Job, error) {
	return c.setPaused(ctx, "resume a job", namespace, ref, false, r.CatchUp)
}

func (c *Control) setPaused(ctx context.Context, doing, namespace, ref string, paused, catchUp bool) (belfry.Job, error) {
	return c.editJob(ctx, doing, namespace, ref, unprepared(func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error) {
		to := validate.Result{Manifest: job.Manifest, Paused: paused, Replan: !paused}
		to.Manifest.Spec = to.Manifest.Spec.WithDefaults()
		return c.change(job, p, to, catchUp, now)
	}))
}

// unprepared is an edit that needs nothing but the parsed job.
func unprepared(change edit) func(parsedJob, time.Time) (edit, error) {
	return func(parsedJob, time.Time) (edit, error) { return change, nil }
}

// CancelJob plans nothing more for a job and cancels its live runs and pending
// triggers. The job stays, no longer paused, and Resume or an edit of its schedule plans
// it again; but a one-off ends.
func (c *Control) CancelJob(ctx context.Context, namespace, ref string) (belfry.Job, error) {
	return c.editJob(ctx, "cancel a job", namespace, ref, unprepared(func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State, job.UpdatedAt = belfry.JobActive, now // A schedule that cannot be parsed must not keep it alive.
		return &store.Change{Job: job.Job, Step: plan.Cancel(job.subject, p, now), Cancel: true}, nil
	}))
}

// DeleteOptions say what is removed with a job. The zero value lets its live runs finish
// and keeps its history.
type DeleteOptions struct {
	CancelRuns   bool // cancel its live runs
	PurgeHistory bool // delete its runs and skips as soon as no run is alive
}

// Delete makes a job invisible and plans nothing more for it. The match is that of
// Edit; a job that has ended cannot change, and has none.
func (c *Control) Delete(ctx context.Context, namespace, ref, match string, o DeleteOptions) error {
	id, err := c.resolve(ctx, namespace, ref)
	if err != nil {
		return err
	}
	found := false // by a try whose outcome may be unknown
	_, err = c.editJob(ctx, "delete a job", namespace, id.String(), unprepared(func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error) {
		if err := checkVersion(job.Job, match); err != nil {
			return nil, err
		}
		found = true
		job.State, job.UpdatedAt = belfry.JobDeleted, now
		return &store.Change{Job: job.Job, Step: plan.Delete(job.subject, p, now), Cancel: o.CancelRuns, Purge: o.PurgeHistory}, nil
	}))
	if belfry.CodeOf(err) == belfry.Conflict && c.hasEnded(ctx, namespace, id) {
		found = false
		err = retryUnknown(ctx, "delete a job", func() error {
			err := c.store.DeleteEnded(ctx, namespace, id, o.PurgeHistory)
			found = found || !isNotFound(err)
			return err
		})
	}
	if isNotFound(err) && found {
		return nil // The first try did it, though its answer was lost.
	}
	return err
}
