package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// wantEnded expects a job to have left the live tables, and still to be found.
func (f *fixture) wantEnded(t tb, doing string, job belfry.Job, want belfry.JobStatus) {
	t.Helper()
	live := f.count(t, `SELECT (SELECT count(*) FROM jobs WHERE id = ?) + (SELECT count(*) FROM plans WHERE job_id = ?)`, job.ID, job.ID)
	if live != 0 || f.count(t, `SELECT count(*) FROM ended WHERE id = ?`, job.ID) != 1 {
		t.Errorf("%s: %d rows of the job are in the live tables", doing, live)
	}
	got := f.getJob(t, job)
	if got.EndedAt == nil || got.EndedAt.After(f.Now()) {
		t.Errorf("%s: the job ended at %v", doing, got.EndedAt)
	}
	archived := job
	archived.State, archived.Status, archived.NextRunAt, archived.EndedAt = belfry.JobEnded, want, nil, got.EndedAt
	wantEqual(t, doing+": the archived job", got, archived, cmpopts.EquateApproxTime(time.Millisecond), cmpopts.IgnoreFields(belfry.Job{}, "LastRunAt", "LastResult", "UpdatedAt"))
}

// wantLive expects a job not to be over.
func (f *fixture) wantLive(t tb, doing string, job belfry.Job) {
	t.Helper()
	if got := f.getJob(t, job); got.State == belfry.JobEnded {
		t.Errorf("%s: the job is over", doing)
	}
}

// archiveAll scans all one-offs and returns how many it archived.
func (f *fixture) archiveAll(t tb, limit int) (archived int) {
	t.Helper()
	var after belfry.ID
	for {
		n, next, err := f.Archive(ctx, f.allShards(), after, limit)
		if err != nil {
			t.Fatalf("archive: %v", err)
		}
		if archived += n; next.IsZero() {
			return archived
		}
		if next.Compare(after) <= 0 {
			t.Fatalf("after %s the scan continues after %s", after, next)
		}
		after = next
	}
}

func TestAOneOffIsArchivedWhenItsRunIsSettled(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for _, tt := range []struct {
			name string
			end  func(run *belfry.Run)
			want belfry.JobStatus
		}{
			{"succeeded", func(run *belfry.Run) { f.finishAs(t, run, belfry.OutcomeSucceeded) }, belfry.StatusCompleted},
			{"cancelled while running", func(run *belfry.Run) {
				f.cancel(t, run.Namespace, run.ID)
				f.finishAs(t, run, belfry.OutcomeCancelled)
			}, belfry.StatusCancelled},
			{"cancelled while ready", func(run *belfry.Run) {
				f.finishAs(t, run, belfry.OutcomeInterrupted)
				f.cancel(t, run.Namespace, run.ID)
			}, belfry.StatusCancelled},
			{"cancelled and lost", func(run *belfry.Run) {
				f.cancel(t, run.Namespace, run.ID)
				f.backdate(t, time.Hour, "runs", "cancel_requested_at", "")
				f.reap(t, 0)
			}, belfry.StatusCancelled},
			{"discarded", func(run *belfry.Run) {
				f.finishAs(t, run, belfry.OutcomeFailed)
				f.discard(t, run.Namespace, run.ID)
			}, belfry.StatusFailed},
			{"redriven", func(run *belfry.Run) {
				f.finishAs(t, run, belfry.OutcomeFailed)
				f.redrive(t, run.Namespace, store.Redrive{Run: run.ID})
				f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			}, belfry.StatusCompleted},
			{"redriven and cancelled", func(run *belfry.Run) {
				f.finishAs(t, run, belfry.OutcomeFailed)
				f.redrive(t, run.Namespace, store.Redrive{Run: run.ID})
				f.cancel(t, run.Namespace, run.ID)
			}, belfry.StatusCancelled},
		} {
			job := f.createOneOff(t, 5, withName("report"), withRetries(0), withNamespace("ours"), withTags("a", "b"))
			if fired := f.fireInto(t, slots(worker, 1), f.step(t, job)); len(fired.Claimed) == 1 {
				f.wantLive(t, tt.name, job)
				tt.end(fired.Claimed[0])
			}
			f.wantEnded(t, tt.name, job, tt.want)
			if got := f.getJob(t, job); got.LastRunAt == nil || !got.LastRunAt.Equal(f.minutesAgo(5)) {
				t.Errorf("%s: it ran at %v last", tt.name, got.LastRunAt)
			}
			if n := f.archiveAll(t, 10); n != 0 {
				t.Errorf("%s: %d jobs were left to archive", tt.name, n)
			}
		}
	})
}

func TestAOneOffIsNotArchivedWhileAnythingIsPending(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		start := func(changes ...func(*belfry.Job)) (belfry.Job, *belfry.Run) {
			t.Helper()
			job := f.createOneOff(t, 5, append([]func(*belfry.Job){withRetries(0)}, changes...)...)
			return job, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		}
		dead, run := start()
		f.finishAs(t, run, belfry.OutcomeFailed)
		retried, run := start(withRetries(5))
		f.finishAs(t, run, belfry.OutcomeFailed)
		triggered, run := start()
		trigger := f.trigger(t, triggered, "")
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		beside, run := start(allowParallel)
		other := f.newTrigger(beside, "")
		f.recordAndFire(t, beside, other)
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		paused, run := start()
		f.edit(t, paused, pause(t))
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		f.edit(t, f.createOneOff(t, 5, withName("gone")), deleteJob(t))
		recurring := f.createJob(t, 5)
		f.edit(t, recurring, cancelJob(t))
		planned := f.createOneOff(t, -60)
		jobs := map[string]belfry.Job{"dead": dead, "retried": retried, "triggered": triggered, "beside another": beside, "paused": paused, "recurring": recurring, "planned": planned}
		if n := f.archiveAll(t, 2); n != 0 {
			t.Errorf("%d jobs were archived, wants none", n)
		}
		for doing, job := range jobs {
			f.wantLive(t, doing, job)
		}

		f.fire(t, plan.Fire(subject(t, namespace, 1, triggered.Spec), f.plan(t, triggered.ID), []plan.Trigger{trigger}))
		f.settleAll(t)
		f.edit(t, paused, resume(t))
		f.archiveAll(t, 2)
		for _, doing := range []string{"retried", "triggered", "beside another", "paused"} {
			f.wantEnded(t, doing, jobs[doing], belfry.StatusCompleted)
		}
		for _, doing := range []string{"dead", "recurring", "planned"} {
			f.wantLive(t, doing, jobs[doing])
		}
	})
}

func TestACancelledOneOffIsArchived(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createOneOff(t, -60, withName("report"))
		f.edit(t, job, cancelJob(t))
		f.archiveAll(t, 10)
		f.wantEnded(t, "cancelled before its time", job, belfry.StatusCancelled)
		if got := f.getJob(t, job); got.LastRunAt != nil {
			t.Errorf("a job that never ran ran at %v", got.LastRunAt)
		}
		if runs := f.jobRuns(t, job); len(runs) != 1 || runs[0].Reason != belfry.ReasonCancelled {
			t.Errorf("its history is %+v", runs)
		}
	})
}

func TestAnArchivedJobIsReadOnly(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createOneOff(t, 5, withName("report"), withNamespace("ours"), withTags("a"), withHandler("send"), withQueue("bulk"))
		edited := f.edit(t, job, revise(t, withTimeout(9)))
		step := f.step(t, edited)
		run := f.fireInto(t, store.FreeSlots{Worker: worker, Lanes: []string{step.Lane()}, Free: 1}, step).Claimed[0]
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		f.wantEnded(t, "edited and run", edited, belfry.StatusCompleted)

		if id, err := f.JobIDByName(ctx, "ours", "report"); err != nil || id != job.ID {
			t.Errorf("by its name it is %s (%v)", id, err)
		}
		if runs := f.jobRuns(t, job); len(runs) != 1 || runs[0].ID != run.ID || f.run(t, "ours", run.ID).Status != belfry.RunSucceeded {
			t.Errorf("its runs are %+v", runs)
		}
		if got := f.runsAt(t, job, f.minutesAgo(5)); len(got) != 1 {
			t.Errorf("of its instant %v was decided", got)
		}
		if got := f.revisions(t, job, 0, 10); len(got) != 1 || got[0].Spec != job.Spec {
			t.Errorf("its revisions are %+v", got)
		}
		_, err := f.EditJob(ctx, "ours", job.ID, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) {
			t.Error("a job that is over was offered for an edit")
			return nil, nil
		})
		wantEndedConflict(t, "edit", err)
		wantEndedConflict(t, "trigger", f.Trigger(ctx, f.oneTrigger(job), nil))
		if n := f.count(t, `SELECT count(*) FROM triggers`); n != 0 {
			t.Errorf("%d triggers are there", n)
		}
		_, err = f.Job(ctx, "theirs", job.ID)
		wantCode(t, "find it from another namespace", err, belfry.NotFound)
		_, err = f.JobIDByName(ctx, "theirs", "report")
		wantCode(t, "find its name from another namespace", err, belfry.NotFound)
		_, err = f.EditJob(ctx, "theirs", job.ID, pause(t))
		wantCode(t, "edit it from another namespace", err, belfry.NotFound)

		for name, tt := range map[string]struct {
			filter belfry.JobFilter
			want   int
		}{
			"no filter":            {belfry.JobFilter{}, 0},
			"completed":            {belfry.JobFilter{Status: belfry.StatusCompleted}, 1},
			"failed":               {belfry.JobFilter{Status: belfry.StatusFailed}, 0},
			"cancelled":            {belfry.JobFilter{Status: belfry.StatusCancelled}, 0},
			"scheduled":            {belfry.JobFilter{Status: belfry.StatusScheduled}, 0},
			"completed, all of it": {belfry.JobFilter{Status: belfry.StatusCompleted, Type: belfry.TypeWorker, Handler: "send", Queue: "bulk", Tags: []string{"a"}, Search: "EPO"}, 1},
			"completed, other tag": {belfry.JobFilter{Status: belfry.StatusCompleted, Tags: []string{"b"}}, 0},
		} {
			list := f.listJobs(t, "ours", tt.filter, 10)
			if len(list) != tt.want {
				t.Errorf("%s: %d jobs are listed, wants %d", name, len(list), tt.want)
			}
			for _, got := range list {
				if diff := cmp.Diff(f.getJob(t, job), got, asStored); diff != "" {
					t.Errorf("%s: the job differs from itself (-found +listed):\n%s", name, diff)
				}
			}
		}
	})
}

// wantEndedConflict expects the error of a change to an archived job.
func wantEndedConflict(t tb, doing string, err error) {
	t.Helper()
	wantCode(t, doing, err, belfry.Conflict)
	if err != nil && !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%s: %q does not say why", doing, err)
	}
}

func TestTheNameOfAnArchivedJobIsFree(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		end := func() belfry.Job {
			t.Helper()
			job := f.createOneOff(t, 5, withName("report"))
			f.finishAs(t, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0], belfry.OutcomeSucceeded)
			return job
		}
		named := func() belfry.ID {
			t.Helper()
			id, err := f.JobIDByName(ctx, namespace, "report")
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := end()
		f.backdate(t, time.Minute, "ended", "ended_at", "")
		second := end()
		if got := named(); got != second.ID {
			t.Errorf("the name is that of %s, wants the one that ended last", got)
		}
		live := f.createOneOff(t, -60, func(j *belfry.Job) { j.Name = "report" })
		if got := named(); got != live.ID {
			t.Errorf("the name is that of %s, wants the one that is alive", got)
		}
		f.edit(t, live, deleteJob(t))
		if got := named(); got != second.ID {
			t.Errorf("after the deletion the name is that of %s", got)
		}
		f.wantEnded(t, "the first", first, belfry.StatusCompleted)
	})
}

func TestArchiveFindsWhatFinishMissed(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		var jobs []belfry.Job
		for range 7 {
			job := f.createOneOff(t, 5)
			f.edit(t, job, pause(t))
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			jobs = append(jobs, job)
		}
		if n := f.archiveAll(t, 3); n != 0 {
			t.Errorf("%d paused jobs were archived", n)
		}
		f.exec(t, `UPDATE jobs SET state = 'active'`)
		if n, _, err := f.Archive(ctx, nil, belfry.ID{}, 10); n != 0 || err != nil {
			t.Errorf("%d jobs of no shard were archived (%v)", n, err)
		}
		byShard := 0
		for shard := range f.Shards() {
			n, _, err := f.Archive(ctx, []int{shard}, belfry.ID{}, 100)
			if err != nil {
				t.Fatal(err)
			}
			byShard += n
		}
		if byShard != len(jobs) || f.archiveAll(t, 3) != 0 {
			t.Errorf("%d jobs were archived, wants %d", byShard, len(jobs))
		}
		for _, job := range jobs {
			f.wantEnded(t, "repaired", job, belfry.StatusCompleted)
		}
	})
}

func TestArchivedJobsArePruned(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep = 10 * 24 * time.Hour
		worker := f.registerWorker(t)
		end := func(changes ...func(*belfry.Job)) belfry.Job {
			t.Helper()
			job := f.createOneOff(t, 5, changes...)
			job = f.edit(t, job, revise(t, withTimeout(9)))
			f.finishAs(t, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0], belfry.OutcomeSucceeded)
			return job
		}
		usual, short, long := end(), end(withRetention(1)), end(withRetention(100))
		age := func(by time.Duration) {
			f.backdate(t, by, "ended", "ended_at retain_until", "")
			f.backdate(t, by, "history", "settled_at retain_until", "")
			f.backdate(t, by, "revisions", "replaced_at", "")
			if _, err := f.Prune(ctx, keep); err != nil {
				t.Fatal(err)
			}
		}
		gone := func(doing string, job belfry.Job) {
			t.Helper()
			_, err := f.Job(ctx, namespace, job.ID)
			wantCode(t, doing, err, belfry.NotFound)
			if n := f.count(t, `SELECT count(*) FROM revisions WHERE job_id = ?`, job.ID); n != 0 {
				t.Errorf("%s: %d revisions are left", doing, n)
			}
		}
		age(3 * 24 * time.Hour)
		gone("a short retention", short)
		f.wantEnded(t, "the usual retention", usual, belfry.StatusCompleted)
		age(15 * 24 * time.Hour)
		gone("the usual retention", usual)
		f.wantEnded(t, "a long retention", long, belfry.StatusCompleted)
		if runs := f.jobRuns(t, long); len(runs) != 1 || len(f.revisions(t, long, 0, 5)) != 1 {
			t.Errorf("the job with a long retention has the runs %+v", runs)
		}
		age(100 * 24 * time.Hour)
		gone("a long retention", long)
	})
}

func TestDeleteEndedDeletesAnArchivedJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for _, history := range []bool{false, true} {
			job := f.createOneOff(t, 5, withName("report"))
			job = f.edit(t, job, revise(t, withTimeout(9)))
			run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
			f.finishAs(t, run, belfry.OutcomeSucceeded)

			wantCode(t, "delete it from another namespace", f.DeleteEnded(ctx, "theirs", job.ID, history), belfry.NotFound)
			if err := f.DeleteEnded(ctx, job.Namespace, job.ID, history); err != nil {
				t.Fatal(err)
			}
			_, err := f.Job(ctx, job.Namespace, job.ID)
			wantCode(t, "look up a deleted job", err, belfry.NotFound)
			_, err = f.JobIDByName(ctx, job.Namespace, job.Name)
			wantCode(t, "find it by its name", err, belfry.NotFound)
			wantCode(t, "delete it again", f.DeleteEnded(ctx, job.Namespace, job.ID, history), belfry.NotFound)
			if deleted, err := f.DeletedJob(ctx, job.Namespace, job.ID); err != nil || deleted.Status != belfry.StatusDeleted || deleted.State != belfry.JobDeleted {
				t.Errorf("the deleted job is %+v: %v", deleted, err)
			}
			if _, err := f.Prune(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Run(ctx, job.Namespace, run.ID); (err != nil) != history {
				t.Errorf("its run, with its history %v: %v", history, err)
			}
		}
		live := f.createOneOff(t, -60)
		wantCode(t, "delete a job that is not archived", f.DeleteEnded(ctx, live.Namespace, live.ID, true), belfry.NotFound)
	})
}
