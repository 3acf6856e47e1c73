package control

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// DeleteOptions say what goes with a deleted job. The zero value leaves its runs
// and its history alone.
type DeleteOptions struct {
	CancelRuns    bool // its live runs are cancelled instead of finished
	ForgetHistory bool // its runs and skips are forgotten once no run is alive
}

// Delete makes a job invisible and plans nothing more for it. The match is that of
// Edit; a job that has ended changes no more, and has none.
func (c *Control) Delete(ctx context.Context, namespace string, id belfry.ID, match string, o DeleteOptions) error {
	seen := false // by an edit whose outcome may be unknown
	_, err := c.edit(ctx, "delete a job", namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		if err := matches(job, match); err != nil {
			return nil, err
		}
		seen = true
		job.State, job.UpdatedAt = belfry.JobDeleted, now
		return &store.Change{Job: job, Step: plan.Delete(c.subjectToEnd(job), p, now), Cancel: o.CancelRuns, Purge: o.ForgetHistory}, nil
	})
	switch belfry.CodeOf(err) {
	case belfry.NotFound:
		if seen {
			return nil // The first try did it, though its answer was lost.
		}
	case belfry.Conflict:
		if job, e := c.Get(ctx, namespace, id); e == nil && job.State == belfry.JobEnded {
			return c.forget(ctx, namespace, id, o.ForgetHistory)
		}
	}
	return err
}

// forget takes away what is left of a job that has ended.
func (c *Control) forget(ctx context.Context, namespace string, id belfry.ID, history bool) error {
	tried := false
	return insist(ctx, "delete a job", func() error {
		err := c.store.Forget(ctx, namespace, id, history)
		if tried && belfry.CodeOf(err) == belfry.NotFound {
			return nil // The first try did it, though its answer was lost.
		}
		tried = true
		return err
	})
}

// CancelJob plans nothing more for a job and cancels what is left of it: live runs,
// and those that were asked for and not fired. The job stays, no longer paused,
// and an edit may give it another rule; but a one-off ends with that.
func (c *Control) CancelJob(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return c.edit(ctx, "cancel a job", namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		step := plan.Cancel(c.subjectToEnd(job), p, now)
		job.State, job.UpdatedAt = belfry.JobActive, now
		return &store.Change{Job: job, Step: step, Cancel: true}, nil
	})
}

// subjectToEnd is that of a job for which nothing more is planned: a rule that can
// no longer be read must not keep it alive.
func (c *Control) subjectToEnd(job belfry.Job) plan.Subject {
	subject, err := c.subjectOf(job)
	if err != nil {
		subject.Policy = unreadableRule(job.Spec)
	}
	return subject
}

// CancelRun ends a run, and gives it as it is then: one that no worker holds is
// cancelled at once; of one that is running the worker is told at its next
// heartbeat. A run that is settled in any other way is a Conflict.
func (c *Control) CancelRun(ctx context.Context, namespace string, run belfry.ID) (belfry.Run, error) {
	err := insist(ctx, "cancel a run", func() error { return c.store.Cancel(ctx, namespace, run) })
	if err != nil {
		return belfry.Run{}, err
	}
	return c.Run(ctx, namespace, run)
}
