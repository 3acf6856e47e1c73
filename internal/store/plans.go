package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Plans is when each job fires next. The owner of a job's shard writes its plan,
// through Fire alone.
type Plans interface {
	Lanes

	// Upcoming returns the plans that are due in the window, those of a shard in the order
	// of instant and job. It reads nothing but plans: PlansByJob has what belongs to a
	// Digest that the caller does not know.
	Upcoming(ctx context.Context, w Window) ([]Planned, error)

	// ChangedJobs returns the jobs whose plans were written by somebody other than
	// their shard's owner since the last call, as far as notifications arrived. Many
	// means that there were too many to name.
	ChangedJobs() (jobs []belfry.ID, many bool)

	// PlansByJob returns the plans of the jobs.
	PlansByJob(ctx context.Context, jobs []belfry.ID) ([]Due, error)

	// PlansForZoneUpdate returns plans of the shards, ordered by job and after the
	// given one, that have an occurrence left and were computed with older time-zone
	// data than the given release. It reads a bounded number of plans: the scan
	// continues after next, unless that is zero.
	PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []Due, next belfry.ID, err error)

	// PendingTriggers returns triggers of the shards that are not fired yet, oldest
	// first, except those of the jobs to skip.
	PendingTriggers(ctx context.Context, shards []int, skip []belfry.ID, limit int) ([]PendingTrigger, error)

	// Fire applies the steps whose plan still has the version that was seen, is
	// not locked by somebody else, has not passed the step's first occurrence
	// and, for a Due step, is due by the store's clock. The others are left out
	// without an error. Runs that fit into the free slots are created already
	// claimed by their worker and returned, with payload. Slots may stay free although
	// runs became ready. With an error the result is empty: whether the runs exist is
	// unknown, and none may be started. The steps are not used after the return.
	//
	// A serial run of a job that has a live run is created waiting, or becomes a skip
	// if the queue of the job is full. A scheduled run becomes a skip if another run of
	// the job has the same key and is alive or has succeeded within KeyRetention. A
	// plan whose step is applied is no longer quarantined.
	Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...FreeSlots) (FireResult, error)

	// Promote makes runs of the shards whose retry is due ready, at most limit,
	// and says how many and when the next one is due (zero: there is none). It also
	// promotes the first waiting run of every job that has no other live run; Finish
	// does so at once, but may miss one that is created at the same time.
	Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error)

	// Quarantine records why a job cannot be fired, until a step of its plan is
	// applied. It changes nothing else.
	Quarantine(ctx context.Context, job belfry.ID, why string) error

	// Archive archives finished one-offs of the shards: nothing is planned, no run is
	// alive or dead and no trigger is pending. It reads a bounded number of jobs in
	// the order of their ids, after the given one; the scan continues after next,
	// unless that is zero. Finish does the same at once for what it settles.
	Archive(ctx context.Context, shards []int, after belfry.ID, limit int) (archived int, next belfry.ID, err error)
}

// Lanes is how much work is ready. A lane is a queue and a handler.
type Lanes interface {
	// CountReady counts the ready runs of each lane, up to the limit per lane.
	CountReady(ctx context.Context, limit int) (map[string]int, error)

	// ClaimBelow is Runs.Claim for the runs whose rank is below the given one, see
	// plan.Rank.
	ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error)

	// ReadyRank is the lowest rank of the ready runs of some lanes; plan.MaxRank: there
	// are none.
	ReadyRank(ctx context.Context, lanes []string) (int64, error)
}

// Window is the plans of some shards after a position in each of them, and until an
// instant.
type Window struct {
	After map[int]Position // by shard: the instant and the job of a plan; zero: from the first one
	Until time.Time
	Limit int // of each shard
}

// AllUntil is the window of all plans of some shards until an instant.
func AllUntil(until time.Time, shards []int, limit int) Window {
	w := Window{After: make(map[int]Position, len(shards)), Until: until, Limit: limit}
	for _, shard := range shards {
		w.After[shard] = Position{}
	}
	return w
}

// Reached is how far in each shard the plans reach that Upcoming returned for a window.
func (w Window) Reached(plans []Planned) map[int]Position {
	reached, count := make(map[int]Position, len(w.After)), make(map[int]int, len(w.After))
	for i := range plans {
		p := &plans[i].Plan
		reached[p.Shard] = Position{At: p.NextAt, ID: p.JobID}
		count[p.Shard]++
	}
	for shard := range w.After {
		if count[shard] < w.Limit {
			reached[shard] = w.End()
		}
	}
	return reached
}

// End is the position after all plans of the window.
func (w Window) End() Position {
	return Position{At: w.Until, ID: belfry.ID(bytes.Repeat([]byte{0xff}, len(belfry.ID{})))}
}

// Planned is a plan and what identifies the rest of a Due.
type Planned struct {
	Plan   plan.Plan
	Digest Digest // zero: the plan was written by a version that stored none
}

// Due is a plan with what is needed to decide it. Spec is the stored text, so
// that equal specs can share one compiled policy.
type Due struct {
	Plan      plan.Plan
	Namespace string
	Name      string // only if the spec has a key template that uses it
	Revision  int
	Spec      string
}

// Digest identifies what a Due has beside its plan. Nobody can make two that are equal.
type Digest [16]byte

// DigestOf is the digest of a job whose spec is stored as the given text.
func DigestOf(job *belfry.Job, spec string) Digest {
	d := Due{Namespace: job.Namespace, Revision: job.Revision, Spec: spec}
	if usesName(&job.Spec) {
		d.Name = job.Name
	}
	return d.Digest()
}

// usesName reports whether the keys of runs depend on the name of the job.
func usesName(spec *belfry.Spec) bool {
	keys, err := belfry.ParseKeyTemplate(spec.IdempotencyKeyTemplate)
	return err == nil && keys.UsesName()
}

// Digest is the digest of a due plan.
func (d *Due) Digest() Digest {
	text := make([]byte, 0, 512)
	for _, n := range []int{d.Revision, len(d.Namespace), len(d.Name)} {
		text = append(strconv.AppendInt(text, int64(n), 10), ':')
	}
	sum := sha256.Sum256(append(append(append(text, d.Namespace...), d.Name...), d.Spec...))
	return Digest(sum[:len(Digest{})])
}

// PendingTrigger is a trigger with its job's plan.
type PendingTrigger struct {
	Trigger plan.Trigger
	Due     Due
}

// FreeSlots is how many runs of its lanes a worker can start at once whose claim waits at
// the firing node. The zero value has none.
type FreeSlots struct {
	Worker belfry.ID
	Lanes  []string
	Free   int
}

// TakeSlot takes a free slot for a run of a lane, and returns its worker; zero: there is
// none.
func TakeSlot(slots []FreeSlots, lane string) belfry.ID {
	for i := range slots {
		if s := &slots[i]; s.Free > 0 && slices.Contains(s.Lanes, lane) {
			s.Free--
			return s.Worker
		}
	}
	return belfry.ID{}
}

// FireResult is the result of Fire.
type FireResult struct {
	Applied []bool         // by step
	Claimed []*belfry.Run  // by the workers with the free slots
	Ready   map[string]int // runs that anybody may claim, by lane
	Skipped map[int]int    // runs that became skips, of the steps that have another plan for that, by step
}

// AddReady counts a run that anybody may claim.
func (r *FireResult) AddReady(lane string) {
	if r.Ready == nil {
		r.Ready = map[string]int{}
	}
	r.Ready[lane]++
}

// AddSkipped counts runs of a step that became skips.
func (r *FireResult) AddSkipped(step, n int) {
	if r.Skipped == nil {
		r.Skipped = map[int]int{}
	}
	r.Skipped[step] += n
}

// ReadyCount is how many runs anybody may claim.
func (r FireResult) ReadyCount() (n int) {
	for _, lane := range r.Ready {
		n += lane
	}
	return n
}

// PlanSamples reads the plans of many jobs, for forecasts.
type PlanSamples interface {
	// NamespacePlans returns the plans of the jobs of a namespace that have something
	// planned. If a queue is given, plans of other queues may be left out. If it would have
	// to read more jobs than the limit, it returns none and false.
	NamespacePlans(ctx context.Context, namespace, queue string, limit int) (plans []Planned, complete bool, err error)

	// SamplePlans draws about n of the plans of all jobs that have something planned, each
	// of which has the same chance. One may be drawn twice. Each stands for so many plans
	// that they add up to about all. It reads no more if there are more plans, and none if
	// there are few.
	SamplePlans(ctx context.Context, n int) (plans []Planned, weight float64, err error)
}

// SharedRuns is the ready runs for workers that serve several namespaces.
type SharedRuns interface {
	// ReadyLanes describes the lanes that have ready runs, which are counted up to the limit.
	ReadyLanes(ctx context.Context, limit int) (map[string]ReadyLane, error)

	// CountRunning counts the running runs of namespaces; one without any is missing.
	CountRunning(ctx context.Context, namespaces []string) (map[string]int, error)

	// ClaimShares is Runs.Claim for a share of each namespace. With MaxRunning it is exact:
	// two claims never exceed it together.
	ClaimShares(ctx context.Context, c belfry.Claim, s Shares) ([]*belfry.Run, error)
}

// ReadyLane is the ready runs of a lane.
type ReadyLane struct {
	Count int
	Rank  int64 // the lowest
}

// Shares is how much a claim may take of what.
type Shares struct {
	Below      map[string]int64 // by lane: runs below this rank alone
	Most       map[string]int   // by namespace: how many runs; missing: as many as the claim is for
	MaxRunning map[string]int   // by namespace: how many of its runs may then run in the cluster
}

// LaneShare is how much a claim may take of a lane.
type LaneShare struct {
	Lane, Namespace string
	Most            int // of all lanes of the namespace together
	Below           int64
}

// Of returns the shares of the lanes of a claim, when so many runs of each namespace are
// running. It leaves to the claim the lanes that it may take from.
func (s Shares) Of(c *belfry.Claim, running map[string]int) (shares []LaneShare) {
	lanes := c.Lanes
	c.Lanes = nil
	for _, lane := range lanes {
		namespace, _ := belfry.LaneNamespace(lane)
		share := LaneShare{lane, namespace, c.Limit, plan.MaxRank}
		if most, limited := s.Most[namespace]; limited {
			share.Most = min(share.Most, most)
		}
		if most, limited := s.MaxRunning[namespace]; limited {
			share.Most = min(share.Most, most-running[namespace])
		}
		if below, limited := s.Below[lane]; limited {
			share.Below = below
		}
		if share.Most > 0 {
			shares, c.Lanes = append(shares, share), append(c.Lanes, lane)
		}
	}
	return shares
}
