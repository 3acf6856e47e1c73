package controltest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Handler is the handler of the worker and of the jobs of a Scenario.
const Handler = "send"

// Scenario is a store with its control and one worker, from Monday, 3 January 2000,
// 08:58:30 in Paris on. Its methods fail the test on errors.
type Scenario struct {
	*testing.T
	Store   store.Store
	Control *control.Control
	Worker  belfry.ID
}

// Run runs a subtest with a scenario, in which time passes as soon as nothing happens.
func Run(t *testing.T, name string, test func(s *Scenario)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := Open(t)
			scenario := &Scenario{T: t, Store: s, Control: control.New(s, plan.Defaults{})}
			scenario.SleepUntil("08:58:30")
			test(scenario)
		})
	})
}

// Paris is the time zone of the jobs of a Scenario.
var Paris = func() *time.Location {
	zone, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		panic(err)
	}
	return zone
}()

// At is a time of day on 3 January, a local time with its day, or an instant.
func (s *Scenario) At(clock string) time.Time {
	s.Helper()
	for _, form := range []string{"15:04", "15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		text := clock
		if len(form) <= len("15:04:05") {
			form, text = "2006-01-02 "+form, "2000-01-03 "+clock
		}
		if at, err := time.ParseInLocation(form, text, Paris); err == nil {
			return at.UTC()
		}
	}
	at, err := time.Parse(time.RFC3339, clock)
	s.OK(err)
	return at.UTC()
}

// SleepUntil sleeps until a time of At.
func (s *Scenario) SleepUntil(clock string) {
	s.Helper()
	time.Sleep(time.Until(s.At(clock)))
}

// FireAt fires at each of some times.
func (s *Scenario) FireAt(clocks ...string) {
	s.Helper()
	for _, clock := range clocks {
		s.SleepUntil(clock)
		s.Fire()
	}
}

// Fire creates the runs that are due and those that were requested.
func (s *Scenario) Fire() {
	s.Helper()
	Fire(s.T, s.Store)
}

// Create creates a job in Paris for the worker.
func (s *Scenario) Create(schedule string, change ...func(*belfry.Spec)) belfry.Job {
	s.Helper()
	in := WorkerInput(Handler)
	in.Schedule, in.Timezone, in.Overlap, in.RetryJitter = schedule, "Europe/Paris", belfry.OverlapSkip, belfry.Some(0.0)
	for _, f := range change {
		f(&in.Spec)
	}
	return Create(s.T, s.Control, in)
}

// Claim has the worker claim exactly so many runs.
func (s *Scenario) Claim(n int) []*belfry.Run {
	s.Helper()
	if s.Worker.IsZero() {
		s.Worker = Register(s.T, s.Control, 10, Handler)
	}
	runs, err := s.Control.Claim(s.Context(), Namespace, belfry.Claim{WorkerID: s.Worker, Handlers: []string{Handler}, Limit: n})
	if err != nil || len(runs) != n {
		s.Fatalf("claimed %d runs, want %d, error %v", len(runs), n, err)
	}
	return runs
}

// Finish has the worker report the result of a run.
func (s *Scenario) Finish(run *belfry.Run, outcome belfry.Outcome, change ...func(*belfry.Result)) {
	s.Helper()
	r := belfry.Result{RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: outcome}
	if outcome == belfry.OutcomeFailed {
		r.Error = "no such customer"
	}
	for _, f := range change {
		f(&r)
	}
	verdicts, err := s.Control.Finish(s.Context(), Namespace, []belfry.Result{r})
	if err != nil || verdicts[0] != belfry.VerdictAccepted {
		s.Fatalf("got %v, error %v", verdicts, err)
	}
}

// FailForGood makes dead letters of so many ready runs.
func (s *Scenario) FailForGood(n int) (dead []belfry.ID) {
	s.Helper()
	for _, run := range s.Claim(n) {
		s.Finish(run, belfry.OutcomeFailed, func(r *belfry.Result) { r.Permanent = true })
		dead = append(dead, run.ID)
	}
	return dead
}

// Run returns a run.
func (s *Scenario) Run(id belfry.ID) belfry.Run {
	s.Helper()
	run, err := s.Control.Run(s.Context(), Namespace, id)
	s.OK(err)
	return run
}

// Job returns a job.
func (s *Scenario) Job(id belfry.ID) belfry.Job {
	s.Helper()
	job, err := s.Control.Get(s.Context(), Namespace, id.String())
	s.OK(err)
	return job
}

// Runs lists the runs of a job, latest first.
func (s *Scenario) Runs(job belfry.Job) []belfry.Run {
	s.Helper()
	runs, _, err := s.Control.JobRuns(s.Context(), Namespace, job.ID.String(), belfry.JobRunFilter{}, store.Page{Limit: 100})
	s.OK(err)
	return runs
}

// OK fails the test on an error.
func (s *Scenario) OK(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Edit edits a job.
func (s *Scenario) Edit(job belfry.Job, change func(m *belfry.Manifest)) belfry.Job {
	s.Helper()
	return Edit(s.T, s.Control, job.ID, change)
}

// Promote makes the retries ready that are due.
func (s *Scenario) Promote() {
	s.Helper()
	_, _, err := s.Store.Promote(s.Context(), Shards, 100)
	s.OK(err)
}

// Pause pauses a job.
func (s *Scenario) Pause(job belfry.Job) {
	s.Helper()
	_, err := s.Control.Pause(s.Context(), Namespace, job.ID.String())
	s.OK(err)
}

// Resume resumes a job.
func (s *Scenario) Resume(job belfry.Job, catchUp bool) {
	s.Helper()
	_, err := s.Control.Resume(s.Context(), Namespace, job.ID.String(), belfry.Resume{CatchUp: catchUp})
	s.OK(err)
}

// CancelJob cancels a job.
func (s *Scenario) CancelJob(job belfry.Job) {
	s.Helper()
	_, err := s.Control.CancelJob(s.Context(), Namespace, job.ID.String())
	s.OK(err)
}

// CancelRun cancels a run.
func (s *Scenario) CancelRun(run belfry.ID) {
	s.Helper()
	_, err := s.Control.CancelRun(s.Context(), Namespace, run)
	s.OK(err)
}

// Trigger triggers a job.
func (s *Scenario) Trigger(job belfry.Job) belfry.ID {
	s.Helper()
	result, err := s.Control.Trigger(s.Context(), Namespace, job.ID.String(), belfry.Trigger{}, control.Key{})
	s.OK(err)
	return result.RunID
}

// Backfill requests the run of one occurrence.
func (s *Scenario) Backfill(job belfry.Job, clock string) {
	s.Helper()
	result, err := s.Control.Backfill(s.Context(), Namespace, job.ID.String(), belfry.Backfill{From: s.At(clock), To: s.At(clock)}, control.Key{})
	if err != nil || len(result.RunIDs) != 1 {
		s.Fatalf("got %+v, error %v", result, err)
	}
}

// Redrive redrives a dead letter.
func (s *Scenario) Redrive(run belfry.ID) {
	s.Helper()
	result, err := s.Control.Redrive(s.Context(), Namespace, belfry.Redrive{RunID: run})
	if err != nil || result.Done != 1 {
		s.Fatalf("got %+v, error %v", result, err)
	}
}

// Discard discards a dead letter.
func (s *Scenario) Discard(run belfry.ID) {
	s.Helper()
	result, err := s.Control.Discard(s.Context(), Namespace, belfry.Discard{RunID: run})
	if err != nil || result.Done != 1 {
		s.Fatalf("got %+v, error %v", result, err)
	}
}
