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

// Causes of the end of an attempt's context, see context.Cause.
var (
	ErrTimedOut    = errors.New("the attempt timed out")
	ErrInterrupted = errors.New("the worker is shutting down")
	ErrCancelled   = errors.New("the run was cancelled")
	ErrLeaseLost   = errors.New("this worker no longer holds the attempt")
)

const (
	stuckAfter = 5 * time.Second // after its timeout or cancellation a handler that still runs is abandoned
	maxError   = 8 << 10         // bytes kept of an error's text
)

// attempt is one claim of a run by this worker. All fields but the last four never
// change.
type attempt struct {
	worker  belfry.ID
	result  belfry.Result // identifies the attempt; the rest is set when it ends
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc // ends ctx early
	stop    context.CancelFunc      // stops the timeout

	over      bool // it has a result or needs none; guarded by Pool.mu
	returned  bool // its handler has returned; guarded by Pool.mu
	stuck     bool // it was abandoned while its handler runs; guarded by Pool.mu
	cancelled bool // its run was cancelled; guarded by Pool.mu
}

// newAttempt starts the timeout of an attempt. A run without one gets the default:
// every attempt ends.
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

func (a *attempt) held() belfry.HeldAttempt {
	return belfry.HeldAttempt{RunID: a.result.RunID, Attempt: a.result.Attempt}
}

// end frees the context of an attempt.
func (a *attempt) end() {
	a.cancel(nil)
	a.stop()
}

// work calls the handler. However that ends, by return, panic or runtime.Goexit, the
// attempt ends in the deferred function.
func (p *Pool) work(a *attempt, run *belfry.Run) {
	// The grace period begins when the timeout fires. If the whole process was frozen,
	// both would be over at once, and the handler would have no time to return.
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

// handlerReturned records what a handler returned. It is ignored if the attempt was
// abandoned or lost before.
func (p *Pool) handlerReturned(a *attempt, report belfry.Report, err error) {
	outcome := p.limitDelay(a, a.outcome(err))
	output := string(report.Output[:min(len(report.Output), belfry.MaxOutput)])
	p.mu.Lock()
	a.returned = true
	p.busy--
	if a.stuck {
		p.stuck--
	}
	if !a.over {
		a.result.HTTPStatus, a.result.Output = report.HTTPStatus, output
		p.enqueueResult(a, outcome)
	}
	free, draining := p.freeSlots(), p.draining
	p.mu.Unlock()
	if free == 1 || free == p.claimThreshold() { // other numbers need not wake the claim loop
		signal(p.claimable)
	}
	if draining {
		signal(p.changed)
	}
}

// attemptOutcome is how an attempt ended.
type attemptOutcome struct {
	outcome   belfry.Outcome
	message   string
	after     float64 // seconds to wait before the next attempt
	permanent bool
}

// outcome is how an attempt ended whose handler returned err. The cause of the end of
// its context takes precedence over the error.
func (a *attempt) outcome(err error) attemptOutcome {
	switch cause := context.Cause(a.ctx); {
	case err == nil:
		return attemptOutcome{outcome: belfry.OutcomeSucceeded}
	case cause == ErrTimedOut:
		return attemptOutcome{outcome: belfry.OutcomeTimedOut, message: fmt.Sprintf("no answer within %gs", a.timeout.Seconds())}
	case cause == ErrInterrupted:
		return attemptOutcome{outcome: belfry.OutcomeInterrupted, message: "interrupted: " + cause.Error()}
	case cause == ErrCancelled:
		return attemptOutcome{outcome: belfry.OutcomeCancelled, message: cause.Error()}
	default:
		r := applyError(err)
		return attemptOutcome{r.Outcome, sanitize.Text(errorText(err), maxError), r.RetryAfterSeconds, r.Permanent}
	}
}

// applyError is the result of a handler that failed with err, whose methods may panic.
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

// limitDelay limits the delay that a handler requests to belfry.MaxDelay.
func (p *Pool) limitDelay(a *attempt, o attemptOutcome) attemptOutcome {
	limit := belfry.MaxDelay.Seconds()
	if o.after <= limit {
		return o
	}
	p.log.Warn("a handler requests a longer delay than a run may have; the longest is used", "run", a.result.RunID,
		"attempt", a.result.Attempt, "requested", time.Duration(o.after*float64(time.Second)), "used", belfry.MaxDelay)
	o.after = limit
	return o
}

// errorText is the text of an error, whose methods may panic.
func errorText(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("an error of type %T that cannot be shown", err)
		}
	}()
	return err.Error()
}

// enqueueResult completes the result of an attempt and queues it; mu is held.
func (p *Pool) enqueueResult(a *attempt, o attemptOutcome) {
	a.over = true
	if p.running[a.result.RunID] == a {
		delete(p.running, a.result.RunID)
	}
	a.result.Outcome, a.result.Error = o.outcome, o.message
	a.result.RetryAfterSeconds, a.result.Permanent = o.after, o.permanent
	p.unsent = append(p.unsent, pendingResult{worker: a.worker, result: a.result})
	if len(p.unsent) == 1 { // otherwise the send loop is awake
		signal(p.sendable)
	}
}

// dropLost removes an attempt that this worker no longer holds and that needs no
// result. mu is held; the caller cancels the attempt afterwards.
func (p *Pool) dropLost(a *attempt) {
	a.over = true
	if p.running[a.result.RunID] == a {
		delete(p.running, a.result.RunID)
	}
	p.outstanding--
}

// abandonLater abandons an attempt whose context has just ended, if its handler does
// not return soon: the cause is reported as its outcome, and the slot stays taken until
// the handler returns.
func (p *Pool) abandonLater(a *attempt, cause error) {
	time.AfterFunc(stuckAfter, func() {
		p.mu.Lock()
		abandoned := p.abandon(a, cause)
		p.mu.Unlock()
		if abandoned {
			p.logStuck(a)
			signal(p.changed)
		}
	})
}

func (p *Pool) logStuck(a *attempt) {
	p.log.Warn("a handler is stuck: it did not return after the end of its context",
		"run", a.result.RunID, "attempt", a.result.Attempt, "cause", context.Cause(a.ctx))
}

// abandon stops waiting for a handler; mu is held. It reports whether the handler was
// still awaited.
func (p *Pool) abandon(a *attempt, cause error) bool {
	if a.returned || a.stuck {
		return false
	}
	a.stuck = true
	p.stuck++
	if !a.over {
		p.enqueueResult(a, a.outcome(cause))
	}
	return true
}

// interrupt ends the contexts of all attempts because the pool stops.
func (p *Pool) interrupt() {
	p.mu.Lock()
	live := p.live()
	p.mu.Unlock()
	if len(live) > 0 {
		p.log.Info("interrupting attempts that did not finish within the drain timeout", "attempts", len(live))
	}
	for _, a := range live {
		a.cancel(ErrInterrupted)
	}
}

// abandonAll returns the attempts whose handlers did not return after they were
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

// live lists the running attempts; mu is held.
func (p *Pool) live() []*attempt {
	live := make([]*attempt, 0, len(p.running))
	for _, a := range p.running {
		live = append(live, a)
	}
	return live
}
