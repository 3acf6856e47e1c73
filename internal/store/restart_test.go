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

func TestEverythingIsThereAfterARestart(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, 5, named("report"), parallel, withRetries(0))
		f.edit(t, job, revise(t, withTimeout(7)))
		for range 3 {
			f.fire(t, f.step(t, f.found(t, job)))
		}
		worker := f.worker(t)
		for i, run := range f.claim(t, worker, 2) {
			f.accepted(t, run, []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed}[i])
		}
		wish := f.trigger(t, job, `"mine"`)
		epoch := f.hold(t, owner, "duty")["duty"]
		before, plan, runs := f.found(t, job), f.plan(t, job.ID), f.jobRuns(t, job)

		f.restart(t)
		if diff := cmp.Diff(before, f.found(t, job), asStored); diff != "" {
			t.Errorf("the job differs (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(runs, f.jobRuns(t, job), asStored); diff != "" {
			t.Errorf("its runs differ (-before +after):\n%s", diff)
		}
		if got := f.plan(t, job.ID); got != plan {
			t.Errorf("its plan is %+v, wants %+v", got, plan)
		}
		if wishes := f.wishes(t); len(wishes) != 1 || wishes[0].Trigger.ID != wish.ID {
			t.Errorf("the triggers are %+v", wishes)
		}
		f.backdate(t, 2*ttl, "leases", "expires_at", "")
		if again := f.hold(t, newID(), "duty")["duty"]; again <= epoch {
			t.Errorf("the epoch went from %d to %d", epoch, again)
		}
		f.fire(t, f.step(t, f.found(t, job)))
		if got := f.claim(t, f.worker(t), 10); len(got) != 2 {
			t.Errorf("%d runs can be claimed, wants 2", len(got))
		}
	})
}

func TestACallerThatIsGoneStartsNothingOrAll(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		gone, leave := context.WithCancel(ctx)
		leave()
		run := f.started(t)
		job := f.created(t, 5)
		if fired, err := f.Fire(gone, owner, []plan.Step{f.step(t, job)}, store.FreeSlots{}); (err == nil) != (f.plan(t, job.ID).Version == 2) || err == nil && !fired.Applied[0] {
			t.Errorf("fire answered %v and left the plan at version %d", err, f.plan(t, job.ID).Version)
		}
		verdicts, err := f.Finish(gone, []belfry.Result{result(run, belfry.OutcomeSucceeded)})
		if state := f.state(t, run.ID); (err == nil) != (state == belfry.RunSucceeded) || err == nil && verdicts[0] != belfry.VerdictAccepted {
			t.Errorf("finish answered %v and left the run %s", err, state)
		}
		wish := f.wish(job, "")
		if err := f.Trigger(gone, []plan.Trigger{wish}, nil); (err == nil) != (len(f.wishes(t)) == 1) {
			t.Errorf("trigger answered %v, and %d wishes are there", err, len(f.wishes(t)))
		}
		if _, err := f.Hold(gone, owner, []string{"duty"}, time.Minute); (err == nil) != (len(f.held(t, "duty")) == 1) {
			t.Errorf("hold answered %v, and the leases are %v", err, f.held(t, "duty"))
		}
		if err := f.CreateJobs(gone, each(f.job(f.minutesAgo(1))), nil); (err == nil) != (f.count(t, `SELECT count(*) FROM jobs`) == 3) {
			t.Errorf("create answered %v", err)
		}
	})
}
