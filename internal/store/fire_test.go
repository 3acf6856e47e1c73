package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// tryFire applies steps that may be left out.
func (f *fixture) tryFire(t tb, steps ...plan.Step) store.FireResult {
	t.Helper()
	fired, err := f.Fire(ctx, owner, steps, store.FreeSlots{})
	if err != nil {
		t.Fatalf("fire %d steps: %v", len(steps), err)
	}
	if len(fired.Applied) != len(steps) {
		t.Fatalf("fired %d steps, got %d answers", len(steps), len(fired.Applied))
	}
	return fired
}

func TestFireCreatesARunAndAdvancesThePlan(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, withNamespace("ours"), withQueue("slow"), withTimeout(90))
		step := f.step(t, job)
		step.Epoch = 42
		if fired := f.fire(t, step); fired.ReadyCount() != 1 || len(fired.Claimed) != 0 {
			t.Errorf("fired %+v, wants one ready run", fired)
		}
		run, want := f.run(t, "ours", step.Runs[0].ID), step.Runs[0]
		f.wantRecent(t, "the fire", &run.FiredAt)
		wantEqual(t, "the run", run, belfry.Run{
			ID: want.ID, JobID: job.ID, Namespace: "ours", Revision: 1, Kind: belfry.KindScheduled, Status: belfry.RunReady,
			ScheduledAt: want.ScheduledAt, ReadyAt: want.ReadyAt, FiredAt: run.FiredAt,
		})
		row := f.liveRow(t, want.ID)
		if row.FiredBy != owner || row.Epoch != 42 || row.Lane != "ours::slow/http" || row.TimeoutMS != 90_000 || row.Rank != plan.Rank(want.ReadyAt, 0) {
			t.Errorf("the row is %+v", row)
		}
		next := step.Next
		next.Version = 2
		if p := f.plan(t, job.ID); p != next {
			t.Errorf("the plan is %+v, wants %+v", p, next)
		}
	})
}

func TestAStepIsAppliedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, allowParallel)
		step := f.step(t, job)
		f.fire(t, step)
		if fired := f.tryFire(t, step); fired.Applied[0] || fired.ReadyCount() != 0 {
			t.Errorf("the step was applied again: %+v", fired)
		}
		worker := f.registerWorker(t)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		if fired := f.tryFire(t, step, step); fired.Applied[0] || fired.Applied[1] || fired.ReadyCount() != 0 {
			t.Errorf("the step was applied again after its run was settled: %+v", fired)
		}
		if runs := f.jobRuns(t, job); len(runs) != 1 || f.plan(t, job.ID).Version != 2 {
			t.Errorf("there are %d runs and the plan has version %d", len(runs), f.plan(t, job.ID).Version)
		}
		if fired := f.tryFire(t); len(fired.Applied) != 0 || fired.ReadyCount() != 0 {
			t.Errorf("no steps made %+v", fired)
		}
	})
}

func TestAStaleStepIsLeftOutAndTheOthersApply(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var steps []plan.Step
		for range 6 {
			steps = append(steps, f.step(t, f.createJob(t, 5)))
		}
		f.edit(t, belfry.Job{ID: steps[2].Seen.JobID, Namespace: belfry.DefaultNamespace}, revise(t, withTimeout(5)))
		steps[4].Seen.Version = 99
		unknown := f.job(f.minutesAgo(5))
		lost := plan.Decide(steps[0].Subject, unknown.Plan, time.Time{}, f.Now())
		fired := f.tryFire(t, append(steps, lost)...)
		if got := fmt.Sprint(fired.Applied); got != "[true true false true false true false]" || fired.ReadyCount() != 4 {
			t.Errorf("applied %s with %d ready, wants all but the third, the fifth and the last", got, fired.ReadyCount())
		}
		if n := f.count(t, `SELECT count(*) FROM runs`); n != 4 {
			t.Errorf("there are %d runs, wants 4", n)
		}
	})
}

func TestTwoStepsOfOnePlanInOneCallMakeOneDecision(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, other := f.createJob(t, 5, allowParallel), f.createJob(t, 5)
		step := f.step(t, job)
		trigger := f.trigger(t, job, "")
		manual := plan.Fire(step.Subject, step.Seen, []plan.Trigger{trigger})
		fired := f.tryFire(t, step, manual, step, f.step(t, other))
		applied := 0
		for _, ok := range fired.Applied[:3] {
			if ok {
				applied++
			}
		}
		if applied != 1 || !fired.Applied[3] || fired.ReadyCount() != 2 {
			t.Errorf("fired %+v, wants one of the first three, and the last", fired)
		}
		if p := f.plan(t, job.ID); p.Version != 2 {
			t.Errorf("the plan has version %d, wants 2", p.Version)
		}
	})
}

// A stale step does not keep a fresh one of the same job from being applied.
func TestAFreshStepAppliesBesideAStaleOneOfTheSameJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, allowParallel)
		stale := f.step(t, job)
		f.tryFire(t, stale)
		for fresh := range 2 {
			steps := []plan.Step{stale, stale}
			steps[fresh] = f.step(t, job)
			if fired := f.tryFire(t, steps...); !fired.Applied[fresh] || fired.Applied[1-fresh] || fired.ReadyCount() != 1 {
				t.Errorf("the fresh step is number %d: fired %+v", fresh, fired)
			}
		}
	})
}

func TestNothingIsFiredEarly(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		soon := f.createJob(t, -60)
		paused := f.createJob(t, 5, allowParallel)
		f.edit(t, paused, pause(t))
		fired := f.tryFire(t, f.step(t, soon), f.step(t, paused))
		if fired.Applied[0] || fired.Applied[1] || fired.ReadyCount() != 0 {
			t.Errorf("fired %+v, wants nothing", fired)
		}
		jittered := f.job(f.minutesAgo(5))
		jittered.Plan.NextAt = f.Now().Add(time.Minute)
		f.createJobs(t, jittered)
		if fired := f.tryFire(t, f.step(t, jittered.Job)); fired.Applied[0] {
			t.Error("a step was applied before its plan was to be looked at")
		}
		if n := f.count(t, `SELECT count(*) FROM runs`); n != 1 {
			t.Errorf("there are %d runs, wants the one that the pause decided", n)
		}
	})
}

func TestALockedPlanIsLeftOut(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		if !f.server {
			t.Skip("there is one writer, and nobody else to lock anything")
		}
		locked, free := f.createJob(t, 5), f.createJob(t, 5)
		other, err := f.tables.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer other.Rollback()
		if _, err := other.Exec(`SELECT 1 FROM plans WHERE job_id = $1 FOR UPDATE`, locked.ID.String()); err != nil {
			t.Fatal(err)
		}
		steps := []plan.Step{f.step(t, locked), f.step(t, free)}
		if fired := f.tryFire(t, steps...); fired.Applied[0] || !fired.Applied[1] || fired.ReadyCount() != 1 {
			t.Errorf("fired %+v, wants the second only", fired)
		}
		if err := other.Rollback(); err != nil {
			t.Fatal(err)
		}
		f.fire(t, steps[0])
	})
}

func TestAnOccurrenceBehindTheMarkIsLeftOut(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		one, two, three := f.createJob(t, 5), f.createJob(t, 5), f.createJob(t, 5)
		steps := []plan.Step{f.step(t, one), f.step(t, two), f.step(t, three)}
		at := steps[1].Runs[0].ScheduledAt
		steps[2].Skips = []plan.Skip{{ID: steps[2].Runs[0].ID, From: at, To: at, Count: 1, Reason: belfry.ReasonMissed}}
		steps[2].Runs[0].ScheduledAt = at.Add(time.Minute)
		steps[2].Runs[0].ID = belfry.RunID(three.ID, belfry.KindScheduled, at.Add(time.Minute), belfry.ID{})
		f.exec(t, `UPDATE plans SET fired_for = ?, nominal_at = ?, next_at = ? WHERE job_id = ?`, at, at.Add(time.Minute), at.Add(time.Minute), two.ID)
		f.exec(t, `UPDATE plans SET fired_for = ?, nominal_at = ?, next_at = ? WHERE job_id = ?`, at, at.Add(time.Minute), at.Add(time.Minute), three.ID)
		fired := f.tryFire(t, steps...)
		if got := fmt.Sprint(fired.Applied); got != "[true false false]" || fired.ReadyCount() != 1 {
			t.Errorf("applied %s with %d ready, wants the first only", got, fired.ReadyCount())
		}
	})
}

func TestMissedOccurrencesBecomeOneSkip(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10)
		seen := f.plan(t, job.ID)
		step := plan.Decide(subject(t, job.Namespace, 1, job.Spec), seen, f.minutesAgo(5), f.Now())
		step.Epoch = 7
		if fired := f.fire(t, step); fired.ReadyCount() != 1 {
			t.Errorf("fired %+v", fired)
		}
		runs := f.jobRuns(t, job)
		if len(runs) != 2 {
			t.Fatalf("there are %d records, wants 2", len(runs))
		}
		run, skip := runs[0], runs[1]
		if run.Status != belfry.RunReady || !run.ScheduledAt.Equal(seen.NominalAt.Add(4*time.Minute)) {
			t.Errorf("the run is %s for %v, wants ready for the latest missed occurrence", run.Status, run.ScheduledAt)
		}
		f.wantSkip(t, skip, belfry.ReasonMissed, seen.NominalAt, seen.NominalAt.Add(3*time.Minute), 4)
		if n := f.count(t, `SELECT count(*) FROM history WHERE fired_by = ? AND epoch = 7`, owner); n != 1 {
			t.Errorf("%d skips name the owner, wants 1", n)
		}
		if got := f.run(t, job.Namespace, skip.ID); got.Status != belfry.RunSkipped {
			t.Errorf("the skip is found as %+v", got)
		}
	})
}

// wantSkip expects a record of skipped occurrences.
func (f *fixture) wantSkip(t tb, got belfry.Run, reason belfry.Reason, from, to time.Time, count int64) {
	t.Helper()
	f.wantRecent(t, "the skip", got.FinishedAt)
	wantEqual(t, "the skip", got, belfry.Run{
		ID: got.ID, JobID: got.JobID, Namespace: got.Namespace, Revision: got.Revision, Kind: belfry.KindScheduled, Status: belfry.RunSkipped, Reason: reason,
		ScheduledAt: from, SkippedTo: &to, SkippedCount: count, FinishedAt: got.FinishedAt,
	}, cmpopts.IgnoreFields(belfry.Run{}, "ReadyAt", "FiredAt"))
}

func TestAnOccurrenceIsSkippedWhileARunIsLive(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, worker := f.createJob(t, 10), f.registerWorker(t)
		f.fire(t, f.step(t, job))
		second := f.step(t, job)
		if fired := f.fire(t, second); fired.ReadyCount() != 0 {
			t.Errorf("fired %+v beside a ready run, wants nothing ready", fired)
		}
		skip := f.run(t, job.Namespace, second.Runs[0].ID)
		at := second.Runs[0].ScheduledAt
		f.wantSkip(t, skip, belfry.ReasonOverlap, at, at, 1)
		run := f.claimOne(t, worker)
		f.fireInto(t, slots(worker, 5), f.step(t, job))
		f.finishAs(t, run, belfry.OutcomeFailed)
		f.fire(t, f.step(t, job))
		f.backdate(t, time.Hour, "runs", "ready_at", "")
		if _, _, err := f.Promote(ctx, f.allShards(), 10); err != nil {
			t.Fatal(err)
		}
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		if fired := f.fire(t, f.step(t, job)); fired.ReadyCount() != 1 {
			t.Errorf("fired %+v after the run was settled, wants one ready", fired)
		}
		if n := f.count(t, `SELECT count(*) FROM history WHERE state = 'skipped' AND reason = 'overlap'`); n != 3 {
			t.Errorf("%d occurrences were skipped, wants 3: beside a ready, a running and a retrying run", n)
		}
		if got := f.getJob(t, job); got.Status != belfry.StatusQueued {
			t.Errorf("the job is %s", got.Status)
		}
	})
}

func TestAJobThatAllowsItRunsInParallel(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10, allowParallel)
		for range 4 {
			f.fire(t, f.step(t, job))
		}
		if got := f.claim(t, f.registerWorker(t), 10); len(got) != 4 {
			t.Errorf("claimed %d runs, wants 4", len(got))
		}
		if p := f.plan(t, job.ID); p.RunsMade != 4 {
			t.Errorf("the plan counts %d runs, wants 4", p.RunsMade)
		}
	})
}

func TestConcurrentFiringsMakeOneRunAnOccurrence(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t), f.reopen(t))
		}
		const jobs, rounds = 30, 4
		for range jobs {
			f.createJobs(t, f.job(f.minutesAgo(20), allowParallel))
		}
		for round := range rounds {
			steps := f.decide(t, f.due(t))
			applied := make([]int, len(steps))
			ready := 0
			var mu sync.Mutex
			var wait sync.WaitGroup
			for i := range 6 {
				wait.Go(func() {
					fired, err := stores[i%len(stores)].Fire(ctx, newID(), steps, store.FreeSlots{})
					if err != nil {
						t.Errorf("fire: %v", err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					ready += fired.ReadyCount()
					for j, ok := range fired.Applied {
						if ok {
							applied[j]++
						}
					}
				})
			}
			wait.Wait()
			for j, n := range applied {
				if n != 1 {
					t.Errorf("round %d: step %d was applied %d times", round, j, n)
				}
			}
			if n := f.count(t, `SELECT count(*) FROM runs`); n != int64(round+1)*jobs || ready != jobs {
				t.Errorf("round %d: %d runs are there and %d were counted as ready, wants %d and %d", round, n, ready, (round+1)*jobs, jobs)
			}
		}
	})
}

func TestAJobThatCannotBeReadDoesNotStopTheOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		good, bad := f.createJob(t, 5, withRetries(1)), f.createJob(t, 5)
		f.fireDue(t)
		whole := read(t, f, scanText, `SELECT spec FROM jobs WHERE id = ?`, bad.ID)[0]
		spoil := func(spec string) { f.exec(t, `UPDATE jobs SET spec = ? WHERE id = ?`, spec, bad.ID) }
		worker := f.registerWorker(t)
		claimed := map[belfry.ID]*belfry.Run{}
		spoil(`{"timeout_seconds": "written by a newer version"}`)
		runs, err := f.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{lane}, Limit: 10})
		for _, run := range runs {
			claimed[run.JobID] = run
		}
		if claimed[good.ID] == nil {
			t.Fatalf("the run of the good job was not claimed (%v)", err)
		}
		r := result(claimed[good.ID], belfry.OutcomeFailed)
		results := []belfry.Result{r}
		if run := claimed[bad.ID]; run != nil {
			results = append(results, result(run, belfry.OutcomeFailed))
		}
		if verdicts, err := f.Finish(ctx, results); err != nil || verdicts[0] != belfry.VerdictAccepted || f.state(t, r.RunID) != belfry.RunRetry {
			t.Errorf("the result of the good job is %v (%v), and its run %s", verdicts, err, f.state(t, r.RunID))
		}
		spoil(whole)
	})
}

func TestOneBadJobDoesNotStopTheOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, text := range []string{"zero\x00byte", "not \xff\xfe utf-8", `'"; DROP TABLE runs; --`} {
			good, bad := f.job(f.minutesAgo(5)), f.job(f.minutesAgo(5), withQueue(text))
			f.createJobs(t, good)
			if err := f.CreateJobs(ctx, jobSeq(bad), nil); err != nil {
				continue // refused at the door
			}
			fired, err := f.Fire(ctx, owner, f.decide(t, f.due(t)), store.FreeSlots{})
			if n := f.count(t, `SELECT count(*) FROM runs WHERE job_id = ?`, good.Job.ID); err != nil || n != 1 {
				t.Errorf("a job in queue %q was stored and stops the firing of others: %+v (%v), %d runs", text, fired, err, n)
			}
			f.edit(t, good.Job, deleteJob(t))
			f.edit(t, bad.Job, deleteJob(t))
		}
	})
}

// createDelayed makes a job whose occurrence came a while ago and is due some time
// after it, and the step that decides it.
func (f *fixture) createDelayed(t tb, by time.Duration, changes ...func(*belfry.Job)) (belfry.Job, plan.Step) {
	t.Helper()
	job := f.job(f.minutesAgo(5), changes...)
	job.Plan.NextAt = job.Plan.NominalAt.Add(by)
	f.createJobs(t, job)
	step := f.step(t, job.Job)
	step.Runs[0].ReadyAt = job.Plan.NextAt
	return job.Job, step
}

func TestAStepIsEarlyByWhenItsPlanIsDueAndNotByItsOccurrence(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		_, early := f.createDelayed(t, time.Hour)
		job, late := f.createDelayed(t, 2*time.Minute)
		fired := f.tryFire(t, early, late)
		if fired.Applied[0] || !fired.Applied[1] || fired.ReadyCount() != 1 {
			t.Fatalf("fired %+v, wants the second only", fired)
		}
		run := f.run(t, job.Namespace, late.Runs[0].ID)
		if !run.ScheduledAt.Equal(f.minutesAgo(5)) || !run.ReadyAt.Equal(f.minutesAgo(3)) {
			t.Errorf("the run is of %v and ready since %v, wants %v and %v", run.ScheduledAt, run.ReadyAt, f.minutesAgo(5), f.minutesAgo(3))
		}
		if p := f.plan(t, job.ID); !p.FiredFor.Equal(f.minutesAgo(5)) || !p.NominalAt.Equal(f.minutesAgo(4)) {
			t.Errorf("the plan is %+v", p)
		}
		if due := f.due(t); len(due) != 1 || due[0].Plan.JobID != job.ID {
			t.Errorf("%+v is due, wants the next minute of the second only", due)
		}
	})
}

func TestOnlyScheduledRunsAreCounted(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, worker := f.createJob(t, 30, allowParallel), f.registerWorker(t)
		triggered := func() {
			t.Helper()
			f.fire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{f.trigger(t, job, ""), f.trigger(t, job, "")}))
			for _, run := range f.claim(t, worker, 2) {
				f.finishAs(t, run, belfry.OutcomeSucceeded)
			}
		}
		last := func() *time.Time { t.Helper(); return f.getJob(t, job).LastRunAt }
		if last() != nil {
			t.Errorf("a new job ran at %v", last())
		}
		triggered() // before anything was scheduled
		if at := last(); at == nil || at.Before(f.minutesAgo(1)) {
			t.Errorf("after two triggered runs the job ran at %v last", at)
		}
		f.fire(t, f.step(t, job))
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		if at := last(); at == nil || at.Before(f.minutesAgo(1)) {
			t.Errorf("with one scheduled run before that the job ran at %v last", at)
		}
		triggered()
		if p := f.plan(t, job.ID); p.RunsMade != 1 {
			t.Errorf("the plan counts %d runs, wants the scheduled one", p.RunsMade)
		}
	})
}

// What one decision makes of a job has the same instant in every record, so that it can be
// told which run caught up on which skip.
func TestADecisionHasOneInstant(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10)
		step := plan.Decide(subject(t, job.Namespace, job.Revision, job.Spec), f.plan(t, job.ID), f.Now(), f.Now())
		if len(step.Runs) != 1 || len(step.Skips) != 1 {
			t.Fatalf("the step is %+v", step)
		}
		f.fire(t, step)
		runs := f.jobRuns(t, job)
		if len(runs) != 2 || !runs[0].FiredAt.Equal(runs[1].FiredAt) {
			t.Errorf("the records are %+v", runs)
		}
	})
}
