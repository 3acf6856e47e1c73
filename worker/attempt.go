package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/belfry-sh/belfry"
)

// Why the context of an attempt ended, see context.Cause.
var (
	ErrTimedOut    = errors.New("the attempt timed out")
	ErrInterrupted = errors.New("the worker is shutting down")
	ErrLeaseLost   = errors.New("the attempt is no longer this worker's")
)

const (
	stuckAfter = 5 * time.Second // past its timeout, a handler that still runs is given up
	maxError   = 8 << 10         // bytes kept of an error's text
)

// attempt is one run in the hands of this worker. Its fields but the last three
// never change.
type attempt struct {
	worker  belfry.ID
	result  belfry.Result // names the attempt; the rest is filled in when it ends
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelCauseFunc // ends ctx early
	stop    context.CancelFunc      // ends the clock

	over     bool // its result is made, or none is due; guarded by Pool.mu
	returned bool // its handler has returned; guarded by Pool.mu
	stuck    bool // it was given up while its handler ran on; guarded by Pool.mu
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
	grace := time.AfterFunc(a.timeout, func() { time.AfterFunc(stuckAfter, func() { p.overdue(a) }) })
	err := errors.New("the handler ended its goroutine instead of returning")
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			p.log.Error("a handler panicked", "type", run.Spec.Type, "run", a.result.RunID,
				"attempt", a.result.Attempt, "panic", v, "stack", string(debug.Stack()))
		}
		grace.Stop()
		p.finished(a, run.Report, err)
		a.end()
	}()
	err = p.mux.Dispatch(a.ctx, run)
}

// finished takes what a handler returned. It counts only if the attempt was
// neither given up nor lost before.
func (p *Pool) finished(a *attempt, report belfry.Report, err error) {
	outcome, text := a.judge(err)
	output := bytes.Clone(report.Output[:min(len(report.Output), belfry.MaxOutput)])
	p.mu.Lock()
	a.returned = true
	p.busy--
	if a.stuck {
		p.stuck--
	}
	if !a.over {
		a.result.HTTPStatus, a.result.Output = report.HTTPStatus, output
		p.post(a, outcome, text)
	}
	room, draining := p.room(), p.draining
	p.mu.Unlock()
	if room == 1 || room == p.enough() { // others need not wake the claim loop
		signal(p.claimable)
	}
	if draining {
		signal(p.changed)
	}
}

// judge says how an attempt ended whose handler returned err.
func (a *attempt) judge(err error) (belfry.Outcome, string) {
	switch cause := context.Cause(a.ctx); {
	case err == nil:
		return belfry.OutcomeSucceeded, ""
	case cause == ErrTimedOut:
		return belfry.OutcomeTimedOut, a.lateness()
	case cause == ErrInterrupted:
		return belfry.OutcomeInterrupted, "interrupted: " + cause.Error()
	default:
		return belfry.OutcomeFailed, belfry.Clean(message(err), maxError)
	}
}

func (a *attempt) lateness() string {
	return fmt.Sprintf("no answer within %gs", a.timeout.Seconds())
}

// message is the text of an error whose own methods may panic.
func message(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("an error of type %T that cannot be shown", err)
		}
	}()
	return err.Error()
}

// post makes the result of an attempt and puts it in the queue; mu is held.
func (p *Pool) post(a *attempt, outcome belfry.Outcome, text string) {
	a.over = true
	if p.running[a.result.RunID] == a {
		delete(p.running, a.result.RunID)
	}
	a.result.Outcome, a.result.Error = outcome, text
	p.unsent = append(p.unsent, parcel{worker: a.worker, result: a.result})
	if len(p.unsent) == 1 { // otherwise the send loop is at it
		signal(p.sendable)
	}
}

// lose forgets an attempt that is no longer this worker's: no result is due.
// mu is held; the caller cancels the attempt afterwards.
func (p *Pool) lose(a *attempt) {
	a.over = true
	if p.running[a.result.RunID] == a {
		delete(p.running, a.result.RunID)
	}
	p.owed--
}

// overdue gives up a handler that ignores the end of its context: the timeout
// is reported, the slot stays taken until the handler returns.
func (p *Pool) overdue(a *attempt) {
	p.mu.Lock()
	given := p.abandon(a, belfry.OutcomeTimedOut, a.lateness())
	p.mu.Unlock()
	if !given {
		return
	}
	p.log.Warn("a handler is stuck: it ignores the end of its context",
		"run", a.result.RunID, "attempt", a.result.Attempt, "timeout", a.timeout)
	signal(p.changed)
}

// abandon stops waiting for a handler; mu is held. It reports whether there was
// something to abandon.
func (p *Pool) abandon(a *attempt, outcome belfry.Outcome, text string) bool {
	if a.returned || a.stuck {
		return false
	}
	a.stuck = true
	p.stuck++
	if !a.over {
		p.post(a, outcome, text)
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
func (p *Pool) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.live() {
		outcome, text := a.judge(ErrInterrupted)
		if p.abandon(a, outcome, text) {
			p.log.Warn("a handler is stuck: it ignores the end of its context",
				"run", a.result.RunID, "attempt", a.result.Attempt)
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
