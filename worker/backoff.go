package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff gives the pauses between tries of something that fails: they double
// from least to most, spread by a fifth either way.
type backoff struct {
	least, most time.Duration
	next        time.Duration
}

func (b *backoff) delay() time.Duration {
	d := max(b.next, b.least)
	b.next = min(2*d, b.most)
	return jitter(d)
}

func (b *backoff) reset() { b.next = 0 }

// jitter spreads d by a fifth either way, so that workers that were started
// together do not ask together for ever.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep waits for d and reports whether ctx is still alive then.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// signal wakes whoever waits on a channel of capacity one. Signals that nobody
// waited for count as one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
