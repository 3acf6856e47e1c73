package bench

import (
	"context"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	registerBatch = 20_000 // jobs of one call
	registerCalls = 2      // at a time
	sampleJobs    = 10_000 // that are registered to find out how long all will take
	loadRate      = 10_000 // plans that a node loads in a second, at least
	minLead       = 5 * time.Second
)

// population is the jobs to register.
type population struct {
	jobs    int
	policy  func(i int) *plan.Policy
	payload []byte
	from    time.Time // the plans begin after it
}

// register creates jobs and returns how many in a second.
func (s *session) register(ctx context.Context, st store.Store, p population) (rate float64, err error) {
	return s.inBatches(p.jobs, func(begin, n int) error { return st.CreateJobs(ctx, p.batch(st, begin, n), nil) })
}

// inBatches creates jobs by calls for some of them, two at a time, so that one is made
// while another is written. It returns how many in a second.
func (s *session) inBatches(jobs int, create func(begin, n int) error) (rate float64, err error) {
	started := time.Now()
	var done atomic.Int64
	s.progress("registering", 0, jobs)
	err = inParallel((jobs+registerBatch-1)/registerBatch, registerCalls, func(i int) error {
		n := min(registerBatch, jobs-i*registerBatch)
		if err := create(i*registerBatch, n); err != nil {
			return err
		}
		s.progress("registering", int(done.Add(int64(n))), jobs)
		return nil
	})
	return perSecond(jobs, started), err
}

func perSecond(n int, since time.Time) float64 {
	return rounded(float64(n) / time.Since(since).Seconds())
}

// rounded has three decimals: more are noise.
func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }

func (s *session) bytesPerJob(ctx context.Context, st store.Store) (float64, error) {
	usage, err := st.Usage(ctx)
	return rounded(float64(usage.Bytes) / float64(s.Jobs)), err
}

func (p population) batch(st store.Store, begin, n int) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		for i := range n {
			now, policy := st.Now(), p.policy(begin+i)
			id := belfry.NewID(now) // in order, as those of jobs that users create
			job := store.NewJob{
				Job: belfry.Job{
					ID: id, Namespace: Namespace, Revision: 1, State: belfry.JobActive, CreatedAt: now, UpdatedAt: now,
					Manifest: belfry.Manifest{Spec: policy.Spec, Payload: p.payload},
				},
				Plan: plan.First(id, belfry.ShardOf(id, st.Shards()), policy, p.from),
			}
			if !yield(job, nil) {
				return
			}
		}
	}
}

// start chooses a whole second after all jobs are registered and the node has loaded those
// that are due soon. It registers some jobs, and deletes them again, to find out.
func (s *session) start(ctx context.Context, st store.Store, p population, soon int) (time.Time, error) {
	sample := p
	sample.jobs, sample.from = min(sampleJobs, p.jobs), st.Now().AddDate(0, 0, 1)
	rate, err := s.register(ctx, st, sample)
	if err != nil {
		return time.Time{}, err
	}
	if err := st.PurgeNamespace(ctx, Namespace); err != nil {
		return time.Time{}, err
	}
	lead := s.Lead
	if lead == 0 {
		lead = minLead + time.Duration(soon)*time.Second/loadRate
	}
	const margin = 1.3 // for registering that becomes slower
	registering := time.Duration(margin * float64(p.jobs) / rate * float64(time.Second))
	return st.Now().Add(registering + lead).Truncate(time.Second).Add(time.Second), nil
}

// registerFor registers jobs that are due at an instant, which it chooses, and returns how many
// in a second. Soon is how many of them a node loads at its start.
func (s *session) registerFor(ctx context.Context, st store.Store, soon int, jobs func(at time.Time) (population, error)) (at time.Time, rate float64, err error) {
	p, err := jobs(st.Now().AddDate(0, 6, 0))
	if err != nil {
		return at, 0, err
	}
	if at, err = s.start(ctx, st, p, soon); err != nil {
		return at, 0, err
	}
	if p, err = jobs(at); err == nil {
		rate, err = s.register(ctx, st, p)
	}
	if err != nil {
		return at, 0, err
	}
	return at, rate, inTime(st.Now(), at)
}

// compileEach compiles so many specs.
func compileEach(n int, spec func(i int) belfry.Spec) (policies []*plan.Policy, err error) {
	policies = make([]*plan.Policy, n)
	for i := range policies {
		if policies[i], err = plan.Compile(spec(i)); err != nil {
			return nil, err
		}
	}
	return policies, nil
}

// inTime returns an error if so little time is left that the node may not be ready.
func inTime(now, start time.Time) error {
	if left := start.Sub(now); left < minLead/5 {
		return fmt.Errorf("registering took longer than expected, so that only %s were left to start the node: repeat it with a longer --lead, such as --lead 1m", left.Round(time.Millisecond))
	}
	return nil
}

// yearly is a schedule with one occurrence a year, the next one at an instant.
func yearly(at time.Time) string {
	at = at.UTC()
	return fmt.Sprintf("%d %d %d %d %d *", at.Second(), at.Minute(), at.Hour(), at.Day(), at.Month())
}

// spec is that of a job that the benchmark can execute.
func (s *session) spec(schedule string) belfry.Spec {
	spec := belfry.DefaultSpec()
	spec.Schedule = schedule
	switch s.Mode {
	case ModeHTTP:
		spec.Type = belfry.TypeHTTP
	case ModeWorker:
		spec.Type, spec.Handler = belfry.TypeWorker, handlerName
	default:
		spec.Type = handlerName
	}
	return spec
}

// payload is that of the jobs.
func (s *session) payload() []byte {
	if s.sink != nil {
		return payload(s.sink.url + "/run")
	}
	return payload("https://belfry-bench.invalid/report") // nobody calls it, and nobody could
}

// payload has about 100 bytes, like that of a small job.
func payload(url string) []byte {
	return []byte(`{"url":"` + url + `","body":{"customer":4711,"month":"2026-12","format":"pdf"}}`)
}

const (
	pollInterval = 100 * time.Millisecond
	stallTimeout = time.Minute // without another execution nothing more is expected
	historyPage  = 4000

	// clockTolerance is how exactly the clocks of this process and of PostgreSQL are
	// compared.
	clockTolerance = 5 * time.Millisecond
)

// waitUntil waits for an instant by the clock of the store.
func (s *session) waitUntil(ctx context.Context, at time.Time) error {
	at = at.Add(-s.skew)
	begin, total := time.Now(), int(time.Until(at).Seconds())
	for time.Now().Before(at) {
		s.progress("seconds until the jobs are due", int(time.Since(begin).Seconds()), total)
		if err := sleep(ctx, min(pollInterval, time.Until(at))); err != nil {
			return err
		}
	}
	return nil
}

// waitForRuns waits until so many runs were executed, or nothing happens any more.
func (s *session) waitForRuns(ctx context.Context, total int) error {
	done, progressed := -1, time.Now()
	for time.Since(progressed) < stallTimeout {
		n := s.executed.count()
		s.progress("running", n, total)
		if n >= total {
			return nil
		}
		if n != done {
			done, progressed = n, time.Now()
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// history reads the runs of the jobs.
func (s *session) history(ctx context.Context, st store.Store, filter belfry.JobRunFilter) (all []occurrence, err error) {
	for after := (belfry.ID{}); ; {
		s.progress("reading the history", len(all), 0)
		page, err := st.ListRuns(ctx, Namespace, belfry.RunFilter{JobRunFilter: filter}, store.Page{After: store.Position{ID: after}, Limit: historyPage})
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			all = append(all, newOccurrence(run))
		}
		if after = page.Next; after.IsZero() {
			return all, nil
		}
	}
}

func (s *session) assess(expected int, history []occurrence) Quality {
	ahead := s.skew
	if s.shared != nil {
		ahead += clockTolerance
	}
	return assess(expected, history, s.executed.list, ahead)
}
