// Package store is the storage contract, in roles named after what they hold.
// A backend implements all of it; a caller asks only for the role it needs.
//
// Three rules hold for every method. Time is the store's: whatever expires is
// given as a duration and judged by the store's clock, whatever is planned is an
// instant with microseconds. A write is all or nothing and does not stop half
// way when the caller's context ends. An error that is not a *belfry.Error
// leaves the outcome unknown, and repeating the same call is always safe: ids,
// versions and tokens chosen beforehand make the second one do nothing.
package store

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Store is everything that a node keeps.
type Store interface {
	Jobs
	Plans
	Runs
	History
	Leases

	// Shards is the number of shards, fixed when the store was made.
	Shards() int

	// Now is the store's time as far as this process knows it, without asking.
	Now() time.Time

	// Ping asks the database whether it answers.
	Ping(ctx context.Context) error

	// Wakeups signals on the channel after something that concerns the topic was
	// written, by this process or another, until ctx ends. It is a hint: signals
	// are merged and may be lost, so a caller polls as well.
	Wakeups(ctx context.Context, topic Topic) <-chan struct{}

	// PollEvery is how often to look where no hint came: seldom for a store whose
	// hints reach everybody because it has one process.
	PollEvery() time.Duration

	Close() error
}

// Topic is what a wake-up is about.
type Topic string

// The topics.
const (
	TopicPlans Topic = "plans" // a plan or a trigger was written by somebody else than its shard's owner
	TopicReady Topic = "ready" // runs became ready
)

// Jobs is what people asked for. It is written on their behalf by package
// control.
type Jobs interface {
	// CreateJobs stores new jobs with their plans, all or none, in one pass over
	// the sequence, whose error it returns. A name that a live job of the
	// namespace has is a Conflict that names it. A nil request has no key.
	CreateJobs(ctx context.Context, jobs iter.Seq2[NewJob, error], r *Request) error

	// Job finds a job that is not deleted; NotFound otherwise.
	Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error)

	// JobNamed finds the id of the job that is not deleted and has the name;
	// NotFound otherwise.
	JobNamed(ctx context.Context, namespace, name string) (belfry.ID, error)

	// ListJobs gives the jobs that are not deleted and pass the filter, newest
	// first. It looks at a bounded number of jobs: a page may have fewer than its
	// limit, or none, and still be followed by others.
	ListJobs(ctx context.Context, namespace string, filter JobFilter, page Page) (JobList, error)

	// Revisions gives the earlier revisions of a job that is not deleted, below
	// the given number if that is not zero, latest first; NotFound if there is no
	// such job.
	Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]Revision, error)

	// EditJob locks a job that is not deleted and its plan, asks edit what to
	// change, and writes that. An error from edit is returned as it is and
	// nothing changes; edit may be called again if the outcome was unknown.
	EditJob(ctx context.Context, namespace string, id belfry.ID, edit Edit) (belfry.Job, error)

	// Trigger records a wish for a run; the owner of the job's shard fires it.
	// NotFound if the job is not there. A nil request has no key.
	Trigger(ctx context.Context, t plan.Trigger, r *Request) error

	// Answered finds the answer that was kept under a key; nil if there is none.
	Answered(ctx context.Context, namespace, key string) (*Repeated, error)
}

// Request is an idempotency key under which something is asked for. The key and
// the answer are written together with what was asked for, and kept for
// KeepRequests. If the key is there already nothing is written, and the call
// returns a *Repeated.
type Request struct {
	Namespace string
	Key       string
	Hash      [32]byte               // of what is asked for
	Answer    func() ([]byte, error) // called once all jobs of the sequence were taken; it may be called again
}

// KeepRequests is how long the keys of requests are remembered at least.
const KeepRequests = 7 * 24 * time.Hour

// Repeated is the error of a call whose key was used before.
type Repeated struct {
	Hash   [32]byte // of what was asked for then
	Answer []byte   // to that
}

func (*Repeated) Error() string { return "this was asked for before" }

// JobFilter is what the jobs of a list have in common. Its zero fields let
// everything pass.
type JobFilter struct {
	Status  belfry.Status
	Type    string
	Handler string
	Queue   string
	Tags    []string // all of them
	Search  string   // part of the name, in any case of its letters
}

// JobList is a page of jobs. The list goes on after Next, unless that is zero.
type JobList struct {
	Jobs []belfry.Job
	Next belfry.ID
}

// Revision is what a job was before an edit.
type Revision struct {
	Number     int
	Spec       belfry.Spec
	Payload    json.RawMessage
	ReplacedAt time.Time
}

// NewJob is a job with its first plan.
type NewJob struct {
	Job  belfry.Job
	Plan plan.Plan
}

// Edit says how to change a job, given it, its plan and the store's time. It
// must be pure. A nil Change leaves everything as it is.
type Edit func(job belfry.Job, p plan.Plan, now time.Time) (*Change, error)

// Change is an edited job and the step that takes its plan there. A job whose
// Revision grew has its earlier spec and payload kept under the earlier number.
type Change struct {
	Job  belfry.Job
	Step plan.Step
}

// Page asks for at most Limit items that come after the given id in the order
// of the list; the zero id asks for the first page.
type Page struct {
	After belfry.ID
	Limit int
}

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
	Changed() (jobs []belfry.ID, many bool)

	// Find gives the plans of the jobs.
	Find(ctx context.Context, jobs []belfry.ID) ([]Due, error)

	// Outdated gives plans of the shards, in the order of their jobs' ids and after
	// the given one, that have an occurrence left and were made with an older
	// release of the zone database than the given one. It looks at a bounded number
	// of plans: the walk goes on after next, unless that is zero.
	Outdated(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []Due, next belfry.ID, err error)

	// Triggers gives triggers of the shards that are not fired yet, oldest first.
	Triggers(ctx context.Context, shards []int, limit int) ([]Wish, error)

	// Fire applies the steps whose plan still has the version that was seen, is
	// not locked by somebody else, has not passed the step's first occurrence
	// and, for a Due step, is due by the store's clock. The others are left out
	// without an error. Runs for which slots has room are made
	// already claimed by its worker and returned, with payload.
	Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots Slots) (Fired, error)

	// Promote makes runs of the shards whose retry is due ready, at most limit,
	// and says how many and when the next one is due (zero: none waits).
	Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error)

	// Ready counts the ready runs of each lane, up to the limit a lane.
	Ready(ctx context.Context, limit int) (map[string]int, error)
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
type Wish struct {
	Trigger plan.Trigger
	Due     Due
}

// Slots is the demand of the firing node's own worker: how many runs of its
// lanes it would start at once. The zero value has room for none.
type Slots struct {
	Worker belfry.ID
	Lanes  []string
	Free   int
}

// Fired is what came of a Fire.
type Fired struct {
	Applied []bool        // by step
	Claimed []*belfry.Run // for the slots' worker
	Ready   int           // runs left for whoever claims them
}

// Runs is the live runs. It satisfies worker.Source; a claim does not wait.
type Runs interface {
	// Claim hands ready runs of the lanes to a registered worker, lowest rank
	// first. It returns none if the worker is not known.
	Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)

	// Heartbeat notes that a worker is alive and answers with what it lost.
	Heartbeat(ctx context.Context, b belfry.Beat) (belfry.Orders, error)

	// Finish settles attempts. Each result is applied only if its run is held by
	// exactly this attempt; otherwise it is kept as evidence and changes nothing.
	Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error)

	// Reap gives up the workers that were silent for so long (a zero silence:
	// none), and settles the attempts in the shards whose worker was given up or
	// whose deadline has passed, at most limit. It says how many.
	Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (int, error)

	// Workers lists the workers that are registered.
	Workers(ctx context.Context) ([]Worker, error)
}

// Worker is a registered worker incarnation.
type Worker struct {
	ID       belfry.ID
	Node     string
	Slots    int
	Lanes    []string
	LastSeen time.Time
}

// DeadlineGrace is how long after its timeout an attempt that was not finished
// is taken from a worker that still seems alive.
const DeadlineGrace = 10 * time.Second

// ConfirmAfter is the age from which a claim that its worker does not list is
// released.
const ConfirmAfter = 10 * time.Second

// History is what happened, and what is happening, to runs.
type History interface {
	// Run finds a run wherever it is, with the attempts that failed. A trigger that
	// is not fired yet is found as the ready run that it will be.
	Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error)

	// JobRuns gives the runs and skips of a job, live ones included, latest
	// occurrence first, without their attempts.
	JobRuns(ctx context.Context, namespace string, job belfry.ID, page RunPage) ([]belfry.Run, error)

	// ListRuns gives the runs and skips of all jobs of a namespace, live ones
	// included, latest first, without their attempts. Like ListJobs it looks at a
	// bounded number, so that a page may be short and still be followed by others.
	ListRuns(ctx context.Context, namespace string, filter RunFilter, page Page) (RunList, error)

	// Prune forgets history and evidence older than keep, and what nothing needs
	// any more of fired triggers, requests and deleted jobs; it also makes room for the
	// days to come. It says how many settled runs and skips went.
	Prune(ctx context.Context, keep time.Duration) (int, error)
}

// RunPage asks for at most Limit runs that come after the given one in a list
// ordered by scheduled instant and id, both descending.
type RunPage struct {
	BeforeAt time.Time // zero: the first page
	BeforeID belfry.ID
	Limit    int
}

// RunFilter is what the runs of a list have in common.
type RunFilter struct {
	State belfry.RunState // empty: any
}

// RunList is a page of runs in descending order of their ids, and so of their
// scheduled instants. The list goes on after Next, unless that is zero.
type RunList struct {
	Runs []belfry.Run
	Next belfry.ID
}

// Leases says who holds which name, and for how long.
type Leases interface {
	// Hold takes or renews each name for ttl unless somebody else holds it, and
	// returns the leases that the owner now has among them.
	Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) ([]Lease, error)

	// Release ends the owner's hold on the names.
	Release(ctx context.Context, owner belfry.ID, names []string) error

	// Held lists the leases whose name starts with prefix and that have not expired.
	Held(ctx context.Context, prefix string) ([]Lease, error)
}

// Term is the time for which an owner may believe that a shard is its own.
type Term struct {
	Shard int
	Epoch int64
	Since time.Time // by the store's clock
}

// Lease is a name held by an owner. The epoch grows whenever the owner changes.
type Lease struct {
	Name  string
	Owner belfry.ID
	Epoch int64
}
