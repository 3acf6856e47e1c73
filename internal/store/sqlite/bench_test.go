package sqlite

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Each of these moves a batch of a thousand a step further and reports how many
// go by in a second. The jobs in the table are there so that trees have depth.
const (
	benchBatch = 1000
	benchJobs  = 50_000
)

// minutely makes jobs that were due an hour ago.
func minutely(b *testing.B, s *Store, n int) []store.NewJob {
	b.Helper()
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob(b, s, s.Now().Add(-time.Hour), "* * * * *")
	}
	return jobs
}

func rate(b *testing.B, spent time.Duration) {
	b.ReportMetric(float64(b.N*benchBatch)/spent.Seconds(), "rows/s")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkCreate(b *testing.B) {
	s := openStore(b)
	var spent time.Duration
	for b.Loop() {
		jobs := minutely(b, s, benchBatch)
		start := time.Now()
		create(b, s, jobs...)
		spent += time.Since(start)
	}
	rate(b, spent)
}

// BenchmarkPath takes every batch all the way, and times one of its steps.
func BenchmarkPath(b *testing.B) {
	for _, name := range []string{"decide", "fire", "claim", "finish", "fire local", "fail"} {
		b.Run(name, func(b *testing.B) {
			s := openStore(b)
			create(b, s, minutely(b, s, benchJobs)...)
			worker := register(b, s)
			spent := map[string]time.Duration{}
			timed := func(step string, f func()) {
				start := time.Now()
				f()
				spent[step] += time.Since(start)
			}
			for b.Loop() {
				var runs []*belfry.Run
				var slots store.FreeSlots
				if name == "fire local" {
					slots = store.FreeSlots{Worker: worker, Lanes: []string{testLane}, Free: benchBatch}
				}
				var due []plan.Step
				timed("decide", func() { due = steps(b, s, benchBatch) })
				timed("fire", func() { runs = fire(b, s, due, slots).Claimed })
				spent["fire local"] = spent["fire"]
				if runs == nil {
					timed("claim", func() { runs = claim(b, s, worker, benchBatch) })
				}
				outcome := belfry.OutcomeSucceeded
				if name == "fail" {
					outcome = belfry.OutcomeFailed
				}
				timed("finish", func() { finish(b, s, outcome, runs...) })
				spent["fail"] = spent["finish"]
			}
			rate(b, spent[name])
		})
	}
}
