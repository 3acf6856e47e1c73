// Package worker runs work: it claims runs from a source, hands each to its
// handler, and reports the result.
//
//	c, err := client.New("http://127.0.0.1:7070", client.WithKey(key))
//	mux := worker.NewMux()
//	mux.HandleFunc("send-invoice", func(ctx context.Context, run *belfry.Run) error {
//		return send(ctx, run.Payload, run.IdempotencyKey())
//	})
//	err = worker.New(c, mux, worker.Concurrency(20)).Run(ctx)
//
// A handler may be called again for the same run: after an error, after the loss
// of its worker, and when nobody can tell whether it finished. Its idempotency
// key is the same every time. The context of a handler ends when the attempt
// must; see ErrTimedOut, ErrInterrupted, ErrCancelled and ErrLeaseLost. A handler
// may say when to try again, or that it would be useless; see Handler.
//
// Run ends when its context does, after a drain. Until then a server that cannot
// be reached is tried again for ever, with one line in the log when that begins
// and one when it is over. Without a heartbeat for 15 seconds nothing is started;
// a worker that was given up meanwhile is told so by the next one, ends the
// contexts of its handlers, and goes on under a new id.
//
// A Pool runs four kinds of goroutine: one claims, one sends results, one
// heartbeats, and every attempt has its own. They meet in the Pool's fields
// under one lock that is never held across a call. A source that is down makes
// the pool wait, never lose: results are kept and sent again, and no more is
// claimed than there is room for.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	interruptGrace = 5 * time.Second  // for handlers to return once they were interrupted
	flushGrace     = 10 * time.Second // for the last results to be accepted
)

// Pool runs the attempts of one worker.
type Pool struct {
	source Source
	mux    *Mux
	opt    options
	log    *slog.Logger
	outage outage
	lanes  []string
	base   context.Context // of every attempt: the values of Run's, and no end

	claimable chan struct{} // there may be room to claim, or trust again
	sendable  chan struct{} // there is a result to send
	changed   chan struct{} // an attempt ended, a result was accepted or claiming stopped

	mu        sync.Mutex // guards the fields below
	started     bool
	claiming  bool               // the claim loop has not ended
	draining  bool               // Run's context has ended
	stopClaim context.CancelFunc // ends the Claim under way; nil between claims

	worker   belfry.ID   // the incarnation
	leaseRenewedAt time.Time   // when the latest accepted heartbeat was sent; zero while not registered
	completeAt time.Time   // the same of the latest one that listed
	uncertainSince  time.Time   // when a claim last ended in doubt; zero once that was cleared up
	leaseTimer  *time.Timer // ends a blocked Claim when heartbeats stay out

	running map[belfry.ID]*attempt      // by run: held by this incarnation, no result yet
	cancelBeforeStart  map[belfry.HeldAttempt]bool // cancelled as the latest heartbeat said, and not running here
	unsent  []pendingResult                    // results that were not yet accepted, oldest first
	busy    int                         // slots taken: handlers that have not returned
	stuck   int                         // of these, handlers that were given up
	outstanding    int                         // results not yet accepted, made or still to come
}

// New makes a Pool that serves the handlers of mux with runs of the source;
// Run starts it.
func New(source Source, mux *Mux, opts ...Option) *Pool {
	o := newOptions(opts)
	return &Pool{
		source:    source,
		mux:       mux,
		opt:       o,
		log:       o.log,
		outage:    outage{log: o.log},
		claimable: make(chan struct{}, 1),
		sendable:  make(chan struct{}, 1),
		changed:   make(chan struct{}, 1),
		running:   make(map[belfry.ID]*attempt),
		cancelBeforeStart:    make(map[belfry.HeldAttempt]bool),
	}
}

// Run claims and runs until ctx ends, then drains: it stops claiming, lets
// running attempts finish for DrainTimeout, interrupts the rest, sends every
// result, and only then lets the heartbeat stop and leaves. It returns nil
// after a clean drain, and an error if results were left unsent. It may be
// called once.
func (p *Pool) Run(ctx context.Context) error {
	if err := p.begin(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	beating, stopBeating := context.WithCancel(p.base)
	defer stopBeating()
	sending, stopSending := context.WithCancel(p.base)
	defer stopSending()

	claims := async(func() { p.claimLoop(ctx) })
	sends := async(func() { p.sendLoop(sending) })
	beats := async(func() { p.heartbeatLoop(beating) })

	<-ctx.Done()
	p.drain()
	<-claims
	stopSending()
	<-sends
	stopBeating()
	<-beats
	return p.unregister()
}

func (p *Pool) begin(base context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return errors.New("start worker: a pool runs only once")
	}
	for _, queue := range p.opt.queues {
		for _, name := range p.mux.Handlers() {
			p.lanes = append(p.lanes, belfry.Lane(queue, name))
		}
	}
	if len(p.lanes) == 0 {
		return errors.New("start worker: no handler is registered")
	}
	p.started, p.claiming, p.base = true, true, base
	now := time.Now()
	p.worker, p.completeAt = belfry.NewID(now), now
	return nil
}

// drain brings the pool to rest, as far as it can be had in time.
func (p *Pool) drain() {
	p.mu.Lock()
	p.draining = true
	p.mu.Unlock()
	if !p.await(p.opt.drainTimeout, p.idle) {
		p.interrupt()
		if !p.await(interruptGrace, p.idle) {
			p.abandonAll()
		}
	}
	p.await(flushGrace, p.flushed)
}

// await waits until done holds, at most for d, and reports whether it does.
func (p *Pool) await(d time.Duration, done func() bool) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for !done() {
		select {
		case <-p.changed:
		case <-t.C:
			return done()
		}
	}
	return true
}

// idle reports whether nothing runs that may yet end on its own.
func (p *Pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.claiming && p.busy == p.stuck
}

func (p *Pool) flushed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.claiming && len(p.unsent) == 0
}

// async runs fn in a goroutine and closes the channel when it returned.
func async(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	return done
}

// Stats is what a pool is doing at one moment.
type Stats struct {
	Slots  int // how many attempts may run at once
	Busy   int // slots taken
	Stuck  int // of these, by handlers that did not return when they had to
	Unsent int // results that the source has not accepted yet
}

// Stats tells what the pool is doing.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Slots: p.opt.concurrency, Busy: p.busy, Stuck: p.stuck, Unsent: len(p.unsent)}
}
