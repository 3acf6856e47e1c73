package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// readyRuns makes ready runs of several namespaces: the older a job, the lower its rank.
func (f *fixture) readyRuns(t tb, counts map[string]int) {
	t.Helper()
	for namespace, n := range counts {
		for i := range n {
			f.createJob(t, n+1-i, withNamespace(namespace), withName(fmt.Sprint("job ", i)))
		}
	}
	f.fireDue(t)
}

// rankOf is the rank of a run that became ready so many minutes ago.
func (f *fixture) rankOf(t tb, minutes int) int64 {
	t.Helper()
	job := f.job(f.minutesAgo(minutes)).Job
	return plan.Rank(f.minutesAgo(minutes), subject(t, job.Namespace, 1, job.Spec).Policy.Weight())
}

func (f *fixture) claimShares(t tb, worker belfry.ID, limit int, s store.Shares, lanes ...string) (runs []*belfry.Run, counts map[string]int) {
	t.Helper()
	runs, err := f.ClaimShares(ctx, belfry.Claim{WorkerID: worker, Lanes: lanes, Limit: limit}, s)
	if err != nil {
		t.Fatalf("claim shares: %v", err)
	}
	counts = map[string]int{}
	for i, run := range runs {
		counts[run.Namespace]++
		if i > 0 && run.ReadyAt.Before(runs[i-1].ReadyAt) {
			t.Errorf("run %d was ready at %s, and the one before it at %s", i, run.ReadyAt, runs[i-1].ReadyAt)
		}
	}
	return runs, counts
}

func TestReadyLanesHaveTheNamespace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		if lanes, err := f.ReadyLanes(ctx, 5); err != nil || len(lanes) != 0 {
			t.Errorf("an empty store has %v (%v) ready", lanes, err)
		}
		f.readyRuns(t, map[string]int{"default": 2, "acme": 4, "billing": 1})
		lanes, err := f.ReadyLanes(ctx, 3)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]store.ReadyLane{}
		for namespace, l := range map[string]struct{ count, oldest int }{"": {2, 3}, "acme::": {3, 5}, "billing::": {1, 2}} {
			want[namespace+lane] = store.ReadyLane{Count: l.count, Rank: f.rankOf(t, l.oldest)}
		}
		wantEqual(t, "ready lanes", lanes, want)
	})
}

func TestClaimTakesAShareOfEachNamespace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.readyRuns(t, map[string]int{"default": 6, "acme": 30, "billing": 2})
		worker := f.registerWorker(t)
		lanes := []string{lane, "acme::" + lane, "billing::" + lane}
		_, got := f.claimShares(t, worker, 10, store.Shares{Most: map[string]int{"default": 3, "acme": 0, "billing": 5}}, lanes...)
		wantEqual(t, "claimed by namespace", got, map[string]int{"default": 3, "billing": 2})

		runs, got := f.claimShares(t, worker, 10, store.Shares{Most: map[string]int{"acme": 4}}, lanes...)
		wantEqual(t, "claimed with one share", got, map[string]int{"default": 3, "acme": 4})
		if first := runs[0]; first.Namespace != "acme" || !first.ReadyAt.Equal(f.minutesAgo(31)) {
			t.Errorf("the first run is of %s and was ready at %s, wants the oldest", first.Namespace, first.ReadyAt)
		}

		below := f.rankOf(t, 20)
		_, got = f.claimShares(t, worker, 100, store.Shares{Below: map[string]int64{"acme::" + lane: below}}, lanes...)
		wantEqual(t, "claimed below a rank", got, map[string]int{"acme": 7})

		_, got = f.claimShares(t, newID(), 100, store.Shares{}, lanes...)
		wantEqual(t, "claimed by an unknown worker", got, map[string]int{})
		_, got = f.claimShares(t, worker, 100, store.Shares{}, lanes...)
		wantEqual(t, "the rest", got, map[string]int{"acme": 19})
	})
}

// A namespace with two lanes has one share.
func TestShareIsOfAllLanesOfANamespace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for i := range 4 {
			f.createJob(t, 3+i, withNamespace("acme"))
			f.createJob(t, 3+i, withNamespace("acme"), withQueue("slow"))
		}
		f.fireDue(t)
		_, got := f.claimShares(t, f.registerWorker(t), 10, store.Shares{Most: map[string]int{"acme": 3}}, "acme::"+lane, "acme::slow/http")
		wantEqual(t, "claimed", got, map[string]int{"acme": 3})
	})
}

// TestMaxRunningIsExact has many claims at once, and runs that end in all ways.
func TestMaxRunningIsExact(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.readyRuns(t, map[string]int{"acme": 40, "default": 20})
		shares := store.Shares{MaxRunning: map[string]int{"acme": 5}}
		lanes := []string{lane, "acme::" + lane}
		var mu sync.Mutex
		var held []*belfry.Run
		claimed := map[string]int{}
		var claims sync.WaitGroup
		for range 8 {
			worker := f.registerWorker(t)
			claims.Go(func() {
				runs, counts := f.claimShares(t, worker, 4, shares, lanes...)
				mu.Lock()
				defer mu.Unlock()
				for namespace, n := range counts {
					claimed[namespace] += n
				}
				for _, run := range runs {
					if run.Namespace == "acme" {
						held = append(held, run)
					}
				}
			})
		}
		claims.Wait()
		worker := f.registerWorker(t)
		more, counts := f.claimShares(t, worker, 100, shares, lanes...)
		for namespace, n := range counts {
			claimed[namespace] += n
		}
		wantEqual(t, "running", claimed, map[string]int{"acme": 5, "default": 20})
		for _, run := range more {
			if run.Namespace == "acme" {
				held = append(held, run)
			}
		}
		for i, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeInterrupted} {
			f.finishAs(t, held[i], outcome)
		}
		if err := f.Cancel(ctx, "acme", held[3].ID); err != nil {
			t.Fatal(err)
		}
		_, counts = f.claimShares(t, worker, 100, shares, lanes...)
		wantEqual(t, "claimed after three runs ended and one was asked to", counts, map[string]int{"acme": 3})
		f.finishAs(t, held[3], belfry.OutcomeCancelled)
		_, counts = f.claimShares(t, worker, 100, shares, lanes...)
		wantEqual(t, "claimed after the cancelled one has ended", counts, map[string]int{"acme": 1})
		if running, err := f.CountRunning(ctx, []string{"acme", "billing"}); err != nil || len(running) != 1 || running["acme"] != 5 {
			t.Errorf("%v (%v) are running, wants 5 of acme", running, err)
		}
		f.reapAll(t, "acme")
		_, counts = f.claimShares(t, f.registerWorker(t), 100, shares, lanes...)
		wantEqual(t, "claimed after all workers were lost", counts["acme"], 5)
	})
}

// reapAll unregisters all workers, and settles what they held.
func (f *fixture) reapAll(t tb, namespace string) {
	t.Helper()
	workers, err := f.Workers(ctx)
	if err != nil {
		t.Fatalf("list workers: %v", err)
	}
	for _, w := range workers {
		f.heartbeat(t, belfry.Heartbeat{WorkerID: w.ID, Leave: true})
	}
	if running, err := f.CountRunning(ctx, []string{namespace}); err != nil || len(running) != 0 {
		t.Fatalf("%v (%v) are running after their workers left", running, err)
	}
}
