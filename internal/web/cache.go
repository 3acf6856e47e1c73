package web

import (
	"sync"
	"time"
)

// maxCached is how many values are kept.
const maxCached = 1000

// cache has values that many requests share for a moment. Each is computed by one of them,
// while the others wait.
type cache[T any] struct {
	mu     sync.Mutex
	values map[string]*cached[T]
}

type cached[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time
}

func (c *cache[T]) get(key string, keep time.Duration, compute func() (T, error)) (T, error) {
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
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Now().Before(v.until) {
		return v.value, nil
	}
	value, err := compute()
	if err == nil {
		v.value, v.until = value, time.Now().Add(keep)
	}
	return value, err
}

func (c *cache[T]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = nil
}
