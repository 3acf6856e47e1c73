package store_test

import (
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestAParkedJobTellsWhyUntilItIsFired(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, other := f.created(t, 10, named("report")), f.created(t, 10)
		before := f.plan(t, job.ID)
		park := func(why string) {
			t.Helper()
			if err := f.Quarantine(ctx, job.ID, why); err != nil {
				t.Fatalf("park: %v", err)
			}
		}
		want := func(doing, why string) {
			t.Helper()
			if got := f.found(t, job); got.Quarantined != why {
				t.Errorf("%s: the job is parked with %q, wants %q", doing, got.Quarantined, why)
			}
			for _, listed := range f.listed(t, namespace, belfry.JobFilter{}, 5) {
				if listed.ID == job.ID && listed.Quarantined != why || listed.ID == other.ID && listed.Quarantined != "" {
					t.Errorf("%s: listed with %q", doing, listed.Quarantined)
				}
			}
		}
		want("a new job", "")
		park("the rule fails")
		park("the payload cannot be rendered: it's \"odd\" %s 😀")
		want("parked twice", "the payload cannot be rendered: it's \"odd\" %s 😀")
		if p := f.plan(t, job.ID); p != before {
			t.Errorf("parking made the plan %+v, wants %+v", p, before)
		}
		if due := f.due(t); len(due) != 2 {
			t.Errorf("%d jobs are due, wants the parked one as well", len(due))
		}
		stale := f.step(t, job)
		stale.Seen.Version = 9
		f.tryFire(t, stale)
		want("after a step that was not applied", "the payload cannot be rendered: it's \"odd\" %s 😀")
		f.fire(t, f.step(t, job))
		want("fired", "")
		park("again")
		f.fireWishes(t, job, f.wish(job, ""))
		want("fired by hand", "")
		park("again")
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.TimeoutSeconds = 5 }))
		want("edited", "")
		if err := f.Quarantine(ctx, newID(), "nobody"); err != nil && belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("park a job that is not there: %v", err)
		}
	})
}

func TestParkingDoesNotStopAFiringUnderWay(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, 10)
		step := f.step(t, job)
		if err := f.Quarantine(ctx, job.ID, "for now"); err != nil {
			t.Fatal(err)
		}
		if fired := f.fire(t, []plan.Step{step}...); fired.Ready != 1 {
			t.Errorf("fired %+v", fired)
		}
	})
}
