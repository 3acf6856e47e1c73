package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// loadHorizon is how far ahead a node loads plans.
const loadHorizon = 10 * time.Minute

// SteadyConfig is a steady rate of runs.
type SteadyConfig struct {
	Config
	Rate     int           // runs a second
	Duration time.Duration // in whole seconds
}

// SteadyResult is what Steady measures.
type SteadyResult struct {
	About
	Rate             int     `json:"rate"` // runs that are due in a second
	DurationSeconds  float64 `json:"duration_seconds"`
	Runs             int     `json:"runs"` // that were due in this time and fired
	CreatedPerSecond float64 `json:"created_per_second"`
	BytesPerJob      float64 `json:"bytes_per_job"` // on disk after registering, with its plan
	Quality
	MemoryBytes Samples     `json:"memory_bytes"` // resident memory of this process
	DeadTuples  *DeadTuples `json:"dead_tuples,omitempty"`
	CPUSeconds  float64     `json:"cpu_seconds"` // of this process and its workers
}

// DeadTuples is how many rows PostgreSQL has not vacuumed yet.
type DeadTuples struct {
	Plans Samples `json:"plans"`
	Runs  Samples `json:"runs"`
}

// Samples is a figure that changes while a benchmark runs.
type Samples struct {
	Begin int64 `json:"begin"`
	End   int64 `json:"end"`
	Max   int64 `json:"max"`
	taken bool
}

func (s *Samples) add(value int64) {
	if !s.taken {
		s.Begin, s.taken = value, true
	}
	s.End, s.Max = value, max(s.Max, value)
}

// period is how often a job of a steady rate is due: every hour if there are enough jobs,
// otherwise every minute.
func (c SteadyConfig) period() time.Duration {
	if c.Jobs >= c.Rate*3600 {
		return time.Hour
	}
	return time.Minute
}

// Validate returns an error with the name of the flag.
func (c SteadyConfig) Validate() error {
	switch {
	case c.Rate < 1:
		return fmt.Errorf("--rate: must be at least 1, not %d", c.Rate)
	case c.Duration < time.Second || c.Duration%time.Second != 0:
		return fmt.Errorf("--duration: must be whole seconds, not %s", c.Duration)
	case c.Jobs < 60*c.Rate:
		return fmt.Errorf("--jobs: must be at least %d, since each job is due once a minute or less often; or lower --rate", 60*c.Rate)
	}
	return nil
}

// Steady registers recurring jobs so that the same number is due in every second, and
// others that are not due for months, and measures how punctual the runs are for a while.
func Steady(ctx context.Context, c SteadyConfig) (r SteadyResult, err error) {
	s, err := begin(ctx, c.Config)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	expected := c.Rate * int(c.Duration.Seconds())
	r.About, r.Rate, r.DurationSeconds = s.about(), c.Rate, c.Duration.Seconds()
	var start time.Time
	if err := s.withStore(ctx, func(st store.Store) (err error) {
		soon := min(s.Jobs, c.Rate*int(min(c.period(), loadHorizon).Seconds()))
		policy, err := s.steadyPolicies(c, st.Now())
		if err != nil {
			return err
		}
		if start, r.CreatedPerSecond, err = s.registerFor(ctx, st, soon, func(at time.Time) (population, error) {
			return population{jobs: s.Jobs, payload: s.payload(), policy: policy, from: at.Add(-time.Microsecond)}, nil
		}); err != nil {
			return err
		}
		r.BytesPerJob, err = s.bytesPerJob(ctx, st)
		return err
	}); err != nil {
		return r, err
	}
	if r.CPUSeconds, err = s.execute(ctx, start, expected+c.Rate*10, func(ctx context.Context) error {
		return s.sampleSteady(ctx, start.Add(c.Duration), expected, &r)
	}); err != nil {
		return r, err
	}
	return r, s.withStore(ctx, func(st store.Store) error {
		history, err := s.history(ctx, st, belfry.JobRunFilter{Since: start, Until: start.Add(c.Duration)})
		if err != nil {
			return err
		}
		r.Runs, r.Quality = len(history), s.assess(expected, history)
		return nil
	})
}

// steadyPolicies gives every second of the period the same number of jobs, which their
// jitter spreads over the second. The other jobs are due in half a year.
func (s *session) steadyPolicies(c SteadyConfig, now time.Time) (func(i int) *plan.Policy, error) {
	slots := int(c.period().Seconds())
	policies, err := compileEach(slots, func(i int) belfry.Spec {
		minute := "*"
		if slots > 60 {
			minute = fmt.Sprint(i / 60)
		}
		spec := s.spec(fmt.Sprintf("%d %s * * * *", i%60, minute))
		spec.JitterSeconds = 1
		return spec
	})
	if err != nil {
		return nil, err
	}
	idle, err := plan.Compile(s.spec(yearly(now.AddDate(0, 6, 0))))
	if err != nil {
		return nil, err
	}
	return func(i int) *plan.Policy {
		if i < c.Rate*slots {
			return policies[i%slots]
		}
		return idle
	}, nil
}

// sampleSteady takes samples every second until an instant and until the runs before it
// were executed, or nothing happens any more.
func (s *session) sampleSteady(ctx context.Context, until time.Time, expected int, r *SteadyResult) error {
	if s.shared != nil {
		r.DeadTuples = &DeadTuples{}
	}
	sample := func() error {
		r.MemoryBytes.add(residentMemory())
		if s.shared == nil {
			return nil
		}
		usage, err := s.shared.Usage(ctx)
		r.DeadTuples.Plans.add(usage.DeadPlans)
		r.DeadTuples.Runs.add(usage.DeadRuns)
		return err
	}
	for until = until.Add(time.Second - s.skew); time.Now().Before(until); { // jitter delays the last ones by up to a second
		s.progress("running", s.executed.count(), expected)
		if err := sample(); err != nil {
			return err
		}
		if err := sleep(ctx, min(time.Second, time.Until(until))); err != nil {
			return err
		}
	}
	return errors.Join(s.waitForRuns(ctx, expected), sample())
}
