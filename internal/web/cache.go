package web

import (
	"sync"
	"time"
)

// cached is a value that many requests share for a moment. It is computed by one of them.
type cached[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time
}

func (c *cached[T]) get(keep time.Duration, compute func() (T, error)) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.until) {
		return c.value, nil
	}
	value, err := compute()
	if err == nil {
		c.value, c.until = value, time.Now().Add(keep)
	}
	return value, err
}

// maxCached is how many values are kept.
const maxCached = 1000

// cachedBy is a cached value for each key.
type cachedBy[T any] struct {
	mu     sync.Mutex
	values map[string]*cached[T]
}

func (c *cachedBy[T]) get(key string, keep time.Duration, compute func() (T, error)) (T, error) {
	c.mu.Lock()
	if c.values == nil || len(c.values) >= maxCached {
		c.values = map[string]*cached[T]{}
	}
	v := c.values[key]
	if v == nil {
		v = new(cached[T])
		c.values[key] = v
	}
	c.mu.Unlock()
	return v.get(keep, compute)
}

func (c *cachedBy[T]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = nil
}
