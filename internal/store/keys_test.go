package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// wantKey expects a run to have its key wherever it is found.
func (f *fixture) wantKey(t tb, run belfry.ID, job belfry.Job, want string) {
	t.Helper()
	got := []belfry.Run{f.run(t, job.Namespace, run)}
	list, err := f.ListRuns(ctx, job.Namespace, belfry.RunFilter{}, store.Page{Limit: 1000})
	if err != nil {
		t.Fatalf("list runs: %v", err)
	}
	for _, r := range append(f.jobRuns(t, job), list.Runs...) {
		if r.ID == run {
			got = append(got, r)
		}
	}
	if len(got) != 3 {
		t.Errorf("the run %s was found %d times, wants 3", run, len(got))
	}
	for _, r := range got {
		if r.Key() != want {
			t.Errorf("the %s run has the key %q, wants %q", r.Status, r.Key(), want)
		}
	}
}

func TestAKeyIsTheSameInEveryAttemptAndPlace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, last := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
			job := f.createJob(t, 5, withName("report & "+string(last)), withKeys("r-{{name}}-{{unix}}"), withRetries(1), withBase(0))
			step := f.decide(t, f.due(t))[0]
			id, want := step.Runs[0].ID, fmt.Sprintf("r-report%%20&%%20%s-%d", last, f.minutesAgo(5).Unix())
			f.fire(t, step)
			f.wantKey(t, id, job, want)
			worker := f.registerWorker(t)
			try := func(attempt int) *belfry.Run {
				t.Helper()
				run := f.claimOne(t, worker)
				if run.ID != id || run.Attempt != attempt || run.Key() != want || run.JobName != job.Name {
					t.Errorf("attempt %d of %q has the key %q, wants %q", run.Attempt, run.JobName, run.Key(), want)
				}
				f.wantKey(t, id, job, want)
				return run
			}
			f.finishAs(t, try(1), belfry.OutcomeInterrupted)
			try(2) // and is lost
			f.silenceWorker(t, worker, time.Hour)
			worker = f.registerWorker(t)
			f.reap(t, time.Minute)
			// What the job becomes does not change what its run is.
			f.edit(t, job, revise(t, withKeys("other")))
			f.finishAs(t, try(3), belfry.OutcomeFailed)
			f.wantKey(t, id, job, want)
			f.backdate(t, time.Hour, "runs", "ready_at", "state = 'retry'")
			if _, _, err := f.Promote(ctx, f.allShards(), 10); err != nil {
				t.Fatal(err)
			}
			f.finishAs(t, try(4), last)
			if state := f.state(t, id); state != map[belfry.Outcome]belfry.RunStatus{"succeeded": "succeeded", "failed": "dead"}[last] {
				t.Errorf("the run is %s", state)
			}
			f.wantKey(t, id, job, want)
			f.edit(t, job, deleteJob(t))
		}
	})
}

func TestARunThatIsClaimedWhileItIsFiredHasItsKey(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for _, tt := range []struct{ template, want string }{
			{"", ""}, {"all", "all"}, {"{{date}}/{{name}}", f.minutesAgo(5).Format(time.DateOnly) + "/n%C3%A9"},
		} {
			job := f.createJob(t, 5, withName("né"), withKeys(tt.template))
			fired := f.fireInto(t, slots(worker, 1), f.decide(t, f.due(t))[0])
			if len(fired.Claimed) != 1 || fired.Claimed[0].TemplateKey != tt.want {
				t.Fatalf("template %q: claimed %+v, wants the key %q", tt.template, fired.Claimed, tt.want)
			}
			run := fired.Claimed[0]
			f.wantKey(t, run.ID, job, run.Key())
			f.finishAs(t, run, belfry.OutcomeSucceeded)
			f.wantKey(t, run.ID, job, run.Key())
			f.edit(t, job, deleteJob(t))
		}
	})
}

func TestTheKeyOfAManualRunIsItsOwn(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for _, template := range []string{"", "week-{{week}}"} {
			job := f.createJob(t, -60, allowParallel, withKeys(template), withRetries(2))
			trigger := f.trigger(t, job, "")
			w := f.pendingTriggers(t)[0]
			step := plan.Fire(f.decide(t, []store.Due{w.Due})[0].Subject, w.Due.Plan, []plan.Trigger{w.Trigger})
			f.fire(t, step)
			want := belfry.Run{ID: trigger.RunID(), JobID: job.ID, Kind: belfry.KindManual, ScheduledAt: trigger.At, TemplateKey: step.Runs[0].Key}
			if (want.TemplateKey == "") != (template == "") {
				t.Fatalf("the template %q gave the key %q", template, want.TemplateKey)
			}
			for attempt := range 3 {
				run := f.claimOne(t, worker)
				if got := run.Key(); got != want.Key() || run.JobName != "" {
					t.Errorf("attempt %d has the key %q, wants %q", attempt+1, got, want.Key())
				}
				f.finishAs(t, run, []belfry.Outcome{belfry.OutcomeInterrupted, belfry.OutcomeInterrupted, belfry.OutcomeSucceeded}[attempt])
			}
			f.wantKey(t, trigger.RunID(), job, want.Key())
			f.edit(t, job, deleteJob(t))
		}
	})
}

func TestDueHasANameOnlyForATemplateThatUsesIt(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, tt := range []struct{ template, want string }{
			{"", ""}, {"{{date}}", ""}, {"name", ""}, {"{name}", ""}, {"x-{{name}}", "a name"}, {"{{ name }}-{{week}}", "a name"},
		} {
			job := f.createJob(t, 5, withName("a name"), withKeys(tt.template), withPayload(`"{{name}}"`))
			f.trigger(t, job, "")
			found, err := f.PlansByJob(ctx, []belfry.ID{job.ID})
			if err != nil {
				t.Fatal(err)
			}
			triggers := f.pendingTriggers(t)
			for from, due := range map[string][]store.Due{"upcoming": f.due(t), "find": found, "triggers": {triggers[0].Due}} {
				if len(due) != 1 || due[0].Name != tt.want {
					t.Errorf("template %q, %s: got %+v, wants the name %q", tt.template, from, due, tt.want)
				}
			}
			f.edit(t, job, deleteJob(t))
		}
		unnamed := f.createJob(t, 5, withKeys("x-{{name}}"))
		if due := f.due(t); len(due) != 1 || due[0].Name != "" || due[0].Plan.JobID != unnamed.ID {
			t.Errorf("a job without a name is due as %+v", due)
		}
	})
}

func TestAClaimedRunKnowsTheNameThatItsJobHas(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, withName("old"), withRetries(5))
		f.fire(t, f.step(t, job))
		worker := f.registerWorker(t)
		run := f.claimOne(t, worker)
		f.finishAs(t, run, belfry.OutcomeInterrupted)
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.Name, j.TimeoutSeconds = "new", 7 }))
		again := f.claimOne(t, worker)
		if run.JobName != "old" || again.JobName != "new" {
			t.Errorf("the names are %q and %q", run.JobName, again.JobName)
		}
		if again.Revision != 1 || again.Spec != job.Spec || string(again.Payload) != string(job.Payload) {
			t.Errorf("the run of an earlier revision came back as %+v", again)
		}
		f.finishAs(t, again, belfry.OutcomeInterrupted)
		f.edit(t, job, deleteJob(t))
		if last := f.claimOne(t, worker); last.Spec != job.Spec || string(last.Payload) != string(job.Payload) {
			t.Errorf("the run of a deleted job came back as %+v", last)
		}
	})
}

// fireNext fires the next occurrence of a job, and gives what became of it.
func (f *fixture) fireNext(t tb, job belfry.Job) belfry.Run {
	t.Helper()
	step := f.step(t, job)
	f.fire(t, step)
	return f.run(t, job.Namespace, step.Runs[0].ID)
}

func TestASecondOccurrenceWithTheSameKeyIsSkipped(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 30, allowParallel, withKeys("all-the-same"), withRetries(1))
		other := f.createJob(t, 30, allowParallel, withKeys("all-the-same"), withQueue("other"))
		if got := f.fireNext(t, other); got.Status != belfry.RunReady {
			t.Errorf("another job with the key has a run that is %s", got.Status)
		}
		twice := func(doing string) {
			t.Helper()
			got := f.fireNext(t, job)
			if got.Status != belfry.RunSkipped || got.Reason != belfry.ReasonDuplicateKey || got.SkippedCount != 1 || got.Kind != belfry.KindScheduled {
				t.Errorf("%s: the second is %+v", doing, got)
			}
		}
		free := func(doing string) *belfry.Run {
			t.Helper()
			if got := f.fireNext(t, job); got.Status != belfry.RunReady || got.Key() != "all-the-same" {
				t.Fatalf("%s: the next is %+v, wants it ready", doing, got)
			}
			return f.claimOne(t, worker)
		}
		if got := f.fireNext(t, job); got.Status != belfry.RunReady {
			t.Fatalf("the first is %+v", got)
		}
		twice("beside a ready run")
		run := f.claimOne(t, worker)
		twice("beside a running run")
		f.finishAs(t, run, belfry.OutcomeFailed)
		twice("beside one that waits for its retry")
		f.promoteAll(t)
		run = f.claimOne(t, worker)
		f.finishAs(t, run, belfry.OutcomeFailed)
		second := free("after a dead one")
		f.cancel(t, job.Namespace, second.ID)
		twice("beside one that is being cancelled")
		f.finishAs(t, second, belfry.OutcomeCancelled)
		free("after a cancelled one")
		f.silenceWorker(t, worker, time.Hour)
		f.reap(t, time.Minute)
		twice("beside one whose worker was lost")
		worker = f.registerWorker(t)
		third := f.claimOne(t, worker)
		f.finishAs(t, third, belfry.OutcomeSucceeded)
		twice("after a success")
		f.backdate(t, store.KeyRetention-time.Minute, "keys", "created_at succeeded_at", "")
		twice("almost a week after a success")
		f.backdate(t, 2*time.Minute, "keys", "created_at succeeded_at", "")
		f.finishAs(t, free("a week after a success"), belfry.OutcomeSucceeded)
		twice("after another success")
	})
}

func TestOccurrencesOfOneStepWithTheSameKeyRunOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for name, change := range map[string]func(*belfry.Job){"parallel": allowParallel, "skip": func(*belfry.Job) {}, "queue": withQueueLimit(9)} {
			job := f.createJob(t, 10, change, withKeys("same"), func(j *belfry.Job) { j.MissedWindow, j.MaxMissed = belfry.MissedRunAll, 4 })
			step := plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.Now(), f.Now())
			if fired := f.fire(t, step); fired.ReadyCount() != 1 || len(step.Runs) != 4 {
				t.Errorf("%s: of %d runs %d are ready, wants one", name, len(step.Runs), fired.ReadyCount())
			}
			f.wantState(t, name, step.Runs[0].ID, belfry.RunReady)
			for _, r := range step.Runs[1:] {
				if got := f.run(t, job.Namespace, r.ID); got.Status != belfry.RunSkipped || got.Reason != belfry.ReasonDuplicateKey {
					t.Errorf("%s: another is %+v", name, got)
				}
			}
		}
		if n := f.count(t, `SELECT count(*) FROM runs WHERE state = 'waiting'`); n != 0 {
			t.Errorf("%d runs wait", n)
		}
	})
}

func TestOnlyScheduledRunsTakeAKey(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10, allowParallel, withKeys("same"))
		triggers := []plan.Trigger{f.newTrigger(job, ""), f.newTrigger(job, ""), f.backfill(job, f.minutesAgo(60))}
		if fired := f.recordAndFire(t, job, triggers...); fired.ReadyCount() != 3 {
			t.Errorf("%d triggered runs are ready, wants all", fired.ReadyCount())
		}
		if n := f.count(t, `SELECT count(*) FROM keys`); n != 0 {
			t.Errorf("%d keys are kept of triggered runs", n)
		}
		if got := f.fireNext(t, job); got.Status != belfry.RunReady {
			t.Errorf("a scheduled run beside them is %+v", got)
		}
		late := f.newTrigger(job, "")
		if fired := f.recordAndFire(t, job, late); fired.ReadyCount() != 1 {
			t.Errorf("a triggered run beside a scheduled one is %+v", f.run(t, job.Namespace, late.RunID()))
		}
		plain := f.createJob(t, 10, allowParallel)
		f.fireNext(t, plain)
		f.fireNext(t, plain)
		if n := f.count(t, `SELECT count(*) FROM keys`); n != 1 {
			t.Errorf("%d keys are kept, wants that of the one scheduled run with a template", n)
		}
	})
}

func TestARunThatIsSkippedDoesNotTakeItsKey(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 10, withKeys("k-{{unix}}"), withQueueLimit(1))
		if a, b, c := f.fireNext(t, job), f.fireNext(t, job), f.fireNext(t, job); a.Status != belfry.RunReady || b.Status != belfry.RunWaiting || c.Reason != belfry.ReasonQueueFull {
			t.Fatalf("the runs are %s, %s and %s", a.Status, b.Status, c.Status)
		}
		if n := f.count(t, `SELECT count(*) FROM keys`); n != 2 {
			t.Errorf("%d keys are kept, wants 2", n)
		}
		// With one key an hour, what waits has the key as well.
		hourly := f.createJob(t, 10, withKeys("same"), withQueueLimit(5), withQueue("other"))
		f.fireNext(t, hourly)
		if got := f.fireNext(t, hourly); got.Status != belfry.RunSkipped || got.Reason != belfry.ReasonDuplicateKey {
			t.Errorf("the second with the key is %+v, wants no place in the queue", got)
		}
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
	})
}

func TestARedrivenRunHasItsKeyAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 10, allowParallel, withKeys("same"), withRetries(0))
		f.fireNext(t, job)
		run := f.claimOne(t, worker)
		f.finishAs(t, run, belfry.OutcomeFailed)
		f.redrive(t, namespace, store.Redrive{Run: run.ID})
		if got := f.fireNext(t, job); got.Reason != belfry.ReasonDuplicateKey {
			t.Errorf("beside the redriven run the next is %+v", got)
		}
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		if got := f.fireNext(t, job); got.Reason != belfry.ReasonDuplicateKey {
			t.Errorf("after its success the next is %+v", got)
		}
	})
}

func TestUnneededKeysArePruned(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 10, allowParallel, withKeys("k-{{unix}}"), withRetries(0))
		for range 4 {
			f.fireNext(t, job)
		}
		runs := f.claim(t, worker, 3)
		f.finishAs(t, runs[0], belfry.OutcomeSucceeded)
		f.finishAs(t, runs[1], belfry.OutcomeSucceeded)
		prune := func(want int64) {
			t.Helper()
			if _, err := f.Prune(ctx, 90*24*time.Hour); err != nil {
				t.Fatal(err)
			}
			if n := f.count(t, `SELECT count(*) FROM keys`); n != want {
				t.Errorf("%d keys are kept, wants %d", n, want)
			}
		}
		f.backdate(t, store.KeyRetention-time.Hour, "keys", "created_at succeeded_at", "")
		prune(4)
		f.backdate(t, 3*time.Hour, "keys", "created_at succeeded_at", "run_id <> ?", runs[1].ID)
		prune(3) // one succeeded long ago, one lately, and two are alive
	})
}
