package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

// insertWaitingRuns creates jobs with two runs each that wait for nothing.
func insertWaitingRuns(t *testing.T, s *Store, jobs int) {
	t.Helper()
	list := make([]store.NewJob, jobs)
	for i := range list {
		list[i] = newJob(t, s)
	}
	createJobs(t, s, list...)
	execSQL(t, s, `INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at,
		fired_by, epoch, timeout_ms, attempt, failures, lost, weight)
		SELECT gen_random_uuid(), shard, namespace, id, 1, 'scheduled', 'default/http', 'waiting', 0, at, at, at, id, 0, 1000, 0, 0, 0, 77
		  FROM belfry.jobs, (VALUES (clock_timestamp()), (clock_timestamp() - interval '1 hour')) AS v (at)`)
}

// A call reads a bounded number of jobs with waiting runs, and the next ones the
// others.
func TestPromoteScansWaitingRunsInTurn(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Shards: 2})
	const jobs = waitingScanLimit + waitingScanLimit/2
	insertWaitingRuns(t, s, jobs)
	total := 0
	for _, want := range []int{waitingScanLimit, jobs, jobs} {
		n, _, err := s.Promote(t.Context(), []int{0, 1}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if total += n; total != want || countRows(t, s, `runs WHERE state = 'ready'`) != want {
			t.Fatalf("%d runs were promoted, %d are ready, want %d", total, countRows(t, s, `runs WHERE state = 'ready'`), want)
		}
	}
	if n := countRows(t, s, `runs WHERE state = 'ready' AND (scheduled_at > clock_timestamp() - interval '30 minutes' OR rank <> (extract(epoch FROM ready_at) * 1000000)::bigint + 77)`); n != 0 {
		t.Errorf("%d promoted runs were not the first of their job, or have a wrong rank", n)
	}
}

func TestPromoteLeavesWaitingRunsOfOtherShards(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Shards: 2})
	insertWaitingRuns(t, s, 20)
	if _, _, err := s.Promote(t.Context(), []int{1}, 10); err != nil {
		t.Fatal(err)
	}
	if own, others := countRows(t, s, `runs WHERE state = 'ready' AND shard = 1`), countRows(t, s, `runs WHERE state = 'ready' AND shard = 0`); own == 0 || others != 0 {
		t.Errorf("%d runs of the shard were promoted, and %d of another", own, others)
	}
}

// advance reads the runs after it has the lock: another transaction may have promoted
// one meanwhile.
func TestAdvancePromotesOneRun(t *testing.T) {
	s := openWithLockTimeout(t)
	insertWaitingRuns(t, s, 1)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	var id pgtype.UUID
	if err := tx.QueryRow(t.Context(), `SELECT job_id FROM belfry.plans FOR UPDATE`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.advance(context.Background(), []belfry.ID{id.Bytes})
		done <- err
	}()
	awaitLock(t, s, "/* advance */")
	_, err = tx.Exec(t.Context(), `UPDATE belfry.runs SET state = 'ready' WHERE id = (SELECT id FROM belfry.runs ORDER BY scheduled_at DESC LIMIT 1)`)
	if err == nil {
		err = tx.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, s, `runs WHERE state = 'ready'`); n != 1 {
		t.Errorf("%d runs were promoted, want 1", n)
	}
}

// While advance promotes a run, nobody makes one that comes before it.
func TestAdvanceIsNotOvertakenByRedrive(t *testing.T) {
	s := openWithLockTimeout(t)
	job := createDue(t, s, withSchedule("0 0 1 1 *"), withoutRetries)
	first := createDeadLetter(t, s, job)
	for range 2 {
		fireTrigger(t, s, job)
	}
	execSQL(t, s, `UPDATE belfry.runs SET state = 'waiting'`)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM belfry.runs ORDER BY scheduled_at LIMIT 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	advanced, redriven := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.advance(context.Background(), []belfry.ID{job.ID})
		advanced <- err
	}()
	awaitLock(t, s, "/* advance */") // it has chosen a run, and waits for us
	go func() {
		n, err := s.Redrive(context.Background(), "default", []store.Redrive{{Run: first.ID}})
		if _, advanceErr := s.advance(context.Background(), []belfry.ID{job.ID}); err == nil && n == 1 {
			err = advanceErr
		}
		redriven <- err
	}()
	done := awaitLockOr(t, s, "/* redrive */", redriven)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-advanced; err != nil {
		t.Fatal(err)
	}
	if !done {
		err = <-redriven
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, s, `runs WHERE state <> 'waiting'`); n != 1 || runStatus(t, s, first.ID) != belfry.RunWaiting {
		t.Errorf("%d runs were promoted, and the redriven one is %s", n, runStatus(t, s, first.ID))
	}
}
