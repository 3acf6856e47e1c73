package postgres

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// BenchmarkFinishOneOffs measures what it takes to settle runs, 1,000 at a time, of
// one-offs, which leave the live tables with them, and of other jobs.
func BenchmarkFinishOneOffs(b *testing.B) {
	s, err := Open(b.Context(), Options{URL: pgtest.Durable(b).URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, tt := range []struct {
		name string
		once bool
	}{{"one-offs", true}, {"others", false}} {
		b.Run(tt.name, func(b *testing.B) {
			const batch = 1000
			for b.Loop() {
				b.StopTimer()
				results := startMany(b, s, batch, tt.once)
				b.StartTimer()
				if _, err := s.Finish(b.Context(), results); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

// startMany makes jobs, fires them into a worker's hands, and gives their results.
func startMany(b *testing.B, s *Store, n int, once bool) (results []belfry.Result) {
	b.Helper()
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule, spec.Timezone = belfry.TypeHTTP, "* * * * *", "UTC"
	if once {
		spec.Schedule = s.Now().Add(-time.Second).Format(time.RFC3339Nano)
	}
	policy, err := plan.Compile(spec)
	if err != nil {
		b.Fatal(err)
	}
	now := s.Now()
	jobs, steps := make([]store.NewJob, n), make([]plan.Step, n)
	for i := range jobs {
		id := belfry.NewID(now)
		p := plan.First(id, belfry.ShardOf(id, s.Shards()), policy, now)
		if !once {
			p.NominalAt = now.Truncate(time.Minute)
			p.NextAt = p.NominalAt
		}
		jobs[i] = store.NewJob{Job: belfry.Job{ID: id, Namespace: "default", Revision: 1, State: belfry.JobActive, Manifest: belfry.Manifest{Spec: spec}, CreatedAt: now}, Plan: p}
		steps[i] = plan.Decide(plan.Subject{Namespace: "default", Revision: 1, Policy: policy}, p, time.Time{}, now)
	}
	err = s.CreateJobs(b.Context(), func(yield func(store.NewJob, error) bool) {
		for _, job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	fired, err := s.Fire(b.Context(), belfry.NewID(now), steps, store.FreeSlots{Worker: belfry.NewID(now), Lanes: []string{spec.Lane("default")}, Free: n})
	if err != nil || len(fired.Claimed) != n {
		b.Fatalf("%d runs were claimed: %v", len(fired.Claimed), err)
	}
	for _, run := range fired.Claimed {
		results = append(results, belfry.Result{Namespace: "default", RunID: run.ID, Attempt: 1, Token: run.Token, Outcome: belfry.OutcomeSucceeded, HTTPStatus: 200})
	}
	return results
}
