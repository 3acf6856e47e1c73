package sqlite

import (
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// TestConcurrentOwnersWorkersAndReaders lets owners, workers and readers at one store at the
// same time. Every occurrence that was due becomes one run that succeeds once.
func TestConcurrentOwnersWorkersAndReaders(t *testing.T) {
	s := openStore(t)
	const jobs, minutes = 40, 5
	start := s.Now().Truncate(time.Minute).Add(-minutes * time.Minute)
	made := make([]store.NewJob, jobs)
	for i := range made {
		made[i] = newJob(t, s, start.Add(-time.Second), "* * * * *")
		made[i].Job.Overlap = belfry.OverlapParallel
	}
	create(t, s, made...)
	until := start.Add(minutes * time.Minute)

	var owners, others sync.WaitGroup
	stop := make(chan struct{})
	for range 2 { // both believe they own everything
		owners.Go(func() { fireAll(t, s, until) })
	}
	for range 3 {
		others.Go(func() { workUntil(t, s, stop) })
	}
	others.Go(func() {
		for !over(stop) {
			if _, err := s.ListJobs(ctx, belfry.DefaultNamespace, belfry.JobFilter{}, store.Page{Limit: 10}); err != nil {
				t.Errorf("list: %v", err)
			}
			if _, err := s.Reap(ctx, time.Hour, 100); err != nil {
				t.Errorf("reap: %v", err)
			}
		}
	})
	owners.Wait()
	for count(t, s, `SELECT count(*) FROM runs`) > 0 {
		if err := s.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	others.Wait()
	if n := count(t, s, `SELECT count(*) FROM history WHERE state = 'succeeded' AND attempt = 1`); n != jobs*minutes {
		t.Errorf("%d runs succeeded, wants %d", n, jobs*minutes)
	}
	if n := count(t, s, `SELECT count(DISTINCT id) FROM history`); n != jobs*minutes {
		t.Errorf("%d occurrences were decided, wants %d", n, jobs*minutes)
	}
}

// fireAll fires until nothing is due before the instant any more.
func fireAll(t *testing.T, s *Store, until time.Time) {
	for {
		due := steps(t, s, 25)
		for len(due) > 0 && !due[len(due)-1].Seen.NominalAt.Before(until) {
			due = due[:len(due)-1]
		}
		if len(due) == 0 {
			return
		}
		if _, err := s.Fire(ctx, belfry.ID{2}, due, store.FreeSlots{}); err != nil {
			t.Errorf("fire: %v", err)
			return
		}
	}
}

func workUntil(t *testing.T, s *Store, stop chan struct{}) {
	worker := register(t, s)
	for !over(stop) {
		runs := claim(t, s, worker, 7)
		if len(runs) > 0 {
			finish(t, s, belfry.OutcomeSucceeded, runs...)
		}
		if reply, err := s.Heartbeat(ctx, belfry.Heartbeat{WorkerID: worker, Node: "here", Complete: true}); err != nil || reply.Unknown || len(reply.Lost) > 0 {
			t.Errorf("heartbeat: %+v, %v", reply, err)
		}
	}
}

func over(stop chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
