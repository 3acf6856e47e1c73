// Package worker executes runs: it claims them from a source, calls the handler of each,
// and reports the result.
//
//	c, err := client.New("http://127.0.0.1:7070", client.WithKey(key))
//	mux := worker.NewMux()
//	mux.HandleFunc("send-invoice", func(ctx context.Context, run *belfry.Run) error {
//		return send(ctx, run.Payload, run.Key())
//	})
//	err = worker.New(c, mux, worker.Concurrency(20)).Run(ctx)
//
// A handler may be called again for the same run: after an error, after the loss of its
// worker, and when it is unknown whether it finished. The idempotency key of the run is
// the same every time. The context of a handler ends when the attempt must; see
// ErrTimedOut, ErrInterrupted, ErrCancelled and ErrLeaseLost. A handler may say when to
// retry, or that retries cannot help; see Handler.
//
// If the server exports traces, the context of a handler has the span of the attempt:
// spans that the handler starts, and calls through an instrumented client, are part of
// the trace of the run.
//
// Run returns when its context ends, after a drain. Until then calls to a server that
// cannot be reached are retried for ever, with one line in the log when that begins and
// one when it ends. Without a heartbeat for 15 seconds nothing is started. A worker that
// the server has reaped meanwhile learns so from the next heartbeat, ends the contexts
// of its handlers, and continues with a new id.
//
// A Pool has four kinds of goroutines: two claim, one sends results, one sends
// heartbeats, and every attempt has one to itself. They share the fields of the Pool under one
// lock that is never held during a call. While the source is down nothing is lost:
// results are kept and sent again, and no more is claimed than there are free slots.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	// minDrain is the shortest drain timeout. A server notices a moment later that a claim over
	// HTTP has ended, and would give interrupted runs to it.
	minDrain       = 100 * time.Millisecond
	interruptGrace = 5 * time.Second  // for handlers to return after they were interrupted
	flushGrace     = 10 * time.Second // for the last results to be accepted
)

// Pool runs the attempts of one worker.
type Pool struct {
	source Source
	mux    *Mux
	outage outage

	node         string // this and the next four are set by options
	queues       []string
	concurrency  int
	drainTimeout time.Duration
	log          *slog.Logger

	slots    *belfry.Slots
	lanes    []string // queues and handlers, combined
	handlers []string
	base     context.Context // of every attempt: that of Run without its end

	claimable chan struct{}   // there may be free slots, or a valid lease again
	sendable  chan struct{}   // there is a result to send
	changed   chan struct{}   // an attempt ended, a result was accepted or claiming stopped
	logged    chan struct{}   // a handler wrote to its log
	idle      chan assignment // taken by goroutines that have no attempt; closed when nothing more is claimed

	mu        sync.Mutex // guards the fields below
	started   bool
	claiming  int                            // claim loops that have not ended
	draining  bool                           // Run's context has ended
	stopClaim [claimLoops]context.CancelFunc // ends the last Claim of each

	retry          backoff     // of claims that fail, whichever loop makes them
	worker         belfry.ID   // the incarnation
	leaseRenewedAt time.Time   // when the last accepted heartbeat was sent; zero while not registered
	heartbeats     int64       // how many were made
	completeAt     time.Time   // the same of the last one that was complete
	uncertainSince time.Time   // when the outcome of a claim was last unknown; zero once that is resolved
	leaseTimer     *time.Timer // ends a blocked Claim when the lease expires

	running           map[belfry.ID]*attempt      // by run: attempts of this incarnation without a result
	cancelBeforeStart map[belfry.HeldAttempt]bool // attempts that the last heartbeat reply cancels and that do not run here
	unsent            []pendingResult             // results that are not accepted yet, oldest first
	busy              int                         // slots taken: handlers that have not returned
	reserved          int                         // slots for which claims are under way
	stuck             int                         // of these, handlers that were abandoned
	outstanding       int                         // attempts whose result is not accepted yet
}

// New makes a Pool that serves the handlers of mux with runs of the source;
// Run starts it.
func New(source Source, mux *Mux, opts ...Option) *Pool {
	p := &Pool{
		source:            source,
		mux:               mux,
		drainTimeout:      30 * time.Second,
		claimable:         make(chan struct{}, 1),
		sendable:          make(chan struct{}, 1),
		changed:           make(chan struct{}, 1),
		logged:            make(chan struct{}, 1),
		idle:              make(chan assignment),
		running:           make(map[belfry.ID]*attempt),
		cancelBeforeStart: make(map[belfry.HeldAttempt]bool),
		retry:             backoff{min: 100 * time.Millisecond, max: 5 * time.Second},
	}
	for _, option := range opts {
		option(p)
	}
	if p.node == "" {
		p.node, _ = os.Hostname()
	}
	if len(p.queues) == 0 {
		p.queues = []string{belfry.DefaultQueue}
	}
	if p.concurrency <= 0 {
		p.concurrency = 100
	}
	p.slots = belfry.NewSlots(p.concurrency)
	p.log = cmp.Or(p.log, slog.Default())
	p.outage.log = p.log
	return p
}

// Run claims and executes runs until ctx ends, then drains: it stops claiming, lets
// running attempts finish for DrainTimeout, interrupts the rest, sends every result,
// and then stops the heartbeats and unregisters. It returns nil after a clean drain, and
// an error if results were not accepted. It may be called once.
func (p *Pool) Run(ctx context.Context) error {
	if err := p.begin(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	heartbeatCtx, stopHeartbeats := context.WithCancel(p.base)
	defer stopHeartbeats()
	sendCtx, stopSending := context.WithCancel(p.base)
	defer stopSending()

	var claims, sends, heartbeats sync.WaitGroup
	for loop := range claimLoops {
		claims.Go(func() { p.claimLoop(ctx, loop) })
	}
	sends.Go(func() { p.sendLoop(sendCtx) })
	heartbeats.Go(func() { p.heartbeatLoop(heartbeatCtx) })

	<-ctx.Done()
	p.drain()
	claims.Wait()
	close(p.idle)
	stopSending()
	sends.Wait()
	stopHeartbeats()
	heartbeats.Wait()
	return p.unregister()
}

func (p *Pool) begin(base context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return errors.New("start worker: a pool runs only once")
	}
	p.handlers = p.mux.Handlers()
	for _, queue := range p.queues {
		for _, name := range p.handlers {
			p.lanes = append(p.lanes, belfry.Lane(queue, name))
		}
	}
	if len(p.lanes) == 0 {
		return errors.New("start worker: no handler is registered")
	}
	p.started, p.claiming, p.base = true, claimLoops, base
	now := time.Now()
	p.worker, p.completeAt = belfry.NewID(now), now
	return nil
}

// locked calls f while it holds mu.
func (p *Pool) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// drain waits for running attempts and for their results to be accepted.
func (p *Pool) drain() {
	p.locked(func() { p.draining = true })
	idle := func() bool { return p.busy == p.stuck }
	if !p.await(p.drainTimeout, idle) {
		live := p.live()
		if len(live) > 0 {
			p.log.Info("interrupting attempts that did not finish within the drain timeout", "attempts", len(live))
		}
		for _, a := range live {
			a.cancel(ErrInterrupted)
		}
		if !p.await(interruptGrace, idle) {
			p.abandon(ErrInterrupted, p.live()...)
		}
	}
	p.await(flushGrace, func() bool { return len(p.unsent) == 0 })
}

// await waits until nothing is claimed and done, which is called with the lock held,
// returns true, at most for d. It reports whether that was so.
func (p *Pool) await(d time.Duration, done func() bool) bool {
	timeout := time.After(d)
	for expired := false; ; {
		ok := false
		p.locked(func() { ok = p.claiming == 0 && done() })
		if ok || expired {
			return ok
		}
		select {
		case <-p.changed:
		case <-timeout:
			expired = true
		}
	}
}

// Stats is what a pool is doing at one moment.
type Stats struct {
	Slots  int // how many attempts may run at once
	Busy   int // slots taken
	Stuck  int // of these, by handlers that did not return when their context ended
	Unsent int // results that the source has not accepted yet
}

// Stats returns what the pool is doing.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Slots: p.concurrency, Busy: p.busy, Stuck: p.stuck, Unsent: len(p.unsent)}
}

// Source is where runs come from and results go: a database, or a server over HTTP. Its
// methods are called concurrently, and each must return soon after its context ends.
type Source interface {
	// Claim takes up to c.Limit runs for the worker. It may wait until there is one or
	// ctx ends, and it may return none. After an error it is unknown whether runs were
	// taken.
	Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error)

	// Heartbeat reports that the worker is alive. The reply says which attempts it must
	// stop.
	Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error)

	// Finish reports results and returns one verdict for each, in order. After an error
	// the same results may be reported again.
	Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error)
}

// Option changes how a Pool works.
type Option func(*Pool)

// Concurrency is how many attempts may run at once. Default, also for numbers below one:
// 100.
func Concurrency(n int) Option { return func(p *Pool) { p.concurrency = n } }

// Queues are the queues to serve. Default: "default".
func Queues(names ...string) Option { return func(p *Pool) { p.queues = names } }

// Node is where the worker runs, for people. Default: the name of the host.
func Node(name string) Option { return func(p *Pool) { p.node = name } }

// DrainTimeout is how long running attempts may continue once the pool stops. Default:
// 30 seconds, at least 100 milliseconds.
func DrainTimeout(d time.Duration) Option {
	return func(p *Pool) { p.drainTimeout = max(d, minDrain) }
}

// Log is where the pool logs. Default: slog.Default().
func Log(l *slog.Logger) Option { return func(p *Pool) { p.log = l } }

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
