package worker

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	claimLoops   = 2                      // while one claim is answered, slots that became free are claimed for
	maxClaim     = 4000                   // runs requested in one call
	largeClaim   = 1000                   // runs that are neither divided nor wait for more, however large the pool is
	gatherDelay  = time.Millisecond       // how long a nearly full pool waits for more free slots
	pollInterval = 500 * time.Millisecond // between claims that return nothing at once
	claimTimeout = time.Minute            // after which a waiting Claim is repeated
)

// claimLoop is one of the loops that claim as many runs as there are free slots, until ctx
// ends.
func (p *Pool) claimLoop(ctx context.Context, loop int) {
	defer func() {
		p.locked(func() { p.claiming-- })
		signal(p.changed)
	}()
	for {
		worker, slots := p.reserveSlots(ctx)
		if slots == 0 {
			return
		}
		sent := time.Now()
		runs, ended, err := p.claim(ctx, loop, worker, slots)
		p.startRuns(ctx, worker, runs, slots)
		var pause time.Duration
		switch {
		case err != nil:
			// Runs may be taken that never arrived; complete heartbeats let the source release them.
			p.locked(func() { p.uncertainSince = time.Now() })
			if ended { // by this side: it says nothing about the source
				break
			}
			p.outage.failed("claim", err)
			p.locked(func() { pause = p.retry.delay() })
		case len(runs) == 0:
			pause = jitter(pollInterval) - time.Since(sent)
			fallthrough
		default:
			p.outage.recovered("claim")
			p.locked(func() { p.retry.next = 0 })
		}
		more := sleep(ctx, pause)
		p.release(max(slots-len(runs), 0)) // not before: the other loop is not to claim instead
		if !more {
			return
		}
	}
}

// release frees slots that were reserved.
func (p *Pool) release(slots int) {
	p.mu.Lock()
	p.reserved -= slots
	free := p.freeSlots()
	p.mu.Unlock()
	if free > 0 {
		signal(p.claimable)
	}
}

// reserveSlots waits until the worker may claim, and returns its incarnation and for how
// many free slots. Slots that become free together are better filled together: a nearly
// full pool waits gatherDelay longer, and until the claim of the other loop has ended,
// which would otherwise leave it a few slots each time. It returns zero once ctx ended.
func (p *Pool) reserveSlots(ctx context.Context) (belfry.ID, int) {
	var gather <-chan time.Time // set while more free slots are awaited
	gathered := false
	for ctx.Err() == nil {
		p.mu.Lock()
		worker, free := p.worker, p.freeSlots()
		if !p.leaseValid(time.Now()) {
			free = 0
		}
		if free > 0 && (free >= p.claimThreshold() || gathered && p.reserved == 0) {
			slots := min(free, p.claimLimit())
			p.reserved += slots
			p.mu.Unlock()
			if slots < free {
				signal(p.claimable) // for the other loop
			}
			return worker, slots
		}
		p.mu.Unlock()
		if free > 0 && gather == nil && !gathered {
			gather = time.After(gatherDelay)
		}
		select {
		case <-p.claimable:
		case <-gather:
			gather, gathered = nil, true
		case <-ctx.Done():
		}
	}
	return belfry.ID{}, 0
}

// freeSlots is how many more runs may be claimed; mu is held. A slot is free again as
// soon as the result is queued, so that sending and running overlap; but outstanding
// results never exceed twice the slots, which bounds what the pool keeps while the
// source is down.
func (p *Pool) freeSlots() int {
	return max(0, min(p.concurrency-p.busy, 2*p.concurrency-p.outstanding)-p.reserved)
}

// claimLimit is how many runs are requested in one call. A large pool fills its slots by two
// claims, which a source can answer at the same time.
func (p *Pool) claimLimit() int {
	if p.concurrency <= largeClaim {
		return p.concurrency
	}
	return min(maxClaim, (p.concurrency+1)/2)
}

// claimThreshold is the number of free slots below which a pool is nearly full.
func (p *Pool) claimThreshold() int { return min(p.concurrency/4, largeClaim) }

// claim calls the source once. It reports whether this side ended the call: for a
// drain, a new incarnation, an expired lease or claimTimeout.
func (p *Pool) claim(ctx context.Context, loop int, worker belfry.ID, limit int) (runs []*belfry.Run, ended bool, err error) {
	call, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	p.mu.Lock()
	if worker != p.worker || !p.leaseValid(time.Now()) {
		p.mu.Unlock()
		return nil, false, nil
	}
	p.stopClaim[loop] = cancel
	p.mu.Unlock()
	runs, err = p.source.Claim(call, belfry.Claim{WorkerID: worker, Lanes: p.lanes, Slots: p.slots, Queues: p.queues, Handlers: p.handlers, Limit: limit})
	return runs, call.Err() != nil, err
}

// stopClaims ends the claims that wait; mu is held.
func (p *Pool) stopClaims() {
	for _, stop := range p.stopClaim {
		if stop != nil {
			stop()
		}
	}
}

// startRuns starts claimed runs in slots that were reserved for them. Runs that must not
// start (the pool drains, the worker
// has a new incarnation, the lease has expired, no slot is free) are returned.
func (p *Pool) startRuns(ctx context.Context, worker belfry.ID, runs []*belfry.Run, slots int) {
	if len(runs) == 0 {
		return
	}
	attempts := p.newAttempts(worker, runs)
	var superseded []*attempt
	p.mu.Lock()
	p.reserved -= min(len(runs), slots)
	mayStart := ctx.Err() == nil && worker == p.worker && p.leaseValid(time.Now())
	for i, a := range attempts {
		if a == nil {
			continue
		}
		if old := p.running[a.result.RunID]; old != nil {
			if old.result.Attempt >= a.result.Attempt {
				attempts[i] = nil // claimed twice
				a.stop()
				continue
			}
			p.dropLost(old)
			superseded = append(superseded, old)
		}
		p.outstanding++
		result := a.result
		switch {
		case p.cancelBeforeStart[heldAttempt(a.result)]:
			result.Outcome, result.Error = belfry.OutcomeCancelled, ErrCancelled.Error()+" before it was started"
		case !mayStart || p.busy >= p.concurrency:
			result.Outcome, result.Error = belfry.OutcomeInterrupted, "returned before it was started"
		default:
			p.busy++
			p.running[a.result.RunID] = a
			continue
		}
		p.enqueueResult(a, result)
		attempts[i] = nil
		a.stop()
	}
	p.mu.Unlock()
	for _, a := range superseded {
		a.cancel(ErrLeaseLost)
	}
	for i, a := range attempts {
		if a != nil {
			p.start(a, runs[i])
		} else if runs[i] != nil {
			p.slots.Free(runs[i].Namespace, 1)
		}
	}
}
