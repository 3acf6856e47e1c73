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
type Local struct {
	LocalStore
	wakeups <-chan struct{}
	poll    time.Duration // how often to claim from the store without a wake-up
	demand  chan struct{} // signals that a claim is open

	recheck chan struct{} // signals that ready runs come before due items

	mu         sync.Mutex
	open       *request
	lastWorker belfry.ID        // the worker that claimed last
	ready      bool             // the store may have ready runs
	checked    time.Time        // when the store was last asked
	looking    bool             // it is being asked
	below      int64            // the lowest rank of the ready runs
	heads      map[string]int64 // the lowest ranks of the due items in the backlog of the loop, by lane; nil: there is no loop
}

// request is an open claim. While it is being filled it cannot be closed: the result
// of the Fire is sent to it.
type request struct {
	claim   belfry.Claim
	filling bool
	closing bool // send a result even if it is empty
	result  chan claimResult
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
	ReadyRank(ctx context.Context, lanes []string) (int64, error)
}

// NewLocal makes the source. It is woken until ctx ends.
func NewLocal(ctx context.Context, s LocalStore) *Local {
	return &Local{
		LocalStore: s, wakeups: s.Wakeups(ctx, store.TopicReady), poll: s.PollInterval(),
		demand: make(chan struct{}, 1), recheck: make(chan struct{}, 1), ready: true, below: plan.MaxRank,
	}
}

// Claim returns ready runs, or waits until some are fired or ctx ends. Only one claim
// at a time may wait.
func (l *Local) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	for ctx.Err() == nil {
		if l.shouldCheck() {
			if runs, err := l.claimReady(ctx, c); err != nil || len(runs) > 0 {
				return runs, err
			}
		}
		if runs, err := l.wait(ctx, c); err != nil || len(runs) > 0 {
			return runs, err
		}
	}
	return nil, nil
}

// claimReady claims the ready runs that come before all due items. If there is none, it
// finds out where the others begin.
func (l *Local) claimReady(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	head := l.head(c.Lanes)
	runs, err := l.ClaimBelow(ctx, c, head)
	if err != nil || len(runs) > 0 {
		l.setReady() // there may be more
		return runs, err
	}
	below := int64(plan.MaxRank)
	if head != plan.MaxRank {
		if below, err = l.ReadyRank(ctx, c.Lanes); err != nil {
			l.setReady()
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
	r := &request{claim: c, result: make(chan claimResult, 1)}
	l.mu.Lock()
	l.open, l.lastWorker = r, c.WorkerID
	l.recheckReady()
	timer := time.NewTimer(l.poll - time.Since(l.checked))
	l.mu.Unlock()
	defer timer.Stop()
	wake(l.demand)
	for waiting := true; waiting; {
		select {
		case a := <-r.result:
			return a.runs, a.err
		case <-timer.C:
			l.look(ctx, c.Lanes)
			timer.Reset(l.poll)
			continue
		case <-l.wakeups:
			l.setReady()
		case <-l.recheck:
			l.setReady()
		case <-ctx.Done():
		}
		waiting = false
	}
	l.mu.Lock()
	if l.open == r && !r.filling {
		l.open = nil
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
	if l.checked = time.Now(); l.heads == nil {
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
		rank, err := l.ReadyRank(call, lanes)
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

// setHeads records the lowest ranks of the due items, by lane.
func (l *Local) setHeads(heads map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heads = heads
	l.recheckReady()
}

// recheckReady has an open claim look at the store again if ready runs that came after the
// due items come first now: those were fired meanwhile. mu is held.
func (l *Local) recheckReady() {
	if l.open != nil && l.below < l.lowest(l.open.claim.Lanes) {
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
	for _, lane := range lanes {
		if rank, ok := l.heads[lane]; ok {
			head = min(head, rank+1)
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
	if !l.ready {
		return false
	}
	l.ready, l.checked = false, time.Now()
	return true
}

func (l *Local) worker() belfry.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastWorker
}

// openSlots is how many runs of the lane the open claim would take, and below which rank.
// If a ready run comes before the due items of the lane, it takes that one first.
func (l *Local) openSlots(lane string) (n int, below int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil || !slices.Contains(l.open.claim.Lanes, lane) {
		return 0, 0
	}
	if head, due := l.heads[lane]; due && head >= l.below {
		wake(l.recheck)
	}
	return l.open.claim.Limit, l.below
}

// beginFill takes the open claim to be filled.
func (l *Local) beginFill() store.FreeSlots {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		return store.FreeSlots{}
	}
	l.open.filling = true
	c := l.open.claim
	return store.FreeSlots{Worker: c.WorkerID, Lanes: c.Lanes, Free: c.Limit}
}

// endFill sends the result to the claim that was taken, or leaves it open if there is
// none.
func (l *Local) endFill(runs []*belfry.Run, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.open
	if r == nil || !r.filling {
		return
	}
	if len(runs) == 0 && err == nil && !r.closing {
		r.filling = false
		return
	}
	l.open = nil
	if err != nil {
		err = errors.Join(errUnknownFire, err)
	}
	r.result <- claimResult{runs, err}
}
