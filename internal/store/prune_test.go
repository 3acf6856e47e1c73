package store_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestPruneDeletesWhatIsOlderThanTheRetention(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep = 7 * 24 * time.Hour
		prune := func(want int) {
			t.Helper()
			if n, err := f.Prune(ctx, keep); err != nil || n != want {
				t.Errorf("pruned %d (%v), wants %d", n, err, want)
			}
		}
		settled := func(age time.Duration) *belfry.Run {
			run := f.startRun(t, allowParallel, withRetries(5))
			f.finishAs(t, run, belfry.OutcomeInterrupted)
			f.finishAs(t, f.claimOne(t, run.WorkerID), belfry.OutcomeSucceeded)
			f.backdate(t, age, "history", "settled_at", "id = ?", run.ID)
			f.backdate(t, age, "attempts", "finished_at started_at", "run_id = ?", run.ID)
			return run
		}
		fresh, young, old, ancient := settled(0), settled(keep-2*time.Hour), settled(keep+50*time.Hour), settled(40*24*time.Hour)
		skipped := f.createJob(t, 5)
		f.edit(t, skipped, deleteJob(t))
		f.backdate(t, keep+50*time.Hour, "history", "settled_at", "job_id = ?", skipped.ID)
		prune(3)
		prune(0)
		for _, run := range []*belfry.Run{fresh, young} {
			if got := f.run(t, run.Namespace, run.ID); got.Status != belfry.RunSucceeded || len(got.Attempts) != 1 {
				t.Errorf("a run that is to be kept is %+v", got)
			}
		}
		for _, run := range []*belfry.Run{old, ancient} {
			_, err := f.Run(ctx, run.Namespace, run.ID)
			wantCode(t, "find a pruned run", err, belfry.NotFound)
			if n := f.count(t, `SELECT count(*) FROM attempts WHERE run_id = ?`, run.ID); n != 0 {
				t.Errorf("%d attempts of a pruned run are left", n)
			}
		}
		run := f.startRun(t)
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		f.run(t, run.Namespace, run.ID)
	})
}

func TestPruneLeavesWhatIsStillNeeded(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep, age = 24 * time.Hour, 90 * 24 * time.Hour
		dead, live := f.startRun(t, withRetries(0)), f.startRun(t, withRetries(9))
		f.finishAs(t, dead, belfry.OutcomeFailed)
		f.finishAs(t, live, belfry.OutcomeFailed)
		for _, run := range []*belfry.Run{dead, live} {
			f.edit(t, belfry.Job{ID: run.JobID, Namespace: run.Namespace}, revise(t, withTimeout(5)))
			f.edit(t, belfry.Job{ID: run.JobID, Namespace: run.Namespace}, deleteJob(t))
		}
		waiting := f.createJob(t, -60)
		trigger := f.trigger(t, waiting, "")
		f.backdate(t, age, "triggers", "created_at", "")
		f.backdate(t, age, "jobs", "created_at updated_at", "")
		f.backdate(t, age, "revisions", "replaced_at", "")
		if _, err := f.Prune(ctx, keep); err != nil {
			t.Fatalf("prune: %v", err)
		}
		if got := f.run(t, dead.Namespace, dead.ID); got.Status != belfry.RunDead || len(got.Attempts) != 1 {
			t.Errorf("the dead letter is %+v", got)
		}
		if triggers := f.pendingTriggers(t); len(triggers) != 1 || triggers[0].Trigger.ID != trigger.ID {
			t.Errorf("the triggers are %+v", triggers)
		}
		f.getJob(t, waiting)
		f.backdate(t, age, "runs", "ready_at", "state = 'retry'")
		if _, _, err := f.Promote(ctx, f.allShards(), 10); err != nil {
			t.Fatal(err)
		}
		again := f.claimOne(t, f.registerWorker(t))
		if again.ID != live.ID || again.Revision != 1 || again.Spec != live.Spec || string(again.Payload) != string(live.Payload) {
			t.Errorf("a run of a deleted job came back as %+v", again)
		}
		f.finishAs(t, again, belfry.OutcomeSucceeded)
	})
}

func TestPruneDeletesFiredTriggersAndDeletedJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep, age = 24 * time.Hour, 90 * 24 * time.Hour
		job, kept := f.createJob(t, -60), f.createJob(t, -60)
		for _, job := range []belfry.Job{job, kept} {
			f.trigger(t, job, "")
		}
		for _, w := range f.pendingTriggers(t) {
			f.fire(t, plan.Fire(f.decide(t, []store.Due{w.Due})[0].Subject, w.Due.Plan, []plan.Trigger{w.Trigger}))
		}
		f.settleAll(t)
		f.edit(t, job, revise(t, withTimeout(5)))
		f.edit(t, job, deleteJob(t))
		f.edit(t, kept, revise(t, withTimeout(5)))
		if _, err := f.Prune(ctx, keep); err != nil {
			t.Fatal(err)
		}
		if runs := f.jobRuns(t, kept); len(runs) != 1 {
			t.Errorf("the kept job has %d runs, wants 1", len(runs))
		}
		f.backdate(t, age, "history", "settled_at", "")
		f.backdate(t, age, "triggers", "created_at fired_at", "")
		f.backdate(t, age, "jobs", "created_at updated_at", "")
		f.backdate(t, age, "revisions", "replaced_at", "")
		if n, err := f.Prune(ctx, keep); err != nil || n != 2 {
			t.Errorf("pruned %d (%v), wants 2", n, err)
		}
		for _, table := range []string{"triggers", "plans WHERE job_id", "jobs WHERE id", "revisions WHERE job_id"} {
			query, args := `SELECT count(*) FROM `+table, []any{}
			if table != "triggers" {
				query, args = query+` = ?`, append(args, job.ID)
			}
			if n := f.count(t, query, args...); n != 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
		}
		if got := f.getJob(t, kept); got.Revision != 2 {
			t.Errorf("the kept job is %+v", got)
		}
	})
}

const day = 24 * time.Hour

func TestHistoryHasTheRetentionOfItsJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		// Of each job a success after a failure, a cancelled run, a discarded one and a skip.
		lives := func(changes ...func(*belfry.Job)) belfry.Job {
			t.Helper()
			job := f.createJob(t, 20, append([]func(*belfry.Job){withRetries(0)}, changes...)...)
			f.fireNext(t, job)
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeInterrupted)
			f.fireNext(t, job)
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			f.cancel(t, job.Namespace, f.fireNext(t, job).ID)
			f.fireNext(t, job)
			run := f.claimOne(t, worker)
			f.finishAs(t, run, belfry.OutcomeFailed)
			f.discard(t, job.Namespace, run.ID)
			return job
		}
		usual, short, long := lives(), lives(withRetention(2)), lives(withRetention(50))
		const keep = 10 * day
		left := func(days int, want map[belfry.ID]int) {
			t.Helper()
			before := f.count(t, `SELECT count(*) FROM history`)
			n, err := f.Prune(ctx, keep)
			if err != nil {
				t.Fatal(err)
			}
			all := 0
			for _, job := range []belfry.Job{usual, short, long} {
				got := len(f.jobRuns(t, job))
				if all += got; got != want[job.ID] {
					t.Errorf("after %d days %d records of the job with %d days are left, wants %d", days, got, job.RetentionDays, want[job.ID])
				}
			}
			if int(before)-n != all {
				t.Errorf("after %d days %d of %d records went and %d are left", days, n, before, all)
			}
		}
		age := func(days int) {
			t.Helper()
			by := time.Duration(days) * day
			f.backdate(t, by, "history", "settled_at retain_until", "")
			f.backdate(t, by, "attempts", "started_at finished_at", "")
		}
		left(0, map[belfry.ID]int{usual.ID: 4, short.ID: 4, long.ID: 4})
		age(1)
		left(1, map[belfry.ID]int{usual.ID: 4, short.ID: 4, long.ID: 4})
		age(2)
		left(3, map[belfry.ID]int{usual.ID: 4, long.ID: 4})
		age(10)
		left(13, map[belfry.ID]int{long.ID: 4})
		attempts := 0
		for _, run := range f.jobRuns(t, long) {
			attempts += len(f.run(t, long.Namespace, run.ID).Attempts)
		}
		if attempts != 2 {
			t.Errorf("%d attempts of runs that are kept longer are left, wants 2", attempts)
		}
		age(30)
		left(43, map[belfry.ID]int{long.ID: 4})
		age(10)
		left(53, nil)
		if n := f.count(t, `SELECT count(*) FROM attempts`); n != 0 {
			t.Errorf("%d attempts are left of pruned runs", n)
		}
	})
}

func TestSkipsHaveTheRetentionOfTheirJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 20, withRetention(3), withKeys("same"))
		f.fire(t, plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.minutesAgo(10), f.Now())) // a range
		f.fireNext(t, job)                                                                                           // beside it, or with its key
		f.edit(t, job, deleteJob(t))                                                                                 // what was due
		type row struct{ n, kept int64 }
		got := row{f.count(t, `SELECT count(*) FROM history`), f.count(t, `SELECT count(*) FROM history WHERE retain_until IS NOT NULL`)}
		if got.n != 3 || got.kept != 3 {
			t.Errorf("of %d skips %d have a retention of their own, wants 3", got.n, got.kept)
		}
		for _, at := range read(t, f, scanTime, `SELECT retain_until FROM history`) {
			if !near(at, f.Now().Add(3*day), time.Minute) {
				t.Errorf("a skip is kept until %v, wants three days", at)
			}
		}
		plain := f.createJob(t, 5, withQueue("other"))
		f.fireNext(t, plain)
		f.fireNext(t, plain)
		if n := f.count(t, `SELECT count(*) FROM history WHERE retain_until IS NOT NULL AND job_id = ?`, plain.ID); n != 0 {
			t.Errorf("%d skips of a job without a retention have one", n)
		}
	})
}

func TestPurgeDeletesTheHistoryOfADeletedJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		past := func() (belfry.Job, *belfry.Run) {
			t.Helper()
			job := f.createJob(t, 20, withRetries(3), allowParallel)
			f.fireNext(t, job)
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeInterrupted)
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			f.fireNext(t, job)
			return job, f.claimOne(t, worker)
		}
		kept, _ := past()
		gone, held := past()
		f.edit(t, kept, deleteJob(t))
		f.edit(t, gone, purgeJob(t))
		prune := func() {
			t.Helper()
			if _, err := f.Prune(ctx, 90*day); err != nil {
				t.Fatal(err)
			}
		}
		rows := func(job belfry.Job) int64 {
			t.Helper()
			return f.count(t, `SELECT (SELECT count(*) FROM history WHERE job_id = ?) + (SELECT count(*) FROM dead WHERE job_id = ?)`, job.ID, job.ID)
		}
		prune()
		f.wantState(t, "while it is held", held.ID, belfry.RunRunning)
		f.finishAs(t, held, belfry.OutcomeSucceeded)
		prune()
		prune()
		if n := rows(gone); n != 0 {
			t.Errorf("%d records are left of the job that was to take them with it", n)
		}
		if n := f.count(t, `SELECT count(*) FROM attempts WHERE run_id NOT IN (SELECT id FROM history) AND run_id NOT IN (SELECT id FROM runs)`); n != 0 {
			t.Errorf("%d attempts of the purged job are left", n)
		}
		if n := rows(kept); n != 2 {
			t.Errorf("%d records are left of the job that was only deleted, wants 2", n)
		}
	})
}
