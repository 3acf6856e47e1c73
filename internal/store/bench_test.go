package store_test

import (
	"fmt"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// batch is how many runs go through one call.
const batch = 1000

// durable are the backends as they are run in earnest: what was committed stays.
var durable = []backend{
	{"sqlite", openSQLite},
	{"postgres", func(tb testing.TB) *fixture {
		address := pgtest.Durable(tb).URL()
		return openPostgres(tb, address, address)
	}},
}

// benchmark runs one body over every backend, each with its own fresh store, and
// reports how many of something a second it did.
func benchmark(b *testing.B, unit string, body func(b *testing.B, f *fixture) (done int)) {
	for _, backend := range durable {
		b.Run(backend.name, func(b *testing.B) {
			done := body(b, backend.open(b))
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), unit)
		})
	}
}

// untimed does what a benchmark needs but does not measure.
func untimed(b *testing.B, do func()) {
	b.StopTimer()
	do()
	b.StartTimer()
}

func BenchmarkCreate(b *testing.B) {
	const size = 10_000
	benchmark(b, "jobs/s", func(b *testing.B, f *fixture) (done int) {
		at := f.minutesAgo(-60)
		for b.Loop() {
			err := f.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
				for i := range size {
					if !yield(f.job(at, withName(fmt.Sprint("job ", done+i))), nil) {
						return
					}
				}
			}, nil)
			if err != nil {
				b.Fatal(err)
			}
			done += size
		}
		return done
	})
}

func BenchmarkCreateOne(b *testing.B) {
	benchmark(b, "jobs/s", func(b *testing.B, f *fixture) (done int) {
		for b.Loop() {
			f.createJobs(b, f.job(f.minutesAgo(-60), withName(fmt.Sprint("job ", done))))
			done++
		}
		return done
	})
}

// createFleet makes a batch of jobs with more occurrences behind them than a benchmark
// will ever fire.
func (f *fixture) createFleet(b tb) {
	jobs := make([]store.NewJob, batch)
	for i := range jobs {
		jobs[i] = f.job(f.minutesAgo(100_000), func(j *belfry.Job) { j.Payload = []byte(`{"url":"http://example.org/hook","n":1}`) })
	}
	f.createJobs(b, jobs...)
}

func BenchmarkFire(b *testing.B) {
	benchmark(b, "runs/s", func(b *testing.B, f *fixture) (done int) {
		f.createFleet(b)
		for b.Loop() {
			var steps []plan.Step
			untimed(b, func() {
				f.exec(b, `DELETE FROM runs`)
				steps = f.decide(b, f.due(b))
			})
			done += f.fire(b, steps...).ReadyCount()
		}
		return done
	})
}

func BenchmarkClaim(b *testing.B) {
	benchmark(b, "runs/s", func(b *testing.B, f *fixture) (done int) {
		f.createFleet(b)
		worker := f.registerWorker(b)
		for b.Loop() {
			untimed(b, func() {
				f.exec(b, `DELETE FROM runs`)
				f.fireDue(b)
			})
			done += len(f.claim(b, worker, batch))
		}
		return done
	})
}

func BenchmarkFinish(b *testing.B) {
	benchmark(b, "runs/s", func(b *testing.B, f *fixture) (done int) {
		f.createFleet(b)
		worker := f.registerWorker(b)
		for b.Loop() {
			var results []belfry.Result
			untimed(b, func() {
				f.fireDue(b)
				results = successes(f.claim(b, worker, batch))
			})
			done += len(f.finish(b, results...))
		}
		return done
	})
}

func BenchmarkPath(b *testing.B) {
	benchmark(b, "runs/s", func(b *testing.B, f *fixture) (done int) {
		f.createFleet(b)
		worker := f.registerWorker(b)
		for b.Loop() {
			var steps []plan.Step
			untimed(b, func() { steps = f.decide(b, f.due(b)) })
			f.fire(b, steps...)
			done += len(f.finish(b, successes(f.claim(b, worker, batch))...))
		}
		return done
	})
}

func BenchmarkPathLocal(b *testing.B) {
	benchmark(b, "runs/s", func(b *testing.B, f *fixture) (done int) {
		f.createFleet(b)
		worker := f.registerWorker(b)
		for b.Loop() {
			var steps []plan.Step
			untimed(b, func() { steps = f.decide(b, f.due(b)) })
			fired := f.fireInto(b, slots(worker, batch), steps...)
			done += len(f.finish(b, successes(fired.Claimed)...))
		}
		return done
	})
}

// successes says of every run that it went well.
func successes(runs []*belfry.Run) []belfry.Result {
	results := make([]belfry.Result, len(runs))
	for i, run := range runs {
		results[i] = result(run, belfry.OutcomeSucceeded)
		results[i].HTTPStatus, results[i].Output = 200, "ok"
	}
	return results
}
