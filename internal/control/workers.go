package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// What is kept of texts from workers.
const (
	maxNode  = 200     // bytes of the name of a node
	maxError = 8 << 10 // bytes of an error
)

// Claim hands ready runs of the queues and handlers to a worker. If there are none it
// waits for some, until WaitSeconds are over or ctx ends, which is no error. A worker
// that has not registered with a heartbeat gets none, but may register meanwhile. If
// the outcome is unknown the error is Unavailable; what was claimed then is released by
// the next complete heartbeat of the worker.
func (c *Control) Claim(ctx context.Context, namespace string, claim belfry.Claim) ([]*belfry.Run, error) {
	var err error
	if claim.Lanes, err = lanes(ctx, namespace, claim.Queues, claim.Handlers); err != nil {
		return nil, err
	}
	claim.Limit = max(claim.Limit, 1)
	claim.WorkerID = belfry.WorkerID(namespace, claim.WorkerID)
	wait := time.Duration(claim.WaitSeconds.Value() * float64(time.Second))
	if wait <= 0 {
		return c.claim(ctx, namespace, claim, plan.MaxRank)
	}
	if runs, err := c.claim(ctx, namespace, claim, c.announce(claim)); err != nil || len(runs) > 0 {
		return runs, err
	}
	return c.waitForRuns(ctx, namespace, claim, wait)
}

// claim calls the store once, for runs below a rank: a second claim after one of unknown
// outcome would take more.
func (c *Control) claim(ctx context.Context, namespace string, claim belfry.Claim, below int64) (runs []*belfry.Run, err error) {
	if ctx.Err() != nil {
		return nil, nil
	}
	if limit := c.quotas.MaxRunning(namespace); limit > 0 { // Due items become ready first: below does not matter.
		runs, err = c.store.ClaimShares(ctx, claim, store.Shares{MaxRunning: map[string]int{namespace: limit}})
	} else {
		runs, err = c.store.ClaimBelow(ctx, claim, below)
	}
	if !isKnown(err) {
		return nil, unavailable("claim runs", err)
	}
	return runs, err
}

// Heartbeat records that a worker is alive, keeps what it sends of the logs of its
// attempts, and returns which of them are lost or cancelled.
func (c *Control) Heartbeat(ctx context.Context, namespace string, h belfry.Heartbeat) (reply belfry.HeartbeatReply, err error) {
	if h.Lanes, err = lanes(ctx, namespace, h.Queues, h.Handlers); err != nil {
		return reply, err
	}
	h.Node = sanitize.Text(h.Node, maxNode)
	h.WorkerID = belfry.WorkerID(namespace, h.WorkerID)
	h.Logs = slices.Clone(h.Logs)
	for i := range h.Logs {
		h.Logs[i].Namespace = namespace
	}
	reply, err = retryRead(ctx, "record a heartbeat", func() (belfry.HeartbeatReply, error) { return c.store.Heartbeat(ctx, h) })
	reply.Lost = append([]belfry.HeldAttempt{}, reply.Lost...) // never null
	reply.Cancel = append([]belfry.HeldAttempt{}, reply.Cancel...)
	return reply, err
}

// Finish settles attempts, and returns a verdict for each result. Texts that are too
// long are cut.
func (c *Control) Finish(ctx context.Context, namespace string, results []belfry.Result) ([]belfry.Verdict, error) {
	own := make([]belfry.Result, len(results))
	for i, r := range results {
		r.Namespace = namespace
		r.Error = sanitize.Text(r.Error, maxError)
		r.Output = sanitize.Text(r.Output, belfry.MaxOutput)
		own[i] = r
	}
	return retryRead(ctx, "finish attempts", func() ([]belfry.Verdict, error) { return c.store.Finish(ctx, own) })
}

// lanes are the queues and handlers of a worker as the store names them, if it may claim from them.
func lanes(ctx context.Context, namespace string, queues, handlers []string) ([]string, error) {
	if len(queues) == 0 {
		queues = []string{belfry.DefaultQueue}
	}
	var errors []belfry.FieldError
	check := func(field string, names []string, problem func(string) string) {
		for i, name := range names {
			if message := problem(name); message != "" {
				errors = append(errors, belfry.FieldError{Field: fmt.Sprintf("%s[%d]", field, i), Message: message})
			}
		}
	}
	check("queue", queues, validate.Queue)
	check("handlers", handlers, validate.Handler)
	list := make([]string, 0, len(queues)*len(handlers))
	for _, queue := range queues {
		for _, handler := range handlers {
			list = append(list, belfry.NamespaceLane(namespace, belfry.Lane(queue, handler)))
		}
	}
	if err := invalid("the worker is not valid", errors); err != nil {
		return nil, err
	}
	return list, auth.RequireQueues(ctx, queues)
}

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

func (c *Control) waitForRuns(ctx context.Context, namespace string, claim belfry.Claim, wait time.Duration) (runs []*belfry.Run, err error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	w := c.poller.add(c.store, claim)
	defer func() { c.poller.remove(w, len(runs) > 0) }()
	for {
		// The first time too: runs that became ready before the poller ran did not notify it.
		due := c.announce(claim)
		if runs, err = c.claim(ctx, namespace, claim, due); err != nil || len(runs) > 0 {
			return runs, err
		}
		c.poller.missed(w, due < plan.MaxRank, c.quotas.MaxRunning(namespace) > 0)
		woken, take := c.offer(ctx, claim, due)
		again := true
		select {
		case <-woken:
		case <-w.wake:
		case <-timeout.C:
			again = false
		case <-ctx.Done():
			again = false
		}
		if runs, err = take(); err != nil {
			return nil, unavailable("claim runs", err)
		}
		if len(runs) > 0 || !again {
			return runs, nil
		}
	}
}

// Offers fills claims that wait with runs as they are fired, which saves making them ready
// first.
type Offers interface {
	// Announce says that the worker claims at this node and will wait: runs need not be
	// made ready for it in advance. Ready runs below the rank come before what is due.
	Announce(c belfry.Claim) (below int64)

	// Offer opens a claim, to be filled with what comes before a rank. Woken is closed when
	// it was filled, or when ready runs may come first; take closes the claim and returns
	// what it was filled with, if anything. After an error that is unknown.
	Offer(c belfry.Claim, below int64) (woken <-chan struct{}, take func() ([]*belfry.Run, error))
}

func (c *Control) announce(claim belfry.Claim) (below int64) {
	if c.offers == nil {
		return plan.MaxRank
	}
	return c.offers.Announce(claim)
}

// offer opens a claim if a scheduler of this node can fill it. Something is due at a rank;
// ready runs may come after that, but before what is due next.
func (c *Control) offer(ctx context.Context, claim belfry.Claim, due int64) (woken <-chan struct{}, take func() ([]*belfry.Run, error)) {
	below, err := int64(plan.MaxRank), error(nil)
	if due < plan.MaxRank {
		below, err = c.store.ReadyRank(ctx, claim.Lanes)
	}
	if c.offers == nil || err != nil {
		return nil, func() ([]*belfry.Run, error) { return nil, nil }
	}
	return c.offers.Offer(claim, below)
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
// others get their chance: it may be one that is not registered. It pauses shortly if ready
// runs are not its first choice because something else is due. If its namespace is limited,
// ready runs may wait for others to end, of which nobody is notified.
func (p *claimPoller) missed(w *claimWaiter, due, limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case due:
		w.misses = 0
	case limited:
		w.misses = min(w.misses, 2)
	}
	if !w.woken && !limited || len(w.wake) > 0 { // or it was woken just now, and claims again
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
	counted := maps.Clone(ready)
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
		case !slices.ContainsFunc(w.lanes, func(lane string) bool { return ready[lane] > 0 }):
			if slices.ContainsFunc(w.lanes, func(lane string) bool { return counted[lane] >= demand }) { // There may be more.
				within(minPollGap)
			}
		case now.Before(w.retryAt):
			within(w.retryAt.Sub(now))
		default:
			left := w.limit
			for _, lane := range w.lanes {
				n := min(ready[lane], left)
				ready[lane] -= n
				left -= n
			}
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
