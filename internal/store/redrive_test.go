package store_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// However many letters of a job come back at once, they follow one after another,
// and the scheduler is notified of that one job.
func TestManyDeadLettersOfOneJobAreRedriven(t *testing.T) {
	const many = 1500
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, -60, withRetries(0))
		triggers := make([]plan.Trigger, many)
		for i := range triggers {
			triggers[i] = f.backfill(job, f.minutesAgo(i))
		}
		f.recordAndFire(t, job, triggers...)
		if n := f.count(t, `SELECT count(*) FROM runs WHERE state = 'waiting'`); n != many-1 {
			t.Errorf("of %d backfilled instants %d wait", many, n)
		}
		f.edit(t, job, revise(t, allowParallel)) // which lets all go
		var results []belfry.Result
		var letters []store.Redrive
		for _, run := range f.claim(t, worker, many) {
			results, letters = append(results, result(run, belfry.OutcomeFailed)), append(letters, store.Redrive{Run: run.ID})
		}
		f.finish(t, results...)
		f.ChangedJobs()
		if n := f.redrive(t, namespace, letters...); n != many {
			t.Errorf("%d letters came back, wants %d", n, many)
		}
		if jobs, all := f.ChangedJobs(); all || len(jobs) != 1 || jobs[0] != job.ID {
			t.Errorf("the jobs that changed are %v (all: %v), wants one", jobs, all)
		}
		if n := f.count(t, `SELECT count(*) FROM runs WHERE state = 'waiting'`); n != many-1 {
			t.Errorf("of %d redriven runs %d wait", many, n)
		}
		if run := f.claimOne(t, worker); !run.ScheduledAt.Equal(f.minutesAgo(many - 1)) {
			t.Errorf("the first to go is that of %v, wants the earliest", run.ScheduledAt)
		}
		f.edit(t, job, deleteAndCancel(t))
	})
}

func TestARedrivenRunKeepsItsPast(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, withNamespace("ours"), withRetries(1), withBase(0), withKeys("k-{{unix}}"), withPriority(belfry.PriorityHigh), withRetention(3))
		f.fire(t, f.step(t, job))
		worker := f.registerWorker(t)
		first := f.claimOne(t, worker)
		for try := range 2 {
			run := first
			if try > 0 {
				f.promoteAll(t)
				run = f.claimOne(t, worker)
			}
			f.finishAs(t, run, belfry.OutcomeFailed)
		}
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.MaxRetries, j.Payload = belfry.Some(9), json.RawMessage(`"new"`) }))
		seen := f.plan(t, job.ID)
		if n := f.redrive(t, "theirs", store.Redrive{Run: first.ID}); n != 0 || f.state(t, first.ID) != belfry.RunDead {
			t.Errorf("another namespace redrove %d", n)
		}
		if n := f.redrive(t, "ours", store.Redrive{Run: first.ID}); n != 1 {
			t.Fatalf("%d were redriven, wants 1", n)
		}
		if n := f.redrive(t, "ours", store.Redrive{Run: first.ID}); n != 0 {
			t.Errorf("%d were redriven again", n)
		}
		if p := f.plan(t, job.ID); p.Version <= seen.Version {
			t.Errorf("the plan is still at version %d: a fire under way would not see the run", p.Version)
		}
		if row := f.liveRow(t, first.ID); row.State != belfry.RunReady || row.Failures != 0 || row.Lost != 0 || row.Attempt != 2 || !near(row.ReadyAt, f.Now(), 20*time.Second) {
			t.Errorf("the redriven run is %+v", row)
		}
		if _, err := f.DeadLetter(ctx, "ours", first.ID); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("a redriven run is still a dead letter (%v)", err)
		}
		for attempt := 3; attempt <= 4; attempt++ { // it has all its retries
			run := f.claimOne(t, worker)
			if run.ID != first.ID || run.Attempt != attempt || run.Revision != 1 || run.Spec != job.Spec || run.Key() != first.Key() ||
				string(run.Payload) != string(job.Payload) || !run.ScheduledAt.Equal(first.ScheduledAt) || run.Kind != first.Kind || !run.FiredAt.Equal(first.FiredAt) {
				t.Errorf("the redriven run was claimed as %+v", run)
			}
			f.finishAs(t, run, belfry.OutcomeFailed)
			f.promoteAll(t)
		}
		got := f.run(t, "ours", first.ID)
		if got.Status != belfry.RunDead || got.Attempt != 4 || len(got.Attempts) != 4 {
			t.Errorf("the run that died again is %+v", got)
		}
		f.redrive(t, "ours", store.Redrive{Run: first.ID})
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		if got = f.run(t, "ours", first.ID); got.Status != belfry.RunSucceeded || got.Attempt != 5 || len(got.Attempts) != 4 {
			t.Errorf("the run that succeeded at last is %+v", got)
		}
		if n := f.redrive(t, "ours", store.Redrive{Run: first.ID}); n != 0 {
			t.Errorf("a run that succeeded was redriven")
		}
	})
}

func TestARedrivenRunMayHaveAnotherPayloadAndADelay(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		now, later, edited := f.deadRun(t), f.deadRun(t), f.deadRun(t, withPayload(`"own"`))
		n := f.redrive(t, namespace, store.Redrive{Run: now.ID}, store.Redrive{Run: later.ID, After: time.Hour}, store.Redrive{Run: newID()},
			store.Redrive{Run: edited.ID, After: 30 * time.Minute, Payload: json.RawMessage(`{"fixed":  true}`)})
		if n != 3 {
			t.Fatalf("%d were redriven, wants 3", n)
		}
		for id, want := range map[belfry.ID]time.Duration{later.ID: time.Hour, edited.ID: 30 * time.Minute} {
			if row := f.liveRow(t, id); row.State != belfry.RunRetry || !near(row.ReadyAt, f.Now().Add(want), 20*time.Second) {
				t.Errorf("the run is %+v, wants it in %v", row, want)
			}
		}
		worker := f.registerWorker(t)
		if run := f.claimOne(t, worker); run.ID != now.ID {
			t.Errorf("claimed %s, wants the one without a delay", run.ID)
		}
		f.promoteAll(t)
		for _, run := range f.claim(t, worker, 10) {
			want := map[belfry.ID]string{later.ID: string(later.Payload), edited.ID: `{"fixed":  true}`}[run.ID]
			if string(run.Payload) != want || run.Attempt != 2 {
				t.Errorf("attempt %d has the payload %s, wants %s", run.Attempt, run.Payload, want)
			}
			f.finishAs(t, run, belfry.OutcomeFailed)
		}
		if d, err := f.DeadLetter(ctx, namespace, edited.ID); err != nil || string(d.Payload) != `{"fixed":  true}` {
			t.Errorf("the payload of the run that died again is %s (%v)", d.Payload, err)
		}
		f.redrive(t, namespace, store.Redrive{Run: edited.ID, Payload: json.RawMessage(`"at last"`)})
		if run := f.claimOne(t, worker); string(run.Payload) != `"at last"` {
			t.Errorf("with a third payload it was claimed with %s", run.Payload)
		}
	})
}

func TestARedrivenRunMayGetTheCurrentRevision(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.deadRun(t, withPayload(`"old"`))
		job, err := f.Job(ctx, namespace, run.JobID)
		if err != nil {
			t.Fatal(err)
		}
		job = f.edit(t, job, revise(t, func(j *belfry.Job) {
			j.Priority = belfry.PriorityHigh
			j.Queue, j.TimeoutSeconds, j.RetentionDays, j.Overlap, j.Payload = "other", 77, 3, belfry.OverlapParallel, json.RawMessage(`"new"`)
		}))
		if d, err := f.DeadLetter(ctx, namespace, run.ID); err != nil || d.JobRevision != 2 || d.Revision != 1 || !d.Edited() || d.HasPayload {
			t.Errorf("the dead letter is %+v: %v", d, err)
		}
		weight := plan.Defaults{}.Weight(job.Priority)
		if n := f.redrive(t, namespace, store.Redrive{Run: run.ID, Job: &job, Weight: weight}); n != 1 {
			t.Fatalf("%d were redriven", n)
		}
		if n := f.count(t, `SELECT count(*) FROM runs WHERE id = ? AND weight = ? AND timeout_ms = 77000 AND retention_days = 3 AND revision = 2 AND lane = ?`, run.ID, weight, job.Lane(namespace)); n != 1 {
			t.Errorf("the run does not have the values of its job: %+v", f.liveRow(t, run.ID))
		}
		worker := newID()
		f.heartbeat(t, belfry.Heartbeat{WorkerID: worker, Slots: 1, Lanes: []string{job.Lane(namespace)}, Register: true})
		runs, err := f.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{job.Lane(namespace)}, Limit: 1})
		if err != nil || len(runs) != 1 || runs[0].Revision != 2 || string(runs[0].Payload) != `"new"` || runs[0].Spec.TimeoutSeconds != 77 {
			t.Errorf("claimed %+v: %v", runs, err)
		}
	})
}

// poisonRun gives a run of a new job that lost so many workers that it is dead.
func (f *fixture) poisonRun(t tb, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	run := f.startRun(t, changes...)
	for lost := 1; ; lost++ {
		f.silenceWorker(t, run.WorkerID, time.Hour)
		f.reap(t, time.Minute)
		if lost == belfry.PoisonLimit {
			return run
		}
		run = f.claimOne(t, f.registerWorker(t))
	}
}

func TestARedrivenRunMayLoseItsWorkersAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.poisonRun(t)
		f.redrive(t, namespace, store.Redrive{Run: run.ID})
		if row := f.liveRow(t, run.ID); row.Lost != 0 || row.Attempt != belfry.PoisonLimit {
			t.Errorf("the redriven run is %+v", row)
		}
	})
}

func TestARedrivenRunIsSerialIfItWasWhenItWasFired(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, tt := range []struct {
			was, is func(*belfry.Job)
			want    belfry.RunStatus
		}{
			{withQueueLimit(3), allowParallel, belfry.RunWaiting},
			{allowParallel, withQueueLimit(3), belfry.RunReady},
		} {
			dead := f.deadRun(t, tt.was)
			job := f.edit(t, belfry.Job{ID: dead.JobID, Namespace: namespace}, revise(t, tt.is))
			f.fireNext(t, job)
			f.redrive(t, namespace, store.Redrive{Run: dead.ID})
			f.wantState(t, "redriven beside another", dead.ID, tt.want)
			f.settleAll(t)
		}
	})
}

func TestARedrivenRunWaitsBehindOthersOfItsJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for overlap, change := range map[belfry.Overlap]func(*belfry.Job){"skip": func(*belfry.Job) {}, "queue": withQueueLimit(1), "parallel": allowParallel} {
			worker := f.registerWorker(t)
			job := f.createJob(t, 10, withRetries(0), change)
			var dead []store.Redrive
			for range 3 {
				f.fire(t, f.step(t, job))
				run := f.claimOne(t, worker)
				f.finishAs(t, run, belfry.OutcomeFailed)
				dead = append(dead, store.Redrive{Run: run.ID})
			}
			f.fire(t, f.step(t, job))
			held := f.claimOne(t, worker)
			stale := f.step(t, job)
			if n := f.redrive(t, namespace, dead...); n != 3 {
				t.Fatalf("%s: %d were redriven, wants 3", overlap, n)
			}
			if fired := f.tryFire(t, stale); fired.Applied[0] {
				t.Errorf("%s: a step from before the redrive was applied", overlap)
			}
			want := belfry.RunWaiting
			if overlap == "parallel" {
				want = belfry.RunReady
			}
			for _, d := range dead {
				f.wantState(t, string(overlap), d.Run, want)
			}
			f.finishAs(t, held, belfry.OutcomeSucceeded)
			if overlap != "parallel" {
				for _, d := range dead {
					run := f.claimOne(t, worker)
					if run.ID != d.Run {
						t.Errorf("%s: %s is promoted, wants %s", overlap, run.ID, d.Run)
					}
					f.finishAs(t, run, belfry.OutcomeSucceeded)
				}
			}
			f.settleAll(t)
		}
		// With nothing alive, one of several is promoted, and a delay counts.
		job, worker := f.createJob(t, 10, withRetries(0)), f.registerWorker(t)
		var dead []store.Redrive
		for range 2 {
			f.fire(t, f.step(t, job))
			run := f.claimOne(t, worker)
			f.finishAs(t, run, belfry.OutcomeFailed)
			dead = append(dead, store.Redrive{Run: run.ID, After: time.Hour})
		}
		f.redrive(t, namespace, dead...)
		states := []belfry.RunStatus{f.state(t, dead[0].Run), f.state(t, dead[1].Run)}
		slices.Sort(states)
		if !slices.Equal(states, []belfry.RunStatus{belfry.RunRetry, belfry.RunWaiting}) {
			t.Errorf("two that were redriven with a delay are %v", states)
		}
	})
}

func TestADiscardedRunIsHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.deadRunWithError(t, 30, "no upstream", withNamespace("ours"), withKeys("k-{{unix}}"), withRetention(3))
		before := f.run(t, "ours", run.ID)
		if n := f.discard(t, "theirs", run.ID); n != 0 || f.state(t, run.ID) != belfry.RunDead {
			t.Errorf("another namespace discarded %d", n)
		}
		if n := f.discard(t, "ours", newID(), run.ID); n != 1 {
			t.Fatalf("%d were discarded, wants 1", n)
		}
		if n := f.discard(t, "ours", run.ID) + f.redrive(t, "ours", store.Redrive{Run: run.ID}); n != 0 {
			t.Errorf("what was discarded was found %d times", n)
		}
		got := f.run(t, "ours", run.ID)
		if got.Status != belfry.RunDiscarded || got.Reason != belfry.ReasonOutOfRetries || got.Attempt != 1 || len(got.Attempts) != 1 || got.Attempts[0].Error != "no upstream" ||
			got.Key() != before.Key() || got.FinishedAt == nil || !near(*got.FinishedAt, f.Now(), 20*time.Second) || got.Revision != 1 {
			t.Errorf("the discarded run is %+v", got)
		}
		if list := f.listRuns(t, "ours", belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: belfry.RunDiscarded}}, 5); len(list) != 1 || list[0].ID != run.ID {
			t.Errorf("the discarded runs are %+v", list)
		}
		if list := f.listDeadLetters(t, "ours", belfry.DeadFilter{}, 5); len(list) != 0 {
			t.Errorf("%d dead letters are left", len(list))
		}
		if v := f.finish(t, result(run, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
			t.Errorf("a late success is %s", v)
		}
		f.wantState(t, "after a late success", run.ID, belfry.RunDiscarded)
	})
}

func TestDeadLettersOfDeletedJobsCanBeRedrivenOrDiscarded(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		again, given := f.deadRun(t), f.deadRun(t)
		for _, run := range []*belfry.Run{again, given} {
			f.edit(t, belfry.Job{ID: run.JobID, Namespace: run.Namespace}, deleteJob(t))
		}
		if n := f.redrive(t, namespace, store.Redrive{Run: again.ID}) + f.discard(t, namespace, given.ID); n != 2 {
			t.Errorf("%d were decided, wants 2", n)
		}
		run := f.claimOne(t, f.registerWorker(t))
		if run.ID != again.ID || string(run.Payload) != string(again.Payload) {
			t.Errorf("claimed %+v", run)
		}
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		f.wantState(t, "given up", given.ID, belfry.RunDiscarded)
	})
}
