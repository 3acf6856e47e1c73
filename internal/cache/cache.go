// Package cache keeps values that many requests ask for, each for a short time.
package cache

import (
	"context"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

// Cache has the latest value of each key. The zero value is empty. It is safe for concurrent
// use.
type Cache[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]*entry[V]
}

type entry[V any] struct {
	done  chan struct{} // closed when the rest is set
	until time.Time
	value V
	err   error
}

var errPanicked = belfry.Errorf(belfry.Internal, "the computation panicked") // unless it returned

const (
	maxEntries = 1000
	timeout    = 15 * time.Second // to compute a value, for all who wait for it
)

// Get returns the value of a key, and computes it if it is older than its lifetime. Who asks
// while it is computed waits for it, unless ctx ends. An error is returned to all who wait,
// and not kept.
func (c *Cache[K, V]) Get(ctx context.Context, key K, lifetime time.Duration, compute func(context.Context) (V, error)) (V, error) {
	c.mu.Lock()
	found := c.known[key]
	if found != nil && !found.expired() {
		c.mu.Unlock()
		select {
		case <-found.done:
			return found.value, found.err
		case <-ctx.Done():
			var none V
			return none, belfry.Errorf(belfry.Unavailable, "the request ended before its answer was computed: %w", context.Cause(ctx))
		}
	}
	if c.known == nil || len(c.known) >= maxEntries {
		c.known = map[K]*entry[V]{}
	}
	found = &entry[V]{done: make(chan struct{}), err: errPanicked}
	c.known[key] = found
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	defer close(found.done)
	if found.value, found.err = compute(ctx); found.err == nil {
		found.until = time.Now().Add(lifetime)
	}
	return found.value, found.err
}

// Clear forgets all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
}

func (e *entry[V]) expired() bool {
	select {
	case <-e.done:
		return !time.Now().Before(e.until)
	default:
		return false
	}
}
