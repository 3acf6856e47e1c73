package tracing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	readTimeout = 5 * time.Second
	maxHeld     = 16_384
	sweepPeriod = time.Minute
)

// recorder makes spans of what happens to runs. It belongs to one goroutine.
type recorder struct {
	*Tracing
	store   store.Store
	held    map[belfry.HeldAttempt]belfry.Run // claimed at this node, and not ended here: what need not be read
	sweptAt time.Time
}

// claimed makes the spans of claims. A claim begins when the run is ready and exists.
func (r *recorder) claimed(runs []belfry.Run) {
	for _, run := range runs {
		if run.StartedAt == nil {
			run.StartedAt = new(r.store.Now())
		}
		if run.Attempt == 1 {
			end(r.start(&run, spanFire, 0, begin(&run)), begin(&run), run.FiredAt)
		}
		ready := slices.MaxFunc([]time.Time{run.ReadyAt, run.FiredAt}, time.Time.Compare)
		end(r.start(&run, spanClaim, run.Attempt, ready, trace.WithAttributes(workAttributes(&run)...)), ready, *run.StartedAt)
		if len(r.held) < maxHeld {
			r.held[belfry.HeldAttempt{RunID: run.ID, Attempt: run.Attempt}] = run
		}
	}
	r.sweep()
}

// sweep forgets attempts that ended elsewhere, such as those whose worker reported to
// another node.
func (r *recorder) sweep() {
	now := r.store.Now()
	if now.Sub(r.sweptAt) < sweepPeriod {
		return
	}
	r.sweptAt = now
	for held, run := range r.held {
		if now.Sub(run.DeadlineAt) > sweepPeriod {
			delete(r.held, held)
		}
	}
}

// ended makes the spans of attempts that have ended, and of the runs that are settled by
// that.
func (r *recorder) ended(ctx context.Context, results []belfry.Result, at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var settled []belfry.Run
	for i := range results {
		run, err := r.find(ctx, &results[i], at)
		if err != nil {
			if belfry.CodeOf(err) != belfry.NotFound {
				r.failures.report(1, err)
			}
			continue
		}
		if a, ok := attemptOf(&run, results[i].Attempt); ok {
			r.attempt(&run, a)
		}
		// A later attempt settles the run by itself; it may have done so already.
		if !run.Status.Live() && (run.Attempt == results[i].Attempt || results[i].Attempt == 0) {
			settled = append(settled, run)
		}
	}
	r.settled(ctx, settled)
}

// find returns a run as it is after a result: from memory if it succeeded and was claimed
// here, otherwise from the store, which knows what the result was worth.
func (r *recorder) find(ctx context.Context, result *belfry.Result, at time.Time) (belfry.Run, error) {
	key := belfry.HeldAttempt{RunID: result.RunID, Attempt: result.Attempt}
	claimed, held := r.held[key]
	delete(r.held, key)
	if held && result.Outcome == belfry.OutcomeSucceeded {
		claimed.Status, claimed.FinishedAt, claimed.HTTPStatus = belfry.RunSucceeded, &at, result.HTTPStatus
		return claimed, nil
	}
	run, err := r.store.Run(ctx, result.Namespace, result.RunID)
	run.Spec = claimed.Spec
	return run, err
}

// attemptOf is an attempt of a run that has ended. Records have those that did not succeed.
func attemptOf(run *belfry.Run, number int) (belfry.Attempt, bool) {
	if run.Status == belfry.RunSucceeded && run.Attempt == number && run.StartedAt != nil && run.FinishedAt != nil {
		return belfry.Attempt{Number: number, Outcome: belfry.OutcomeSucceeded, WorkerID: run.WorkerID, StartedAt: *run.StartedAt, FinishedAt: *run.FinishedAt, HTTPStatus: run.HTTPStatus}, true
	}
	if i := slices.IndexFunc(run.Attempts, func(a belfry.Attempt) bool { return a.Number == number }); i >= 0 {
		return run.Attempts[i], true
	}
	return belfry.Attempt{}, false
}

func (r *recorder) attempt(run *belfry.Run, a belfry.Attempt) {
	attributes := append(workAttributes(run), attribute.Int("belfry.attempt", a.Number), attribute.String("belfry.outcome", string(a.Outcome)),
		attribute.String("belfry.worker.id", a.WorkerID.String()))
	if a.HTTPStatus != 0 {
		attributes = append(attributes, attribute.Int("http.response.status_code", a.HTTPStatus))
	}
	span := r.start(run, spanAttempt, a.Number, a.StartedAt, trace.WithAttributes(attributes...))
	if a.Outcome == belfry.OutcomeFailed || a.Outcome == belfry.OutcomeTimedOut || a.Outcome == belfry.OutcomeLost {
		span.SetStatus(codes.Error, string(a.Outcome)) // the text of the error may have secrets
	}
	end(span, a.StartedAt, a.FinishedAt)
}

// settled makes the root spans of runs.
func (r *recorder) settled(ctx context.Context, runs []belfry.Run) {
	if len(runs) == 0 {
		return
	}
	links, names := r.about(ctx, runs)
	for i := range runs {
		run := &runs[i]
		span := r.start(run, spanRun, 0, begin(run), trace.WithLinks(linksOf(run, links)...), trace.WithAttributes(
			attribute.String("belfry.run.id", run.ID.String()), attribute.String("belfry.job.id", run.JobID.String()), attribute.String("belfry.job.name", names[run.JobID]),
			attribute.String("belfry.namespace", run.Namespace), attribute.String("belfry.run.kind", string(run.Kind)), attribute.String("belfry.run.status", string(run.Status)),
			attribute.String("belfry.run.scheduled_at", run.ScheduledAt.UTC().Format(time.RFC3339Nano)), attribute.Int("belfry.run.attempts", run.Attempt)))
		if run.Status == belfry.RunDead {
			span.SetStatus(codes.Error, string(run.Reason))
		}
		finished := run.ReadyAt
		if run.FinishedAt != nil {
			finished = *run.FinishedAt
		}
		end(span, begin(run), finished)
	}
}

// about reads what root spans show beside their runs. They are sent without it rather
// than not at all.
func (r *recorder) about(ctx context.Context, runs []belfry.Run) (links, names map[belfry.ID]string) {
	var ids []belfry.ID
	jobs := map[string][]belfry.ID{}
	for _, run := range runs {
		ids = append(ids, run.ID, run.JobID)
		jobs[run.Namespace] = append(jobs[run.Namespace], run.JobID)
	}
	links, err := r.store.TraceLinks(ctx, ids)
	names = map[belfry.ID]string{}
	for namespace, ids := range jobs {
		found, nameErr := r.store.JobNames(ctx, namespace, ids)
		maps.Copy(names, found)
		err = errors.Join(err, nameErr)
	}
	if err != nil {
		r.failures.report(0, err)
	}
	return links, names
}

// linksOf are the links of a root span to the requests that triggered the run and created
// its job.
func linksOf(run *belfry.Run, traceparents map[belfry.ID]string) (links []trace.Link) {
	for _, l := range []struct {
		id   belfry.ID
		what string
	}{{run.ID, "trigger"}, {run.JobID, "create"}} {
		if sc := parseTraceparent(traceparents[l.id]); sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String("belfry.link", l.what)}})
		}
	}
	return links
}

// begin is when the trace of a run begins: when it was scheduled, or, for an instant of the
// past that was requested, when it was created.
func begin(run *belfry.Run) time.Time {
	if run.Kind == belfry.KindBackfill || run.FiredAt.Before(run.ScheduledAt) {
		return run.FiredAt
	}
	return run.ScheduledAt
}

// workAttributes say who does the work, if that is known.
func workAttributes(run *belfry.Run) []attribute.KeyValue {
	if run.Spec.Type == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String("belfry.queue", run.Spec.Queue), attribute.String("belfry.handler", run.Spec.HandlerName())}
}

// start starts a span of a run with its computed ids, as a child of the root unless it is that.
func (r *recorder) start(run *belfry.Run, name string, attempt int, at time.Time, options ...trace.SpanStartOption) trace.Span {
	ctx := context.Background()
	if name != spanRun {
		ctx = trace.ContextWithRemoteSpanContext(ctx, r.rootContext(run.ID))
	}
	ctx = context.WithValue(ctx, idsKey{}, idsOf(run.ID, name, attempt))
	_, span := r.tracer.Start(ctx, name, append(options, trace.WithTimestamp(at))...)
	return span
}

// end ends a span, at the earliest when it began: the clocks of nodes differ.
func end(span trace.Span, from, to time.Time) {
	if to.Before(from) {
		to = from
	}
	span.End(trace.WithTimestamp(to))
}
