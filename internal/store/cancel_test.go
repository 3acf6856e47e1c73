package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestAnUnheldRunIsCancelledAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 20, withQueueLimit(9), withRetries(3), withRetention(3))
		ready := f.step(t, job)
		f.fire(t, ready)
		waiting := f.step(t, job)
		f.fire(t, waiting)
		third := f.step(t, job)
		f.fire(t, third)

		want := func(doing string, id belfry.ID, attempts int) {
			t.Helper()
			for range 2 {
				f.cancel(t, job.Namespace, id)
			}
			got := f.run(t, job.Namespace, id)
			if got.Status != belfry.RunCancelled || got.FinishedAt == nil || !near(*got.FinishedAt, f.Now(), 20*time.Second) || got.Attempt != attempts ||
				len(got.Attempts) != attempts || got.JobID != job.ID || got.Kind != belfry.KindScheduled {
				t.Errorf("%s: the cancelled run is %+v", doing, got)
			}
		}
		want("a run that waits", waiting.Runs[0].ID, 0)
		f.wantState(t, "the one before it", ready.Runs[0].ID, belfry.RunReady)
		want("a ready run", ready.Runs[0].ID, 0)
		f.wantState(t, "the one behind them", third.Runs[0].ID, belfry.RunReady)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeFailed)
		want("a run that waits for its retry", third.Runs[0].ID, 1)
		if runs := f.claim(t, worker, 10); len(runs) != 0 {
			t.Errorf("%d cancelled runs were claimed", len(runs))
		}
		if n := f.count(t, `SELECT count(*) FROM history WHERE state = 'cancelled' AND retain_until IS NOT NULL`); n != 3 {
			t.Errorf("%d cancelled runs have the retention of their job, wants 3", n)
		}
	})
}

func TestARunningRunIsCancelledWhenItsWorkerStops(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, tt := range []struct {
			outcome belfry.Outcome
			want    belfry.RunStatus
		}{
			{belfry.OutcomeCancelled, belfry.RunCancelled},
			{belfry.OutcomeFailed, belfry.RunCancelled},
			{belfry.OutcomeTimedOut, belfry.RunCancelled},
			{belfry.OutcomeInterrupted, belfry.RunCancelled},
			{belfry.OutcomeSnoozed, belfry.RunCancelled},
			{belfry.OutcomeSucceeded, belfry.RunSucceeded},
		} {
			job := f.createJob(t, 10, withQueueLimit(5), withRetries(3))
			f.fire(t, f.step(t, job))
			next := f.step(t, job)
			f.fire(t, next)
			run := f.claimOne(t, f.registerWorker(t))
			before := f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID})
			for range 2 {
				f.cancel(t, run.Namespace, run.ID)
			}
			held := belfry.HeldAttempt{RunID: run.ID, Attempt: 1}
			for _, heartbeat := range []belfry.Heartbeat{{WorkerID: run.WorkerID}, {WorkerID: run.WorkerID, Complete: true, Held: []belfry.HeldAttempt{held}}} {
				if reply := f.heartbeat(t, heartbeat); len(before.Cancel) != 0 || !slices.Equal(reply.Cancel, []belfry.HeldAttempt{held}) || len(reply.Lost) != 0 || reply.Unknown {
					t.Errorf("%s: the worker got %+v before, and then %+v", tt.outcome, before, reply)
				}
			}
			f.wantState(t, "when it was cancelled", run.ID, belfry.RunRunning)
			f.wantState(t, "the one behind it", next.Runs[0].ID, belfry.RunWaiting)
			if row := f.liveRow(t, run.ID); !near(row.CancelAt, f.Now(), 20*time.Second) {
				t.Errorf("%s: the run was cancelled at %v", tt.outcome, row.CancelAt)
			} else if asked := f.run(t, run.Namespace, run.ID).CancelRequestedAt; asked == nil || !asked.Equal(row.CancelAt) {
				t.Errorf("%s: the run says that it was cancelled at %v", tt.outcome, asked)
			}
			f.finishAs(t, run, tt.outcome)
			f.finishAs(t, run, tt.outcome)
			f.wantState(t, string(tt.outcome), run.ID, tt.want)
			f.wantState(t, "the one behind it", next.Runs[0].ID, belfry.RunReady)
			got := f.run(t, run.Namespace, run.ID)
			if attempts := got.Attempts; tt.want == belfry.RunCancelled && (len(attempts) != 1 || attempts[0].Outcome != tt.outcome || got.WorkerID != run.WorkerID || got.StartedAt == nil) {
				t.Errorf("%s: the cancelled run is %+v", tt.outcome, got)
			}
			if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID}); len(reply.Cancel) != 0 {
				t.Errorf("%s: the worker is asked to cancel %v again", tt.outcome, reply.Cancel)
			}
			f.settleAll(t)
		}
	})
}

func TestAWorkerThatDoesNotStopLosesACancelledRun(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		end := func(doing string, want belfry.Outcome, lose func(run *belfry.Run)) *belfry.Run {
			t.Helper()
			run := f.startRun(t, withRetries(5))
			f.cancel(t, run.Namespace, run.ID)
			lose(run)
			got := f.run(t, run.Namespace, run.ID)
			if got.Status != belfry.RunCancelled || len(got.Attempts) != 1 || got.Attempts[0].Outcome != want {
				t.Errorf("%s: the run is %+v, wants it cancelled after one that was %s", doing, got, want)
			}
			return run
		}
		reap := func(silence time.Duration, want int) {
			t.Helper()
			if n := f.reap(t, silence); n != want {
				t.Errorf("reaped %d attempts, wants %d", n, want)
			}
		}
		late := end("the grace has passed", belfry.OutcomeCancelled, func(run *belfry.Run) {
			f.backdate(t, store.CancelGrace-5*time.Second, "runs", "cancel_requested_at", "")
			f.cancel(t, run.Namespace, run.ID) // again, which gives the worker no more time
			reap(0, 0)
			f.backdate(t, 10*time.Second, "runs", "cancel_requested_at", "")
			reap(0, 1)
			reap(0, 0)
		})
		reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: late.WorkerID, Complete: true, Held: []belfry.HeldAttempt{{RunID: late.ID, Attempt: 1}}})
		if len(reply.Lost) != 1 || len(reply.Cancel) != 0 {
			t.Errorf("the worker got %+v, wants that it lost the run", reply)
		}
		if v := f.finish(t, result(late, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
			t.Errorf("a success after that is %s, wants late", v)
		}
		f.wantState(t, "after a late success", late.ID, belfry.RunCancelled)
		if got := f.run(t, late.Namespace, late.ID).Attempts[0]; got.LateOutcome != belfry.OutcomeSucceeded {
			t.Errorf("the evidence is %+v", got)
		}
		end("its worker fell silent", belfry.OutcomeLost, func(run *belfry.Run) {
			f.silenceWorker(t, run.WorkerID, time.Hour)
			reap(time.Minute, 1)
		})
		end("its deadline has passed", belfry.OutcomeTimedOut, func(run *belfry.Run) {
			f.ageAttempt(t, run, time.Hour)
			reap(0, 1)
		})
		end("its worker left", belfry.OutcomeUnconfirmed, func(run *belfry.Run) { f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Leave: true}) })
		end("its worker does not know of it", belfry.OutcomeUnconfirmed, func(run *belfry.Run) {
			f.ageAttempt(t, run, store.ConfirmAfter+time.Second)
			f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Complete: true})
		})
	})
}

func TestOnlyALiveRunOfTheNamespaceCanBeCancelled(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withNamespace("ours"))
		wantCode(t, "cancel a run of another namespace", f.Cancel(ctx, "theirs", run.ID), belfry.NotFound)
		wantCode(t, "cancel a run that never was", f.Cancel(ctx, "ours", newID()), belfry.NotFound)
		if row := f.liveRow(t, run.ID); !row.CancelAt.IsZero() {
			t.Errorf("another namespace cancelled a run at %v", row.CancelAt)
		}
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		wantCode(t, "cancel a run that succeeded", f.Cancel(ctx, "ours", run.ID), belfry.Conflict)
		wantCode(t, "cancel one of another namespace that succeeded", f.Cancel(ctx, "theirs", run.ID), belfry.NotFound)
		dead := f.deadRun(t)
		wantCode(t, "cancel a dead letter", f.Cancel(ctx, dead.Namespace, dead.ID), belfry.Conflict)
		f.discard(t, dead.Namespace, dead.ID)
		wantCode(t, "cancel a discarded run", f.Cancel(ctx, dead.Namespace, dead.ID), belfry.Conflict)
		job := f.createJob(t, 5)
		step := f.step(t, job)
		f.fire(t, step)
		beside := f.step(t, job)
		f.fire(t, beside)
		wantCode(t, "cancel a skip", f.Cancel(ctx, job.Namespace, beside.Runs[0].ID), belfry.Conflict)
		f.wantState(t, "the run beside it", step.Runs[0].ID, belfry.RunReady)
	})
}

func TestAPendingTriggerCanBeCancelled(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60)
		trigger, other := f.trigger(t, job, ""), f.trigger(t, job, "")
		seen := f.plan(t, job.ID)
		for range 2 {
			f.cancel(t, job.Namespace, trigger.RunID())
		}
		if triggers := f.pendingTriggers(t); len(triggers) != 1 || triggers[0].Trigger.ID != other.ID {
			t.Errorf("%d triggers are left, wants the other one", len(triggers))
		}
		// Somebody who saw the trigger before fires it.
		f.tryFire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), seen, []plan.Trigger{trigger}))
		f.tryFire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{trigger}))
		if got := f.run(t, job.Namespace, trigger.RunID()); got.Status != belfry.RunCancelled || got.Kind != belfry.KindManual {
			t.Errorf("the run is %+v, wants it cancelled", got)
		}
		if runs := f.claim(t, f.registerWorker(t), 5); len(runs) != 0 {
			t.Errorf("%d runs can be claimed, wants none", len(runs))
		}
	})
}

func TestCancellingAJobCancelsItsLiveRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for name, edit := range map[string]func(tb) store.Edit{"cancel": cancelJob, "delete": deleteAndCancel} {
			worker := f.registerWorker(t)
			job, other := f.createJob(t, 10, withQueueLimit(9)), f.createJob(t, 10, withQueue("other"))
			f.fire(t, f.step(t, other))
			f.fire(t, f.step(t, job))
			held := f.claimOne(t, worker)
			var waiting []belfry.ID
			for range 3 {
				step := f.step(t, job)
				f.fire(t, step)
				waiting = append(waiting, step.Runs[0].ID)
			}
			trigger := f.trigger(t, job, "")
			f.edit(t, job, edit(t))
			for _, id := range waiting {
				f.wantState(t, name, id, belfry.RunCancelled)
			}
			if got := f.run(t, job.Namespace, trigger.RunID()); got.Status != belfry.RunCancelled || len(f.pendingTriggers(t)) != 0 {
				t.Errorf("%s: the pending trigger is %+v, and %d triggers are left", name, got, len(f.pendingTriggers(t)))
			}
			if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: worker}); len(reply.Cancel) != 1 || reply.Cancel[0].RunID != held.ID {
				t.Errorf("%s: the worker got %+v", name, reply)
			}
			f.finishAs(t, held, belfry.OutcomeCancelled)
			f.wantState(t, name, held.ID, belfry.RunCancelled)
			if n := f.count(t, `SELECT count(*) FROM runs`); n != 1 {
				t.Errorf("%s: %d runs are alive, wants that of the other job", name, n)
			}
			if p := f.plan(t, job.ID); !p.NextAt.IsZero() || !p.NominalAt.IsZero() {
				t.Errorf("%s: the plan is %+v", name, p)
			}
			f.edit(t, other, deleteAndCancel(t))
		}
	})
}

func TestACancelledJobCanHaveANewSchedule(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60)
		planned := f.plan(t, job.ID).NominalAt
		got := f.edit(t, job, cancelJob(t))
		if got.Status != belfry.StatusCancelled || got.NextRunAt != nil {
			t.Errorf("the cancelled job is %s, next at %v", got.Status, got.NextRunAt)
		}
		runs := f.jobRuns(t, job)
		if len(runs) != 1 || runs[0].Reason != belfry.ReasonCancelled || runs[0].Status != belfry.RunSkipped || !runs[0].ScheduledAt.Equal(planned) {
			t.Fatalf("the planned occurrence is listed as %+v", runs)
		}
		f.edit(t, job, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			job.Revision++
			s := subject(t, job.Namespace, job.Revision, job.Spec)
			return &store.Change{Job: job, Step: plan.Edit(s, s.Policy, p, false, now)}, nil
		})
		if got := f.getJob(t, job); got.Status != belfry.StatusScheduled || got.NextRunAt == nil {
			t.Errorf("with another rule the job is %s, next at %v", got.Status, got.NextRunAt)
		}
	})
}
