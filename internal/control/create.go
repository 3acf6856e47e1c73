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

// Draft is a job as somebody asks for it. Start from belfry.DefaultSpec. An empty
// Type is told from the payload; an empty Timezone is the one that the schedule
// names, or else UTC, and then an instant needs an offset.
type Draft struct {
	Name    string
	Spec    belfry.Spec
	Payload json.RawMessage
}

// Check gives everything that Create would refuse about a draft, but for what
// only the store knows.
func (c *Control) Check(d Draft) []belfry.Fault {
	_, faults := examine(d, c.now())
	return faults
}

// Create stores a new job with its first plan, and returns it as stored. A draft
// that is not valid is refused with all of its faults; a name that is taken is a
// Conflict.
func (c *Control) Create(ctx context.Context, namespace string, d Draft) (belfry.Job, error) {
	now := c.now()
	d, faults := examine(d, now)
	if len(faults) > 0 {
		return belfry.Job{}, &belfry.Error{Code: belfry.Invalid, Message: "the job is not valid", Faults: faults}
	}
	policy, err := plan.Compile(d.Spec)
	if err != nil {
		return belfry.Job{}, belfry.Errorf(belfry.Internal, "compile a spec that was checked: %w", err)
	}
	id := belfry.NewID(now)
	fresh := store.NewJob{
		Job: belfry.Job{
			ID:        id,
			Namespace: namespace,
			Name:      d.Name,
			Revision:  1,
			State:     belfry.JobActive,
			Spec:      d.Spec,
			Payload:   d.Payload,
			CreatedAt: now,
			UpdatedAt: now,
		},
		Plan: plan.First(id, belfry.ShardOf(id, c.store.Shards()), policy, now),
	}
	next := fresh.Plan.NextAt
	fresh.Job.NextRunAt = &next
	fresh.Job.Status = belfry.StatusOf(belfry.JobActive, true, belfry.Live{}, "")
	err = insist(ctx, "create a job", func() error {
		return c.store.CreateJobs(ctx, only(fresh))
	})
	if err != nil {
		return belfry.Job{}, err
	}
	return fresh.Job, nil
}

// only is a sequence of one job.
func only(j store.NewJob) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) { yield(j, nil) }
}

// now is the store's time as it is stored.
func (c *Control) now() time.Time { return c.store.Now().UTC().Truncate(time.Microsecond) }
