package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// History is what happened, and what is happening, to runs.
type History interface {
	// Run finds a run wherever it is, with the attempts that failed. A trigger that
	// is not fired yet is found as the ready run that it will be.
	Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error)

	// JobRuns gives the runs and skips of a job, live ones included, latest
	// occurrence first, without their attempts.
	JobRuns(ctx context.Context, namespace string, job belfry.ID, page Page) ([]belfry.Run, error)

	// ListRuns gives the runs and skips of all jobs of a namespace, live ones
	// included, latest first, without their attempts. Like ListJobs it looks at a
	// bounded number, so that a page may be short and still be followed by others.
	ListRuns(ctx context.Context, namespace string, filter belfry.RunFilter, page Page) (RunList, error)

	// Decided gives the runs and skips of a job, live ones included, whose scheduled
	// instant is this one, or that cover it, in any number and order. Triggers that are
	// not fired are not among them.
	RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error)

	// Wait tells what a live run waits for; NotFound if it is not alive.
	RunWait(ctx context.Context, namespace string, run belfry.ID) (RunWait, error)

	// Events gives what was told of in a namespace, latest first.
	ListEvents(ctx context.Context, namespace string, page Page) ([]belfry.Event, error)

	// Prune forgets history, evidence, events and ended jobs older than keep, or than
	// their own retention if a job has one, and what nothing needs
	// any more of fired triggers, requests, keys of runs and deleted jobs; it also makes
	// room for the days to come. It says how many settled runs and skips went.
	Prune(ctx context.Context, keep time.Duration) (int, error)
}

// RunList is a page of runs in descending order of their ids, and so of their
// scheduled instants. The list goes on after Next, unless that is zero.
type RunList struct {
	Runs []belfry.Run
	Next belfry.ID
}

// Wait is what there is to know about a live run that waits.
type RunWait struct {
	State   belfry.RunStatus
	ReadyAt time.Time
	Lane    string
	Ahead   int         // ready runs of the lane that come first; only of a ready run
	Running int         // runs of the lane that workers hold
	Before  []belfry.ID // the live runs of its job that come first, at most 10; only of a waiting run
	Cancel  bool        // somebody cancelled it, and its worker has not let go of it yet
}
