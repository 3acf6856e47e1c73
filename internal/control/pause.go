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
	return c.toggle(ctx, "pause a job", namespace, id, passed{Draft: Draft{Paused: true}})
}

// Resume lets a paused job fire again. What fell into the pause is recorded as
// skipped, or with catchUp is made up for as if nobody had been in charge; a one-off
// that is overdue runs in any case. A job that is not paused stays as it is.
func (c *Control) Resume(ctx context.Context, namespace string, id belfry.ID, catchUp bool) (belfry.Job, error) {
	return c.toggle(ctx, "resume a job", namespace, id, passed{catchUp: catchUp})
}

// toggle changes nothing but whether a job is paused.
func (c *Control) toggle(ctx context.Context, doing, namespace string, id belfry.ID, to passed) (belfry.Job, error) {
	return c.edit(ctx, doing, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		paused := to.Paused
		to.Draft = DraftOf(job)
		to.Paused = paused
		return c.changed(job, p, to, now)
	})
}
