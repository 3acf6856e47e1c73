package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// BenchmarkLoad has the loader read a horizon into the wheel of the loop, as after the
// start of a node.
//
//	go test -run '^$' -bench Load -benchtime 1x ./internal/scheduler
func BenchmarkLoad(b *testing.B) {
	spread := func(i int) time.Duration { return time.Duration(rand.Int64N(int64(9 * time.Minute))) }
	cron := func(i int, _ time.Time) string { return fmt.Sprintf("%d %d * * *", i%60, i/60%24) }
	once := func(_ int, at time.Time) string { return at.Format(time.RFC3339Nano) }
	for _, bench := range []struct {
		name     string
		plans    int
		ahead    func(i int) time.Duration
		schedule func(i int, at time.Time) string
	}{
		{"400k-within-10m", 400_000, spread, cron},
		{"400k-one-offs-within-10m", 400_000, spread, once},
		{"1M-at-one-instant", 1_000_000, func(int) time.Duration { return 0 }, cron},
	} {
		for _, backend := range []struct {
			name string
			open func(b *testing.B) store.Store
		}{{"postgres", openPostgres}, {"sqlite", openSQLite}} {
			b.Run(bench.name+"/"+backend.name, func(b *testing.B) {
				s := backend.open(b)
				start := s.Now().Add(30 * time.Minute).Truncate(time.Second)
				createPlans(b, s, bench.plans, func(i int) (string, time.Time) {
					at := start.Add(bench.ahead(i))
					return bench.schedule(i, at), at
				})
				for b.Loop() {
					loadAll(b, laterStore{s, start.Add(-time.Minute).Sub(s.Now())}, bench.plans)
				}
			})
		}
	}
}

// laterStore has a clock that is ahead, so that plans do not become due while they are
// created.
type laterStore struct {
	store.Store
	ahead time.Duration
}

func (s laterStore) Now() time.Time { return s.Store.Now().Add(s.ahead) }

func openPostgres(b *testing.B) store.Store {
	s, err := postgres.Open(b.Context(), postgres.Options{URL: pgtest.Durable(b).URL()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func openSQLite(b *testing.B) store.Store {
	s, err := sqlite.Open(b.Context(), sqlite.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// createPlans creates jobs with the schedules and next occurrences that at returns.
func createPlans(b *testing.B, s store.Store, n int, at func(i int) (schedule string, next time.Time)) {
	b.Helper()
	now := s.Now()
	payload := []byte(`{"url":"https://example.org/hooks/belfry","method":"POST","body":{"tenant":"0123456789","report":"daily"}}`)
	start := time.Now()
	err := s.CreateJobs(b.Context(), func(yield func(store.NewJob, error) bool) {
		for i := range n {
			spec := belfry.DefaultSpec()
			spec.Type = belfry.TypeHTTP
			var next time.Time
			spec.Schedule, next = at(i)
			id := belfry.NewID(now)
			job := store.NewJob{
				Job: belfry.Job{ID: id, Namespace: belfry.DefaultNamespace, Revision: 1, State: belfry.JobActive, CreatedAt: now,
					Manifest: belfry.Manifest{Spec: spec, Payload: payload}},
				Plan: plan.Plan{JobID: id, Shard: belfry.ShardOf(id, s.Shards()), Version: 1, NextAt: next, NominalAt: next, ZoneVersion: "2026a"},
			}
			if !yield(job, nil) {
				return
			}
		}
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d jobs were created, %.0f a second", n, float64(n)/time.Since(start).Seconds())
}

// loadAll runs a loader and a loop that fires nothing until so many plans are in the wheel.
func loadAll(b *testing.B, s Store, plans int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	sched := New(s, Options{})
	for shard := range s.(store.Sharding).Shards() {
		sched.terms[shard] = store.Term{Shard: shard}
	}
	loader, loop := newLoader(sched), newLoop(sched)
	done := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(done)
		loader.run(ctx)
	}()
	for loop.wheel.Len() < plans {
		loop.addPlans(ctx, <-sched.loads)
	}
	b.ReportMetric(time.Since(start).Seconds(), "s")
	cancel()
	<-done
	b.StopTimer()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapAlloc)/float64(plans), "B/plan")
	runtime.KeepAlive(loop)
	b.StartTimer()
}
