package control

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	lull       = 10 * time.Millisecond // between two looks, whatever hints come
	retryLook  = time.Second           // after a look that failed
	leastRest  = 50 * time.Millisecond // of a waiter that was woken for nothing
	mostRest   = 2 * time.Second
	maxCounted = 1000 // ready runs that a look counts in a lane
)

// gate is where claims wait until something is ready for them. However many there
// are, one goroutine looks for all of them: once a hint, a poll or a claim in vain.
// It is there only while somebody waits. The zero value is ready for use.
type gate struct {
	mu      sync.Mutex
	waiting []*waiter // oldest first
	kick    chan struct{}
	stop    context.CancelFunc // ends the watch; nil: there is none
}

// waiter is a claim that waits. All but its lanes, limit and channel is guarded by
// the gate's mutex.
type waiter struct {
	lanes []string
	limit int
	wake  chan struct{}

	woken bool      // and has not come back yet
	vain  int       // how often it was woken for nothing
	rest  time.Time // it is not woken before that
}

// await waits for runs to claim.
func (c *Control) await(ctx context.Context, claim belfry.Claim, wait time.Duration) (runs []*belfry.Run, err error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	w := c.gate.enter(c.store, claim)
	defer func() { c.gate.leave(w, len(runs) > 0) }()
	for {
		// At first, too: what came before somebody listened gave no hint.
		if runs, err = c.claim(ctx, claim); err != nil || len(runs) > 0 {
			return runs, err
		}
		c.gate.back(w)
		select {
		case <-w.wake:
		case <-over.C:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// enter adds a waiter; the first one starts the watch.
func (g *gate) enter(s store.Store, claim belfry.Claim) *waiter {
	w := &waiter{lanes: claim.Lanes, limit: claim.Limit, wake: make(chan struct{}, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, w)
	if g.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		g.stop, g.kick = cancel, make(chan struct{}, 1)
		go g.watch(ctx, s, s.Wakeups(ctx, store.TopicReady), g.kick)
	}
	return w
}

// leave removes a waiter; the last one ends the watch. What one that was woken did
// not take is for others.
func (g *gate) leave(w *waiter, served bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, w)
	g.waiting = slices.Delete(g.waiting, i, i+1)
	if len(g.waiting) == 0 {
		g.stop()
		g.stop = nil
	} else if w.woken && !served {
		g.look()
	}
}

// back says that a waiter found nothing. If it was woken for that, it rests, and
// others may have more luck: it may be one that is not registered.
func (g *gate) back(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.woken || len(w.wake) > 0 { // or it was woken just now, and looks again
		return
	}
	w.woken = false
	w.rest = time.Now().Add(min(leastRest<<w.vain, mostRest))
	w.vain = min(w.vain+1, 10)
	g.look()
}

// look asks the watch for a look; mu is held.
func (g *gate) look() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// watch wakes waiters until ctx ends.
func (g *gate) watch(ctx context.Context, s store.Store, hints, kick <-chan struct{}) {
	poll := time.NewTicker(s.PollEvery())
	defer poll.Stop()
	again := time.NewTimer(0)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-hints:
		case <-kick:
		case <-poll.C:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		again.Stop()
		if next := g.wakeSome(ctx, s); next > 0 {
			again.Reset(next)
		}
		select {
		case <-time.After(lull):
		case <-ctx.Done():
			return
		}
	}
}

// wakeSome counts what is ready and wakes, oldest first, the waiters for whom there
// is some. It says when to look again even if nothing happens; zero: no need to.
func (g *gate) wakeSome(ctx context.Context, s store.Store) time.Duration {
	wanted := g.wanted()
	if wanted == 0 {
		return 0
	}
	ready, err := s.Ready(ctx, wanted)
	if err != nil {
		return retryLook
	}
	full := map[string]bool{} // lanes that may have more than was counted
	for lane, n := range ready {
		full[lane] = n >= wanted
	}
	var next time.Duration
	soon := func(d time.Duration) {
		if next == 0 || d < next {
			next = d
		}
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiting {
		switch {
		case w.woken:
		case !w.any(func(lane string) bool { return ready[lane] > 0 }):
			if w.any(func(lane string) bool { return full[lane] }) {
				soon(lull)
			}
		case now.Before(w.rest):
			soon(w.rest.Sub(now))
		default:
			w.take(ready)
			w.woken = true
			w.wake <- struct{}{} // there is room: whoever is not woken has taken the last one
		}
	}
	return next
}

// wanted is how many runs of a lane are worth counting: no more than the waiters
// would take.
func (g *gate) wanted() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiting {
		if !w.woken {
			n += w.limit
		}
	}
	return min(n, maxCounted)
}

func (w *waiter) any(lane func(string) bool) bool { return slices.ContainsFunc(w.lanes, lane) }

// take counts what the waiter may claim as gone.
func (w *waiter) take(ready map[string]int) {
	left := w.limit
	for _, lane := range w.lanes {
		n := min(ready[lane], left)
		ready[lane] -= n
		left -= n
	}
}
