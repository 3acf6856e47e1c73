package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
)

// Dead is the runs out of attempts. People decide what becomes of them.
type DeadLetters interface {
	// DeadLetter finds one with its payload, attempts and the name of its job, and the
	// spec that it was fired from in Run.Spec; NotFound otherwise.
	DeadLetter(ctx context.Context, namespace string, run belfry.ID) (belfry.DeadLetter, error)

	// DeadLetters gives those that pass the filter, the latest death first, without
	// payloads and attempts. The instants of the page are those of death.
	ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page Page) ([]belfry.DeadLetter, error)

	// DeadGroups counts those that pass the filter by the kind of their failure, the
	// largest group first.
	GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error)

	// Redrive makes runs of dead letters again, which keep their ids, keys, attempts
	// and revisions, and have all their retries. Each is ready after its delay; one of
	// a job whose runs follow one after another waits behind those that are alive, and
	// of several the earliest goes first. Those that are not there are left out. It
	// says how many there were.
	Redrive(ctx context.Context, namespace string, list []Redrive) (int, error)

	// Discard gives dead letters up: they become history. It says how many there were.
	Discard(ctx context.Context, namespace string, runs []belfry.ID) (int, error)
}

// Redrive is what becomes of one dead letter.
type Redrive struct {
	Run     belfry.ID
	After   time.Duration
	Payload json.RawMessage // replaces the one that it had, if set
}
