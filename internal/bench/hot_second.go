package bench

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// HotSecondResult is what HotSecond measures. Seconds count from the instant at which all
// jobs were due.
type HotSecondResult struct {
	About
	CreatedPerSecond float64 `json:"created_per_second"`
	FiredSeconds     float64 `json:"fired_seconds"`    // until the last run was fired
	FinishedSeconds  float64 `json:"finished_seconds"` // until the last run was in the history
	RunsPerSecond    float64 `json:"runs_per_second"`  // until then
	Quality
	ClientPerSecond float64 `json:"client_per_second,omitempty"` // HTTP callbacks: requests of the same client to the same receiver while nothing else runs
	ClientRatio     float64 `json:"client_ratio,omitempty"`      // runs per second in proportion to that
	CPUSeconds      float64 `json:"cpu_seconds"`                 // of this process and its workers, from that instant on
}

// HotSecond registers recurring jobs that are all due at one instant, and next time a year
// later, and runs them.
func HotSecond(ctx context.Context, c Config) (r HotSecondResult, err error) {
	s, err := begin(ctx, c)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	r.About = s.about()
	if s.sink != nil {
		if r.ClientPerSecond, err = s.measureClient(ctx); err != nil {
			return r, err
		}
	}
	var at time.Time
	if err := s.withStore(ctx, func(st store.Store) (err error) {
		at, r.CreatedPerSecond, err = s.registerFor(ctx, st, s.Jobs, func(at time.Time) (population, error) {
			policy, err := plan.Compile(s.spec(yearly(at)))
			return population{jobs: s.Jobs, payload: s.payload(), from: st.Now(), policy: func(int) *plan.Policy { return policy }}, err
		})
		return err
	}); err != nil {
		return r, err
	}
	if r.CPUSeconds, err = s.execute(ctx, at, s.Jobs, func(ctx context.Context) error { return s.waitForRuns(ctx, s.Jobs) }); err != nil {
		return r, err
	}
	if s.sink != nil { // again, since the speed of a machine changes
		again, err := s.measureClient(ctx)
		if err != nil {
			return r, err
		}
		r.ClientPerSecond = rounded((r.ClientPerSecond + again) / 2)
	}
	return r, s.withStore(ctx, func(st store.Store) error {
		history, err := s.history(ctx, st, belfry.JobRunFilter{})
		if err != nil {
			return err
		}
		for i := range history {
			history[i].scheduledAt = at // each job has one occurrence; a second record is a duplicate whatever its instant is
		}
		r.Quality = s.assess(s.Jobs, history)
		if len(history) == 0 {
			return nil
		}
		r.FiredSeconds = latest(history, func(o occurrence) time.Time { return o.firedAt }).Sub(at).Seconds()
		r.FinishedSeconds = latest(history, func(o occurrence) time.Time { return o.settledAt }).Sub(at).Seconds()
		r.RunsPerSecond = rounded(float64(len(history)) / r.FinishedSeconds)
		if s.sink != nil {
			r.ClientRatio = rounded(r.RunsPerSecond / r.ClientPerSecond)
		}
		return nil
	})
}

// CreateConfig is a registration of jobs.
type CreateConfig struct {
	Config
	HTTPBulk bool // through the API
}

// CreateResult is what Create measures.
type CreateResult struct {
	About
	Path             string  `json:"path"` // store, http
	CreatedPerSecond float64 `json:"created_per_second"`
	BytesPerJob      float64 `json:"bytes_per_job"` // on disk, with its plan
}

// OK reports that nothing can be early, duplicate or missing.
func (CreateResult) OK() bool { return true }

// Create registers recurring jobs that are not due for months.
func Create(ctx context.Context, c CreateConfig) (r CreateResult, err error) {
	s, err := begin(ctx, c.Config)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	r.About, r.Path = s.about(), "store"
	p := population{jobs: s.Jobs, payload: s.payload(), from: time.Now()}
	if p.policy, err = distantPolicies(time.Now()); err != nil {
		return r, err
	}
	if c.HTTPBulk {
		r.Path = "http"
		if err := s.runNodes(ctx, func(ctx context.Context, server string) (err error) {
			r.CreatedPerSecond, err = s.importJobs(ctx, server, p)
			return err
		}); err != nil {
			return r, err
		}
	}
	return r, s.withStore(ctx, func(st store.Store) (err error) {
		if !c.HTTPBulk {
			if r.CreatedPerSecond, err = s.register(ctx, st, p); err != nil {
				return err
			}
		}
		r.BytesPerJob, err = s.bytesPerJob(ctx, st)
		return err
	})
}

// distantPolicies gives the jobs the minutes of a day in half a year.
func distantPolicies(now time.Time) (func(i int) *plan.Policy, error) {
	policies, err := compileEach(24*60, func(i int) belfry.Spec {
		spec := belfry.DefaultSpec()
		spec.Type = belfry.TypeHTTP
		spec.Schedule = yearly(now.AddDate(0, 6, 0).Add(time.Duration(i) * time.Minute))
		return spec
	})
	return func(i int) *plan.Policy { return policies[i%len(policies)] }, err
}

// importJobs creates jobs through the API and returns how many in a second.
func (s *session) importJobs(ctx context.Context, server string, p population) (rate float64, err error) {
	c, err := client.New(server, client.WithNamespace(Namespace))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return s.inBatches(p.jobs, func(begin, n int) error {
		_, err := c.ImportJobs(ctx, p.manifests(begin, n))
		return err
	})
}

// manifests are jobs as a user writes them: only with what is not a default.
func (p population) manifests(begin, n int) iter.Seq2[belfry.Manifest, error] {
	return func(yield func(belfry.Manifest, error) bool) {
		for i := range n {
			if !yield(belfry.Manifest{Spec: belfry.Spec{Schedule: p.policy(begin + i).Schedule}, Payload: p.payload}, nil) {
				return
			}
		}
	}
}
