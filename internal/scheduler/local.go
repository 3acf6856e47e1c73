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
)

// errUnknownFire tells a worker that it may have been given runs of which it
// will never hear.
var errUnknownFire = errors.New("the outcome of a fire is unknown")

// Local is the worker.Source of the pool in a scheduler's own node. A claim
// that finds nothing ready stays open as demand, and the loop fills it with runs
// that are made already claimed, so that the claim step vanishes. Heartbeats and
// results go to the store.
type Local struct {
	store.Runs
	wakeups  <-chan struct{}
	poll   time.Duration // how often to look for ready runs without a hint
	demand chan struct{} // signals that a claim is open

	mu      sync.Mutex
	open    *request
	lastWorker    belfry.ID        // worker that claimed last
	ready   bool             // something may be ready in the store
	checked time.Time        // when it was last looked at
	claimed map[string]claimedRun // the last ready run of each lane that was claimed since somebody asked
}

// request is a claim that waits. While it is being filled it cannot be
// withdrawn: whatever comes of the fire is sent to it.
type request struct {
	claim   belfry.Claim
	filling bool
	closing bool // answer it even with nothing
	result  chan claimResult
}

// claim is what the rank of a run that was claimed comes from.
type claimedRun struct {
	readyAt  time.Time
	priority belfry.Priority
}

type claimResult struct {
	runs []*belfry.Run
	err  error
}

// NewLocal makes the source; its hints stop when ctx ends.
func NewLocal(ctx context.Context, s store.Store) *Local {
	return &Local{
		Runs: s, wakeups: s.Wakeups(ctx, store.TopicReady), poll: s.PollInterval(), demand: make(chan struct{}, 1), ready: true,
		claimed: map[string]claimedRun{},
	}
}

// Claim takes what is ready, or waits for what is fired until ctx ends. One
// claim at a time may wait.
func (l *Local) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	for ctx.Err() == nil {
		if l.shouldCheck() {
			runs, err := l.Runs.Claim(ctx, c)
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

// wait leaves a claim open until it is filled, or something may be ready.
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
	return l.closeRequest(r)
}

// withdraw closes a request, after the fire that may be filling it.
func (l *Local) closeRequest(r *request) ([]*belfry.Run, error) {
	l.mu.Lock()
	if l.open == r && !r.filling {
		l.open = nil
		l.mu.Unlock()
		return nil, nil
	}
	r.closing = true
	l.mu.Unlock()
	a := <-r.result
	return a.runs, a.err
}

// took notes what was claimed, and that there may be more.
func (l *Local) noteClaimed(runs []*belfry.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = true
	for _, run := range runs {
		l.claimed[run.Spec.Lane(run.Namespace)] = claimedRun{run.ReadyAt, run.Spec.Priority}
	}
}

// passed is the rank of the last run that was noted in the lane, if one was since
// this was last asked.
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

// shouldCheck reports whether the store is worth asking, and notes that it is
// being asked.
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

// worker is the incarnation that claimed last.
func (l *Local) worker() belfry.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastWorker
}

// free says how many runs of the lane an open claim would take.
func (l *Local) openSlots(lane string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil || !slices.Contains(l.open.claim.Lanes, lane) {
		return 0
	}
	return l.open.claim.Limit
}

// begin takes the open claim to be filled.
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

// end answers the claim that was taken, or opens it again if it got nothing.
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
