package store_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// The reply to a trigger was lost, and its run was the last that the job had.
func TestATriggerIsRepeatedAfterItsJobIsArchived(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createOneOff(t, 5)
		trigger := f.oneTrigger(job)
		f.recordAndFire(t, job, trigger...)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		f.finishAs(t, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0], belfry.OutcomeSucceeded)
		f.archiveAll(t, 10)
		f.wantEnded(t, "run twice", job, belfry.StatusCompleted)
		if err := f.Trigger(ctx, trigger, nil); err != nil {
			t.Errorf("the same trigger again: %v", err)
		}
		wantEndedConflict(t, "another trigger", f.Trigger(ctx, f.oneTrigger(job), nil))
	})
}

// Firing triggers, and firing straight into a worker's free slots.

func TestATriggerBecomesOneRun(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60, withNamespace("ours"))
		f.edit(t, job, pause(t))
		trigger := f.trigger(t, job, `"instead"`)
		step := plan.Fire(subject(t, "ours", 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{trigger})
		if fired := f.fire(t, step); fired.ReadyCount() != 1 {
			t.Errorf("fired %+v, wants one ready", fired)
		}
		run := f.claimOne(t, f.registerWorker(t))
		if run.ID != trigger.RunID() || run.Kind != belfry.KindManual || !run.ScheduledAt.Equal(trigger.At) || string(run.Payload) != `"instead"` {
			t.Errorf("the run is %+v with payload %s", run, run.Payload)
		}
		if len(f.pendingTriggers(t)) != 0 {
			t.Error("the trigger is still a trigger")
		}
		p := f.plan(t, job.ID)
		if want := step.Next; p.RunsMade != 0 || p.Version != 3 || p.NextAt != want.NextAt || p.NominalAt != want.NominalAt || p.FiredFor != want.FiredFor {
			t.Errorf("the trigger moved the plan to %+v", p)
		}
		f.finishAs(t, run, belfry.OutcomeSucceeded)

		// Neither repeating the trigger nor firing it again from memory makes another run.
		if err := f.Trigger(ctx, []plan.Trigger{trigger}, nil); err != nil || len(f.pendingTriggers(t)) != 0 {
			t.Errorf("recording the trigger again: %v, and %d are open", err, len(f.pendingTriggers(t)))
		}
		fired := f.tryFire(t, plan.Fire(step.Subject, f.plan(t, job.ID), []plan.Trigger{trigger}))
		if runs := f.jobRuns(t, job); fired.ReadyCount() != 0 || len(runs) != 1 || runs[0].Status != belfry.RunSucceeded {
			t.Errorf("a fired trigger was fired again: %+v, runs %+v", fired, runs)
		}
	})
}

func TestTriggersOfOneJobObeyTheOverlapLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, tt := range []struct {
			name          string
			change        func(*belfry.Job)
			runs, skipped int64
		}{
			{"a job that skips", func(*belfry.Job) {}, 1, 2},
			{"a job that runs in parallel", allowParallel, 3, 0},
		} {
			job := f.createJob(t, -60, tt.change)
			triggers := []plan.Trigger{f.trigger(t, job, ""), f.trigger(t, job, ""), f.trigger(t, job, "")}
			fired := f.fire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), triggers))
			runs := f.count(t, `SELECT count(*) FROM runs WHERE job_id = ? AND kind = 'manual'`, job.ID)
			skipped := f.count(t, `SELECT count(*) FROM history WHERE job_id = ? AND kind = 'manual' AND state = 'skipped' AND reason = 'overlap'`, job.ID)
			if runs != tt.runs || skipped != tt.skipped || fired.ReadyCount() != int(tt.runs) {
				t.Errorf("%s: %d runs and %d skips, %d counted as ready; wants %d and %d", tt.name, runs, skipped, fired.ReadyCount(), tt.runs, tt.skipped)
			}
			if open := f.pendingTriggers(t); len(open) != 0 {
				t.Errorf("%s: %d triggers are still triggers", tt.name, len(open))
			}
		}
	})
}

func TestAFiringOfManyTriggersIsOneStepEach(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var steps []plan.Step
		for range 20 {
			job := f.createJob(t, -60)
			f.trigger(t, job, "")
		}
		for _, w := range f.pendingTriggers(t) {
			step := f.decide(t, []store.Due{w.Due})[0]
			steps = append(steps, plan.Fire(step.Subject, w.Due.Plan, []plan.Trigger{w.Trigger}))
		}
		if fired := f.fire(t, steps...); fired.ReadyCount() != 20 || len(f.pendingTriggers(t)) != 0 {
			t.Errorf("fired %d triggers, %d are left", fired.ReadyCount(), len(f.pendingTriggers(t)))
		}
		for _, ok := range f.tryFire(t, steps...).Applied {
			if ok {
				t.Error("a trigger was fired twice")
			}
		}
	})
}

func TestATriggerIsPendingUntilItIsFired(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60, withNamespace("ours"), allowParallel)
		other := f.createJob(t, -60)
		first := f.trigger(t, job, `"mine"`)
		second := f.trigger(t, other, "")
		third := f.trigger(t, job, "")
		if err := f.Trigger(ctx, []plan.Trigger{first}, nil); err != nil {
			t.Errorf("trigger again: %v", err)
		}
		triggers := f.pendingTriggers(t)
		if len(triggers) != 3 {
			t.Fatalf("there are %d triggers, wants 3", len(triggers))
		}
		for i, want := range []plan.Trigger{first, second, third} {
			wantEqual(t, fmt.Sprint("trigger ", i), triggers[i].Trigger, want, cmpopts.IgnoreFields(plan.Trigger{}, "ReadyAt"))
		}
		if d := triggers[0].Due; d.Plan != f.plan(t, job.ID) || d.Namespace != "ours" || d.Revision != 1 || d.Spec == "" {
			t.Errorf("the trigger came with %+v", d)
		}
		if found, err := f.PendingTriggers(ctx, f.allShards(), nil, 2); err != nil || len(found) != 2 || found[0].Trigger.ID != first.ID {
			t.Errorf("with limit 2: %+v (%v)", found, err)
		}
		for shard := range f.Shards() {
			found, err := f.PendingTriggers(ctx, []int{shard}, nil, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range found {
				if w.Trigger.Shard != shard || w.Due.Plan.Shard != shard {
					t.Errorf("shard %d has a trigger of shard %d", shard, w.Trigger.Shard)
				}
			}
		}
		wantCode(t, "trigger what is not there", f.Trigger(ctx, f.oneTrigger(belfry.Job{ID: newID(), Namespace: "ours"}), nil), belfry.NotFound)
	})
}

// A trigger that was accepted before its job was deleted is recorded.
func TestTriggerOfADeletedJobIsRecorded(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5)
		trigger := f.trigger(t, job, "")
		f.edit(t, job, deleteJob(t))
		if run := f.run(t, job.Namespace, trigger.RunID()); run.Status != belfry.RunCancelled || run.Kind != belfry.KindManual {
			t.Errorf("the run of the trigger is %+v", run)
		}
		if left := f.pendingTriggers(t); len(left) != 0 {
			t.Errorf("%d triggers are pending", len(left))
		}
	})
}
