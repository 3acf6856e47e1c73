package sqlite

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// TestADayOfVirtualTime lives a day of virtual time: an hourly job, fired by one
// goroutine, claimed and finished by another, which fails every sixth run once.
func TestADayOfVirtualTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := openDir(t, dir)
		defer closeStore(t, s)
		job := newJob(t, s, s.Now(), "0 * * * *")
		create(t, s, job)
		life, end := context.WithTimeout(ctx, 24*time.Hour+time.Minute)
		defer end()
		var loops sync.WaitGroup
		loops.Go(func() { fireLoop(life, t, s) })
		loops.Go(func() { workLoop(life, t, s) })
		loops.Wait()

		if took := time.Since(began); took != 24*time.Hour+time.Minute {
			t.Errorf("the day took %v", took)
		}
		runs, _, err := s.JobRuns(ctx, job.Job.Namespace, job.Job.ID, belfry.JobRunFilter{}, store.Page{Limit: 100})
		if err != nil || len(runs) != 24 {
			t.Fatalf("there are %d runs (%v), wants one an hour", len(runs), err)
		}
		for i, r := range runs {
			at := began.Add(time.Duration(24-i) * time.Hour)
			if r.Status != belfry.RunSucceeded || !r.ScheduledAt.Equal(at) || r.FiredAt.Sub(at).Abs() > time.Second {
				t.Errorf("run %d is %s for %v, fired at %v", i, r.Status, r.ScheduledAt, r.FiredAt)
			}
			want := 1
			if at.Hour()%6 == 0 {
				want = 2
			}
			if r.Attempt != want {
				t.Errorf("the run of %v took %d attempts, wants %d", at, r.Attempt, want)
			}
		}
	})
}

// fireLoop fires what is due, wakes for the next plan or retry, and polls.
func fireLoop(life context.Context, t *testing.T, s *Store) {
	wake := s.Wakeups(life, store.TopicPlans)
	for life.Err() == nil {
		fire(t, s, steps(t, s, 100), store.FreeSlots{})
		_, next, err := s.Promote(life, s.allShards(), 100)
		if err != nil && life.Err() == nil {
			t.Errorf("promote: %v", err)
		}
		due, err := s.Upcoming(ctx, store.AllUntil(s.Now().Add(24*time.Hour), s.allShards(), 1))
		if err != nil {
			t.Errorf("upcoming: %v", err)
		}
		for _, p := range due {
			if next.IsZero() || p.Plan.NextAt.Before(next) {
				next = p.Plan.NextAt
			}
		}
		select {
		case <-life.Done():
		case <-wake:
		case <-time.After(min(max(next.Sub(s.Now()), 0), time.Hour)):
		}
	}
}

// workLoop claims when it is woken and finishes; it must never have to poll.
func workLoop(life context.Context, t *testing.T, s *Store) {
	worker := register(t, s)
	wake := s.Wakeups(life, store.TopicReady)
	for life.Err() == nil {
		for _, run := range claim(t, s, worker, 10) {
			time.Sleep(time.Second)
			outcome := belfry.OutcomeSucceeded
			if run.ScheduledAt.Hour()%6 == 0 && run.Attempt == 1 {
				outcome = belfry.OutcomeFailed
			}
			finish(t, s, outcome, run)
		}
		select {
		case <-life.Done():
		case <-wake:
		}
	}
}
