package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
)

// History is what happened to runs, and what is happening to them.
type History interface {
	Pruner

	// Run returns a run, live or settled, with the attempts that failed. A pending
	// trigger is returned as the ready run that it will be.
	Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error)

	// RunLog returns what the handler of an attempt wrote to its log, also while it runs.
	// An attempt that wrote nothing has an empty log; NotFound if there is no such run.
	RunLog(ctx context.Context, namespace string, run belfry.ID, q belfry.LogQuery) (belfry.RunLog, error)

	// JobRuns returns the runs and skips of a job, live ones included, latest
	// occurrence first, without their attempts. Like ListRuns it reads a bounded
	// number: the list continues after the position, unless that is zero, even if
	// the page is short.
	JobRuns(ctx context.Context, namespace string, job belfry.ID, filter belfry.JobRunFilter, page Page) ([]belfry.Run, Position, error)

	// RunTimes returns when the latest runs and skips of jobs were, at most so many of each
	// job, without what they wrote. They are in no order.
	RunTimes(ctx context.Context, namespace string, jobs []belfry.ID, since time.Time, limit int) ([]RunTime, error)

	// ListRuns returns the runs and skips of all jobs of a namespace, live ones
	// included, latest first, without their attempts. Like ListJobs it reads a
	// bounded number, so that a page may be short and still be followed by others.
	ListRuns(ctx context.Context, namespace string, filter belfry.RunFilter, page Page) (RunList, error)

	// RunsAt returns the runs and skips of a job, live ones included, whose scheduled
	// instant is this one, or that cover it, in any number and order. Pending triggers
	// are not among them.
	RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error)

	// RunWait says what a live run waits for; NotFound if it is not alive.
	RunWait(ctx context.Context, namespace string, run belfry.ID) (RunWait, error)
}

// Pruner enforces retention.
type Pruner interface {
	// Prune deletes history, attempts, logs, events and archived jobs older than keep, or
	// than the retention of their job if it has one, and fired triggers, requests,
	// keys of runs and deleted jobs that are not needed any more. It also creates
	// partitions for the coming days. It says how many settled runs and skips it
	// deleted.
	Prune(ctx context.Context, keep time.Duration) (int, error)
}

// RunList is a page of runs in descending order of their ids, and so of their
// scheduled instants. The list continues after Next, unless that is zero.
type RunList struct {
	Runs []belfry.Run
	Next belfry.ID
}

// ListStart is where a list of runs by instant and id starts: after the position, or at
// the instant that ends the list, whichever is earlier. Zero values are no limit.
func ListStart(until time.Time, after Position) Position {
	if !until.IsZero() && (after.At.IsZero() || until.Before(after.At)) {
		return Position{At: until}
	}
	return after
}

// SettledOnly reports whether runs with the status are in history alone, where they may
// be rare.
func SettledOnly(status belfry.RunStatus) bool {
	return status != "" && status != belfry.RunDead && !status.Live()
}

// ScanStart is where a list of runs that is read by descending ids starts: below the id,
// or the first page below all ids of the instant that ends the list, unless that is zero.
// The ids of runs begin with the scheduled instant.
func ScanStart(until time.Time, after belfry.ID) belfry.ID {
	if until.IsZero() {
		return after
	}
	if first := FirstID(until.Add(time.Millisecond)); after.IsZero() || first.Compare(after) < 0 { // the instant may be within a millisecond
		return first
	}
	return after
}

// ScanEnded reports whether no run that is scheduled for the instant or later has a lower
// id. There is always one if the instant is zero.
func ScanEnded(since time.Time, id belfry.ID) bool {
	return !since.IsZero() && id.Compare(FirstID(since)) < 0
}

// FirstID is below all ids that carry the millisecond of an instant or a later one.
func FirstID(t time.Time) (id belfry.ID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(t.UnixMilli(), 0)))
	copy(id[:6], ms[2:])
	return id
}

// RunWait is what a live run waits for.
type RunWait struct {
	State   belfry.RunStatus
	ReadyAt time.Time
	Lane    string
	Ahead   int         // of a ready run: ready runs of the lane that come first
	Running int         // runs of the lane that workers hold
	Before  []belfry.ID // of a waiting run: live runs of its job that come first, at most 10
	Cancel  bool        // it was cancelled, and its worker has not stopped yet
}

// DeadLetters is the runs that are out of attempts. Users redrive or discard them.
type DeadLetters interface {
	// DeadLetter returns one with its payload, its attempts, the name of its job, and
	// in Run.Spec the spec that it was fired from; NotFound if there is none.
	DeadLetter(ctx context.Context, namespace string, run belfry.ID) (belfry.DeadLetter, error)

	// ListDeadLetters returns those that match the filter, the latest death first,
	// without payloads and attempts. The instants of the page are those of death.
	ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page Page) ([]belfry.DeadLetter, error)

	// GroupDeadLetters counts those that match the filter by fingerprint, the largest
	// group first.
	GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error)

	// CountDead counts those of a namespace, up to a limit.
	CountDead(ctx context.Context, namespace string, limit int) (int, error)

	// Redrive turns dead letters into live runs with the same ids, keys and attempts, and
	// with all their retries. Each is ready after its delay; one of a
	// serial job waits for the runs that are alive, and the earliest of several comes
	// first. Those that do not exist are left out. It says how many it redrove.
	Redrive(ctx context.Context, namespace string, list []Redrive) (int, error)

	// Discard moves dead letters to history. It says how many.
	Discard(ctx context.Context, namespace string, runs []belfry.ID) (int, error)
}

// Redrive is one dead letter to redrive.
type Redrive struct {
	Run     belfry.ID
	JobID   belfry.ID // its job
	After   time.Duration
	Payload json.RawMessage // replaces its payload, if set
	Job     *belfry.Job     // whose revision it gets; nil: it keeps the one that it was fired from
	Weight  int64           // of the priority of that job
}
