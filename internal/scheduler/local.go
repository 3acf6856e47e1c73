package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/worker"
)

// errUnknownFire reports to a worker that it may hold runs that it will not receive.
var errUnknownFire = errors.New("the outcome of a fire is unknown")

// Local is the worker.Source of the pool in the scheduler's own node. A claim that
// finds nothing ready stays open, and the loop fills it with runs that are fired as
// already claimed, which saves the claim. Ready runs and due items are taken in one order,
// that of their ranks. Heartbeats and results go to the store. The zero Local has no worker
// and no claims.
//
// Claims of workers elsewhere that wait at this node are offered to the loop too.
type Local struct {
	LocalStore
	wakeups <-chan struct{}
	poll    time.Duration // how often to claim from the store without a wake-up
	demand  chan struct{} // signals that a claim is open

	recheck chan struct{} // signals that ready runs come before due items
	turn    chan struct{} // taken by the claim that checks the store

	mu         sync.Mutex
	open       []*request      // oldest first, also those that are being filled
	lastWorker belfry.ID       // the worker of the node
	manyAt     time.Time       // when it last began or ended a claim of many runs
	ready      bool            // the store may have ready runs
	checking   bool            // they are being claimed
	checked    time.Time       // when the store was last asked
	looking    bool            // it is being asked
	below      int64           // the lowest rank of the ready runs of the node's worker
	heads      map[string]head // of the due items in the backlog of the loop, by lane; nil: there is no loop
	divided    divided         // of several namespaces

	registered map[belfry.ID]bool      // workers elsewhere, which may be offered runs
	claimedAt  map[belfry.ID]time.Time // when a worker elsewhere last had an open claim
	offeredAt  map[string]time.Time    // the same, by lane
}

// request is an open claim. While it is being filled it cannot be closed: the result
// of the Fire is sent to it.
type request struct {
	claim   belfry.Claim
	own     bool  // of the worker of the node
	below   int64 // of another one: the lowest rank of the ready runs
	filling bool
	closing bool // send a result even if it is empty
	result  chan claimResult
	woken   chan struct{} // closed when there is a result, or ready runs may come first
	isWoken bool
	grants  map[string]int // slots for due items, by namespace, if several share them
	taken   map[string]int // those that are being filled
}

// head is the first of the due items of a lane.
type head struct {
	rank  int64
	count int // of the items
}

// wake wakes the claim; Local.mu is held.
func (r *request) wake() {
	if !r.isWoken {
		r.isWoken = true
		close(r.woken)
	}
}

type claimResult struct {
	runs []*belfry.Run
	err  error
}

// LocalStore is what Local uses of the store.
type LocalStore interface {
	worker.Source
	store.Notifier
	ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error)
	ClaimRuns(ctx context.Context, c belfry.Claim, runs []belfry.ID) ([]*belfry.Run, error)
	ReadyRank(ctx context.Context, lanes []string) (int64, error)
	store.SharedRuns
}

// NewLocal makes the source. It is woken until ctx ends.
func NewLocal(ctx context.Context, s LocalStore) *Local {
	return &Local{
		LocalStore: s, wakeups: s.Wakeups(ctx, store.TopicReady), poll: s.PollInterval(),
		demand: make(chan struct{}, 1), recheck: make(chan struct{}, 1), turn: make(chan struct{}, 1), ready: true, below: plan.MaxRank,
	}
}

// Claim returns ready runs, or waits until some are fired or ctx ends. All claims are of
// the same worker.
func (l *Local) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	l.noteClaim(c)
	defer l.noteClaim(c)
	defer l.passOn()
	for ctx.Err() == nil {
		if runs, err := l.check(ctx, c); err != nil || len(runs) > 0 {
			return runs, err
		}
		if runs, err := l.wait(ctx, c); err != nil || len(runs) > 0 {
			return runs, err
		}
	}
	return nil, nil
}

// check claims ready runs if the store may have some. Claims check one after the other:
// none is filled with due items while it is unknown whether ready runs come first.
func (l *Local) check(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil
	}
	defer func() {
		l.mu.Lock()
		l.checking = false
		l.mu.Unlock()
		<-l.turn
		wake(l.demand)
	}()
	if !l.shouldCheck() {
		return nil, nil
	}
	runs, err := l.claimReady(ctx, c)
	if err != nil || len(runs) > 0 {
		l.setReady() // there may be more
	}
	return runs, err
}

// passOn has another claim of the node's worker check the store if the one that was woken for
// that ends before it could: it was being filled, or is over. Until somebody checks, no claim is
// filled.
func (l *Local) passOn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready && slices.ContainsFunc(l.open, func(r *request) bool { return r.own }) {
		wake(l.recheck)
	}
}

// claimReady claims the ready runs that come before all due items. If there is none, it
// finds out where the others begin.
func (l *Local) claimReady(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	if l.isShared() {
		return l.claimShares(ctx, c)
	}
	c.Lanes = l.withSingle(c.Lanes)
	head := l.head(c.Lanes)
	runs, err := l.ClaimBelow(ctx, c, head)
	if err != nil || len(runs) > 0 {
		c.Slots.TakeRuns(runs)
		return runs, err
	}
	below := int64(plan.MaxRank)
	if head != plan.MaxRank {
		if below, err = l.ReadyRank(ctx, c.Lanes); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.below = below
	return nil, nil
}

// wait keeps a claim open until it is filled or the store may have ready runs that come
// first.
func (l *Local) wait(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	l.mu.Lock()
	l.lastWorker = c.WorkerID
	poll := l.pollInterval()
	timer := time.NewTimer(poll - time.Since(l.checked))
	l.mu.Unlock()
	defer timer.Stop()
	r := l.add(c, plan.MaxRank, true)
	var freed <-chan struct{}
	if c.Slots != nil {
		freed = c.Slots.Freed
	}
	for waiting := true; waiting; {
		select {
		case <-r.woken:
		case <-timer.C:
			l.look(ctx, c.Lanes)
			timer.Reset(poll)
			continue
		case <-l.wakeups:
			l.setReady()
		case <-l.recheck:
			l.setReady()
		case <-freed:
			if pause := l.slotFreed(); pause > 0 {
				timer.Reset(pause)
			}
			continue
		case <-ctx.Done():
		}
		waiting = false
	}
	return l.close(r)
}

// add opens a claim.
func (l *Local) add(c belfry.Claim, below int64, own bool) *request {
	r := &request{claim: c, own: own, below: below, result: make(chan claimResult, 1), woken: make(chan struct{})}
	l.mu.Lock()
	l.open = append(l.open, r)
	l.recheckReady()
	l.noteOffer(r)
	l.mu.Unlock()
	wake(l.demand)
	return r
}

// close closes a claim. If it is being filled, or was, it returns the result.
func (l *Local) close(r *request) ([]*belfry.Run, error) {
	l.mu.Lock()
	l.noteOffer(r)
	if i := slices.Index(l.open, r); i >= 0 && !r.filling {
		l.open = slices.Delete(l.open, i, i+1)
		l.mu.Unlock()
		return nil, nil
	}
	r.closing = true
	l.mu.Unlock()
	a := <-r.result // of the Fire that is filling the claim
	return a.runs, a.err
}

// look finds out where the ready runs begin, while the claim stays open to be filled: the
// store may be far away. Without a loop that fills claims there is nothing to compare with.
func (l *Local) look(ctx context.Context, lanes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checked = time.Now(); l.heads == nil || l.sharesHeads() {
		l.ready = true
		wake(l.recheck)
		return
	}
	if l.looking {
		return
	}
	l.looking = true
	go func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		rank, err := l.ReadyRank(call, l.withSingle(lanes))
		head := l.head(lanes)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.looking = false; err == nil {
			l.below = rank
		}
		if err != nil || rank < head {
			wake(l.recheck)
		}
	}()
}

// setHeads records the first of the due items, by lane.
func (l *Local) setHeads(heads map[string]head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heads = heads
	if l.sharesHeads() {
		l.divideOpen()
	}
	l.recheckReady()
}

// recheckReady has the node's worker look at the store again if ready runs that came after
// the due items come first now: those were fired meanwhile. mu is held.
func (l *Local) recheckReady() {
	if l.sharesHeads() {
		l.recheckLanes()
	} else if i := slices.IndexFunc(l.open, func(r *request) bool { return r.own }); i >= 0 && l.below < l.lowest(l.open[i].claim.Lanes) {
		wake(l.recheck)
	}
}

// head is the rank that ready runs must be below to come before all due items of some
// lanes. With equal ranks they do.
func (l *Local) head(lanes []string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lowest(lanes)
}

// lowest is head with mu held.
func (l *Local) lowest(lanes []string) int64 {
	head := int64(plan.MaxRank)
	for lane, due := range l.heads {
		if belfry.ServesLane(lanes, lane) {
			head = min(head, due.rank+1)
		}
	}
	return head
}

func (l *Local) setReady() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = true
}

// shouldCheck reports whether to claim from the store, and records that it is done.
func (l *Local) shouldCheck() bool {
	select {
	case <-l.wakeups:
		l.setReady()
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready && !l.mayUnblock() {
		return false
	}
	l.ready, l.checking, l.checked = false, true, time.Now()
	return true
}

func (l *Local) worker() belfry.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastWorker
}
