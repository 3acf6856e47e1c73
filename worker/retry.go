package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// backoff is the delays between tries: they double from min to max, with jitter.
type backoff struct {
	min, max time.Duration
	next     time.Duration // zero: start again from min
}

func (b *backoff) delay() time.Duration {
	d := max(b.next, b.min)
	b.next = min(2*d, b.max)
	return jitter(d)
}

// jitter adds or removes up to a fifth of d, so that workers that were started together
// do not call together for ever.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep waits for d. It returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// signal signals on a channel with a buffer of one; signals are merged.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// outage keeps the log short: one line when the first call fails, and one when all
// calls that failed succeed again.
type outage struct {
	log *slog.Logger

	mu      sync.Mutex // guards the fields below
	failing []string   // the calls that failed when last tried
	since   time.Time
}

func (o *outage) failed(call string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.failing, call) {
		return
	}
	o.failing = append(o.failing, call)
	if len(o.failing) > 1 {
		o.log.Debug("another call fails", "call", call, "error", err)
		return
	}
	o.since = time.Now()
	o.log.Warn("the source fails; calls are retried until it answers", "call", call, "error", err)
}

func (o *outage) recovered(call string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := slices.Index(o.failing, call)
	if at < 0 {
		return
	}
	o.failing = slices.Delete(o.failing, at, at+1)
	if len(o.failing) == 0 {
		o.log.Info("the source answers again", "after", time.Since(o.since).Round(time.Millisecond))
	}
}
