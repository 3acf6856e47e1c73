package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	heartbeatInterval = 5 * time.Second
	maxCancelDelay   = 7 * time.Second // of a cancellation its worker hears in this time
	heartbeatTimeout  = 4 * time.Second
	leaseDuration     = 15 * time.Second // without a heartbeat, nothing is started
	completeInterval = 30 * time.Second
	uncertainFor     = 12 * time.Second // a source releases what is not listed only once it is about 10 s old
)

// beatLoop registers the worker and keeps it alive until ctx ends. It is the
// last of the loops to stop: while attempts run or results wait, it beats.
func (p *Pool) heartbeatLoop(ctx context.Context) {
	retry := backoff{least: 100 * time.Millisecond, most: 5 * time.Second}
	registered := false
	for {
		sent := time.Now()
		beat := p.nextHeartbeat(sent, !registered)
		orders, err := p.sendHeartbeat(ctx, beat)
		var pause time.Duration
		switch {
		case err != nil:
			if ctx.Err() == nil {
				p.outage.failed("heartbeat", err)
				p.restartClaim()
			}
			pause = retry.delay()
		case orders.Unknown:
			p.log.Warn("the source gave this worker up; its attempts are dropped", "worker", beat.WorkerID)
			if !p.newIncarnation() {
				return
			}
			registered = false
			if beat.Register {
				pause = retry.delay()
			}
		default:
			p.outage.recovered("heartbeat")
			p.renewLease(beat, sent)
			p.applyReply(orders)
			registered = true
			retry.reset()
			took := time.Since(sent)
			pause = heartbeatDelay(took) - took
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// untilNext is the time from one heartbeat to the next after an answer that took
// so long. An order may be given just after the server looked, and then takes the
// next answer's time as well: where that is long, the next is asked for earlier.
func heartbeatDelay(took time.Duration) time.Duration {
	return min(heartbeatInterval, maxCancelDelay-took)
}

// beat sends one heartbeat.
func (p *Pool) sendHeartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	call, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	return p.source.Heartbeat(call, b)
}

// nextBeat makes the heartbeat to send now. It lists what the worker holds when
// a claim ended in doubt, and from time to time.
func (p *Pool) nextHeartbeat(now time.Time, register bool) belfry.Heartbeat {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := belfry.Heartbeat{
		WorkerID: p.worker,
		Node:     p.opt.node,
		Slots:    p.opt.concurrency,
		Lanes:    p.lanes,
		Register: register,
		Complete: !register && (!p.uncertainSince.IsZero() || now.Sub(p.completeAt) >= completeInterval),
	}
	if b.Complete {
		b.Held = p.held()
	}
	return b
}

// held lists the attempts of this incarnation that were not finished as far as
// the source has said; mu is held.
func (p *Pool) held() []belfry.HeldAttempt {
	held := make([]belfry.HeldAttempt, 0, len(p.running)+len(p.unsent))
	for _, a := range p.running {
		held = append(held, a.held())
	}
	for _, parcel := range p.unsent {
		if parcel.worker == p.worker {
			held = append(held, belfry.HeldAttempt{RunID: parcel.result.RunID, Attempt: parcel.result.Attempt})
		}
	}
	return held
}

// trust notes a heartbeat that was accepted. It counts from when it was sent: a
// slow answer must not lengthen our belief.
func (p *Pool) renewLease(b belfry.Heartbeat, sent time.Time) {
	p.mu.Lock()
	p.leaseRenewedAt = sent
	if b.Complete {
		p.completeAt = sent
		if sent.Sub(p.uncertainSince) >= uncertainFor {
			p.uncertainSince = time.Time{}
		}
	}
	if left := leaseDuration - time.Since(sent); p.leaseTimer == nil {
		p.leaseTimer = time.AfterFunc(left, p.leaseExpired)
	} else {
		p.leaseTimer.Reset(left)
	}
	p.mu.Unlock()
	signal(p.claimable)
}

// trusted reports whether the worker may still start work; mu is held. The wall
// clock is asked too, since the monotonic one stands still while a machine is
// suspended.
func (p *Pool) leaseValid(now time.Time) bool {
	return !p.leaseRenewedAt.IsZero() && now.Sub(p.leaseRenewedAt) < leaseDuration && now.Round(0).Sub(p.leaseRenewedAt.Round(0)) < leaseDuration
}

// silent ends a Claim that still waits when heartbeats have stayed out too long.
func (p *Pool) leaseExpired() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leaseValid(time.Now()) && p.stopClaim != nil {
		p.stopClaim()
	}
}

// reclaim ends a Claim that waits, since it may wait on a connection that is as dead
// as that of the heartbeat, and is asked anew.
func (p *Pool) restartClaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopClaim != nil {
		p.stopClaim()
	}
}

// obey ends attempts that the source has given to others, and those whose runs
// somebody cancelled. A result that was already made is still sent: if it is late,
// it is evidence.
func (p *Pool) applyReply(orders belfry.HeartbeatReply) {
	var gone, cancelled []*attempt
	p.mu.Lock()
	for _, h := range orders.Lost {
		if a := p.findRunning(h); a != nil {
			p.dropLost(a)
			gone = append(gone, a)
		}
	}
	clear(p.cancelBeforeStart)
	for _, h := range orders.Cancel {
		a := p.findRunning(h)
		switch {
		case a == nil: // The answer to the claim may still be on its way.
			p.cancelBeforeStart[h] = true
		case !a.cancelled: // Every heartbeat repeats the order until the result is in.
			a.cancelled = true
			cancelled = append(cancelled, a)
		}
	}
	p.mu.Unlock()
	p.cancelLost(gone)
	for _, a := range cancelled {
		p.log.Info("a run was cancelled; its handler is told to end", "run", a.result.RunID, "attempt", a.result.Attempt)
		a.cancel(ErrCancelled)
		p.abandonLater(a, ErrCancelled)
	}
}

// runningAs finds the attempt that runs; mu is held. Nil if there is none.
func (p *Pool) findRunning(h belfry.HeldAttempt) *attempt {
	if a := p.running[h.RunID]; a != nil && a.result.Attempt == h.Attempt {
		return a
	}
	return nil
}

// restart drops every attempt and takes a new incarnation, unless the pool
// drains: then there is nothing left to beat for.
func (p *Pool) newIncarnation() bool {
	p.mu.Lock()
	gone := p.live()
	for _, a := range gone {
		p.dropLost(a)
	}
	now := time.Now()
	p.worker, p.leaseRenewedAt, p.completeAt, p.uncertainSince = belfry.NewID(now), time.Time{}, now, time.Time{}
	if p.stopClaim != nil {
		p.stopClaim()
	}
	again := !p.draining
	p.mu.Unlock()
	p.cancelLost(gone)
	return again
}

func (p *Pool) cancelLost(gone []*attempt) {
	for _, a := range gone {
		p.log.Warn("an attempt was lost to another worker", "run", a.result.RunID, "attempt", a.result.Attempt)
		a.cancel(ErrLeaseLost)
	}
	if len(gone) > 0 {
		signal(p.claimable)
		signal(p.changed)
	}
}

// leave tells the source that this worker is gone, if it is known there and
// holds nothing any more. A failure to say so costs only time: the source will
// notice the silence.
func (p *Pool) unregister() error {
	p.mu.Lock()
	known, left := !p.leaseRenewedAt.IsZero(), len(p.unsent)
	b := belfry.Heartbeat{WorkerID: p.worker, Node: p.opt.node, Slots: p.opt.concurrency, Lanes: p.lanes, Leave: true}
	if p.leaseTimer != nil {
		p.leaseTimer.Stop()
	}
	p.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("drain worker: %d results were not accepted in time", left)
	}
	if !known {
		return nil
	}
	if _, err := p.sendHeartbeat(p.base, b); err != nil {
		p.log.Warn("taking leave failed", "error", err)
	}
	return nil
}
