package postgres

import (
	"context"
	"iter"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// diff compares values of the root package.
func diff(want, got any, options ...cmp.Option) string {
	return cmp.Diff(want, got, append(options, cmp.AllowUnexported(belfry.Optional[int]{}, belfry.Optional[float64]{}))...)
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openEmpty opens a store on a new database.
func openEmpty(t testing.TB) *Store {
	t.Helper()
	return open(t, Options{URL: pgtest.Database(t, Migrate)})
}

// withParam adds a parameter to the URL of a database.
func withParam(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

// openWithLockTimeout opens a store whose statements wait long for a lock that a test holds.
func openWithLockTimeout(t *testing.T) *Store {
	t.Helper()
	return open(t, Options{URL: withParam(t, pgtest.Database(t, Migrate), "lock_timeout", "20000"), Shards: 1})
}

func allShards(s *Store) (all []int) {
	for i := range s.Shards() {
		all = append(all, i)
	}
	return all
}

func newJob(t testing.TB, s *Store) store.NewJob {
	t.Helper()
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule, spec.Timezone = belfry.TypeHTTP, "* * * * *", "UTC"
	policy, err := plan.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	now := s.Now()
	id := belfry.NewID(now)
	return store.NewJob{
		Job:  belfry.Job{ID: id, Namespace: "default", Revision: 1, State: belfry.JobActive, Manifest: belfry.Manifest{Spec: spec}, CreatedAt: now},
		Plan: plan.First(id, belfry.ShardOf(id, s.Shards()), policy, now),
	}
}

// newDueJob is a one-off that is due, unless an option changes its schedule.
func newDueJob(t *testing.T, s *Store, options ...func(*belfry.Job)) store.NewJob {
	t.Helper()
	job := newJob(t, s)
	job.Job.Schedule = s.Now().Add(-time.Second).Truncate(time.Microsecond).Format(time.RFC3339Nano)
	for _, option := range options {
		option(&job.Job)
	}
	subject := subjectOf(t, job.Job)
	created := s.Now().Add(-time.Second) // Now may be ahead of the server by a millisecond
	job.Plan = plan.First(job.Job.ID, job.Plan.Shard, subject.Policy, created)
	return job
}

func withoutRetries(job *belfry.Job) { job.MaxRetries = belfry.Some(0) }

func withParallelRuns(job *belfry.Job) { job.Overlap = belfry.OverlapParallel }

func withSchedule(schedule string) func(*belfry.Job) {
	return func(job *belfry.Job) { job.Schedule = schedule }
}

func withName(name string) func(*belfry.Job) { return func(job *belfry.Job) { job.Name = name } }

// sequence yields the jobs.
func sequence(jobs ...store.NewJob) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		for _, job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
	}
}

func createJobs(t testing.TB, s *Store, jobs ...store.NewJob) {
	t.Helper()
	if err := s.CreateJobs(t.Context(), sequence(jobs...), nil); err != nil {
		t.Fatal(err)
	}
}

func createDue(t *testing.T, s *Store, options ...func(*belfry.Job)) belfry.Job {
	t.Helper()
	job := newDueJob(t, s, options...)
	createJobs(t, s, job)
	return job.Job
}

func subjectOf(t *testing.T, job belfry.Job) plan.Subject {
	t.Helper()
	policy, err := plan.Compile(job.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Subject{Namespace: job.Namespace, Name: job.Name, Revision: job.Revision, Policy: policy}
}

func planOf(t *testing.T, s *Store, job belfry.Job) plan.Plan {
	t.Helper()
	found, err := s.PlansByJob(t.Context(), []belfry.ID{job.ID})
	if err != nil || len(found) != 1 {
		t.Fatalf("found %d plans: %v", len(found), err)
	}
	return found[0].Plan
}

// fireNext fires the next occurrence of a job.
func fireNext(t *testing.T, s *Store, job belfry.Job) {
	t.Helper()
	applyStep(t, s, plan.Decide(subjectOf(t, job), planOf(t, s, job), time.Time{}, s.Now()))
}

// fireTrigger stores a trigger of a job and fires it.
func fireTrigger(t *testing.T, s *Store, job belfry.Job) {
	t.Helper()
	trigger := storeTrigger(t, s, job)
	applyStep(t, s, plan.Fire(subjectOf(t, job), planOf(t, s, job), []plan.Trigger{trigger}))
}

func storeTrigger(t *testing.T, s *Store, job belfry.Job) plan.Trigger {
	t.Helper()
	trigger := newTrigger(s, job)
	if err := s.Trigger(t.Context(), []plan.Trigger{trigger}, nil); err != nil {
		t.Fatal(err)
	}
	return trigger
}

func newTrigger(s *Store, job belfry.Job) plan.Trigger {
	return plan.Trigger{ID: belfry.NewID(s.Now()), Namespace: job.Namespace, JobID: job.ID, Shard: belfry.ShardOf(job.ID, s.Shards()), Kind: belfry.KindManual, At: s.Now()}
}

func applyStep(t *testing.T, s *Store, step plan.Step) {
	t.Helper()
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), []plan.Step{step}, store.FreeSlots{})
	if err != nil || !fired.Applied[0] {
		t.Fatalf("fire: applied %v, %v", fired.Applied, err)
	}
}

// claimOne has a new worker claim the only ready run.
func claimOne(t *testing.T, s *Store) *belfry.Run {
	t.Helper()
	lanes, worker := []string{belfry.Lane(belfry.DefaultQueue, belfry.TypeHTTP)}, belfry.NewID(s.Now())
	if _, err := s.Heartbeat(t.Context(), belfry.Heartbeat{WorkerID: worker, Node: "here", Slots: 1, Lanes: lanes, Register: true}); err != nil {
		t.Fatal(err)
	}
	runs, err := s.Claim(t.Context(), belfry.Claim{WorkerID: worker, Lanes: lanes, Limit: 2})
	if err != nil || len(runs) != 1 {
		t.Fatalf("claimed %d runs: %v", len(runs), err)
	}
	return runs[0]
}

// resultOf is the result of an attempt, without its facts.
func resultOf(run *belfry.Run, outcome belfry.Outcome) belfry.Result {
	return belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: outcome}
}

// finishNext claims the only ready run and finishes it.
func finishNext(t *testing.T, s *Store, outcome belfry.Outcome) *belfry.Run {
	t.Helper()
	run := claimOne(t, s)
	r := resultOf(run, outcome)
	r.HTTPStatus, r.Output = 200, "some output"
	if outcome != belfry.OutcomeSucceeded {
		r.HTTPStatus, r.Error = 503, "it went wrong"
	}
	verdicts, err := s.Finish(t.Context(), []belfry.Result{r})
	if err != nil || verdicts[0] != belfry.VerdictAccepted {
		t.Fatalf("finish: %v, %v", verdicts, err)
	}
	return run
}

// createDeadLetter fires a run of a job without retries, which fails.
func createDeadLetter(t *testing.T, s *Store, job belfry.Job) *belfry.Run {
	t.Helper()
	fireTrigger(t, s, job)
	return finishNext(t, s, belfry.OutcomeFailed)
}

func runStatus(t *testing.T, s *Store, run belfry.ID) belfry.RunStatus {
	t.Helper()
	found, err := s.Run(t.Context(), "default", run)
	if err != nil {
		t.Fatal(err)
	}
	return found.Status
}

func queryInt(t *testing.T, s *Store, sql string, args ...any) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func countRows(t *testing.T, s *Store, from string, args ...any) int {
	t.Helper()
	return queryInt(t, s, `SELECT count(*) FROM belfry.`+from, args...)
}

func execSQL(t *testing.T, s *Store, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// execSlow executes statements without a time limit.
func execSlow(t testing.TB, s *Store, statements ...string) {
	t.Helper()
	config := s.pool.Config().ConnConfig.Copy()
	delete(config.RuntimeParams, "statement_timeout")
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitLock returns when a statement with the prefix waits for a lock.
func awaitLock(t *testing.T, s *Store, prefix string) {
	t.Helper()
	awaitLockOr(t, s, prefix, nil)
}

// awaitLockOr is awaitLock, but also returns when done does, and reports whether it
// did.
func awaitLockOr(t *testing.T, s *Store, prefix string, done <-chan error) bool {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
		}
		waiting, err := collect(t.Context(), s.priorityPool, pgx.RowTo[int],
			`SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() AND starts_with(query, $1)`, prefix)
		if err != nil {
			t.Fatal(err)
		}
		if len(waiting) > 0 {
			return false
		}
	}
	t.Fatal("no statement waits for the lock")
	return false
}
