package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestEverythingSurvivesARestart(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, withName("report"), allowParallel, withRetries(0))
		f.edit(t, job, revise(t, withTimeout(7)))
		for range 3 {
			f.fire(t, f.step(t, f.getJob(t, job)))
		}
		worker := f.registerWorker(t)
		for i, run := range f.claim(t, worker, 2) {
			f.finishAs(t, run, []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed}[i])
		}
		trigger := f.trigger(t, job, `"mine"`)
		epoch := f.hold(t, owner, "duty")["duty"]
		before, plan, runs := f.getJob(t, job), f.plan(t, job.ID), f.jobRuns(t, job)

		f.restart(t)
		if diff := cmp.Diff(before, f.getJob(t, job), asStored); diff != "" {
			t.Errorf("the job differs (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(runs, f.jobRuns(t, job), asStored); diff != "" {
			t.Errorf("its runs differ (-before +after):\n%s", diff)
		}
		if got := f.plan(t, job.ID); got != plan {
			t.Errorf("its plan is %+v, wants %+v", got, plan)
		}
		if triggers := f.pendingTriggers(t); len(triggers) != 1 || triggers[0].Trigger.ID != trigger.ID {
			t.Errorf("the triggers are %+v", triggers)
		}
		f.backdate(t, 2*ttl, "leases", "expires_at", "")
		if again := f.hold(t, newID(), "duty")["duty"]; again <= epoch {
			t.Errorf("the epoch went from %d to %d", epoch, again)
		}
		f.fire(t, f.step(t, f.getJob(t, job)))
		if got := f.claim(t, f.registerWorker(t), 10); len(got) != 2 {
			t.Errorf("%d runs can be claimed, wants 2", len(got))
		}
	})
}

func TestACancelledCallIsAllOrNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		gone, leave := context.WithCancel(ctx)
		leave()
		run := f.startRun(t)
		job := f.createJob(t, 5)
		if fired, err := f.Fire(gone, owner, []plan.Step{f.step(t, job)}, store.FreeSlots{}); (err == nil) != (f.plan(t, job.ID).Version == 2) || err == nil && !fired.Applied[0] {
			t.Errorf("fire answered %v and left the plan at version %d", err, f.plan(t, job.ID).Version)
		}
		verdicts, err := f.Finish(gone, []belfry.Result{result(run, belfry.OutcomeSucceeded)})
		if state := f.state(t, run.ID); (err == nil) != (state == belfry.RunSucceeded) || err == nil && verdicts[0] != belfry.VerdictAccepted {
			t.Errorf("finish answered %v and left the run %s", err, state)
		}
		trigger := f.newTrigger(job, "")
		if err := f.Trigger(gone, []plan.Trigger{trigger}, nil); (err == nil) != (len(f.pendingTriggers(t)) == 1) {
			t.Errorf("trigger answered %v, and %d triggers are there", err, len(f.pendingTriggers(t)))
		}
		if _, err := f.Hold(gone, owner, []string{"duty"}, time.Minute); (err == nil) != (len(f.heldLeases(t, "duty")) == 1) {
			t.Errorf("hold answered %v, and the leases are %v", err, f.heldLeases(t, "duty"))
		}
		if err := f.CreateJobs(gone, jobSeq(f.job(f.minutesAgo(1))), nil); (err == nil) != (f.count(t, `SELECT count(*) FROM jobs`) == 3) {
			t.Errorf("create answered %v", err)
		}
	})
}
