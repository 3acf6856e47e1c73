package postgres

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestArchivedOneOffIsFoundButNotLive(t *testing.T) {
	s := openEmpty(t)
	job := createDue(t, s, withName("report"), func(j *belfry.Job) {
		j.Tags, j.Payload, j.RetentionDays = []string{"a", "b"}, []byte(`{"x": 1}`), 3
	})
	fireNext(t, s, job)
	run := finishNext(t, s, belfry.OutcomeSucceeded)
	if n := countRows(t, s, `jobs`) + countRows(t, s, `plans`) + countRows(t, s, `runs`); n != 0 {
		t.Fatalf("%d rows are left in the live tables", n)
	}
	got, err := s.Job(t.Context(), "default", job.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := job
	want.State, want.Status, want.LastRunAt = belfry.JobEnded, belfry.StatusCompleted, &run.ScheduledAt
	want.UpdatedAt, want.EndedAt = got.UpdatedAt, got.EndedAt
	want.LastResult = &belfry.LastResult{Status: belfry.ResultSucceeded, RunID: run.ID}
	if got.LastResult != nil {
		want.LastResult.At = got.LastResult.At
	}
	if diff := diff(want, got); diff != "" || got.EndedAt == nil {
		t.Errorf("the ended job (-want +got):\n%s", diff)
	}
	if n := countRows(t, s, `ended e JOIN belfry.history h ON h.job_id = e.id
		WHERE e.retain_until - e.ended_at = interval '72 hours' AND h.retain_until - h.settled_at = interval '72 hours'`); n != 1 {
		t.Error("the job and its run do not have its retention")
	}
	if runs, _, err := s.JobRuns(t.Context(), "default", job.ID, belfry.JobRunFilter{}, store.Page{Limit: 10}); err != nil || len(runs) != 1 || runs[0].ID != run.ID {
		t.Errorf("its runs are %v: %v", runs, err)
	}
	if revisions, err := s.Revisions(t.Context(), "default", job.ID, 0, 10); err != nil || len(revisions) != 0 {
		t.Errorf("its revisions are %v: %v", revisions, err)
	}
	if _, err := s.Job(t.Context(), "other", job.ID); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("found in another namespace: %v", err)
	}
	if err := s.Trigger(t.Context(), []plan.Trigger{newTrigger(s, job)}, nil); belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("triggered it: %v", err)
	}
}

func TestJobIDByNamePrefersLiveThenLatestEnded(t *testing.T) {
	s := openEmpty(t)
	want := func(job belfry.Job) {
		t.Helper()
		if id, err := s.JobIDByName(t.Context(), "default", "report"); err != nil || id != job.ID {
			t.Errorf("the name is that of %v, want %v: %v", id, job.ID, err)
		}
	}
	for range 3 {
		job := createDue(t, s, withName("report"))
		want(job)
		fireNext(t, s, job)
		finishNext(t, s, belfry.OutcomeSucceeded)
		want(job)
	}
	if _, err := s.JobIDByName(t.Context(), "other", "report"); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("another namespace: %v", err)
	}
}

func TestArchivedJobStatus(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, s *Store, job belfry.Job)
		want belfry.JobStatus
	}{
		{"succeeded", func(t *testing.T, s *Store, job belfry.Job) { finishNext(t, s, belfry.OutcomeSucceeded) }, belfry.StatusCompleted},
		{"cancelled", func(t *testing.T, s *Store, job belfry.Job) {
			runs, _, err := s.JobRuns(t.Context(), "default", job.ID, belfry.JobRunFilter{}, store.Page{Limit: 1})
			if err != nil || len(runs) != 1 {
				t.Fatal(runs, err)
			}
			if err := s.Cancel(t.Context(), "default", runs[0].ID); err != nil {
				t.Fatal(err)
			}
		}, belfry.StatusCancelled},
		{"discarded", func(t *testing.T, s *Store, job belfry.Job) {
			run := finishNext(t, s, belfry.OutcomeFailed)
			if n, err := s.Discard(t.Context(), "default", []belfry.ID{run.ID}); n != 1 || err != nil {
				t.Fatalf("discarded %d: %v", n, err)
			}
		}, belfry.StatusFailed},
		{"redriven", func(t *testing.T, s *Store, job belfry.Job) {
			run := finishNext(t, s, belfry.OutcomeFailed)
			if n, err := s.Redrive(t.Context(), "default", []store.Redrive{{Run: run.ID}}); n != 1 || err != nil {
				t.Fatalf("redrove %d: %v", n, err)
			}
			finishNext(t, s, belfry.OutcomeSucceeded)
		}, belfry.StatusCompleted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openEmpty(t)
			job := createDue(t, s, withoutRetries)
			fireNext(t, s, job)
			tt.end(t, s, job)
			got, err := s.Job(t.Context(), "default", job.ID)
			if err != nil || got.State != belfry.JobEnded || got.Status != tt.want {
				t.Errorf("the job is %s and %s, want %s: %v", got.State, got.Status, tt.want, err)
			}
		})
	}
}

// A dead letter, a pending trigger, a pause and an occurrence to come keep a one-off
// live.
func TestOneOffIsNotArchivedWhileUnfinished(t *testing.T) {
	s := openEmpty(t)
	dead, triggered, paused, planned, recurring := createDue(t, s, withoutRetries), createDue(t, s), createDue(t, s), createDue(t, s), createDue(t, s, withSchedule("* * * * *"))
	fireNext(t, s, dead)
	finishNext(t, s, belfry.OutcomeFailed)
	for _, job := range []belfry.Job{triggered, paused} {
		if job.ID == triggered.ID {
			storeTrigger(t, s, job)
		} else {
			execSQL(t, s, `UPDATE belfry.jobs SET state = 'paused' WHERE id = $1`, uuid(job.ID))
		}
		fireNext(t, s, job)
		finishNext(t, s, belfry.OutcomeSucceeded)
	}
	execSQL(t, s, `UPDATE belfry.plans SET next_at = NULL, nominal_at = NULL WHERE job_id = $1`, uuid(recurring.ID))
	var all []belfry.ID
	for _, job := range []belfry.Job{dead, triggered, paused, planned, recurring} {
		all = append(all, job.ID)
	}
	if err := s.archive(t.Context(), s.pool, all); err != nil {
		t.Fatal(err)
	}
	if n, next, err := s.Archive(t.Context(), allShards(s), belfry.ID{}, 100); n != 0 || !next.IsZero() || err != nil {
		t.Errorf("archived %d, continues after %v: %v", n, next, err)
	}
	for _, job := range all {
		if got, err := s.Job(t.Context(), "default", job); err != nil || got.State == belfry.JobEnded {
			t.Errorf("job %s is %s: %v", job, got.State, err)
		}
	}
	// When nothing is left, Archive archives it.
	execSQL(t, s, `DELETE FROM belfry.dead`)
	execSQL(t, s, `UPDATE belfry.triggers SET fired_at = clock_timestamp()`)
	if n, next, err := s.Archive(t.Context(), allShards(s), belfry.ID{}, 100); n != 2 || !next.IsZero() || err != nil {
		t.Errorf("then archived %d, continues after %v: %v", n, next, err)
	}
}

// A one-off that stays live does not keep the others of a batch from being archived
// together.
func TestOneOffsOfABatchAreArchivedWithoutThoseThatStay(t *testing.T) {
	s := openEmpty(t)
	var runs []succeededRun
	var stay []belfry.ID
	for _, change := range []string{
		``, `UPDATE belfry.jobs SET state = 'paused' WHERE id = $1`, ``, `UPDATE belfry.jobs SET state = 'deleted' WHERE id = $1`,
		`UPDATE belfry.plans SET next_at = now() WHERE job_id = $1`, `UPDATE belfry.plans SET runs_triggered = 1 WHERE job_id = $1`, ``,
	} {
		job := createDue(t, s)
		fireNext(t, s, job)
		run := claimOne(t, s)
		if change != "" {
			execSQL(t, s, change, uuid(job.ID))
			stay = append(stay, job.ID)
		}
		runs = append(runs, succeededRun{job: job.ID, scheduledAt: pgtype.Timestamptz{Time: run.ScheduledAt, Valid: true}})
	}
	slices.Reverse(runs)
	rest := s.archiveSucceeded(t.Context(), runs)
	slices.SortFunc(stay, belfry.ID.Compare)
	if !slices.Equal(rest, stay) {
		t.Errorf("%v were not archived, want %v", rest, stay)
	}
	if jobs, plans, ended := countRows(t, s, `jobs`), countRows(t, s, `plans`), countRows(t, s, `ended WHERE status = 'completed'`); jobs != 4 || plans != 4 || ended != 3 {
		t.Errorf("%d jobs with %d plans are left, and %d are archived", jobs, plans, ended)
	}
}

// A trigger that is being stored keeps its job live.
func TestArchiveKeepsJobWithConcurrentTrigger(t *testing.T) {
	s := openEmpty(t)
	job := createDue(t, s)
	fireNext(t, s, job)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := insertTriggers(t.Context(), tx, []plan.Trigger{newTrigger(s, job)}); err != nil {
		t.Fatal(err)
	}
	finishNext(t, s, belfry.OutcomeSucceeded)
	if n, _, err := s.Archive(t.Context(), allShards(s), belfry.ID{}, 100); n != 0 || err != nil {
		t.Fatalf("archived %d while it is being triggered: %v", n, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := s.Archive(t.Context(), allShards(s), belfry.ID{}, 100); n != 0 || err != nil {
		t.Fatalf("archived %d with a pending trigger: %v", n, err)
	}
	if pending, err := s.PendingTriggers(t.Context(), allShards(s), nil, 10); err != nil || len(pending) != 1 {
		t.Errorf("the pending triggers are %v: %v", pending, err)
	}
}

// Settling a run does not wait for a transaction that has locked its one-off, which is
// archived later.
func TestFinishDoesNotWaitForLocksToArchive(t *testing.T) {
	s := openEmpty(t)
	for _, table := range []string{"plans WHERE job_id", "jobs WHERE id"} {
		job := createDue(t, s)
		fireNext(t, s, job)
		run := claimOne(t, s)
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT 1 FROM belfry.`+table+` = $1 FOR UPDATE`, uuid(job.ID)); err != nil {
				return err
			}
			start := time.Now()
			_, err := s.Finish(t.Context(), []belfry.Result{resultOf(run, belfry.OutcomeSucceeded)})
			if took := time.Since(start); took > 1900*time.Millisecond { // lock_timeout is 2 s
				t.Errorf("it waited %v for the lock on %s", took, table)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, err := s.Archive(t.Context(), allShards(s), belfry.ID{}, 100); n != 1 || err != nil {
			t.Errorf("%s: then archived %d: %v", table, n, err)
		}
	}
}

// Archive scans finished one-offs of its shards in as many calls as it needs.
func TestArchivePages(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Shards: 4})
	const jobs = 40
	for range jobs {
		job := newDueJob(t, s)
		job.Plan.NextAt, job.Plan.NominalAt, job.Plan.FiredFor = time.Time{}, time.Time{}, job.Plan.NominalAt
		createJobs(t, s, job)
	}
	own := countRows(t, s, `plans WHERE shard IN (1, 3)`)
	total, after := 0, belfry.ID{}
	for calls := 0; calls == 0 || !after.IsZero(); calls++ {
		n, next, err := s.Archive(t.Context(), []int{1, 3}, after, 3)
		if err != nil || n > 3 || calls > jobs {
			t.Fatalf("call %d archived %d: %v", calls, n, err)
		}
		total, after = total+n, next
	}
	if left := countRows(t, s, `jobs`); total != own || left != jobs-own {
		t.Errorf("archived %d of %d, %d of %d are left", total, own, left, jobs-own)
	}
	if n := countRows(t, s, `ended WHERE status <> 'cancelled'`); n != 0 {
		t.Errorf("%d jobs without a run are not cancelled", n)
	}
}

// The last runs of a one-off may be settled by one call. The planner has to use the plan
// that it has for few jobs among many.
func TestOneOffWithRunsSettledTogetherIsArchivedOnce(t *testing.T) {
	url := withParam(t, withParam(t, pgtest.Database(t, Migrate), "enable_hashjoin", "off"), "enable_mergejoin", "off")
	s := open(t, Options{URL: url})
	job := createDue(t, s, withParallelRuns)
	fireNext(t, s, job)
	runs := []*belfry.Run{claimOne(t, s)}
	for range 3 {
		fireTrigger(t, s, job)
		runs = append(runs, claimOne(t, s))
	}
	var results []belfry.Result
	for _, run := range runs {
		results = append(results, resultOf(run, belfry.OutcomeSucceeded))
	}
	if _, err := s.Finish(t.Context(), results); err != nil {
		t.Fatal(err)
	}
	got, err := s.Job(t.Context(), "default", job.ID)
	if err != nil || got.State != belfry.JobEnded || got.Status != belfry.StatusCompleted || got.LastRunAt == nil || !got.LastRunAt.Equal(runs[3].ScheduledAt) {
		t.Errorf("the job is %s and %s, and ran last at %v: %v", got.State, got.Status, got.LastRunAt, err)
	}
}

// One-offs that are triggered while their only run is settled are archived or keep the
// trigger, never both.
func TestTriggersWhileOneOffsAreArchived(t *testing.T) {
	s := openEmpty(t)
	const n = 200
	jobs, results := make([]belfry.Job, n), make([]belfry.Result, n)
	for i := range jobs {
		jobs[i] = createDue(t, s)
		fireNext(t, s, jobs[i])
		results[i] = resultOf(claimOne(t, s), belfry.OutcomeSucceeded)
	}
	var all sync.WaitGroup
	stored := 0
	all.Go(func() {
		for _, job := range slices.Backward(jobs) {
			err := s.Trigger(t.Context(), []plan.Trigger{newTrigger(s, job)}, nil)
			if err == nil {
				stored++
			} else if code := belfry.CodeOf(err); code != belfry.Conflict && code != belfry.NotFound { // it was archived
				t.Errorf("trigger a job: %v", err)
			}
		}
	})
	for batch := range slices.Chunk(results, 2) {
		verdicts, err := s.Finish(t.Context(), batch)
		if err != nil || slices.Contains(verdicts, belfry.VerdictLate) {
			t.Errorf("the verdicts are %v: %v", verdicts, err)
		}
	}
	all.Wait()
	count := func(sql string) (n int) {
		if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.`+sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	live := count(`jobs`)
	if pending := count(`triggers JOIN belfry.jobs j ON j.id = job_id WHERE fired_at IS NULL`); pending != stored || live < stored {
		t.Errorf("%d triggers were stored, %d are pending and %d jobs are live", stored, pending, live)
	}
	if plans, ended := count(`plans`), count(`ended`); plans != live || live+ended != n {
		t.Errorf("there are %d jobs, %d plans and %d ended jobs", live, plans, ended)
	}
	if _, _, err := s.Archive(t.Context(), allShards(s), belfry.ID{}, n); err != nil || count(`jobs`) != stored {
		t.Errorf("then %d jobs are live with %d triggers: %v", count(`jobs`), stored, err)
	}
}
