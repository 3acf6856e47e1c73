package postgres

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func redrive(t *testing.T, s *Store, want int, list ...store.Redrive) {
	t.Helper()
	if n, err := s.Redrive(t.Context(), "default", list); n != want || err != nil {
		t.Fatalf("redrove %d, want %d: %v", n, want, err)
	}
}

func TestRedriveKeepsRun(t *testing.T) {
	s := openEmpty(t)
	job := createDue(t, s, withName("report"), withSchedule("* * * * *"), withoutRetries, func(j *belfry.Job) {
		j.Payload, j.RetentionDays, j.Priority = []byte(`"old"`), 5, "high"
		j.IdempotencyKeyTemplate = "report-{{unix}}"
	})
	execSQL(t, s, `UPDATE belfry.plans SET next_at = clock_timestamp() - interval '1 minute', nominal_at = date_trunc('minute', clock_timestamp()) - interval '1 minute'`)
	fireNext(t, s, job)
	first := finishNext(t, s, belfry.OutcomeFailed)
	letter, err := s.DeadLetter(t.Context(), "default", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := belfry.DeadLetter{Run: *first, JobRevision: 1, Payload: []byte(`"old"`), Fingerprint: letter.Fingerprint}
	want.Status, want.Reason, want.Error, want.HTTPStatus, want.Output = belfry.RunDead, belfry.ReasonOutOfRetries, "it went wrong", 503, "some output"
	want.JobName, want.Run.Payload, want.Token, want.DeadlineAt = "report", nil, belfry.Token{}, time.Time{}
	want.FinishedAt, want.Attempts = letter.FinishedAt, letter.Attempts
	if diff := diff(want, letter); diff != "" || letter.Fingerprint == "" || len(letter.Attempts) != 1 || letter.TemplateKey == "" {
		t.Errorf("the dead letter (-want +got):\n%s%+v", diff, letter)
	}
	if _, err := s.DeadLetter(t.Context(), "other", first.ID); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("found in another namespace: %v", err)
	}
	redrive(t, s, 1, store.Redrive{Run: first.ID, Payload: []byte(`"new"`)}, store.Redrive{Run: belfry.NewID(s.Now())}, store.Redrive{Run: first.ID})
	redrive(t, s, 0, store.Redrive{Run: first.ID})
	again := claimOne(t, s)
	redriven := *first
	redriven.Attempt, redriven.Payload = 2, []byte(`"new"`)
	redriven.ReadyAt, redriven.StartedAt, redriven.DeadlineAt, redriven.WorkerID, redriven.Token = again.ReadyAt, again.StartedAt, again.DeadlineAt, again.WorkerID, again.Token
	if diff := diff(redriven, *again); diff != "" {
		t.Errorf("the redriven run (-want +got):\n%s", diff)
	}
	if n := countRows(t, s, `runs WHERE failures = 0 AND lost = 0 AND retention_days = 5 AND weight < 0 AND rank = (extract(epoch FROM ready_at) * 1000000)::bigint + weight
		AND ready_at > scheduled_at + interval '59 seconds'`); n != 1 {
		t.Error("its row has wrong counts, retention, rank or instants")
	}
	run, err := s.Run(t.Context(), "default", first.ID)
	if err != nil || len(run.Attempts) != 1 {
		t.Errorf("its attempts are %v: %v", run.Attempts, err)
	}
}

// Of several dead letters of a serial job the earliest comes first. The others wait for
// it, and so do those that are redriven while it is live.
func TestRedriveSerialRuns(t *testing.T) {
	s := openEmpty(t)
	serial, parallel := createDue(t, s, withSchedule("0 0 1 1 *"), withoutRetries), createDue(t, s, withSchedule("0 0 1 1 *"), withoutRetries, withParallelRuns)
	var runs []belfry.ID
	for _, job := range []belfry.Job{serial, serial, serial, parallel, parallel} {
		runs = append(runs, createDeadLetter(t, s, job).ID)
	}
	version := planOf(t, s, serial).Version
	redrive(t, s, 4, store.Redrive{Run: runs[1]}, store.Redrive{Run: runs[0], After: time.Hour}, store.Redrive{Run: runs[3]}, store.Redrive{Run: runs[4], After: time.Hour})
	redrive(t, s, 1, store.Redrive{Run: runs[2]})
	for i, want := range []belfry.RunStatus{belfry.RunRetry, belfry.RunWaiting, belfry.RunWaiting, belfry.RunReady, belfry.RunRetry} {
		if got := runStatus(t, s, runs[i]); got != want {
			t.Errorf("run %d is %s, want %s", i, got, want)
		}
	}
	if got := planOf(t, s, serial).Version; got != version+2 {
		t.Errorf("the plan has version %d, want %d", got, version+2)
	}
	wait, err := s.RunWait(t.Context(), "default", runs[2])
	if diff := cmp.Diff(runs[:2], wait.Before); err != nil || diff != "" || wait.State != belfry.RunWaiting {
		t.Errorf("the last one is %s (%v), and waits for (-want +got):\n%s", wait.State, err, diff)
	}
}

// A step that was decided before a run was redriven did not count it, and is not
// applied.
func TestRedriveInvalidatesDecidedStep(t *testing.T) {
	s := openEmpty(t)
	job := createDue(t, s, withSchedule("0 0 1 1 *"), withoutRetries)
	run := createDeadLetter(t, s, job)
	decided := plan.Fire(subjectOf(t, job), planOf(t, s, job), []plan.Trigger{storeTrigger(t, s, job)})
	redrive(t, s, 1, store.Redrive{Run: run.ID})
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), []plan.Step{decided}, store.FreeSlots{})
	if err != nil || fired.Applied[0] {
		t.Errorf("a step from before was applied: %v, %v", fired.Applied, err)
	}
	if jobs, many := s.ChangedJobs(); !many && len(jobs) == 0 {
		t.Error("the change of the plan was not notified")
	}
}

func TestDiscardMovesDeadLetterToHistory(t *testing.T) {
	s := openEmpty(t)
	job := createDue(t, s, withSchedule("0 0 1 1 *"), withoutRetries, func(j *belfry.Job) { j.RetentionDays = 2 })
	one, other := createDeadLetter(t, s, job), createDeadLetter(t, s, job)
	if n, err := s.Discard(t.Context(), "other", []belfry.ID{one.ID}); n != 0 || err != nil {
		t.Errorf("discarded %d from another namespace: %v", n, err)
	}
	for _, want := range []int{1, 0} {
		if n, err := s.Discard(t.Context(), "default", []belfry.ID{one.ID, belfry.NewID(s.Now())}); n != want || err != nil {
			t.Errorf("discarded %d, want %d: %v", n, want, err)
		}
	}
	run, err := s.Run(t.Context(), "default", one.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := *one
	want.Status, want.Reason, want.Error, want.HTTPStatus, want.Output = belfry.RunDiscarded, belfry.ReasonOutOfRetries, "it went wrong", 503, "some output"
	want.JobName, want.Spec, want.Payload, want.Token, want.DeadlineAt = "", belfry.Spec{}, nil, belfry.Token{}, time.Time{}
	want.Attempts, want.FinishedAt = run.Attempts, run.FinishedAt
	if diff := diff(want, run); diff != "" || len(run.Attempts) != 1 || run.FinishedAt == nil {
		t.Errorf("the discarded run (-want +got):\n%s%+v", diff, run)
	}
	if n := countRows(t, s, `history WHERE retain_until - settled_at BETWEEN interval '47 hours' AND interval '49 hours'`); n != 1 {
		t.Error("it does not have its job's retention")
	}
	for state, want := range map[belfry.RunStatus]belfry.ID{belfry.RunDiscarded: one.ID, belfry.RunDead: other.ID} {
		if list, err := s.ListRuns(t.Context(), "default", belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: state}}, store.Page{Limit: 10}); err != nil || len(list.Runs) != 1 || list.Runs[0].ID != want {
			t.Errorf("the %s runs are %v, want %s: %v", state, list.Runs, want, err)
		}
	}
}
