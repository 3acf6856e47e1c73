package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
)

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

	// Redrive turns dead letters into live runs with the same ids, keys, attempts and
	// revisions, and with all their retries. Each is ready after its delay; one of a
	// serial job waits for the runs that are alive, and the earliest of several comes
	// first. Those that do not exist are left out. It says how many it redrove.
	Redrive(ctx context.Context, namespace string, list []Redrive) (int, error)

	// Discard moves dead letters to history. It says how many.
	Discard(ctx context.Context, namespace string, runs []belfry.ID) (int, error)
}

// Redrive is one dead letter to redrive.
type Redrive struct {
	Run     belfry.ID
	After   time.Duration
	Payload json.RawMessage // replaces its payload, if set
}
