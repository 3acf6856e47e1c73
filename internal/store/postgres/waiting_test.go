package postgres

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// waitingRuns gives so many new jobs two runs each that wait for nothing.
func waitingRuns(t *testing.T, s *Store, jobs int) {
	t.Helper()
	list := make([]store.NewJob, jobs)
	for i := range list {
		list[i] = newJob(t, s)
	}
	err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
		for _, job := range list {
			if !yield(job, nil) {
				return
			}
		}
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.pool.Exec(t.Context(), `INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at,
		fired_by, epoch, timeout_ms, attempt, failures, lost, weight)
		SELECT gen_random_uuid(), shard, namespace, id, 1, 'scheduled', 'default/http', 'waiting', 0, at, at, at, id, 0, 1000, 0, 0, 0, 77
		  FROM belfry.jobs, (VALUES (clock_timestamp()), (clock_timestamp() - interval '1 hour')) AS v (at)`)
	if err != nil {
		t.Fatal(err)
	}
}

func countRuns(t *testing.T, s *Store, where string) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.runs WHERE `+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// However many jobs have runs that wait, a call looks at some, and the next ones
// at the others.
func TestPromoteLooksAtJobsWhoseRunsWaitInTurn(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Shards: 2})
	const jobs = waitingScanLimit + waitingScanLimit/2
	waitingRuns(t, s, jobs)
	total := 0
	for _, want := range []int{waitingScanLimit, jobs, jobs} {
		n, _, err := s.Promote(t.Context(), []int{0, 1}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if total += n; total != want || countRuns(t, s, `state = 'ready'`) != want {
			t.Fatalf("%d runs went ahead, %d are ready, wants %d", total, countRuns(t, s, `state = 'ready'`), want)
		}
	}
	if n := countRuns(t, s, `state = 'ready' AND (scheduled_at > clock_timestamp() - interval '30 minutes' OR rank <> (extract(epoch FROM ready_at) * 1000000)::bigint + 77)`); n != 0 {
		t.Errorf("%d runs went ahead that were not the first of their job, or have a wrong rank", n)
	}
}

func TestPromoteLeavesWaitingRunsOfOtherShardsAlone(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Shards: 2})
	waitingRuns(t, s, 20)
	if _, _, err := s.Promote(t.Context(), []int{1}, 10); err != nil {
		t.Fatal(err)
	}
	if ours, theirs := countRuns(t, s, `state = 'ready' AND shard = 1`), countRuns(t, s, `state = 'ready' AND shard = 0`); ours == 0 || theirs != 0 {
		t.Errorf("%d runs of our shard went ahead, and %d of another", ours, theirs)
	}
}

// Whoever lets a run go ahead looks after it has the lock, not before: another may
// have let one go in between.
func TestOnlyOneRunGoesAhead(t *testing.T) {
	s := open(t, Options{URL: patient(t, pgtest.Database(t, Migrate)), Shards: 1})
	waitingRuns(t, s, 1)
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
	if n := countRuns(t, s, `state = 'ready'`); n != 1 {
		t.Errorf("%d runs went ahead, wants 1", n)
	}
}

// Whoever lets a run go ahead keeps others from making one that comes before it,
// until it is done.
func TestNoRunOvertakesOneThatGoesAhead(t *testing.T) {
	s := open(t, Options{URL: patient(t, pgtest.Database(t, Migrate)), Shards: 1})
	job := due(t, s, every("0 0 1 1 *"), withoutRetries)
	first := dies(t, s, job)
	for range 2 {
		ask(t, s, job)
	}
	change(t, s, `UPDATE belfry.runs SET state = 'waiting'`)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM belfry.runs ORDER BY scheduled_at LIMIT 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ahead, behind := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.advance(context.Background(), []belfry.ID{job.ID})
		ahead <- err
	}()
	awaitLock(t, s, "/* advance */") // it has chosen, and must wait for us
	go func() {
		n, err := s.Redrive(context.Background(), "default", []store.Redrive{{Run: first.ID}})
		if _, lost := s.advance(context.Background(), []belfry.ID{job.ID}); err == nil && n == 1 {
			err = lost
		}
		behind <- err
	}()
	settled := awaitLockOr(t, s, "/* redrive */", behind)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ahead; err != nil {
		t.Fatal(err)
	}
	if !settled {
		err = <-behind
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := countRuns(t, s, `state <> 'waiting'`); n != 1 || stateOf(t, s, first.ID) != belfry.RunWaiting {
		t.Errorf("%d runs went ahead, and the one from before is %s", n, stateOf(t, s, first.ID))
	}
}

// Whoever cancels the runs of a job may meet somebody who settles them in another
// order. One of the two begins again.
func TestAJobIsCancelledWhileItsRunsAreSettled(t *testing.T) {
	s := open(t, Options{URL: patient(t, pgtest.Database(t, Migrate)), Shards: 1})
	job := due(t, s, every("0 0 1 1 *"), inParallel)
	ask(t, s, job)
	ask(t, s, job)
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	lock := func(order string) error {
		_, err := tx.Exec(t.Context(), `SELECT 1 FROM belfry.runs ORDER BY id `+order+` LIMIT 1 FOR UPDATE`)
		return err
	}
	if err := lock("DESC"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.EditJob(context.Background(), "default", job.ID, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			return &store.Change{Job: job, Step: plan.Cancel(subjectOf(t, job), p, now), Cancel: true}, nil
		})
		done <- err
	}()
	awaitLock(t, s, "/* cancel */")
	if err := lock("ASC"); err != nil && sqlState(err) != deadlockDetected { // on a slow machine it may be us who must give way
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := countRuns(t, s, `true`); n != 0 {
		t.Errorf("%d runs are left", n)
	}
}

// patient has nobody give up waiting for a lock that a test holds.
func patient(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("lock_timeout", "20000")
	u.RawQuery = query.Encode()
	return u.String()
}

// awaitLock returns when a statement that begins like this waits for a lock.
func awaitLock(t *testing.T, s *Store, begins string) {
	t.Helper()
	awaitLockOr(t, s, begins, nil)
}

// awaitLockOr is awaitLock, but returns as well when somebody says that he is done,
// and tells whether that was so.
func awaitLockOr(t *testing.T, s *Store, begins string, done <-chan error) bool {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
		}
		rows, err := s.priorityPool.Query(t.Context(), `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() AND starts_with(query, $1)`, begins)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
			t.Fatal(err)
		} else if len(found) > 0 {
			return false
		}
	}
	t.Fatal("nobody waits for the lock")
	return false
}
