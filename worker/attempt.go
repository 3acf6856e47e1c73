package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// Why the context of an attempt ended, see context.Cause.
var (
	ErrTimedOut    = errors.New("the attempt timed out")
	ErrInterrupted = errors.New("the worker is shutting down")
	ErrCancelled   = errors.New("the run was cancelled")
	ErrLeaseLost   = errors.New("the attempt is no longer this worker's")
)

const (
	stuckAfter = 5 * time.Second // past its timeout or cancellation, a handler that still runs is given up
	maxError   = 8 << 10         // bytes kept of an error's text
)

// attempt is one run in the hands of this worker. Its fields but the last four
// never change.
type attempt struct {
	worker  belfry.ID
	result  belfry.Result // names the attempt; the rest is filled in when it ends
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc // ends ctx early
	stop    context.CancelFunc      // ends the clock

	over      bool // its result is made, or none is due; guarded by Pool.mu
	returned  bool // its handler has returned; guarded by Pool.mu
	stuck     bool // it was given up while its handler ran on; guarded by Pool.mu
	cancelled bool // the source ordered its end; guarded by Pool.mu
}

// newAttempt starts the clock of an attempt. A run that names no timeout gets
// the default one: every attempt ends.
func newAttempt(ctx context.Context, worker belfry.ID, run *belfry.Run) *attempt {
	timeout := run.Spec.Timeout()
	if timeout <= 0 {
		timeout = belfry.DefaultSpec().Timeout()
	}
	a := &attempt{
		worker:  worker,
		timeout: timeout,
		result: belfry.Result{
			Namespace: run.Namespace,
			RunID:     run.ID,
			Attempt:   run.Attempt,
			Token:     run.Token,
		},
	}
	ctx, a.stop = context.WithTimeoutCause(ctx, timeout, ErrTimedOut)
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	return a
}

// name says which attempt it is.
func (a *attempt) held() belfry.HeldAttempt {
	return belfry.HeldAttempt{RunID: a.result.RunID, Attempt: a.result.Attempt}
}

// end frees the context of an attempt that nobody works on any more.
func (a *attempt) end() {
	a.cancel(nil)
	a.stop()
}

// work runs the handler. Whatever it does, return, panic or end its goroutine,
// the attempt ends in exactly one place.
func (p *Pool) work(a *attempt, run *belfry.Run) {
	// The grace begins when the timeout is noticed: after a pause of the whole
	// process both would be over at once, and the handler had no time at all.
	grace := time.AfterFunc(a.timeout, func() { p.abandonLater(a, ErrTimedOut) })
	err := errors.New("the handler ended its goroutine instead of returning")
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			p.log.Error("a handler panicked", "type", run.Spec.Type, "run", a.result.RunID,
				"attempt", a.result.Attempt, "panic", v, "stack", string(debug.Stack()))
		}
		grace.Stop()
		p.handlerReturned(a, run.Report, err)
		a.end()
	}()
	err = p.mux.Dispatch(a.ctx, run)
}

// finished takes what a handler returned. It counts only if the attempt was
// neither given up nor lost before.
func (p *Pool) handlerReturned(a *attempt, report belfry.Report, err error) {
	how := p.limitDelay(a, a.outcome(err))
	output := string(report.Output[:min(len(report.Output), belfry.MaxOutput)])
	p.mu.Lock()
	a.returned = true
	p.busy--
	if a.stuck {
		p.stuck--
	}
	if !a.over {
		a.result.HTTPStatus, a.result.Output = report.HTTPStatus, output
		p.enqueueResult(a, how)
	}
	room, draining := p.freeSlots(), p.draining
	p.mu.Unlock()
	if room == 1 || room == p.claimThreshold() { // others need not wake the claim loop
		signal(p.claimable)
	}
	if draining {
		signal(p.changed)
	}
}

// ending is how an attempt ended: the part of a result that judge decides.
type attemptOutcome struct {
	outcome   belfry.Outcome
	text      string
	after     float64 // seconds that the handler asks for before another attempt
	permanent bool
}

// judge says how an attempt ended whose handler returned err. Why its context
// ended counts for more than what the handler asks for.
func (a *attempt) outcome(err error) attemptOutcome {
	switch cause := context.Cause(a.ctx); {
	case err == nil:
		return attemptOutcome{outcome: belfry.OutcomeSucceeded}
	case cause == ErrTimedOut:
		return attemptOutcome{outcome: belfry.OutcomeTimedOut, text: fmt.Sprintf("no answer within %gs", a.timeout.Seconds())}
	case cause == ErrInterrupted:
		return attemptOutcome{outcome: belfry.OutcomeInterrupted, text: "interrupted: " + cause.Error()}
	case cause == ErrCancelled:
		return attemptOutcome{outcome: belfry.OutcomeCancelled, text: cause.Error()}
	default:
		r := applyError(err)
		return attemptOutcome{r.Outcome, sanitize.Text(errorText(err), maxError), r.RetryAfterSeconds, r.Permanent}
	}
}

// advised is a failed result with what the error asks for, as far as the error's
// own methods do not panic.
func applyError(err error) (r belfry.Result) {
	defer func() {
		if recover() != nil {
			r = belfry.Result{Outcome: belfry.OutcomeFailed}
		}
	}()
	r.Outcome = belfry.OutcomeFailed
	r.ApplyError(err)
	return r
}

// bounded keeps a wait that a handler asks for within what a run may wait.
func (p *Pool) limitDelay(a *attempt, how attemptOutcome) attemptOutcome {
	most := belfry.MaxDelay.Seconds()
	if how.after <= most {
		return how
	}
	p.log.Warn("a handler asks for a longer wait than a run may have; the longest is taken", "run", a.result.RunID,
		"attempt", a.result.Attempt, "asked", time.Duration(how.after*float64(time.Second)), "taken", belfry.MaxDelay)
	how.after = most
	return how
}

// message is the text of an error whose own methods may panic.
func errorText(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("an error of type %T that cannot be shown", err)
		}
	}()
	return err.Error()
}

// post makes the result of an attempt and puts it in the queue; mu is held.
func (p *Pool) enqueueResult(a *attempt, how attemptOutcome) {
	a.over = true
	if p.running[a.result.RunID] == a {
		delete(p.running, a.result.RunID)
	}
	a.result.Outcome, a.result.Error = how.outcome, how.text
	a.result.RetryAfterSeconds, a.result.Permanent = how.after, how.permanent
	p.unsent = append(p.unsent, pendingResult{worker: a.worker, result: a.result})
	if len(p.unsent) == 1 { // otherwise the send loop is at it
		signal(p.sendable)
	}
}

// lose forgets an attempt that is no longer this worker's: no result is due.
// mu is held; the caller cancels the attempt afterwards.
func (p *Pool) dropLost(a *attempt) {
	a.over = true
	if p.running[a.result.RunID] == a {
		delete(p.running, a.result.RunID)
	}
	p.outstanding--
}

// lookLater gives up the handler of an attempt whose context has just ended if it
// ignores that: why it had to end is reported, and the slot stays taken until the
// handler returns.
func (p *Pool) abandonLater(a *attempt, why error) {
	time.AfterFunc(stuckAfter, func() {
		p.mu.Lock()
		given := p.abandon(a, why)
		p.mu.Unlock()
		if given {
			p.logStuck(a)
			signal(p.changed)
		}
	})
}

func (p *Pool) logStuck(a *attempt) {
	p.log.Warn("a handler is stuck: it ignores the end of its context",
		"run", a.result.RunID, "attempt", a.result.Attempt, "cause", context.Cause(a.ctx))
}

// abandon stops waiting for a handler; mu is held. It reports whether there was
// something to abandon.
func (p *Pool) abandon(a *attempt, why error) bool {
	if a.returned || a.stuck {
		return false
	}
	a.stuck = true
	p.stuck++
	if !a.over {
		p.enqueueResult(a, a.outcome(why))
	}
	return true
}

// interrupt ends the contexts of all attempts because the pool stops.
func (p *Pool) interrupt() {
	p.mu.Lock()
	live := p.live()
	p.mu.Unlock()
	if len(live) > 0 {
		p.log.Info("interrupting attempts that outlast the drain", "attempts", len(live))
	}
	for _, a := range live {
		a.cancel(ErrInterrupted)
	}
}

// giveUp hands back the attempts whose handlers did not return when they were
// interrupted.
func (p *Pool) abandonAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.live() {
		if p.abandon(a, ErrInterrupted) {
			p.logStuck(a)
		}
	}
}

// live lists the attempts that run; mu is held.
func (p *Pool) live() []*attempt {
	live := make([]*attempt, 0, len(p.running))
	for _, a := range p.running {
		live = append(live, a)
	}
	return live
}
