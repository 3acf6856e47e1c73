package store

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Jobs is the jobs. Package control writes them for users.
type Jobs interface {
	// CreateJobs stores new jobs with their plans, all or none, in one pass over
	// the sequence, whose error it returns. The pass ends before a transaction begins,
	// so that the sequence may use the store. A name that a job of the namespace has is
	// a Conflict that names it. A nil request has no key.
	CreateJobs(ctx context.Context, jobs iter.Seq2[NewJob, error], r *Request) error

	// Job returns a job that is not deleted. An archived one has the state JobEnded.
	// NotFound if there is none.
	Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error)

	// DeletedJob returns a deleted job, which is kept as long as its history; NotFound
	// if there is none.
	DeletedJob(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error)

	// JobIDByName returns the id of the job that has the name, or else of the one that
	// had it and was archived last; NotFound if there is none.
	JobIDByName(ctx context.Context, namespace, name string) (belfry.ID, error)

	// JobNames returns the names of jobs, deleted and archived ones among them, as long as
	// they are kept. Jobs without a name are left out.
	JobNames(ctx context.Context, namespace string, ids []belfry.ID) (map[belfry.ID]string, error)

	// JobsByName lists jobs that have a name, by name, after the job of an id.
	JobsByName(ctx context.Context, namespace string, after belfry.ID, limit int) ([]belfry.ID, error)

	// ListJobs returns the jobs that match the filter, newest first. Archived jobs are
	// among them only if the filter asks for a status that they may have. It reads a
	// bounded number of jobs: a page may have fewer than its limit, or none, and still
	// be followed by others.
	ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page Page) (JobList, error)

	// Revisions returns the earlier revisions of a job, deleted or not, below the given number if that
	// is not zero, latest first; NotFound if there is no such job.
	Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error)

	// EditJob locks a job and its plan, asks edit what to change, and writes that. An
	// error of edit is returned as it is and nothing changes; edit may be called again
	// if the outcome was unknown. An archived job is a Conflict. Waiting runs are
	// promoted if the job now allows several runs at a time.
	EditJob(ctx context.Context, namespace string, id belfry.ID, edit Edit) (belfry.Job, error)

	// Trigger records triggers of one job, all or none; the owner of the job's shard
	// fires them. NotFound if there is no such job, Conflict if it is archived. A nil
	// request has no key.
	Trigger(ctx context.Context, triggers []plan.Trigger, r *Request) error

	// DeleteEnded deletes an archived job like any other, with its history if that is asked for.
	// NotFound if there is no such archived job.
	DeleteEnded(ctx context.Context, namespace string, id belfry.ID, history bool) error

	// CachedResponse returns the response that is stored under the key of a request;
	// nil if there is none.
	CachedResponse(ctx context.Context, namespace, key string) (*DuplicateRequest, error)
}

// Request is the idempotency key of a request. The key and the response are written
// together with what the request writes, and kept for RequestRetention. If the key
// was used before, nothing is written, and the call returns a *DuplicateRequest.
type Request struct {
	Namespace string
	Key       string
	Hash      [32]byte               // of the request
	Response  func() ([]byte, error) // called after all jobs of the sequence were taken; it may be called again
}

// DuplicateRequest is the error of a call whose key was used before.
type DuplicateRequest struct {
	Hash     [32]byte // of the earlier request
	Response []byte   // to the earlier request
}

func (*DuplicateRequest) Error() string { return "the idempotency key was used before" }

// JobList is a page of jobs. The list continues after Next, unless that is zero.
type JobList struct {
	Jobs []belfry.Job
	Next belfry.ID
}

// JobActivity is what the status of a job is derived from, beside its state and plan.
// Instants are scheduled ones, and zero if there is none.
type JobActivity struct {
	Live        belfry.LiveRuns
	LastLiveAt  time.Time // latest live run
	LastDeadAt  time.Time // latest dead letter
	LastRanAt   time.Time // latest settled run that was not skipped
	SettledAt   time.Time // latest settled run or skip that is not a note
	SettledLast belfry.RunStatus
	Results
}

// Results are what the last result of a job is chosen from. An instant of zero is none.
type Results struct {
	Settled belfry.LastResult // latest settled run or skip that is not a note
	Dead    belfry.LastResult // latest dead letter, with how many of its attempts failed
	Failed  belfry.LastResult // latest live run with attempts that failed, with how many did of all live runs
	Failing Failure           // count and instant of what SetFailing recorded
}

// Last is the latest result; nil without any. A run that fails and is tried again comes
// before occurrences that were skipped because of it.
func (r *Results) Last() *belfry.LastResult {
	last := r.Settled
	if !r.Dead.At.IsZero() && !r.Dead.At.Before(last.At) {
		last = r.Dead
	}
	if !r.Failed.At.IsZero() && (last.Status == belfry.ResultSkipped || !r.Failed.At.Before(last.At)) {
		last = r.Failed
	}
	if last.At.IsZero() {
		return nil
	}
	if last.Failures = 0; last.Status == belfry.ResultFailed || last.Status == belfry.ResultDead {
		var success time.Time
		if r.Settled.Status == belfry.ResultSucceeded {
			success = r.Settled.At
		}
		last.Failures = r.Failed.Failures
		if r.Dead.At.After(success) {
			last.Failures += r.Dead.Failures
		}
		if r.Failing.LatestAt.After(success) {
			last.Failures = max(last.Failures, r.Failing.Count)
		}
	}
	if text := []rune(last.Error); len(text) > maxResultError {
		last.Error = string(text[:maxResultError-1]) + "…"
	}
	return &last
}

const maxResultError = 200 // characters

// HasStatus reports whether a job that a list has found passes its filter by a status. One
// that was found among the failing jobs may have succeeded since.
func HasStatus(job belfry.Job, status belfry.JobStatus) bool {
	if status == belfry.StatusFailing {
		return job.LastResult == nil || job.LastResult.Status != belfry.ResultSucceeded
	}
	return status == "" || job.Status == status
}

// SetStatus sets the status of a job at an instant, when it last ran, and its last result.
func (a *JobActivity) SetStatus(job *belfry.Job, now time.Time) {
	if at := slices.MaxFunc([]time.Time{a.LastLiveAt, a.LastDeadAt, a.LastRanAt}, time.Time.Compare); !at.IsZero() {
		job.LastRunAt = &at
	}
	last := a.SettledLast
	if !a.LastDeadAt.IsZero() && !a.LastDeadAt.Before(a.SettledAt) {
		last = belfry.RunDead
	}
	job.Status = belfry.StatusOf(job.State, job.NextRunAt, now, a.Live, last)
	job.LastResult = a.Last()
}

// NewJob is a job with its first plan.
type NewJob struct {
	Job  belfry.Job
	Plan plan.Plan
}

// Edit says how to change a job, given it, its plan and the store's time. It
// must be pure. A nil Change leaves everything as it is.
type Edit func(job belfry.Job, p plan.Plan, now time.Time) (*Change, error)

// Change is an edited job and the step that moves its plan. If Revision grew, the
// earlier spec and payload are kept under the earlier number.
type Change struct {
	Job    belfry.Job
	Step   plan.Step
	Cancel bool // cancels the live runs of the job and its pending triggers too
	Purge  bool // with a deletion: deletes its history too, as soon as no run is alive
}
