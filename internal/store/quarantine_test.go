package store_test

import (
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestAQuarantinedJobSaysWhyUntilItIsFired(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, other := f.createJob(t, 10, withName("report")), f.createJob(t, 10)
		before := f.plan(t, job.ID)
		quarantine := func(why string) {
			t.Helper()
			if err := f.Quarantine(ctx, job.ID, why); err != nil {
				t.Fatalf("quarantine: %v", err)
			}
		}
		want := func(doing, why string) {
			t.Helper()
			if got := f.getJob(t, job); got.Quarantined != why {
				t.Errorf("%s: the job is quarantined with %q, wants %q", doing, got.Quarantined, why)
			}
			for _, listed := range f.listJobs(t, namespace, belfry.JobFilter{}, 5) {
				if listed.ID == job.ID && listed.Quarantined != why || listed.ID == other.ID && listed.Quarantined != "" {
					t.Errorf("%s: listed with %q", doing, listed.Quarantined)
				}
			}
		}
		want("a new job", "")
		quarantine("the rule fails")
		quarantine("the payload cannot be rendered: it's \"odd\" %s 😀")
		want("quarantined twice", "the payload cannot be rendered: it's \"odd\" %s 😀")
		if p := f.plan(t, job.ID); p != before {
			t.Errorf("quarantine made the plan %+v, wants %+v", p, before)
		}
		if due := f.due(t); len(due) != 2 {
			t.Errorf("%d jobs are due, wants the quarantined one as well", len(due))
		}
		stale := f.step(t, job)
		stale.Seen.Version = 9
		f.tryFire(t, stale)
		want("after a step that was not applied", "the payload cannot be rendered: it's \"odd\" %s 😀")
		f.fire(t, f.step(t, job))
		want("fired", "")
		quarantine("again")
		f.recordAndFire(t, job, f.newTrigger(job, ""))
		want("fired by hand", "")
		quarantine("again")
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.TimeoutSeconds = 5 }))
		want("edited", "")
		if err := f.Quarantine(ctx, newID(), "nobody"); err != nil && belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("quarantine a job that is not there: %v", err)
		}
	})
}

func TestQuarantineDoesNotStopAFireUnderWay(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10)
		step := f.step(t, job)
		if err := f.Quarantine(ctx, job.ID, "for now"); err != nil {
			t.Fatal(err)
		}
		if fired := f.fire(t, []plan.Step{step}...); fired.ReadyCount() != 1 {
			t.Errorf("fired %+v", fired)
		}
	})
}
