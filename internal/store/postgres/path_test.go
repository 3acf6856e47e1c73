package postgres

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// due makes a job, a one-off that is due unless a change says otherwise.
func due(t *testing.T, s *Store, changes ...func(*belfry.Job)) belfry.Job {
	t.Helper()
	job := dueJob(t, s, changes...)
	create(t, s, job)
	return job.Job
}

func dueJob(t *testing.T, s *Store, changes ...func(*belfry.Job)) store.NewJob {
	t.Helper()
	job := newJob(t, s)
	job.Job.Schedule = s.Now().Add(-time.Second).Truncate(time.Microsecond).Format(time.RFC3339Nano)
	for _, change := range changes {
		change(&job.Job)
	}
	subject := subjectOf(t, job.Job)
	job.Plan = plan.First(job.Job.ID, job.Plan.Shard, subject.Policy, s.Now())
	return job
}

func create(t *testing.T, s *Store, job store.NewJob) {
	t.Helper()
	if err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) { yield(job, nil) }, nil); err != nil {
		t.Fatal(err)
	}
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

// fire fires the occurrence that a job has on its plan.
func fire(t *testing.T, s *Store, job belfry.Job) {
	t.Helper()
	apply(t, s, plan.Decide(subjectOf(t, job), planOf(t, s, job), time.Time{}, s.Now()))
}

// ask has a job run by hand.
func ask(t *testing.T, s *Store, job belfry.Job) {
	t.Helper()
	wish := wishFor(s, job)
	if err := s.Trigger(t.Context(), []plan.Trigger{wish}, nil); err != nil {
		t.Fatal(err)
	}
	apply(t, s, plan.Fire(subjectOf(t, job), planOf(t, s, job), []plan.Trigger{wish}))
}

func wishFor(s *Store, job belfry.Job) plan.Trigger {
	return plan.Trigger{ID: belfry.NewID(s.Now()), Namespace: job.Namespace, JobID: job.ID, Shard: belfry.ShardOf(job.ID, s.Shards()), Kind: belfry.KindManual, At: s.Now()}
}

func apply(t *testing.T, s *Store, step plan.Step) {
	t.Helper()
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), []plan.Step{step}, store.FreeSlots{})
	if err != nil || !fired.Applied[0] {
		t.Fatalf("fire: applied %v, %v", fired.Applied, err)
	}
}

// finish has a fresh worker claim the only run that is ready, and ends it.
func finish(t *testing.T, s *Store, outcome belfry.Outcome) *belfry.Run {
	t.Helper()
	run := claimOne(t, s)
	r := belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: outcome, HTTPStatus: 200, Output: "some output"}
	if outcome != belfry.OutcomeSucceeded {
		r.HTTPStatus, r.Error = 503, "it went wrong"
	}
	verdicts, err := s.Finish(t.Context(), []belfry.Result{r})
	if err != nil || verdicts[0] != belfry.VerdictAccepted {
		t.Fatalf("finish: %v, %v", verdicts, err)
	}
	return run
}

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

func withoutRetries(job *belfry.Job) { job.MaxRetries = belfry.Some(0) }

func every(schedule string) func(*belfry.Job) {
	return func(job *belfry.Job) { job.Schedule = schedule }
}

func called(name string) func(*belfry.Job) { return func(job *belfry.Job) { job.Name = name } }

// count asks for one number.
func count(t *testing.T, s *Store, sql string, args ...any) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// change changes the tables behind the store's back.
func change(t *testing.T, s *Store, sql string, args ...any) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
