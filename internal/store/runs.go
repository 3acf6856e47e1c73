package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// Runs is the live runs. It satisfies worker.Source; a claim does not wait.
type Runs interface {
	Lanes
	Reaper

	// Claim hands ready runs of the lanes to a registered worker, lowest rank
	// first. It returns none if the worker is not known.
	Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)

	// Heartbeat records that a worker is alive and returns which of its attempts it
	// lost and which are cancelled, whether it lists them or not.
	Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error)

	// Finish settles attempts. Each result is applied only if its run is held by
	// exactly this attempt; otherwise it is kept as evidence and changes nothing.
	// When a run ends, the next waiting run of its job is promoted, and a finished
	// one-off is archived.
	Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error)

	// Cancel ends a run: at once if no worker holds it, otherwise when its worker has
	// stopped. Repeating it does nothing. A run that is settled with any status but
	// cancelled is a Conflict; NotFound if there is none.
	Cancel(ctx context.Context, namespace string, run belfry.ID) error

	// Workers lists the registered workers.
	Workers(ctx context.Context) ([]Worker, error)
}

// Reaper settles attempts that their workers will not finish.
type Reaper interface {
	// Reap unregisters the workers that were silent for so long (a zero silence:
	// none), and settles the attempts in the shards whose worker is not registered or
	// whose deadline has passed, or which were cancelled CancelGrace ago, at most
	// limit. It says how many.
	//
	// A deadline counts only if the worker was heard after it, and without a gap since
	// the attempt started: a worker that may be lost is waited for, since a lost attempt
	// costs no retry, and one that could not report first reports. For ClockGrace after a
	// step of the store's clock no worker is silent and no attempt overdue.
	Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (int, error)
}

// Worker is a registered worker incarnation.
type Worker struct {
	ID       belfry.ID
	Node     string
	Slots    int
	Lanes    []string
	LastSeen time.Time
}

// How long the store waits for workers, and keeps what repeated calls need.
const (
	DeadlineGrace = 10 * time.Second // after the timeout of an attempt, until it is taken from a worker that still seems alive
	CancelGrace   = 30 * time.Second // for a worker to stop a cancelled run
	ConfirmAfter  = 10 * time.Second // the age from which a claim that its worker does not list is released
	HeartbeatGap  = 10 * time.Second // between two heartbeats of a worker that was connected all the time, at most

	KeyRetention        = 7 * 24 * time.Hour // after its success a run keeps others of the job from having the same idempotency key
	RequestRetention    = 7 * 24 * time.Hour // keys of requests
	OutageRetention     = 90 * 24 * time.Hour
	TriggerRetention    = 24 * time.Hour // fired triggers, so that repeating a request does nothing
	DeletedJobRetention = time.Hour      // beside the live jobs; then it is archived
)
