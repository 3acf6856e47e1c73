package control

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Check gives everything that Create would refuse about a draft, but for what
// only the store knows.
func (c *Control) Check(d Draft) []belfry.FieldError {
	now := c.now()
	_, faults := c.examiner(now).fresh(d, belfry.NewID(now))
	return faults
}

// Create stores a new job with its first plan, and returns it as stored. A draft
// that is not valid is refused with all of its faults; a name that is taken is a
// Conflict. Under a key that was used before for the same, it is the job as it was
// then, with its secrets masked; for something else it is refused.
func (c *Control) Create(ctx context.Context, namespace string, d Draft, k Key) (belfry.Job, error) {
	if answer, err := c.answered(ctx, namespace, k); err != nil || answer != nil {
		return decodeJob(answer, err)
	}
	now := c.now()
	id := belfry.NewID(now)
	p, faults := c.examiner(now).fresh(d, id)
	if len(faults) > 0 {
		return belfry.Job{}, refused(faults)
	}
	fresh := c.newJob(namespace, id, p, now)
	request := k.request(namespace, func() ([]byte, error) { return encodeJob(fresh.Job) })
	err := insist(ctx, "create a job", func() error {
		return c.store.CreateJobs(ctx, only(fresh), request)
	})
	if err == nil {
		return fresh.Job, nil
	}
	job, err := decodeJob(k.repeated(err))
	if err == nil && job.ID == fresh.Job.ID { // the first try did it, though its answer was lost
		return fresh.Job, nil
	}
	return job, err
}

// newJob is a job that passed its examination, with its first plan.
func (c *Control) newJob(namespace string, id belfry.ID, p passed, now time.Time) store.NewJob {
	fresh := store.NewJob{
		Job: belfry.Job{
			ID:        id,
			Namespace: namespace,
			Name:      p.Name,
			Tags:      p.Tags,
			Revision:  1,
			State:     p.state(),
			Spec:      p.Spec,
			Payload:   p.Payload,
			CreatedAt: now,
			UpdatedAt: now,
		},
		Plan: plan.First(id, belfry.ShardOf(id, c.store.Shards()), p.policy, now),
	}
	if p.Paused {
		fresh.Plan.NextAt = time.Time{}
	}
	planned := !fresh.Plan.NextAt.IsZero()
	if planned {
		next := fresh.Plan.NextAt
		fresh.Job.NextRunAt = &next
	}
	fresh.Job.Status = belfry.StatusOf(fresh.Job.State, planned, belfry.LiveRuns{}, "")
	return fresh
}

// encodeJob is the answer that is kept under a key. It is no second copy of
// secrets.
func encodeJob(job belfry.Job) ([]byte, error) {
	job.Payload = secret.Mask(job.Payload)
	return json.Marshal(job)
}

// decodeJob is the inverse of encodeJob, but for secrets. It passes an error on.
func decodeJob(answer []byte, err error) (job belfry.Job, _ error) {
	if err != nil {
		return belfry.Job{}, err
	}
	if err := json.Unmarshal(answer, &job); err != nil {
		return belfry.Job{}, unreadable(err)
	}
	job.State = belfry.JobActive
	if job.Status == belfry.StatusPaused {
		job.State = belfry.JobPaused
	}
	return job, nil
}

// only is a sequence of one job.
func only(j store.NewJob) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) { yield(j, nil) }
}

// now is the store's time as it is stored.
func (c *Control) now() time.Time { return c.store.Now().UTC().Truncate(time.Microsecond) }
