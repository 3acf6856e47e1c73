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
	policies := make([]*plan.Policy, 24*60)
	for i := range policies {
		spec := belfry.DefaultSpec()
		spec.Schedule = yearly(now.AddDate(0, 6, 0).Add(time.Duration(i) * time.Minute))
		var err error
		if policies[i], err = plan.Compile(spec); err != nil {
			return nil, err
		}
	}
	return func(i int) *plan.Policy { return policies[i%len(policies)] }, nil
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
