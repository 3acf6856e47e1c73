// Package election decides which node owns which shard, and for how long.
//
// Ownership is for speed, never for safety: two nodes that both believe that they own a
// shard cost each other some work, and the store still makes one run of each occurrence.
// So an elector is simple. Every node holds a lease on its own name while it lives. From
// the names held, every node computes the same distribution of shards (rendezvous
// hashing: when a node comes or goes, only its shards move), takes leases on its share
// and releases the rest.
//
// A term is a context. It ends before the lease can expire: its end counts from the
// start of the last renewal that succeeded, minus a margin, so that a slow reply never
// extends it.
package election

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"sync"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// Lead is called in its own goroutine for each term that begins. It returns soon after
// ctx ends.
type Lead func(ctx context.Context, term store.Term)

// AllShards leads every shard while it runs. It is for a store that only one node can
// use.
type AllShards struct {
	Store interface {
		store.Sharding
		store.Clock
	}
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

// Timing of the leases. A dead owner is replaced within ttl plus renewInterval.
const (
	ttl           = 4 * time.Second
	margin        = 500 * time.Millisecond
	renewInterval = 750 * time.Millisecond
	callTimeout   = time.Second // of a call to the store
)

// Owner is the node that owns a shard: the one with the highest hash of both. It depends
// only on the set of nodes.
func Owner(shard int, nodes []string) string {
	var owner string
	var best uint64
	for _, node := range nodes {
		if w := weight(shard, node); owner == "" || w > best || w == best && node > owner {
			owner, best = node, w
		}
	}
	return owner
}

func weight(shard int, node string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(shard)))
	x := h.Sum64()
	x ^= x >> 33 // mixes the shard, which is written last, into the high bits
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
