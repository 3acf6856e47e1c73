package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestAOneOffThatIsOverIsFoundButNotAlive(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := due(t, s, called("report"), func(j *belfry.Job) {
		j.Tags, j.Payload, j.RetentionDays = []string{"a", "b"}, []byte(`{"x": 1}`), 3
	})
	fire(t, s, job)
	run := finish(t, s, belfry.OutcomeSucceeded)
	if n := count(t, s, `SELECT (SELECT count(*) FROM belfry.jobs) + (SELECT count(*) FROM belfry.plans) + (SELECT count(*) FROM belfry.runs)`); n != 0 {
		t.Fatalf("%d rows are left in the live tables", n)
	}
	got, err := s.Job(t.Context(), "default", job.ID)
	if err != nil || got.State != belfry.JobEnded || got.Status != belfry.StatusCompleted || got.Name != "report" || string(got.Payload) != `{"x": 1}` ||
		len(got.Tags) != 2 || got.Spec != job.Spec || got.NextRunAt != nil || got.LastRunAt == nil || !got.LastRunAt.Equal(run.ScheduledAt) {
		t.Errorf("the job is %+v: %v", got, err)
	}
	if n := count(t, s, `SELECT count(*) FROM belfry.ended e JOIN belfry.history h ON h.job_id = e.id
		WHERE e.retain_until - e.ended_at = interval '72 hours' AND h.retain_until - h.settled_at = interval '72 hours'`); n != 1 {
		t.Error("its own retention does not hold for it and for its run")
	}
	if runs, err := s.JobRuns(t.Context(), "default", job.ID, store.Page{Limit: 10}); err != nil || len(runs) != 1 || runs[0].ID != run.ID {
		t.Errorf("its runs are %v: %v", runs, err)
	}
	if revisions, err := s.Revisions(t.Context(), "default", job.ID, 0, 10); err != nil || len(revisions) != 0 {
		t.Errorf("its revisions are %v: %v", revisions, err)
	}
	if _, err := s.Job(t.Context(), "other", job.ID); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("seen from another namespace: %v", err)
	}
	if err := s.Trigger(t.Context(), []plan.Trigger{wishFor(s, job)}, nil); belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("triggered it: %v", err)
	}
}

// The name of a job that ended is free. It leads to the live job, or else to the one
// that ended last.
func TestANameLeadsToTheLatestJobThatHasIt(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	want := func(job belfry.Job) {
		t.Helper()
		if id, err := s.JobIDByName(t.Context(), "default", "report"); err != nil || id != job.ID {
			t.Errorf("the name leads to %v, wants %v: %v", id, job.ID, err)
		}
	}
	for range 3 {
		job := due(t, s, called("report"))
		want(job)
		fire(t, s, job)
		finish(t, s, belfry.OutcomeSucceeded)
		want(job)
	}
	if _, err := s.JobIDByName(t.Context(), "other", "report"); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("another namespace: %v", err)
	}
}

func TestHowAOneOffEndedIsTold(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends func(t *testing.T, s *Store, job belfry.Job)
		want belfry.JobStatus
	}{
		{"succeeded", func(t *testing.T, s *Store, job belfry.Job) { finish(t, s, belfry.OutcomeSucceeded) }, belfry.StatusCompleted},
		{"cancelled", func(t *testing.T, s *Store, job belfry.Job) {
			runs, err := s.JobRuns(t.Context(), "default", job.ID, store.Page{Limit: 1})
			if err != nil || len(runs) != 1 {
				t.Fatal(runs, err)
			}
			if err := s.Cancel(t.Context(), "default", runs[0].ID); err != nil {
				t.Fatal(err)
			}
		}, belfry.StatusCancelled},
		{"discarded", func(t *testing.T, s *Store, job belfry.Job) {
			run := finish(t, s, belfry.OutcomeFailed)
			if n, err := s.Discard(t.Context(), "default", []belfry.ID{run.ID}); n != 1 || err != nil {
				t.Fatalf("discarded %d: %v", n, err)
			}
		}, belfry.StatusFailed},
		{"redriven", func(t *testing.T, s *Store, job belfry.Job) {
			run := finish(t, s, belfry.OutcomeFailed)
			if n, err := s.Redrive(t.Context(), "default", []store.Redrive{{Run: run.ID}}); n != 1 || err != nil {
				t.Fatalf("redrove %d: %v", n, err)
			}
			finish(t, s, belfry.OutcomeSucceeded)
		}, belfry.StatusCompleted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, Options{URL: pgtest.Database(t, Migrate)})
			job := due(t, s, withoutRetries)
			fire(t, s, job)
			tt.ends(t, s, job)
			got, err := s.Job(t.Context(), "default", job.ID)
			if err != nil || got.State != belfry.JobEnded || got.Status != tt.want {
				t.Errorf("the job is %s and %s, wants %s: %v", got.State, got.Status, tt.want, err)
			}
		})
	}
}

// What keeps a one-off alive: a dead letter, a wish, a pause, another instant.
func TestAOneOffStaysWhileSomethingIsLeftOfIt(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	dead, wished, paused, planned, recurring := due(t, s, withoutRetries), due(t, s), due(t, s), due(t, s), due(t, s, every("* * * * *"))
	fire(t, s, dead)
	finish(t, s, belfry.OutcomeFailed)
	for _, job := range []belfry.Job{wished, paused} {
		if job.ID == wished.ID {
			if err := s.Trigger(t.Context(), []plan.Trigger{wishFor(s, job)}, nil); err != nil {
				t.Fatal(err)
			}
		} else {
			change(t, s, `UPDATE belfry.jobs SET state = 'paused' WHERE id = $1`, uuid(job.ID))
		}
		fire(t, s, job)
		finish(t, s, belfry.OutcomeSucceeded)
	}
	change(t, s, `UPDATE belfry.plans SET next_at = NULL, nominal_at = NULL WHERE job_id = $1`, uuid(recurring.ID))
	var all []belfry.ID
	for _, job := range []belfry.Job{dead, wished, paused, planned, recurring} {
		all = append(all, job.ID)
	}
	if err := s.archive(t.Context(), s.pool, all); err != nil {
		t.Fatal(err)
	}
	if n, next, err := s.Archive(t.Context(), shardsOf(s), belfry.ID{}, 100); n != 0 || !next.IsZero() || err != nil {
		t.Errorf("retired %d, goes on after %v: %v", n, next, err)
	}
	for _, job := range all {
		if got, err := s.Job(t.Context(), "default", job); err != nil || got.State == belfry.JobEnded {
			t.Errorf("job %s is %s: %v", job, got.State, err)
		}
	}
	// When nothing is left any more, the sweep sees to it.
	change(t, s, `DELETE FROM belfry.dead`)
	change(t, s, `UPDATE belfry.triggers SET fired_at = clock_timestamp()`)
	if n, next, err := s.Archive(t.Context(), shardsOf(s), belfry.ID{}, 100); n != 2 || !next.IsZero() || err != nil {
		t.Errorf("then retired %d, goes on after %v: %v", n, next, err)
	}
}

func shardsOf(s *Store) (all []int) {
	for i := range s.Shards() {
		all = append(all, i)
	}
	return all
}

// A wish that is being recorded keeps its job alive.
func TestAWishIsNotLostToTheEndOfItsJob(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := due(t, s)
	fire(t, s, job)
	wishing, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer wishing.Rollback(context.Background())
	if err := insertTriggers(t.Context(), wishing, []plan.Trigger{wishFor(s, job)}); err != nil {
		t.Fatal(err)
	}
	finish(t, s, belfry.OutcomeSucceeded)
	if n, _, err := s.Archive(t.Context(), shardsOf(s), belfry.ID{}, 100); n != 0 || err != nil {
		t.Fatalf("retired %d while somebody triggers it: %v", n, err)
	}
	if err := wishing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := s.Archive(t.Context(), shardsOf(s), belfry.ID{}, 100); n != 0 || err != nil {
		t.Fatalf("retired %d that is asked for: %v", n, err)
	}
	if wishes, err := s.PendingTriggers(t.Context(), shardsOf(s), 10); err != nil || len(wishes) != 1 {
		t.Errorf("the wishes are %v: %v", wishes, err)
	}
}

// Settling runs must not wait for whoever is changing a one-off just then. The sweep
// comes later.
func TestRetireDoesNotWaitForOthers(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	for _, table := range []string{"plans WHERE job_id", "jobs WHERE id"} {
		job := due(t, s)
		fire(t, s, job)
		run := claimOne(t, s)
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT 1 FROM belfry.`+table+` = $1 FOR UPDATE`, uuid(job.ID)); err != nil {
				return err
			}
			start := time.Now()
			_, err := s.Finish(t.Context(), []belfry.Result{{Namespace: "default", RunID: run.ID, Attempt: 1, Token: run.Token, Outcome: belfry.OutcomeSucceeded}})
			if took := time.Since(start); took > 1900*time.Millisecond { // lock_timeout is 2 s
				t.Errorf("it waited %v for the lock on %s", took, table)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, err := s.Archive(t.Context(), shardsOf(s), belfry.ID{}, 100); n != 1 || err != nil {
			t.Errorf("%s: then retired %d: %v", table, n, err)
		}
	}
}

// Creating jobs again whose first reply was lost does nothing, even if they have
// ended meanwhile.
func TestAJobThatEndedIsNotCreatedTwice(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	few, many := dueJob(t, s, called("few")), make([]store.NewJob, 3*maxInsertJobs)
	for i := range many {
		many[i] = dueJob(t, s)
	}
	creating := func(jobs ...store.NewJob) error {
		return s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
			for _, job := range jobs {
				if !yield(job, nil) {
					return
				}
			}
		}, nil)
	}
	for range 2 {
		if err := creating(few); err != nil {
			t.Fatal(err)
		}
		if err := creating(many...); err != nil {
			t.Fatal(err)
		}
		if count(t, s, `SELECT count(*) FROM belfry.ended`) > 0 {
			continue
		}
		for _, job := range []store.NewJob{few, many[7]} {
			fire(t, s, job.Job)
			finish(t, s, belfry.OutcomeSucceeded)
		}
	}
	if live, ended := count(t, s, `SELECT count(*) FROM belfry.jobs`), count(t, s, `SELECT count(*) FROM belfry.ended`); live != len(many)-1 || ended != 2 {
		t.Errorf("%d jobs are alive and %d have ended, wants %d and 2", live, ended, len(many)-1)
	}
	if err := creating(few, dueJob(t, s)); belfry.CodeOf(err) != belfry.Conflict {
		t.Errorf("created one that has ended together with a new one: %v", err)
	}
}

// The walk over one-offs that are over takes as many calls as it needs, and leaves
// other shards alone.
func TestRetireGoesFromPageToPage(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Shards: 4})
	const jobs = 40
	for range jobs {
		job := dueJob(t, s)
		job.Plan.NextAt, job.Plan.NominalAt, job.Plan.FiredFor = time.Time{}, time.Time{}, job.Plan.NominalAt
		create(t, s, job)
	}
	mine := count(t, s, `SELECT count(*) FROM belfry.plans WHERE shard IN (1, 3)`)
	total, after := 0, belfry.ID{}
	for calls := 0; calls == 0 || !after.IsZero(); calls++ {
		n, next, err := s.Archive(t.Context(), []int{1, 3}, after, 3)
		if err != nil || n > 3 || calls > jobs {
			t.Fatalf("call %d retired %d: %v", calls, n, err)
		}
		total, after = total+n, next
	}
	if left := count(t, s, `SELECT count(*) FROM belfry.jobs`); total != mine || left != jobs-mine {
		t.Errorf("retired %d of %d, %d of %d are left", total, mine, left, jobs-mine)
	}
	if n := count(t, s, `SELECT count(*) FROM belfry.ended WHERE status <> 'cancelled'`); n != 0 {
		t.Errorf("%d jobs of which nothing is known are not cancelled", n)
	}
}
