package control

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Pause keeps a job from firing until it is resumed. What is due already still
// runs. A paused job stays as it is.
func (c *Control) Pause(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return c.toggle(ctx, "pause a job", namespace, id, true)
}

// Resume lets a paused job fire again: what fell into the pause is recorded as
// skipped, but a one-off that is overdue runs. A job that is not paused stays as
// it is.
func (c *Control) Resume(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return c.toggle(ctx, "resume a job", namespace, id, false)
}

func (c *Control) toggle(ctx context.Context, doing, namespace string, id belfry.ID, pause bool) (belfry.Job, error) {
	return c.edit(ctx, doing, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		d := DraftOf(job)
		d.Paused = pause
		return changed(job, p, passed{Draft: d}, now)
	})
}

// Delete makes a job invisible and plans nothing more for it. Runs that are
// alive go on. The match is that of Edit.
func (c *Control) Delete(ctx context.Context, namespace string, id belfry.ID, match string) error {
	seen := false // by an edit whose outcome may be unknown
	_, err := c.edit(ctx, "delete a job", namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		if err := matches(job, match); err != nil {
			return nil, err
		}
		seen = true
		subject, err := subjectOf(job)
		if err != nil {
			// A rule that can no longer be read must not keep its job alive.
			subject.Policy = unreadableRule(job.Spec)
		}
		job.State, job.UpdatedAt = belfry.JobDeleted, now
		return &store.Change{Job: job, Step: plan.Delete(subject, p, now)}, nil
	})
	if seen && belfry.CodeOf(err) == belfry.NotFound {
		return nil // The first try did it, though its answer was lost.
	}
	return err
}
