package bench

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	registerBatch = 50_000 // jobs of one call
	sampleJobs    = 10_000 // that are registered to find out how long all will take
	loadRate      = 25_000 // plans that a node loads in a second, at least
	minLead       = 3 * time.Second
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

// inBatches creates jobs by calls for some of them and returns how many in a second.
func (s *session) inBatches(jobs int, create func(begin, n int) error) (rate float64, err error) {
	started := time.Now()
	for done := 0; done < jobs; done += registerBatch {
		s.progress("registering", done, jobs)
		if err := create(done, min(registerBatch, jobs-done)); err != nil {
			return 0, err
		}
	}
	return float64(jobs) / time.Since(started).Seconds(), nil
}

func (s *session) bytesPerJob(ctx context.Context, st store.Store) (float64, error) {
	usage, err := st.Usage(ctx)
	return float64(usage.Bytes) / float64(s.Jobs), err
}

func (p population) batch(st store.Store, begin, n int) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		now := st.Now()
		for i := range n {
			id, policy := belfry.NewID(now), p.policy(begin+i)
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
	if err := st.DeleteNamespace(ctx, Namespace); err != nil {
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

// inTime returns an error if so little time is left that the node may not be ready.
func inTime(now, start time.Time) error {
	if left := start.Sub(now); left < minLead/2 {
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
	return payload("http://127.0.0.1:9/hooks/report") // nobody calls it
}

// payload has about 100 bytes, like that of a small job.
func payload(url string) []byte {
	return []byte(`{"url":"` + url + `","body":{"customer":4711,"month":"2026-12","format":"pdf"}}`)
}
