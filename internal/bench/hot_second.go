package bench

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
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
		s.progress("measuring the HTTP client", 0, 0)
		if r.ClientPerSecond, err = s.sink.measureClient(ctx, min(clientRequests, s.Jobs), s.Concurrency); err != nil {
			return r, err
		}
	}
	var at time.Time
	if err := s.withStore(ctx, func(st store.Store) (err error) {
		at, r.CreatedPerSecond, err = s.registerHotSecond(ctx, st)
		return err
	}); err != nil {
		return r, err
	}
	s.executed.reserve(s.Jobs)
	var before time.Duration
	if err := s.runNodes(ctx, func(ctx context.Context, _ string) error {
		if err := s.waitUntil(ctx, at); err != nil {
			return err
		}
		before = cpuTime()
		return s.waitForRuns(ctx, s.Jobs)
	}); err != nil {
		return r, err
	}
	r.CPUSeconds = (cpuTime() - before + time.Duration(s.workerCPU.Load())).Seconds()
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

func (s *session) registerHotSecond(ctx context.Context, st store.Store) (at time.Time, rate float64, err error) {
	p := population{jobs: s.Jobs, payload: s.payload()}
	compile := func(at time.Time) error {
		policy, err := plan.Compile(s.spec(yearly(at)))
		p.policy, p.from = func(int) *plan.Policy { return policy }, st.Now()
		return err
	}
	if err := compile(st.Now().AddDate(0, 6, 0)); err != nil {
		return at, 0, err
	}
	if at, err = s.start(ctx, st, p, s.Jobs); err != nil {
		return at, 0, err
	}
	if err := compile(at); err != nil {
		return at, 0, err
	}
	if rate, err = s.register(ctx, st, p); err != nil {
		return at, 0, err
	}
	return at, rate, inTime(st.Now(), at)
}
