package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestRunsAreClaimedByPriorityAndAge(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		// High is 9, low 1, and from one end of the scale to the other it is ten minutes.
		order := []struct {
			minutes  int
			priority belfry.Priority
		}{
			{12, "9"}, {3, "high"}, {11, "low"}, {6, "7"}, {4, ""}, {5, "3"}, {10, "0"}, {3, "low"}, {1, "0"},
		}
		weight := func(p belfry.Priority) time.Duration {
			return time.Duration(5-p.Level()) * 10 * time.Minute / 9
		}
		var steps []plan.Step
		var want []belfry.ID
		type place struct {
			at time.Time
			id belfry.ID
		}
		var places []place
		for _, o := range order {
			step := f.step(t, f.created(t, o.minutes, withPriority(o.priority)))
			steps = append(steps, step)
			places = append(places, place{f.minutesAgo(o.minutes).Add(weight(o.priority)), step.Runs[0].ID})
		}
		slices.SortFunc(places, func(a, b place) int { return a.at.Compare(b.at) })
		for _, p := range places {
			want = append(want, p.id)
		}
		f.fire(t, steps...)
		worker := f.worker(t)
		var got []belfry.ID
		for runs := f.claim(t, worker, 1); len(runs) > 0; runs = f.claim(t, worker, 1) {
			got = append(got, runs[0].ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("claimed %v, wants %v", got, want)
		}
	})
}

func TestAPriorityHoldsOnEveryWayToBeReady(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		for _, priority := range []belfry.Priority{"high", "", "low", "0"} {
			job := f.created(t, 10, withPriority(priority), withRetries(1), queued(3))
			want := (&plan.Policy{Spec: job.Spec}).Weight()
			look := func(doing string, id belfry.ID) {
				t.Helper()
				if row := f.live(t, id); row.State != belfry.RunReady || row.Weight != want || row.Rank != plan.Rank(row.ReadyAt, want) {
					t.Errorf("priority %s, %s: the run is %+v, wants weight %d", priority, doing, row, want)
				}
			}
			f.next(t, job)
			waiting := f.next(t, job)
			run := f.claimOne(t, worker)
			f.accepted(t, run, belfry.OutcomeInterrupted)
			look("interrupted", run.ID)
			run = f.claimOne(t, worker)
			f.accepted(t, run, belfry.OutcomeFailed)
			f.promoteAll(t)
			look("retried", run.ID)
			run = f.claimOne(t, worker)
			f.aged(t, run, time.Hour)
			f.reap(t, 0)
			f.wantState(t, "timed out", run.ID, belfry.RunDead)
			look("after another", waiting.ID)
			f.claimOne(t, worker)
			f.silent(t, worker, time.Hour)
			f.reap(t, time.Minute)
			look("lost", waiting.ID)
			worker = f.worker(t)
			f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			f.redrive(t, namespace, store.Redrive{Run: run.ID})
			look("redriven", run.ID)
			f.accepted(t, f.claimOne(t, worker), belfry.OutcomeFailed)
			f.promoteAll(t)
			f.accepted(t, f.claimOne(t, worker), belfry.OutcomeFailed)
			f.redrive(t, namespace, store.Redrive{Run: run.ID, After: time.Hour})
			f.promoteAll(t)
			look("redriven later", run.ID)
			f.settleAll(t)
		}
	})
}
