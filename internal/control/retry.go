package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// retryPauses are the waits before a call of unknown outcome is repeated.
var retryPauses = [...]time.Duration{50 * time.Millisecond, 250 * time.Millisecond}

// retryUnknown repeats a call of the store while its outcome is unknown; the contract
// of the store makes that safe. In the end the error is Unavailable, and wraps the cause
// for the log.
func retryUnknown(ctx context.Context, doing string, call func() error) error {
	for _, pause := range retryPauses {
		err := call()
		if isKnown(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return unavailable(doing, err)
		case <-time.After(pause):
		}
	}
	err := call()
	if isKnown(err) {
		return err
	}
	return unavailable(doing, err)
}

// isKnown reports whether the outcome of a call is known by its error.
func isKnown(err error) bool {
	var e *belfry.Error
	var earlier *store.DuplicateRequest
	return err == nil || errors.As(err, &e) || errors.As(err, &earlier)
}

// unavailable joins what users may see with a cause that they may not.
func unavailable(doing string, cause error) error {
	shown := belfry.Errorf(belfry.Unavailable, "the database does not answer; try again")
	return fmt.Errorf("%s: %w: %w", doing, shown, cause)
}

// retryRead is retryUnknown for a call that returns something.
func retryRead[T any](ctx context.Context, doing string, call func() (T, error)) (v T, err error) {
	err = retryUnknown(ctx, doing, func() error {
		v, err = call()
		return err
	})
	return v, err
}

// reader reads from a store and repeats reads of unknown outcome. It is the store that
// explanations read.
type reader struct{ store Store }

func (r reader) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return retryRead(ctx, "look up a job", func() (belfry.Job, error) { return r.store.Job(ctx, namespace, id) })
}

func (r reader) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error) {
	return retryRead(ctx, "list the revisions of a job", func() ([]belfry.Revision, error) {
		return r.store.Revisions(ctx, namespace, id, before, limit)
	})
}

func (r reader) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	return retryRead(ctx, "look up a plan", func() ([]store.Due, error) { return r.store.PlansByJob(ctx, jobs) })
}

func (r reader) Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	return retryRead(ctx, "look up a run", func() (belfry.Run, error) { return r.store.Run(ctx, namespace, id) })
}

func (r reader) JobRuns(ctx context.Context, namespace string, job belfry.ID, page store.Page) ([]belfry.Run, error) {
	return retryRead(ctx, "list the runs of a job", func() ([]belfry.Run, error) { return r.store.JobRuns(ctx, namespace, job, page) })
}

func (r reader) RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error) {
	return retryRead(ctx, "list the runs of an instant", func() ([]belfry.Run, error) { return r.store.RunsAt(ctx, namespace, job, at) })
}

func (r reader) RunWait(ctx context.Context, namespace string, run belfry.ID) (store.RunWait, error) {
	return retryRead(ctx, "look up what a run waits for", func() (store.RunWait, error) { return r.store.RunWait(ctx, namespace, run) })
}

func (r reader) Workers(ctx context.Context) ([]store.Worker, error) {
	return retryRead(ctx, "list workers", func() ([]store.Worker, error) { return r.store.Workers(ctx) })
}
