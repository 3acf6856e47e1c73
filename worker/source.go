package worker

import (
	"context"

	"github.com/belfry-sh/belfry"
)

// Source is where runs come from and results go: a database, a broker in front
// of it, or a server reached over HTTP. Its methods are called concurrently,
// and each must return soon after its context ends.
type Source interface {
	// Claim takes up to c.Limit runs for the worker. It may wait until there
	// is something or ctx ends, and it may return none. After an error the
	// worker assumes nothing about whether runs were taken.
	Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)

	// Heartbeat says that the worker is alive and learns what it must drop.
	Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error)

	// Finish hands in results and answers one verdict for each, in order. The
	// same results may be handed in again after an error.
	Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error)
}
