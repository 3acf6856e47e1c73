package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/secret"
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

// attempt is one claim of a run by this worker. All fields but the log and the last four
// never change.
type attempt struct {
	worker  belfry.ID
	result  belfry.Result // only what identifies the attempt
	timeout *timeout
	ctx     context.Context
	cancel  context.CancelCauseFunc // ends ctx
	log     attemptLog
	payload json.RawMessage // whose secrets are masked in the result

	over      bool // it has a result or needs none; guarded by Pool.mu
	returned  bool // its handler has returned; guarded by Pool.mu
	stuck     bool // it was abandoned while its handler runs; guarded by Pool.mu
	cancelled bool // its run was cancelled; guarded by Pool.mu
}

// timeout is when the attempts of one claim that may take equally long must end. They
// share a context and a timer.
type timeout struct {
	after    time.Duration
	ctx      context.Context
	stop     context.CancelFunc
	attempts []*attempt
	grace    *time.Timer  // begins the grace period of the attempts
	left     atomic.Int64 // attempts that have not ended
}

// newAttempts makes the attempts of one claim. A run without a timeout gets the default:
// every attempt ends.
func (p *Pool) newAttempts(worker belfry.ID, runs []*belfry.Run) []*attempt {
	attempts, timeouts := make([]*attempt, len(runs)), map[time.Duration]*timeout{}
	for i, run := range runs {
		if run == nil {
			continue
		}
		after := run.Spec.Timeout()
		if after <= 0 {
			after = belfry.DefaultSpec().Timeout()
		}
		t := timeouts[after]
		if t == nil {
			t = &timeout{after: after}
			t.ctx, t.stop = context.WithTimeoutCause(p.base, after, ErrTimedOut)
			timeouts[after] = t
		}
		a := &attempt{
			worker:  worker,
			timeout: t,
			payload: run.Payload,
			result: belfry.Result{
				Namespace: run.Namespace,
				RunID:     run.ID,
				Attempt:   run.Attempt,
				Token:     run.Token,
			},
		}
		a.log.written, a.log.payload, a.log.report = p.logged, run.Payload, &run.Report
		a.ctx, a.cancel = context.WithCancelCause(t.ctx)
		attempts[i] = a
		t.attempts = append(t.attempts, a)
		t.left.Add(1)
	}
	// The grace period begins when the timeout fires. If the whole process was frozen,
	// both would be over at once, and the handlers would have no time to return.
	for _, t := range timeouts {
		t.grace = time.AfterFunc(t.after, func() { p.abandonLater(ErrTimedOut, t.attempts...) })
	}
	return attempts
}

// stop releases the context and the timer of an attempt that has ended.
func (a *attempt) stop() {
	a.cancel(nil)
	if a.timeout.left.Add(-1) == 0 {
		a.timeout.grace.Stop()
		a.timeout.stop()
	}
}

var errNoReturn = errors.New("the handler ended its goroutine instead of returning")

// assignment is an attempt for a goroutine that is idle.
type assignment struct {
	attempt *attempt
	run     *belfry.Run
}

// start works on an attempt in an idle goroutine, or in a new one if there is none. An
// idle one costs less, since its stack has grown to what handlers need.
func (p *Pool) start(a *attempt, run *belfry.Run) {
	next := assignment{a, run}
	select {
	case p.idle <- next:
	default:
		go p.workLoop(next)
	}
}

// workLoop works on one attempt after the other until nothing more is claimed.
func (p *Pool) workLoop(next assignment) {
	for more := true; more; {
		p.work(next.attempt, next.run)
		next = assignment{} // which is not to be kept in memory
		next, more = <-p.idle
	}
}

// work calls the handler. However that ends, by return, panic or runtime.Goexit, the
// attempt ends in the deferred function.
func (p *Pool) work(a *attempt, run *belfry.Run) {
	err := errNoReturn
	started := time.Now()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
			p.log.Error("a handler panicked", "type", run.Spec.Type, "run", a.result.RunID, "attempt", a.result.Attempt,
				"trace_id", belfry.RunTraceID(a.result.RunID), "panic", secret.Redact(errorText(err), run.Payload, run.Report.Secrets...), "stack", string(debug.Stack()))
		}
		result := p.handlerReturned(a, run.Report, err)
		a.stop()
		p.logAttempt(run, "an attempt ended", func() []any {
			return []any{"outcome", result.Outcome, "took", time.Since(started), "http_status", result.HTTPStatus, "error", secret.Redact(result.Error, run.Payload, run.Report.Secrets...)}
		})
	}()
	run.LogTo = &a.log
	p.logAttempt(run, "an attempt starts", func() []any { return nil })
	err = p.mux.Dispatch(traceContext(a.ctx, run.Trace), run)
}

// logAttempt logs the start or the end of an attempt, for who debugs.
func (p *Pool) logAttempt(run *belfry.Run, message string, more func() []any) {
	if !p.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attributes := []any{"job", run.JobID, "run", run.ID, "trace_id", belfry.RunTraceID(run.ID), "attempt", run.Attempt}
	if run.JobName != "" { // it is unknown to a run that was claimed while it was fired
		attributes = append(attributes, "job_name", run.JobName)
	}
	p.log.Debug(message, append(attributes, more()...)...)
}

// handlerReturned records what a handler returned, and returns it. It is ignored if the
// attempt was abandoned or lost before.
func (p *Pool) handlerReturned(a *attempt, report belfry.Report, err error) belfry.Result {
	result := a.resultOf(err, report.Secrets)
	if limit := belfry.MaxDelay.Seconds(); result.RetryAfterSeconds > limit {
		p.log.Warn("a handler requests a longer delay than a run may have; the longest is used", "run", a.result.RunID, "attempt", a.result.Attempt,
			"trace_id", belfry.RunTraceID(a.result.RunID), "requested", time.Duration(result.RetryAfterSeconds*float64(time.Second)), "used", belfry.MaxDelay)
		result.RetryAfterSeconds = limit
	}
	result.HTTPStatus = report.HTTPStatus
	result.Output = a.redact(string(report.Output[:min(len(report.Output), belfry.MaxOutput)]), len(report.Output) >= belfry.MaxOutput, report.Secrets)
	result.Output = result.Output[:min(len(result.Output), belfry.MaxOutput)]
	p.mu.Lock()
	a.returned = true
	p.busy--
	if a.stuck {
		p.stuck--
	}
	if !a.over {
		p.enqueueResult(a, result)
	}
	free, draining := p.freeSlots(), p.draining
	p.mu.Unlock()
	p.slots.Free(a.result.Namespace, 1)
	if free == 1 || free == p.claimThreshold() { // other numbers need not wake the claim loop
		signal(p.claimable)
	}
	if draining {
		signal(p.changed)
	}
	return result
}

// resultOf is the result of an attempt whose handler returned err. The cause of the end
// of its context takes precedence over the error.
func (a *attempt) resultOf(err error, secrets []string) belfry.Result {
	r := a.result
	switch cause := context.Cause(a.ctx); {
	case err == nil:
		r.Outcome = belfry.OutcomeSucceeded
	case cause == ErrTimedOut:
		r.Outcome, r.Error = belfry.OutcomeTimedOut, fmt.Sprintf("no answer within %gs", a.timeout.after.Seconds())
	case cause == ErrInterrupted:
		r.Outcome, r.Error = belfry.OutcomeInterrupted, "interrupted: "+cause.Error()
	case cause == ErrCancelled:
		r.Outcome, r.Error = belfry.OutcomeCancelled, cause.Error()
	default:
		r.Outcome, r.Error = belfry.OutcomeFailed, sanitize.Text(a.redact(errorText(err), false, secrets), maxError)
		applyError(&r, err)
	}
	return r
}

// redact masks the secrets of the attempt in a text that is reported.
func (a *attempt) redact(text string, wasCut bool, secrets []string) string {
	if text == "" {
		return ""
	}
	return secret.NewRedactor(a.payload, secrets...).Redact(text, wasCut)
}

// applyError is Result.ApplyError for an error whose methods may panic.
func applyError(r *belfry.Result, err error) {
	defer func() { _ = recover() }()
	r.ApplyError(err)
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

// enqueueResult ends an attempt with a result and queues that; mu is held.
func (p *Pool) enqueueResult(a *attempt, r belfry.Result) {
	a.over = true
	r.LogOffset, r.Log = a.log.end()
	if p.running[a.result.RunID] == a {
		delete(p.running, a.result.RunID)
	}
	p.unsent = append(p.unsent, pendingResult{worker: a.worker, result: r})
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

// abandonLater abandons attempts whose contexts have just ended, if their handlers do
// not return soon.
func (p *Pool) abandonLater(cause error, attempts ...*attempt) {
	time.AfterFunc(stuckAfter, func() { p.abandon(cause, attempts...) })
}

// abandon stops waiting for handlers that have not returned after the end of their
// context: the cause is reported as the outcome, and the slot stays taken until the
// handler returns.
func (p *Pool) abandon(cause error, attempts ...*attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range attempts {
		if a.returned || a.stuck {
			continue
		}
		a.stuck = true
		p.stuck++
		if !a.over {
			p.enqueueResult(a, a.resultOf(cause, nil))
		}
		p.log.Warn("a handler is stuck: it did not return after the end of its context",
			"run", a.result.RunID, "attempt", a.result.Attempt, "trace_id", belfry.RunTraceID(a.result.RunID), "cause", context.Cause(a.ctx))
	}
	signal(p.changed)
}

func (p *Pool) live() []*attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.running))
}

// traceContext is the context of a handler: with the span of its attempt, which the server
// sends, as remote span. What the handler records and sends becomes part of its trace.
func traceContext(ctx context.Context, c *belfry.TraceContext) context.Context {
	if c == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": c.Traceparent, "tracestate": c.Tracestate})
}
