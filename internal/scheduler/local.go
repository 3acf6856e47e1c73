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
// already claimed, which saves the claim. Heartbeats and results go to the store. The
// zero Local has no worker and no claims.
type Local struct {
	worker.Source
	wakeups <-chan struct{}
	poll    time.Duration // how often to claim from the store without a wake-up
	demand  chan struct{} // signals that a claim is open

	mu         sync.Mutex
	open       *request
	lastWorker belfry.ID             // the worker that claimed last
	ready      bool                  // the store may have ready runs
	checked    time.Time             // when the store was last asked
	claimed    map[string]claimedRun // by lane: the last ready run that was claimed since the last call of lastClaimedRank
}

// request is an open claim. While it is being filled it cannot be closed: the result
// of the Fire is sent to it.
type request struct {
	claim   belfry.Claim
	filling bool
	closing bool // send a result even if it is empty
	result  chan claimResult
}

// claimedRun is what the rank of a claimed run is computed from.
type claimedRun struct {
	readyAt  time.Time
	priority belfry.Priority
}

type claimResult struct {
	runs []*belfry.Run
	err  error
}

// LocalStore is what Local uses of the store.
type LocalStore interface {
	worker.Source
	store.Notifier
}

// NewLocal makes the source. It is woken until ctx ends.
func NewLocal(ctx context.Context, s LocalStore) *Local {
	return &Local{
		Source: s, wakeups: s.Wakeups(ctx, store.TopicReady), poll: s.PollInterval(), demand: make(chan struct{}, 1), ready: true,
		claimed: map[string]claimedRun{},
	}
}

// Claim returns ready runs, or waits until some are fired or ctx ends. Only one claim
// at a time may wait.
func (l *Local) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	for ctx.Err() == nil {
		if l.shouldCheck() {
			runs, err := l.Source.Claim(ctx, c)
			if err != nil || len(runs) > 0 {
				l.noteClaimed(runs)
				return runs, err
			}
		}
		if runs, err := l.wait(ctx, c); err != nil || len(runs) > 0 {
			return runs, err
		}
	}
	return nil, nil
}

// wait keeps a claim open until it is filled or the store may have ready runs.
func (l *Local) wait(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	r := &request{claim: c, result: make(chan claimResult, 1)}
	l.mu.Lock()
	l.open, l.lastWorker = r, c.WorkerID
	l.mu.Unlock()
	wake(l.demand)
	timer := time.NewTimer(l.poll)
	defer timer.Stop()
	select {
	case a := <-r.result:
		return a.runs, a.err
	case <-l.wakeups:
		l.setReady()
	case <-timer.C:
		l.setReady()
	case <-ctx.Done():
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

// noteClaimed records which runs were claimed, and that there may be more.
func (l *Local) noteClaimed(runs []*belfry.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = true
	for _, run := range runs {
		l.claimed[run.Spec.Lane(run.Namespace)] = claimedRun{run.ReadyAt, run.Spec.Priority}
	}
}

// lastClaimedRank is the rank of the last ready run of the lane that was claimed since
// the last call, if there was one.
func (l *Local) lastClaimedRank(lane string, d plan.Defaults) (rank int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.claimed[lane]
	if !ok {
		return 0, false
	}
	delete(l.claimed, lane)
	return plan.Rank(c.readyAt, d.Weight(c.priority)), true
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
	now := time.Now()
	if !l.ready && now.Sub(l.checked) < l.poll {
		return false
	}
	l.ready, l.checked = false, now
	return true
}

func (l *Local) worker() belfry.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastWorker
}

// openSlots is how many runs of the lane the open claim would take.
func (l *Local) openSlots(lane string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil || !slices.Contains(l.open.claim.Lanes, lane) {
		return 0
	}
	return l.open.claim.Limit
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
