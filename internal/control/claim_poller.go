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
	minPollGap   = 10 * time.Millisecond // between two polls, whatever wakes the poller
	pollRetry    = time.Second           // after a poll that failed
	minMissPause = 50 * time.Millisecond // of a waiter that was woken and found nothing
	maxMissPause = 2 * time.Second
	maxCounted   = 1000 // ready runs that a poll counts in a lane
)

// claimPoller is where claims wait until runs are ready for them. However many wait,
// one goroutine polls for all of them: after a notification, at an interval, or after a
// waiter that found nothing. It runs only while claims wait. The zero value is ready
// for use.
type claimPoller struct {
	mu      sync.Mutex
	waiting []*claimWaiter // oldest first
	kick    chan struct{}
	stop    context.CancelFunc // nil while it does not run
}

// claimWaiter is a claim that waits. The fields after wake are guarded by the mutex of
// the poller.
type claimWaiter struct {
	lanes []string
	limit int
	wake  chan struct{}

	woken   bool // and not back yet
	misses  int  // how often it was woken and found nothing
	retryAt time.Time
}

// waitForRuns waits for runs to claim.
func (c *Control) waitForRuns(ctx context.Context, claim belfry.Claim, wait time.Duration) (runs []*belfry.Run, err error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	w := c.poller.add(c.store, claim)
	defer func() { c.poller.remove(w, len(runs) > 0) }()
	for {
		// The first time too: runs that became ready before the poller ran did not notify it.
		if runs, err = c.claim(ctx, claim); err != nil || len(runs) > 0 {
			return runs, err
		}
		c.poller.missed(w)
		select {
		case <-w.wake:
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// add adds a waiter; the first one starts the poller.
func (p *claimPoller) add(s Store, claim belfry.Claim) *claimWaiter {
	w := &claimWaiter{lanes: claim.Lanes, limit: claim.Limit, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, w)
	if p.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		p.stop, p.kick = cancel, make(chan struct{}, 1)
		go p.run(ctx, s, s.Wakeups(ctx, store.TopicReady), p.kick)
	}
	return w
}

// remove removes a waiter; the last one stops the poller. What a woken waiter did not
// take is for others.
func (p *claimPoller) remove(w *claimWaiter, served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	p.waiting = slices.Delete(p.waiting, i, i+1)
	if len(p.waiting) == 0 {
		p.stop()
		p.stop = nil
	} else if w.woken && !served {
		p.requestPoll()
	}
}

// missed records that a waiter found nothing. If it was woken for that, it pauses, and
// others get their chance: it may be one that is not registered.
func (p *claimPoller) missed(w *claimWaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.woken || len(w.wake) > 0 { // or it was woken just now, and claims again
		return
	}
	w.woken = false
	w.retryAt = time.Now().Add(min(minMissPause<<w.misses, maxMissPause))
	w.misses = min(w.misses+1, 10)
	p.requestPoll()
}

// requestPoll asks for a poll; mu is held.
func (p *claimPoller) requestPoll() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// run wakes waiters until ctx ends.
func (p *claimPoller) run(ctx context.Context, s Store, notified, kick <-chan struct{}) {
	interval := time.NewTicker(s.PollInterval())
	defer interval.Stop()
	again := time.NewTimer(0)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-notified:
		case <-kick:
		case <-interval.C:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		again.Stop()
		if next := p.poll(ctx, s); next > 0 {
			again.Reset(next)
		}
		select {
		case <-time.After(minPollGap):
		case <-ctx.Done():
			return
		}
	}
}

// poll counts ready runs and wakes the waiters for which there are some, oldest first.
// It returns when to poll again even if nothing happens; zero: no need to.
func (p *claimPoller) poll(ctx context.Context, s Store) time.Duration {
	demand := p.demand()
	if demand == 0 {
		return 0
	}
	ready, err := s.CountReady(ctx, demand)
	if err != nil {
		return pollRetry
	}
	full := map[string]bool{} // lanes that may have more than was counted
	for lane, n := range ready {
		full[lane] = n >= demand
	}
	var next time.Duration
	within := func(d time.Duration) {
		if next == 0 || d < next {
			next = d
		}
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiting {
		switch {
		case w.woken:
		case !w.servesAny(func(lane string) bool { return ready[lane] > 0 }):
			if w.servesAny(func(lane string) bool { return full[lane] }) {
				within(minPollGap)
			}
		case now.Before(w.retryAt):
			within(w.retryAt.Sub(now))
		default:
			w.reserve(ready)
			w.woken = true
			w.wake <- struct{}{} // It does not block: a waiter that is not woken has taken the last one.
		}
	}
	return next
}

// demand is how many runs of a lane are worth counting: no more than the waiters would
// take.
func (p *claimPoller) demand() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiting {
		if !w.woken {
			n += w.limit
		}
	}
	return min(n, maxCounted)
}

func (w *claimWaiter) servesAny(lane func(string) bool) bool {
	return slices.ContainsFunc(w.lanes, lane)
}

// reserve subtracts what the waiter may claim.
func (w *claimWaiter) reserve(ready map[string]int) {
	left := w.limit
	for _, lane := range w.lanes {
		n := min(ready[lane], left)
		ready[lane] -= n
		left -= n
	}
}
