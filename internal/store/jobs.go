package store

import (
	"context"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Jobs is what people asked for. It is written on their behalf by package
// control.
type Jobs interface {
	// CreateJobs stores new jobs with their plans, all or none, in one pass over
	// the sequence, whose error it returns. A name that a live job of the
	// namespace has is a Conflict that names it. A nil request has no key.
	CreateJobs(ctx context.Context, jobs iter.Seq2[NewJob, error], r *Request) error

	// Job finds a job that is not deleted, or one that has ended, in the state
	// JobEnded; NotFound otherwise.
	Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error)

	// JobNamed finds the id of the job that is not deleted and has the name, or else
	// of the one that had it and ended last; NotFound otherwise.
	JobIDByName(ctx context.Context, namespace, name string) (belfry.ID, error)

	// ListJobs gives the jobs that are not deleted and pass the filter, newest
	// first. Those that have ended are among them only if the filter asks for a
	// status that they may have. It looks at a bounded number of jobs: a page may have fewer than its
	// limit, or none, and still be followed by others.
	ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page Page) (JobList, error)

	// Revisions gives the earlier revisions of a job that is not deleted, below
	// the given number if that is not zero, latest first; NotFound if there is no
	// such job.
	Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error)

	// EditJob locks a job that is not deleted and its plan, asks edit what to
	// change, and writes that. An error from edit is returned as it is and
	// nothing changes; edit may be called again if the outcome was unknown. A job
	// that has ended is a Conflict. What waits for others goes ahead if the runs of the
	// job need not follow one after another any more.
	EditJob(ctx context.Context, namespace string, id belfry.ID, edit Edit) (belfry.Job, error)

	// Trigger records wishes for runs of one job, all or none; the owner of the job's
	// shard fires them. NotFound if the job is not there, Conflict if it has ended. A
	// nil request has no key.
	Trigger(ctx context.Context, wishes []plan.Trigger, r *Request) error

	// Forget has a job that has ended be found no more; with history, what happened to
	// it goes as well. NotFound if there is no such job that has ended.
	DeleteEnded(ctx context.Context, namespace string, id belfry.ID, history bool) error

	// Answered finds the answer that was kept under a key; nil if there is none.
	CachedResponse(ctx context.Context, namespace, key string) (*DuplicateRequest, error)
}

// Request is an idempotency key under which something is asked for. The key and
// the answer are written together with what was asked for, and kept for
// KeepRequests. If the key is there already nothing is written, and the call
// returns a *Repeated.
type Request struct {
	Namespace string
	Key       string
	Hash      [32]byte               // of what is asked for
	Response  func() ([]byte, error) // called once all jobs of the sequence were taken; it may be called again
}

// KeepRequests is how long the keys of requests are remembered at least.
const RequestRetention = 7 * 24 * time.Hour

// Repeated is the error of a call whose key was used before.
type DuplicateRequest struct {
	Hash     [32]byte // of what was asked for then
	Response []byte   // to that
}

func (*DuplicateRequest) Error() string { return "this was asked for before" }

// JobList is a page of jobs. The list goes on after Next, unless that is zero.
type JobList struct {
	Jobs []belfry.Job
	Next belfry.ID
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
	Job    belfry.Job
	Step   plan.Step
	Cancel bool // cancels the live runs of the job as well, and wishes that were not fired
	Purge  bool // with a deletion: its history goes too, as soon as no run is alive
}

// Page asks for at most Limit items after a position in the order of the list; the
// zero position asks for the first page. Lists that are ordered by id use only the id.
type Page struct {
	After Position
	Limit int
}

// Position is an item of a list that is ordered by an instant and an id.
type Position struct {
	At time.Time
	ID belfry.ID
}
