package worker

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	maxClaim     = 1000                   // runs asked for in one call
	gatherDelay    = time.Millisecond       // how long a nearly full pool waits for more room
	pollInterval = 500 * time.Millisecond // between claims that find nothing at once
	claimTimeout = time.Minute            // after which a Claim that waits is asked anew
)

// claimLoop asks for as many runs as there is room for, until ctx ends.
func (p *Pool) claimLoop(ctx context.Context) {
	defer p.claimingStopped()
	retry := backoff{least: 100 * time.Millisecond, most: 5 * time.Second}
	for {
		worker, room := p.awaitFreeSlots(ctx)
		if room == 0 {
			return
		}
		asked := time.Now()
		runs, cut, err := p.claim(ctx, worker, min(room, maxClaim))
		p.startRuns(ctx, worker, runs)
		var pause time.Duration
		switch {
		case err != nil:
			p.markUncertain()
			if cut { // by ourselves: it says nothing about the source
				break
			}
			p.outage.failed("claim", err)
			pause = retry.delay()
		case len(runs) == 0:
			pause = jitter(pollInterval) - time.Since(asked)
			fallthrough
		default:
			p.outage.recovered("claim")
			retry.reset()
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// awaitRoom waits until the worker may claim, and tells under which incarnation
// and how many. A nearly full pool waits a moment longer, since slots that get
// free together are better filled together. It returns no room once ctx ended.
func (p *Pool) awaitFreeSlots(ctx context.Context) (belfry.ID, int) {
	var moment <-chan time.Time // set while more room is waited for
	enough := p.claimThreshold()
	for ctx.Err() == nil {
		p.mu.Lock()
		worker, room := p.worker, p.freeSlots()
		if !p.leaseValid(time.Now()) {
			room = 0
		}
		p.mu.Unlock()
		if room > 0 && room >= enough {
			return worker, room
		}
		if room > 0 && moment == nil {
			moment = time.After(gatherDelay)
		}
		select {
		case <-p.claimable:
		case <-moment:
			moment, enough = nil, 0
		case <-ctx.Done():
		}
	}
	return belfry.ID{}, 0
}

// room is how many more runs fit; mu is held. A slot is free again as soon as
// its result waits to be sent, so that sending and running overlap; but results
// made or to come never exceed twice the slots, which bounds what a dead source
// can make the pool keep.
func (p *Pool) freeSlots() int {
	return max(0, min(p.opt.concurrency-p.busy, 2*p.opt.concurrency-p.outstanding))
}

// enough is the room below which a pool counts as nearly full.
func (p *Pool) claimThreshold() int { return p.opt.concurrency / 4 }

// claim asks the source once. It reports whether the call was cut short from
// this side: by the drain, by a change of incarnation, by silence or by time.
func (p *Pool) claim(ctx context.Context, worker belfry.ID, limit int) (runs []*belfry.Run, cut bool, err error) {
	call, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	p.mu.Lock()
	if worker != p.worker || !p.leaseValid(time.Now()) {
		p.mu.Unlock()
		return nil, false, nil
	}
	p.stopClaim = cancel
	p.mu.Unlock()
	runs, err = p.source.Claim(call, belfry.Claim{WorkerID: worker, Lanes: p.lanes, Limit: limit})
	p.mu.Lock()
	p.stopClaim = nil
	p.mu.Unlock()
	return runs, call.Err() != nil, err
}

// admit starts what was claimed. What must not start (the pool drains, the
// incarnation is over, heartbeats stayed out, there is no slot) is handed back.
func (p *Pool) startRuns(ctx context.Context, worker belfry.ID, runs []*belfry.Run) {
	if len(runs) == 0 {
		return
	}
	attempts := make([]*attempt, len(runs))
	for i, run := range runs {
		if run != nil {
			attempts[i] = newAttempt(p.base, worker, run)
		}
	}
	var superseded []*attempt
	p.mu.Lock()
	fit := ctx.Err() == nil && worker == p.worker && p.leaseValid(time.Now())
	for i, a := range attempts {
		if a == nil {
			continue
		}
		if old := p.running[a.result.RunID]; old != nil {
			if old.result.Attempt >= a.result.Attempt {
				attempts[i] = nil // it was handed out twice
				a.end()
				continue
			}
			p.dropLost(old)
			superseded = append(superseded, old)
		}
		p.outstanding++
		if p.cancelBeforeStart[a.held()] {
			p.enqueueResult(a, attemptOutcome{outcome: belfry.OutcomeCancelled, text: ErrCancelled.Error() + " before it was started"})
			attempts[i] = nil
			a.end()
			continue
		}
		if !fit || p.busy >= p.opt.concurrency {
			p.enqueueResult(a, attemptOutcome{outcome: belfry.OutcomeInterrupted, text: "handed back before it was started"})
			attempts[i] = nil
			a.end()
			continue
		}
		p.busy++
		p.running[a.result.RunID] = a
	}
	p.mu.Unlock()
	for _, a := range superseded {
		a.cancel(ErrLeaseLost)
	}
	for i, a := range attempts {
		if a != nil {
			go p.work(a, runs[i])
		}
	}
}

// doubt remembers that a claim may have taken runs that never arrived: the next
// heartbeats list what is held, so that the source can release the others.
func (p *Pool) markUncertain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncertainSince = time.Now()
}

func (p *Pool) claimingStopped() {
	p.mu.Lock()
	p.claiming = false
	p.mu.Unlock()
	signal(p.changed)
}
