package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// Runs is the live runs. It satisfies worker.Source; a claim does not wait.
type Runs interface {
	// Claim hands ready runs of the lanes to a registered worker, lowest rank
	// first. It returns none if the worker is not known.
	Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)

	// Heartbeat notes that a worker is alive and answers with what it lost and what
	// is cancelled of its attempts, listed or not.
	Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error)

	// Finish settles attempts. Each result is applied only if its run is held by
	// exactly this attempt; otherwise it is kept as evidence and changes nothing.
	// What waits for a run that is over goes ahead, and a one-off that is over leaves
	// the live tables.
	Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error)

	// Reap gives up the workers that were silent for so long (a zero silence:
	// none), and settles the attempts in the shards whose worker was given up or
	// whose deadline has passed, or which somebody cancelled CancelGrace ago, at most
	// limit. It says how many.
	Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (int, error)

	// Cancel ends a run: one that no worker holds at once, and one that is running when
	// its worker has let go of it. Asking again does nothing. A run that is settled, in
	// any state but cancelled, is a Conflict; NotFound if there is none.
	Cancel(ctx context.Context, namespace string, run belfry.ID) error

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

// CancelGrace is how long a worker may take to let go of a cancelled run.
const CancelGrace = 30 * time.Second

// KeepKeys is how long after its success a run keeps others of the job from having
// the same idempotency key.
const KeyRetention = 7 * 24 * time.Hour

// ConfirmAfter is the age from which a claim that its worker does not list is
// released.
const ConfirmAfter = 10 * time.Second
