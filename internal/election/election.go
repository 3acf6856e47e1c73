// Package election decides which node owns which shard, and for how long it may
// believe so.
//
// Ownership is for speed and tidiness, never for safety: two nodes that both
// believe they own a shard cost each other some work, and the store still makes
// one run of each occurrence. So an elector is simple. Every node holds a lease
// on its own name while it lives. From the names held, every node computes the
// same spread of shards (rendezvous hashing: when a node comes or goes, only the
// shards it gains or had move), takes leases on its share and releases the rest.
//
// A term is a context. It ends when the lease can no longer be trusted: counted
// from the start of the last renewal that worked, less a margin, so that a slow
// answer never lengthens a belief.
package election

import (
	"context"
	"sync"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// Lead is called, in a goroutine of its own, for each term that begins. It
// returns soon after ctx ends.
type Lead func(ctx context.Context, term store.Term)

// Everything leads every shard for as long as it runs. It serves a store that
// only one node can use.
type AllShards struct {
	Store store.Store
}

// Run leads until ctx ends.
func (e AllShards) Run(ctx context.Context, lead Lead) error {
	var terms sync.WaitGroup
	since := e.Store.Now()
	for shard := range e.Store.Shards() {
		terms.Go(func() { lead(ctx, store.Term{Shard: shard, Since: since}) })
	}
	<-ctx.Done()
	terms.Wait()
	return nil
}

// Timing of the leases. A dead owner is replaced within ttl plus a round.
const (
	ttl    = 4 * time.Second
	margin = 500 * time.Millisecond
	renewInterval  = 750 * time.Millisecond
	callTimeout   = time.Second // a call to the store may take
)
