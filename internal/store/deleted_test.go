package store_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// A deleted job can be looked up as long as its history is kept, and no longer.
func TestDeletedJobsAreKeptWithTheirHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep = 10 * 24 * time.Hour
		worker := f.registerWorker(t)
		create := func(outcome belfry.Outcome, changes ...func(*belfry.Job)) belfry.Job {
			t.Helper()
			job := f.edit(t, f.createJob(t, 5, append(changes, withRetries(0))...), revise(t, withTimeout(9)))
			if outcome != "" {
				f.finishAs(t, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0], outcome)
			}
			f.edit(t, job, deleteJob(t))
			return job
		}
		ran := create(belfry.OutcomeSucceeded, withName("report"))
		long := create(belfry.OutcomeSucceeded, withRetention(100))
		dead := create(belfry.OutcomeFailed)
		idle := f.createJob(t, -60)
		f.edit(t, idle, deleteJob(t))
		age := func(by time.Duration) {
			f.backdate(t, by, "jobs", "updated_at", "state = 'deleted'")
			f.backdate(t, by, "ended", "ended_at retain_until", "")
			f.backdate(t, by, "history", "settled_at retain_until", "")
			if _, err := f.Prune(ctx, keep); err != nil {
				t.Fatal(err)
			}
		}
		kept := func(doing string, job belfry.Job, want bool) {
			t.Helper()
			_, err := f.Job(ctx, job.Namespace, job.ID)
			wantCode(t, doing, err, belfry.NotFound)
			deleted, err := f.DeletedJob(ctx, job.Namespace, job.ID)
			if !want {
				wantCode(t, doing, err, belfry.NotFound)
			} else if err != nil || deleted.Status != belfry.StatusDeleted || deleted.State != belfry.JobDeleted || deleted.Revision != 2 || len(f.revisions(t, job, 0, 5)) != 1 {
				t.Errorf("%s: the deleted job is %+v: %v", doing, deleted, err)
			}
			if n := f.count(t, `SELECT count(*) FROM revisions WHERE job_id = ?`, job.ID); (n > 0) != want {
				t.Errorf("%s: it has %d revisions", doing, n)
			}
		}
		kept("at first", ran, true)
		age(2 * time.Hour)
		for doing, job := range map[string]belfry.Job{"after hours": ran, "with a long retention": long, "with a dead letter": dead} {
			kept(doing, job, true)
		}
		kept("without history", idle, false)
		if _, err := f.JobIDByName(ctx, ran.Namespace, ran.Name); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("a deleted job is found by its name: %v", err)
		}
		if n := f.count(t, `SELECT count(*) FROM jobs`); n != 1 {
			t.Errorf("%d jobs are left beside the live ones", n)
		}
		if runs := f.jobRuns(t, ran); len(runs) == 0 || runs[len(runs)-1].Status != belfry.RunSucceeded {
			t.Errorf("its runs are %+v", runs)
		}
		age(keep + 25*time.Hour)
		kept("after its retention", ran, false)
		kept("with a long retention", long, true)
		kept("with a dead letter", dead, true)
		_, err := f.DeletedJob(ctx, "theirs", long.ID)
		wantCode(t, "from another namespace", err, belfry.NotFound)
	})
}

// A page of runs with a rare status reads a bounded number of rows, and the next one
// continues.
func TestRareRunsOfAJobAreReadInPages(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 5)
		run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		id, at := `randomblob(16)`, `scheduled_at + n.i * 1000000`
		if f.server {
			id, at = `gen_random_uuid()`, `scheduled_at + n.i * interval '1 second'`
		}
		const rows = 25_000 // more than any store reads at once
		f.exec(t, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, attempt, settled_at, http_status, error, output, skipped_count)
			SELECT `+id+`, shard, namespace, job_id, revision, kind, state, reason, `+at+`, ready_at, fired_at, fired_by, epoch, attempt, settled_at, http_status, error, output, skipped_count FROM history, n`, rows)
		f.exec(t, `UPDATE history SET state = 'cancelled' WHERE id = ?`, run.ID)
		defer f.exec(t, `DELETE FROM history`) // They break other invariants.
		var found []belfry.Run
		pages := 0
		for page := (store.Page{Limit: 10}); ; pages++ {
			runs, next, err := f.JobRuns(ctx, job.Namespace, job.ID, belfry.JobRunFilter{Status: belfry.RunCancelled}, page)
			if err != nil {
				t.Fatal(err)
			}
			if found = append(found, runs...); next == (store.Position{}) {
				break
			}
			page.After = next
		}
		if len(found) != 1 || found[0].ID != run.ID || pages == 0 {
			t.Errorf("after %d pages the runs are %+v", pages, found)
		}
	})
}

// A one-off that is cancelled before it is due ends at once, and its name is free.
func TestACancelledOneOffEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createOneOff(t, -3600, withName("report"))
		f.edit(t, job, cancelJob(t))
		f.wantEnded(t, "cancelled", job, belfry.StatusCancelled)
		f.createOneOff(t, -3600, withName("report"))
	})
}
