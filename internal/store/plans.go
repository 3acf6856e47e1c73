package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Plans is when each job is next looked at. It is written by the owner of the
// job's shard, through Fire alone.
type Plans interface {
	// Upcoming gives the plans of the shards that are due in the window, soonest
	// first. An instant is never split: the answer ends with all plans of the
	// instant at which the limit was reached, and a caller goes on after it. An
	// answer shorter than the limit is the whole window.
	Upcoming(ctx context.Context, w Window) ([]Due, error)

	// Overdue gives at most limit plans of the shards that were due before the
	// instant, the earliest first.
	Overdue(ctx context.Context, shards []int, before time.Time, limit int) ([]Due, error)

	// Changed gives the jobs whose plans were written by somebody else than their
	// shard's owner since the last call, as far as hints have told of them. Many
	// means that there were too many to name.
	ChangedJobs() (jobs []belfry.ID, many bool)

	// Find gives the plans of the jobs.
	PlansByJob(ctx context.Context, jobs []belfry.ID) ([]Due, error)

	// Outdated gives plans of the shards, in the order of their jobs' ids and after
	// the given one, that have an occurrence left and were made with an older
	// release of the zone database than the given one. It looks at a bounded number
	// of plans: the walk goes on after next, unless that is zero.
	PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []Due, next belfry.ID, err error)

	// Triggers gives triggers of the shards that are not fired yet, oldest first.
	PendingTriggers(ctx context.Context, shards []int, limit int) ([]PendingTrigger, error)

	// Fire applies the steps whose plan still has the version that was seen, is
	// not locked by somebody else, has not passed the step's first occurrence
	// and, for a Due step, is due by the store's clock. The others are left out
	// without an error. Runs for which slots has room are made
	// already claimed by its worker and returned, with payload.
	//
	// A serial run of a job that has a live run is made waiting, or becomes a skip as
	// its queue says; and a scheduled run becomes a skip whose key another run of the
	// job has that is alive or has succeeded within KeepKeys. A plan whose step is
	// applied is no longer parked.
	Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots FreeSlots) (FireResult, error)

	// Promote makes runs of the shards whose retry is due ready, at most limit,
	// and says how many and when the next one is due (zero: none waits). It also lets
	// go the first waiting run of every job that has no other live run; Finish does so
	// at once, but may miss one that is made at the same time.
	Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error)

	// Ready counts the ready runs of each lane, up to the limit a lane.
	CountReady(ctx context.Context, limit int) (map[string]int, error)

	// Park notes beside the plan of a job why it cannot be fired, until a step of it
	// is applied. It changes nothing else.
	Quarantine(ctx context.Context, job belfry.ID, why string) error

	// Retire has one-offs of the shards leave the live tables that are over: nothing
	// is planned, no run is alive, dead or wished for. It looks at a bounded number of
	// jobs in the order of their ids, after the given one; the walk goes on after
	// next, unless that is zero. Finish does the same at once for what it settles.
	Archive(ctx context.Context, shards []int, after belfry.ID, limit int) (retired int, next belfry.ID, err error)
}

// Window is the span of time after After, if that is set, and until Until, in
// some shards.
type Window struct {
	Shards       []int
	After, Until time.Time
	Limit        int
}

// Due is a plan with what is needed to decide it. Spec is the stored text, so
// that equal specs can share one compiled policy.
type Due struct {
	Plan      plan.Plan
	Namespace string
	Name      string // only if the spec has a template of keys that asks for it
	Revision  int
	Spec      string
}

// Wish is a trigger with its job's plan.
type PendingTrigger struct {
	Trigger plan.Trigger
	Due     Due
}

// Slots is the demand of the firing node's own worker: how many runs of its
// lanes it would start at once. The zero value has room for none.
type FreeSlots struct {
	Worker belfry.ID
	Lanes  []string
	Free   int
}

// Fired is what came of a Fire.
type FireResult struct {
	Applied []bool        // by step
	Claimed []*belfry.Run // for the slots' worker
	Ready   int           // runs left for whoever claims them
}
