package control

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Create stores a new job with its first plan. Invalid input is refused with all its
// errors; a name that is taken is a Conflict.
func (c *Control) Create(ctx context.Context, namespace string, in validate.Input, k Key) (belfry.Job, error) {
	if response, err := c.cached(ctx, namespace, k); err != nil || response != nil {
		return decodeJob(response, err)
	}
	return c.create(ctx, namespace, in, k, nil)
}

// DiffCreate validates what Create would do, and writes nothing.
func (c *Control) DiffCreate(ctx context.Context, namespace string, in validate.Input) (diff belfry.JobDiff, err error) {
	_, err = c.create(ctx, namespace, in, Key{}, &diff)
	return diff, err
}

// create stores a new job, or with diff only says what it would be.
func (c *Control) create(ctx context.Context, namespace string, in validate.Input, k Key, diff *belfry.JobDiff) (belfry.Job, error) {
	now := c.now()
	id := belfry.NewID(now)
	r, errors := validate.New(now, c.defaults).Create(id, in)
	if len(errors) > 0 {
		return belfry.Job{}, invalidJob(errors)
	}
	created := c.newJob(namespace, id, r, now)
	job := masked(created.Job)
	if diff != nil {
		*diff = belfry.JobDiff{Result: belfry.DiffCreated, Changes: createdFields(created.Job, in), Job: job}
		return job, c.checkNameFree(ctx, namespace, job.Name, belfry.ID{})
	}
	request := k.request(namespace, func() ([]byte, error) { return json.Marshal(job) })
	err := retryUnknown(ctx, "create a job", func() error {
		return c.store.CreateJobs(ctx, oneJob(created), request)
	})
	if err != nil {
		return decodeJob(k.duplicate(err))
	}
	return job, nil
}

// checkNameFree returns the Conflict of a name that another job has.
func (c *Control) checkNameFree(ctx context.Context, namespace, name string, own belfry.ID) error {
	if name == "" {
		return nil
	}
	id, err := c.idByName(ctx, namespace, name)
	if id == own || isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	job, err := c.read.Job(ctx, namespace, id)
	if isNotFound(err) || err == nil && job.State == belfry.JobEnded {
		return nil
	}
	if err != nil {
		return err
	}
	return nameTaken(name)
}

// nameTaken is the error that a store returns for a name that is taken.
func nameTaken(name string) error {
	return &belfry.Error{Code: belfry.Conflict, Message: "the name is taken", Fields: []belfry.FieldError{{
		Field: "name", Message: fmt.Sprintf("a job named %q exists already", name),
	}}}
}

// newJob is a valid job with its first plan.
func (c *Control) newJob(namespace string, id belfry.ID, r validate.Result, now time.Time) store.NewJob {
	created := store.NewJob{
		Job: belfry.Job{
			ID: id, Namespace: namespace, Manifest: r.Manifest, Revision: 1, State: stateOf(r.Paused), CreatedAt: now, UpdatedAt: now,
		},
		Plan: plan.First(id, belfry.ShardOf(id, c.store.Shards()), r.Policy, now),
	}
	if r.Paused {
		created.Plan.NextAt = time.Time{}
	}
	planned := !created.Plan.NextAt.IsZero()
	if planned {
		next := created.Plan.NextAt
		created.Job.NextRunAt = &next
	}
	created.Job.Status = belfry.StatusOf(created.Job.State, planned, belfry.LiveRuns{}, "")
	return created
}

func stateOf(paused bool) belfry.JobState {
	if paused {
		return belfry.JobPaused
	}
	return belfry.JobActive
}

// decodeJob decodes a cached job. It passes an error on.
func decodeJob(response []byte, err error) (belfry.Job, error) {
	job, err := decodeResponse[belfry.Job](response, err)
	job.State = stateOf(job.Status == belfry.StatusPaused)
	return job, err
}

// oneJob is a sequence of one job.
func oneJob(j store.NewJob) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) { yield(j, nil) }
}
