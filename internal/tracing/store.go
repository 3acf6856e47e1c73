package tracing

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	queueLength = 256             // calls whose spans are to be made
	linkBatch   = 1000            // links written at a time, since others wait for the database
	linkTimeout = 2 * time.Second // for all links of a request
)

// Store is a store whose runs are traced: claims put the trace context into the runs, and
// what happens to them becomes spans.
type Store struct {
	store.Store
	tracing       *Tracing
	queue         chan func(context.Context, *recorder)
	stop, stopped chan struct{}
}

// Store traces the runs of a store. The caller closes the returned one only.
func (t *Tracing) Store(s store.Store) *Store {
	traced := &Store{Store: s, tracing: t, queue: make(chan func(context.Context, *recorder), queueLength), stop: make(chan struct{}), stopped: make(chan struct{})}
	go traced.run(&recorder{Tracing: t, store: s, held: map[belfry.HeldAttempt]belfry.Run{}})
	return traced
}

func (s *Store) run(r *recorder) {
	defer close(s.stopped)
	for {
		select {
		case record := <-s.queue:
			record(context.Background(), r)
		case <-s.stop:
			for len(s.queue) > 0 {
				(<-s.queue)(context.Background(), r)
			}
			return
		}
	}
}

// Close sends what is left, for a limited time, and closes the store.
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	close(s.stop)
	select {
	case <-s.stopped:
	case <-ctx.Done():
	}
	s.tracing.close(ctx)
	return s.Store.Close()
}

var errBehind = errors.New("more happens than spans can be made of")

// record has spans made of a number of attempts, unless that would have to wait.
func (s *Store) record(attempts int, f func(context.Context, *recorder)) {
	select {
	case s.queue <- f:
	default:
		s.tracing.failures.report(attempts, errBehind)
	}
}

func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	result, err := s.Store.Fire(ctx, owner, steps, slots...)
	s.claimed(result.Claimed)
	return result, err
}

func (s *Store) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	return s.ClaimBelow(ctx, c, plan.MaxRank)
}

func (s *Store) ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error) {
	runs, err := s.Store.ClaimBelow(ctx, c, rank)
	s.claimed(runs)
	return runs, err
}

func (s *Store) ClaimRuns(ctx context.Context, c belfry.Claim, ids []belfry.ID) ([]*belfry.Run, error) {
	runs, err := s.Store.ClaimRuns(ctx, c, ids)
	s.claimed(runs)
	return runs, err
}

func (s *Store) ClaimShares(ctx context.Context, c belfry.Claim, shares store.Shares) ([]*belfry.Run, error) {
	runs, err := s.Store.ClaimShares(ctx, c, shares)
	s.claimed(runs)
	return runs, err
}

// claimed gives runs their trace context. One that is not sampled has a context too, so
// that who continues it does not sample it either.
func (s *Store) claimed(runs []*belfry.Run) {
	var sampled []belfry.Run
	for _, run := range runs {
		root := s.tracing.rootContext(run.ID)
		run.Trace = attemptContext(root, run.ID, run.Attempt)
		if root.IsSampled() {
			sampled = append(sampled, *run)
			sampled[len(sampled)-1].Payload = nil
		}
	}
	if len(sampled) > 0 {
		s.record(len(sampled), func(_ context.Context, r *recorder) { r.claimed(sampled) })
	}
}

func (s *Store) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	verdicts, err := s.Store.Finish(ctx, results)
	if err != nil {
		return verdicts, err
	}
	var accepted []belfry.Result
	for i, verdict := range verdicts {
		if verdict == belfry.VerdictAccepted {
			accepted = append(accepted, results[i])
		}
	}
	s.ended(accepted)
	return verdicts, nil
}

func (s *Store) Reap(ctx context.Context, silence time.Duration, limit int) ([]belfry.Result, error) {
	reaped, err := s.Store.Reap(ctx, silence, limit)
	s.ended(reaped)
	return reaped, err
}

// Cancel may settle a run that no worker holds.
func (s *Store) Cancel(ctx context.Context, namespace string, run belfry.ID) error {
	err := s.Store.Cancel(ctx, namespace, run)
	if err == nil {
		s.ended([]belfry.Result{{Namespace: namespace, RunID: run, Outcome: belfry.OutcomeCancelled}})
	}
	return err
}

func (s *Store) ended(results []belfry.Result) {
	at := s.Now()
	var sampled []belfry.Result
	for _, r := range results {
		if s.tracing.rootContext(r.RunID).IsSampled() {
			r.Output, r.Error = "", ""
			sampled = append(sampled, r)
		}
	}
	if len(sampled) > 0 {
		s.record(len(sampled), func(ctx context.Context, r *recorder) { r.ended(ctx, sampled, at) })
	}
}

// CreateJobs keeps the context of the request, before a job can run.
func (s *Store) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	parent := traceparent(ctx)
	if parent == "" {
		return s.Store.CreateJobs(ctx, jobs, r)
	}
	return s.Store.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
		var ids []belfry.ID
		for job, err := range jobs {
			if err == nil {
				ids = append(ids, job.Job.ID)
			}
			if !yield(job, err) {
				return
			}
		}
		s.addLinks(ctx, ids, parent)
	}, r)
}

// Trigger keeps the context of the request, before a run can start.
func (s *Store) Trigger(ctx context.Context, triggers []plan.Trigger, r *store.Request) error {
	if parent := traceparent(ctx); parent != "" {
		var ids []belfry.ID
		for _, t := range triggers {
			ids = append(ids, t.RunID())
		}
		s.addLinks(ctx, ids, parent)
	}
	return s.Store.Trigger(ctx, triggers, r)
}

// addLinks keeps links. Without them, a request has its effect all the same.
func (s *Store) addLinks(ctx context.Context, ids []belfry.ID, traceparent string) {
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	for batch := range slices.Chunk(ids, linkBatch) {
		if err := s.AddTraceLinks(ctx, batch, traceparent); err != nil {
			s.tracing.failures.report(0, err)
			return
		}
	}
}
