package control_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// forecastMix is the i-th of many jobs: most of them daily, a third of those at midnight, and
// a few that run every second and make a third of all runs.
func forecastMix(i int, now time.Time) (spec belfry.Spec) {
	spec = belfry.DefaultSpec()
	spec.Type, spec.Timezone = belfry.TypeHTTP, "UTC"
	switch i % 20 {
	case 0, 1, 2, 3, 4, 5:
		spec.Schedule = "0 0 * * *"
	case 6, 7:
		spec.Schedule, spec.Timezone = "0 0 * * *", "Europe/Berlin"
	case 8, 9, 10, 11, 12:
		spec.Schedule, spec.Resolved = "H H * * *", fmt.Sprintf("%d %d * * *", i*7919%60, i*104729%24)
	case 13, 14:
		spec.Schedule = "0 * * * *"
	case 15:
		spec.Schedule, spec.JitterSeconds = "*/5 * * * *", 60
	case 16, 17:
		spec.Schedule, spec.StartsAt = "PT5M", now.Add(-time.Duration(i*7919%300_000)*time.Millisecond).Truncate(time.Millisecond)
	default:
		spec.Schedule = now.Add(time.Duration(i*7919%(7*24*3600)) * time.Second).Truncate(time.Second).Format(time.RFC3339)
	}
	if i%1000 == 999 {
		spec.Schedule, spec.StartsAt, spec.Description = "* * * * * *", time.Time{}, strconv.Itoa(i)
	}
	return spec
}

// createForecastMix creates the jobs, and counts the runs of the next 24 hours.
func createForecastMix(b *testing.B, s store.Store, n int) (runs float64) {
	b.Helper()
	now := s.Now()
	perDay := map[string]float64{"0 0 * * *": 1, "H H * * *": 1, "0 * * * *": 24, "*/5 * * * *": 288, "PT5M": 288, "* * * * * *": 86_400}
	policies := map[belfry.Spec]*plan.Policy{}
	err := s.CreateJobs(b.Context(), func(yield func(store.NewJob, error) bool) {
		for i := range n {
			id := belfry.NewID(now.Add(time.Duration(i) * time.Millisecond / 100))
			job := belfry.Job{ID: id, Namespace: ns, Revision: 1, State: belfry.JobActive, CreatedAt: now, UpdatedAt: now, Manifest: belfry.Manifest{Name: fmt.Sprint("job-", i), Spec: forecastMix(i, now)}}
			policy := policies[job.Spec]
			if policy == nil {
				policy, _ = plan.Compile(job.Spec)
				policies[job.Spec] = policy
			}
			first := plan.First(id, belfry.ShardOf(id, s.Shards()), policy, now)
			if count, known := perDay[job.Schedule]; known {
				runs += count
			} else if first.NextAt.Before(now.Add(24 * time.Hour)) {
				runs++
			}
			if !yield(store.NewJob{Job: job, Plan: first}, nil) {
				return
			}
		}
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return runs
}

// BenchmarkForecast measures a forecast that no one has asked for, of a million jobs or as
// many as BELFRY_TEST_BENCH_JOBS says, and by how much its estimates are wrong.
func BenchmarkForecast(b *testing.B) {
	n := 1_000_000
	if text := os.Getenv("BELFRY_TEST_BENCH_JOBS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for name, open := range map[string]func(b *testing.B) (store.Store, error){
		"postgres": func(b *testing.B) (store.Store, error) {
			return postgres.Open(context.Background(), postgres.Options{URL: pgtest.Durable(b).URL()})
		},
		"sqlite": func(b *testing.B) (store.Store, error) {
			return sqlite.Open(context.Background(), sqlite.Options{Dir: b.TempDir()})
		},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := open(b)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			want := createForecastMix(b, s, n)
			c := control.New(s, plan.Defaults{})
			i, worst, took := 0, 0.0, []time.Duration(nil)
			var f belfry.Forecast
			for b.Loop() {
				i++
				start := time.Now()
				if f, err = c.Forecast(b.Context(), ns, belfry.ForecastQuery{JitterSeconds: i}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				worst = max(worst, max(float64(f.DayRuns)/want-1, 1-float64(f.DayRuns)/want))
			}
			midnight := float64(n) * (0.3 + 0.1 + 0.05 + 0.1/5 + 0.06 + 0.25/1440) // daily, hourly, every 5 minutes by the clock and not, and every second
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
			b.ReportMetric(float64(took[len(took)-1].Milliseconds()), "slowest-ms")
			b.ReportMetric(100*worst, "runs-error-%")
			b.ReportMetric(100*(float64(f.Peak())/midnight-1), "peak-error-%")
			b.ReportMetric(float64(f.SampledJobs), "jobs-read")
		})
	}
}
