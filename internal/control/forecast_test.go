package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// eachStore runs a test on both databases.
func eachStore(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("sqlite", func(t *testing.T) { test(t, controltest.Open(t)) })
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.Database(t, postgres.Migrate), Shards: len(controltest.Shards)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		test(t, s)
	})
}

func forecast(t *testing.T, c *control.Control, q belfry.ForecastQuery) belfry.Forecast {
	t.Helper()
	f, err := c.Forecast(t.Context(), ns, q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestForecast(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		c := control.New(s, plan.Defaults{})
		at := s.Now().Add(3 * time.Hour).Truncate(time.Hour)
		daily := fmt.Sprintf("0 %d * * *", at.Hour())
		create := func(namespace, name, schedule, queue string) belfry.Job {
			in := controltest.Named(name, schedule)
			in.Queue = queue
			job, err := c.Create(t.Context(), namespace, in, none)
			if err != nil {
				t.Fatal(err)
			}
			return job
		}
		create(ns, "a", daily, "")
		named := create(ns, "b", daily, "mail")
		create(ns, "seconds", "* * * * * *", "fast")
		create(ns, "once", at.Add(10*time.Second).Format(time.RFC3339), "")
		create("theirs", "c", daily, "")
		if _, err := c.Pause(t.Context(), ns, create(ns, "paused", daily, "").ID.String()); err != nil {
			t.Fatal(err)
		}
		f := forecast(t, c, belfry.ForecastQuery{JitterSeconds: 3600})
		if f.Sampled || f.Jobs != 4 || f.SampledJobs != 4 || f.WeekRuns < 600_000 || f.WeekRuns > 604_900 {
			t.Errorf("got %d jobs, %d looked at, %d runs, sampled %v", f.Jobs, f.SampledJobs, f.WeekRuns, f.Sampled)
		}
		if spike := f.Spikes[0]; !spike.At.Equal(at) || spike.Runs != 63 || len(spike.Schedules) != 3 || spike.Schedules[1].Jobs != 2 || len(spike.Schedules[1].Examples) != 2 || spike.Schedules[1].Examples[0].Name == "" {
			t.Errorf("the spike is %+v, want 63 runs at %v", spike, at)
		}
		if with := f.WithJitter; with.Peak > 62 || with.JitterSeconds != 3600 {
			t.Errorf("with jitter the peak is %d", with.Peak)
		}
		for queue, want := range map[string]int64{"mail": 1, belfry.DefaultQueue: 2, "nobody": 0} {
			if f := forecast(t, c, belfry.ForecastQuery{Queue: queue}); f.Jobs != want || f.WithJitter != nil {
				t.Errorf("queue %s has %d jobs, want %d", queue, f.Jobs, want)
			}
		}
		if f := forecast(t, c, belfry.ForecastQuery{Queue: "mail"}); f.Spikes[0].Schedules[0].Examples[0] != (belfry.SpikeJob{JobID: named.ID, Name: "b"}) {
			t.Errorf("the job in the queue is %+v", f.Spikes)
		}
	})
}

// Of many jobs a sample is looked at. The few that make most runs are in it.
func TestForecastOfManyJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		const daily, often, theirs = 24_000, 20, 3000
		now := s.Now()
		at := now.Add(5 * time.Hour).Truncate(time.Hour)
		err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
			for i := range daily + often + theirs {
				spec := belfry.DefaultSpec()
				spec.Type, spec.Timezone, spec.Schedule = belfry.TypeHTTP, "UTC", fmt.Sprintf("%d %d * * *", i%60, i/60%24)
				namespace := ns
				switch {
				case i < daily/4:
					spec.Schedule = fmt.Sprintf("0 %d * * *", at.Hour())
				case i >= daily+often:
					namespace = "theirs"
				case i >= daily:
					spec.Schedule = "*/2 * * * * *"
				}
				policy, err := plan.Compile(spec)
				id := belfry.NewID(now)
				job := belfry.Job{ID: id, Namespace: namespace, Revision: 1, State: belfry.JobActive, CreatedAt: now, UpdatedAt: now, Manifest: belfry.Manifest{Spec: spec, Payload: json.RawMessage(`{}`)}}
				if !yield(store.NewJob{Job: job, Plan: plan.First(id, belfry.ShardOf(id, s.Shards()), policy, now)}, err) {
					return
				}
			}
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := control.New(s, plan.Defaults{})
		f := forecast(t, c, belfry.ForecastQuery{})
		if !f.Sampled || f.SampledJobs < 5000 || f.SampledJobs > 24_000 {
			t.Errorf("sampled %v, %d jobs were looked at", f.Sampled, f.SampledJobs)
		}
		near := func(what string, got int64, want, tolerance float64) {
			t.Helper()
			if float64(got) < want*(1-tolerance) || float64(got) > want*(1+tolerance) {
				t.Errorf("%d %s, want about %.0f", got, what, want)
			}
		}
		near("jobs", f.Jobs, daily+often, 0.1)
		near("runs a day", f.DayRuns, daily+often*43_200, 0.02)
		near("runs a week", f.WeekRuns, 7*(daily+often*43_200), 0.02)
		near("runs in the busiest minute", f.Peak(), daily/4+daily*0.75/1440+often*30, 0.15)
		if spike := f.Spikes[0]; !spike.At.Equal(at) {
			t.Errorf("the spike is at %v, want %v", spike.At, at)
		}
		if others, err := c.Forecast(t.Context(), "theirs", belfry.ForecastQuery{}); err != nil || others.Sampled || others.Jobs != theirs {
			t.Errorf("a small namespace beside it has %d jobs, sampled %v (%v)", others.Jobs, others.Sampled, err)
		}
	})
}

// slowStore counts the reads of forecasts, which take a second.
type slowStore struct {
	control.Store
	reads atomic.Int64
	fails atomic.Bool
}

func (s *slowStore) NamespacePlans(ctx context.Context, namespace, queue string, limit int) ([]store.Planned, bool, error) {
	s.reads.Add(1)
	time.Sleep(time.Second) // of the bubble
	if s.fails.Load() {
		return nil, false, belfry.Errorf(belfry.Unavailable, "no")
	}
	return s.Store.NamespacePlans(ctx, namespace, queue, limit)
}

func TestForecastIsComputedOnceForMany(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		s := &slowStore{Store: controltest.Open(t)}
		c := control.New(s, plan.Defaults{})
		s.fails.Store(true)
		if _, err := c.Forecast(t.Context(), ns, belfry.ForecastQuery{}); belfry.CodeOf(err) != belfry.Unavailable {
			t.Errorf("got %v", err)
		}
		s.fails.Store(false)
		s.reads.Store(0)
		var viewers sync.WaitGroup
		for range 50 {
			viewers.Go(func() {
				for range 4 {
					forecast(t, c, belfry.ForecastQuery{})
					time.Sleep(time.Second)
				}
			})
		}
		viewers.Wait()
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d computations for 50 viewers within 5 seconds, want 1", n)
		}
		forecast(t, c, belfry.ForecastQuery{Queue: "other"})
		time.Sleep(5 * time.Second)
		forecast(t, c, belfry.ForecastQuery{})
		if n := s.reads.Load(); n != 3 {
			t.Errorf("%d computations, want one more for another queue and one more later", n)
		}
	})
}
