package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	heartbeatInterval = belfry.HeartbeatInterval
	maxCancelDelay    = 7 * time.Second // within which a worker learns of a cancellation
	heartbeatTimeout  = 4 * time.Second
	leaseDuration     = 15 * time.Second // how long after a heartbeat attempts may be started
	completeInterval  = 30 * time.Second
	uncertainFor      = 12 * time.Second // a source releases claims that a complete heartbeat does not list only once they are about 10 s old
)

// heartbeatLoop registers the worker and keeps it alive until ctx ends. It is the last
// of the loops to stop: it is needed while attempts run or results wait.
func (p *Pool) heartbeatLoop(ctx context.Context) {
	retry := backoff{min: 100 * time.Millisecond, max: 5 * time.Second}
	registered, logs := false, false // logs: they are sent, unless the last heartbeat failed
	refused := false                 // the source accepts no logs
	for {
		sent := time.Now()
		heartbeat := p.nextHeartbeat(sent, !registered, logs)
		reply, err := p.sendHeartbeat(ctx, heartbeat)
		var pause time.Duration
		switch {
		case err != nil:
			if ctx.Err() == nil {
				p.outage.failed("heartbeat", err)
				p.locked(p.stopClaims) // it is repeated: its connection may be as dead as that of the heartbeat
			}
			if logs = false; len(heartbeat.Logs) > 0 && belfry.CodeOf(err) == belfry.Invalid {
				p.log.Warn("the server does not accept logs of running attempts; they are sent with the results", "error", err)
				refused = true
			}
			pause = retry.delay()
		case reply.Unknown:
			p.log.Warn("the source does not know this worker any more; its attempts are dropped", "worker", heartbeat.WorkerID)
			if !p.newIncarnation() {
				return
			}
			registered = false
			if heartbeat.Register {
				pause = retry.delay()
			}
		default:
			p.outage.recovered("heartbeat")
			p.renewLease(heartbeat, sent)
			p.applyReply(reply)
			p.logsAccepted(heartbeat.Logs)
			registered, logs = true, !refused
			retry.next = 0
			// A run may be cancelled just after the server made its reply, and then the
			// worker learns of it from the next one: where replies take long, the next
			// heartbeat is sent earlier.
			took := time.Since(sent)
			pause = min(heartbeatInterval, maxCancelDelay-took) - took
		}
		if logs && !p.awaitHeartbeat(ctx, pause, sent) || !logs && !sleep(ctx, pause) {
			return
		}
	}
}

func (p *Pool) sendHeartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	call, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	return p.source.Heartbeat(call, b)
}

// nextHeartbeat returns the heartbeat to send now. It is complete while the outcome of a
// claim is unknown, and every completeInterval.
func (p *Pool) nextHeartbeat(now time.Time, register, logs bool) belfry.Heartbeat {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.heartbeat()
	p.heartbeats++
	b.Register, b.Sequence = register, p.heartbeats
	if logs {
		b.Logs = p.newLogs()
	}
	b.Complete = !register && (!p.uncertainSince.IsZero() || now.Sub(p.completeAt) >= completeInterval)
	if !b.Complete {
		return b
	}
	b.Held = make([]belfry.HeldAttempt, 0, len(p.running)+len(p.unsent))
	for _, a := range p.running {
		b.Held = append(b.Held, heldAttempt(a.result))
	}
	for _, pending := range p.unsent {
		if pending.worker == p.worker {
			b.Held = append(b.Held, heldAttempt(pending.result))
		}
	}
	return b
}

// heartbeat is what every heartbeat says; mu is held.
func (p *Pool) heartbeat() belfry.Heartbeat {
	return belfry.Heartbeat{WorkerID: p.worker, Node: p.node, Slots: p.concurrency, Lanes: p.lanes, Queues: p.queues, Handlers: p.handlers}
}

func heldAttempt(r belfry.Result) belfry.HeldAttempt {
	return belfry.HeldAttempt{RunID: r.RunID, Attempt: r.Attempt}
}

// renewLease records an accepted heartbeat. The lease counts from when it was sent: a
// slow reply must not extend it.
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

// leaseValid reports whether the worker may start attempts; mu is held. It compares wall
// clocks too, since the monotonic clock stops while a machine is suspended.
func (p *Pool) leaseValid(now time.Time) bool {
	return !p.leaseRenewedAt.IsZero() && now.Sub(p.leaseRenewedAt) < leaseDuration && now.Round(0).Sub(p.leaseRenewedAt.Round(0)) < leaseDuration
}

// leaseExpired ends a waiting Claim if the lease has expired.
func (p *Pool) leaseExpired() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leaseValid(time.Now()) {
		p.stopClaims()
	}
}

// applyReply ends attempts that this worker has lost, and those whose runs were
// cancelled. A result that exists already is still sent: if it is late, it is evidence.
func (p *Pool) applyReply(reply belfry.HeartbeatReply) {
	var lost, cancelled []*attempt
	p.mu.Lock()
	for _, h := range reply.Lost {
		if a := p.findRunning(h); a != nil {
			p.dropLost(a)
			lost = append(lost, a)
		}
	}
	clear(p.cancelBeforeStart)
	for _, h := range reply.Cancel {
		a := p.findRunning(h)
		switch {
		case a == nil: // the reply to the claim may not have arrived
			p.cancelBeforeStart[h] = true
		case !a.cancelled: // every reply repeats it until the result is accepted
			a.cancelled = true
			cancelled = append(cancelled, a)
		}
	}
	p.mu.Unlock()
	p.cancelLost(lost)
	for _, a := range cancelled {
		p.log.Info("a run was cancelled; the context of its handler ends", "run", a.result.RunID, "attempt", a.result.Attempt)
		a.cancel(ErrCancelled)
		p.abandonLater(ErrCancelled, a)
	}
}

// findRunning returns the running attempt, or nil; mu is held.
func (p *Pool) findRunning(h belfry.HeldAttempt) *attempt {
	if a := p.running[h.RunID]; a != nil && a.result.Attempt == h.Attempt {
		return a
	}
	return nil
}

// newIncarnation drops every attempt and takes a new id. It returns false if the pool
// drains: then no further heartbeat is needed.
func (p *Pool) newIncarnation() bool {
	p.mu.Lock()
	lost := slices.Collect(maps.Values(p.running))
	for _, a := range lost {
		p.dropLost(a)
	}
	now := time.Now()
	p.worker, p.leaseRenewedAt, p.completeAt, p.uncertainSince = belfry.NewID(now), time.Time{}, now, time.Time{}
	p.stopClaims()
	draining := p.draining
	p.mu.Unlock()
	p.cancelLost(lost)
	return !draining
}

func (p *Pool) cancelLost(lost []*attempt) {
	for _, a := range lost {
		p.log.Warn("an attempt was lost to another worker", "run", a.result.RunID, "attempt", a.result.Attempt)
		a.cancel(ErrLeaseLost)
	}
	if len(lost) > 0 {
		signal(p.claimable)
		signal(p.changed)
	}
}

// unregister unregisters the worker, if it is registered and holds nothing. After a
// failure the source reaps it later.
func (p *Pool) unregister() error {
	p.mu.Lock()
	registered, left := !p.leaseRenewedAt.IsZero(), len(p.unsent)
	b := p.heartbeat()
	b.Leave = true
	if p.leaseTimer != nil {
		p.leaseTimer.Stop()
	}
	p.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("drain worker: %d results were not accepted in time", left)
	}
	if !registered {
		return nil
	}
	if _, err := p.sendHeartbeat(p.base, b); err != nil {
		p.log.Warn("the worker could not be unregistered", "error", err)
	}
	return nil
}
