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
	return c.edit(ctx, "pause a job", namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		if job.State == belfry.JobPaused {
			return nil, nil
		}
		subject, err := subjectOf(job)
		if err != nil {
			return nil, err
		}
		job.State, job.UpdatedAt = belfry.JobPaused, now
		return &store.Change{Job: job, Step: plan.Pause(subject, p, now, now)}, nil
	})
}

// Resume lets a paused job fire again: what fell into the pause is recorded as
// skipped, but a one-off that is overdue runs. A job that is not paused stays as
// it is.
func (c *Control) Resume(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return c.edit(ctx, "resume a job", namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		if job.State != belfry.JobPaused {
			return nil, nil
		}
		subject, err := subjectOf(job)
		if err != nil {
			return nil, err
		}
		job.State, job.UpdatedAt = belfry.JobActive, now
		return &store.Change{Job: job, Step: plan.Resume(subject, p, now)}, nil
	})
}

// Delete makes a job invisible and plans nothing more for it. Runs that are
// alive go on.
func (c *Control) Delete(ctx context.Context, namespace string, id belfry.ID) error {
	seen := false // by an edit whose outcome may be unknown
	_, err := c.edit(ctx, "delete a job", namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		seen = true
		subject, err := subjectOf(job)
		if err != nil {
			// A rule that can no longer be read must not keep its job alive.
			subject.Policy = &plan.Policy{Spec: job.Spec, Rule: ended{}}
		}
		job.State, job.UpdatedAt = belfry.JobDeleted, now
		return &store.Change{Job: job, Step: plan.Delete(subject, p, now)}, nil
	})
	if seen && belfry.CodeOf(err) == belfry.NotFound {
		return nil // The first try did it, though its answer was lost.
	}
	return err
}

// Trigger asks for a run of a job now, paused or not, and returns the id that the
// run will have. The owner of the job's shard makes it, and the overlap policy
// holds for it.
func (c *Control) Trigger(ctx context.Context, namespace string, id belfry.ID) (belfry.ID, error) {
	now := c.now()
	wish := plan.Trigger{
		ID:        belfry.NewID(now),
		Namespace: namespace,
		JobID:     id,
		Shard:     belfry.ShardOf(id, c.store.Shards()),
		Kind:      belfry.KindManual,
		At:        now,
	}
	err := insist(ctx, "trigger a job", func() error {
		return c.store.Trigger(ctx, wish)
	})
	if err != nil {
		return belfry.ID{}, err
	}
	return wish.RunID(), nil
}

func (c *Control) edit(ctx context.Context, doing, namespace string, id belfry.ID, edit store.Edit) (job belfry.Job, err error) {
	err = insist(ctx, doing, func() error {
		job, err = c.store.EditJob(ctx, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			return edit(job, p, now.UTC().Truncate(time.Microsecond))
		})
		return err
	})
	return job, err
}

// subjectOf gives what a decision needs to know of a job.
func subjectOf(job belfry.Job) (plan.Subject, error) {
	subject := plan.Subject{Namespace: job.Namespace, Revision: job.Revision}
	policy, err := plan.Compile(job.Spec)
	if err != nil {
		return subject, belfry.Errorf(belfry.Internal, "read the schedule of job %s: %w", job.ID, err)
	}
	subject.Policy = policy
	return subject, nil
}

// ended is a rule without any further occurrence.
type ended struct{}

func (ended) Next(time.Time) time.Time { return time.Time{} }
