package postgres

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func inParallel(job *belfry.Job) { job.Overlap = belfry.OverlapParallel }

// dies has a job run by hand and die of it.
func dies(t *testing.T, s *Store, job belfry.Job) *belfry.Run {
	t.Helper()
	ask(t, s, job)
	return finish(t, s, belfry.OutcomeFailed)
}

func redrives(t *testing.T, s *Store, want int, list ...store.Redrive) {
	t.Helper()
	if n, err := s.Redrive(t.Context(), "default", list); n != want || err != nil {
		t.Fatalf("redrove %d, wants %d: %v", n, want, err)
	}
}

func stateOf(t *testing.T, s *Store, run belfry.ID) belfry.RunStatus {
	t.Helper()
	found, err := s.Run(t.Context(), "default", run)
	if err != nil {
		t.Fatal(err)
	}
	return found.Status
}

func TestARedrivenRunKeepsItsPast(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := due(t, s, called("report"), every("* * * * *"), withoutRetries, func(j *belfry.Job) {
		j.Payload, j.RetentionDays, j.Priority = []byte(`"old"`), 5, "high"
		j.IdempotencyKeyTemplate = "report-{{unix}}"
	})
	change(t, s, `UPDATE belfry.plans SET next_at = clock_timestamp() - interval '1 minute', nominal_at = date_trunc('minute', clock_timestamp()) - interval '1 minute'`)
	fire(t, s, job)
	first := finish(t, s, belfry.OutcomeFailed)
	letter, err := s.DeadLetter(t.Context(), "default", first.ID)
	if err != nil || letter.JobName != "report" || letter.Fingerprint == "" || string(letter.Payload) != `"old"` || letter.Spec != job.Spec ||
		len(letter.Attempts) != 1 || letter.Error != "it went wrong" || letter.HTTPStatus != 503 || letter.Status != belfry.RunDead || letter.TemplateKey == "" {
		t.Errorf("the dead letter is %+v: %v", letter, err)
	}
	if _, err := s.DeadLetter(t.Context(), "other", first.ID); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("seen from another namespace: %v", err)
	}
	redrives(t, s, 1, store.Redrive{Run: first.ID, Payload: []byte(`"new"`)}, store.Redrive{Run: belfry.NewID(s.Now())}, store.Redrive{Run: first.ID})
	redrives(t, s, 0, store.Redrive{Run: first.ID})
	again := claimOne(t, s)
	if again.ID != first.ID || again.Attempt != 2 || string(again.Payload) != `"new"` || again.TemplateKey != first.TemplateKey || again.Revision != 1 ||
		!again.ScheduledAt.Equal(first.ScheduledAt) || again.Kind != belfry.KindScheduled {
		t.Errorf("it came back as %+v", again)
	}
	if n := count(t, s, `SELECT count(*) FROM belfry.runs WHERE failures = 0 AND lost = 0 AND retention_days = 5 AND weight < 0 AND rank = (extract(epoch FROM ready_at) * 1000000)::bigint + weight
		AND ready_at > scheduled_at + interval '59 seconds'`); n != 1 {
		t.Error("its row does not say what it should")
	}
	run, err := s.Run(t.Context(), "default", first.ID)
	if err != nil || len(run.Attempts) != 1 {
		t.Errorf("of its attempts there are %v: %v", run.Attempts, err)
	}
}

// The first of several letters of a job whose runs follow one after another goes
// ahead, the others wait, and so do those that come while it is alive.
func TestRedrivenRunsOfAJobFollowOneAfterAnother(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	serial, parallel := due(t, s, every("0 0 1 1 *"), withoutRetries), due(t, s, every("0 0 1 1 *"), withoutRetries, inParallel)
	var runs []belfry.ID
	for _, job := range []belfry.Job{serial, serial, serial, parallel, parallel} {
		runs = append(runs, dies(t, s, job).ID)
	}
	version := planOf(t, s, serial).Version
	redrives(t, s, 4, store.Redrive{Run: runs[1]}, store.Redrive{Run: runs[0], After: time.Hour}, store.Redrive{Run: runs[3]}, store.Redrive{Run: runs[4], After: time.Hour})
	redrives(t, s, 1, store.Redrive{Run: runs[2]})
	for i, want := range []belfry.RunStatus{belfry.RunRetry, belfry.RunWaiting, belfry.RunWaiting, belfry.RunReady, belfry.RunRetry} {
		if got := stateOf(t, s, runs[i]); got != want {
			t.Errorf("run %d is %s, wants %s", i, got, want)
		}
	}
	if got := planOf(t, s, serial).Version; got != version+2 {
		t.Errorf("the plan has version %d, wants %d", got, version+2)
	}
	wait, err := s.RunWait(t.Context(), "default", runs[2])
	if err != nil || wait.State != belfry.RunWaiting || len(wait.Before) != 2 || wait.Before[0] != runs[0] || wait.Before[1] != runs[1] {
		t.Errorf("the last one waits for %+v: %v", wait, err)
	}
}

// Whoever has decided to fire before a run was redriven does not overlook it.
func TestARedriveIsNotOverlooked(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := due(t, s, every("0 0 1 1 *"), withoutRetries)
	run := dies(t, s, job)
	wish := wishFor(s, job)
	if err := s.Trigger(t.Context(), []plan.Trigger{wish}, nil); err != nil {
		t.Fatal(err)
	}
	decided := plan.Fire(subjectOf(t, job), planOf(t, s, job), []plan.Trigger{wish})
	redrives(t, s, 1, store.Redrive{Run: run.ID})
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), []plan.Step{decided}, store.FreeSlots{})
	if err != nil || fired.Applied[0] {
		t.Errorf("a step from before was applied: %v, %v", fired.Applied, err)
	}
	if jobs, many := s.ChangedJobs(); !many && len(jobs) == 0 {
		t.Error("nobody was told that the plan changed")
	}
}

func TestADiscardedLetterIsHistory(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := due(t, s, every("0 0 1 1 *"), withoutRetries, func(j *belfry.Job) { j.RetentionDays = 2 })
	one, other := dies(t, s, job), dies(t, s, job)
	if n, err := s.Discard(t.Context(), "other", []belfry.ID{one.ID}); n != 0 || err != nil {
		t.Errorf("discarded %d from another namespace: %v", n, err)
	}
	for _, want := range []int{1, 0} {
		if n, err := s.Discard(t.Context(), "default", []belfry.ID{one.ID, belfry.NewID(s.Now())}); n != want || err != nil {
			t.Errorf("discarded %d, wants %d: %v", n, want, err)
		}
	}
	run, err := s.Run(t.Context(), "default", one.ID)
	if err != nil || run.Status != belfry.RunDiscarded || run.Reason != belfry.ReasonOutOfRetries || run.Error != "it went wrong" || run.HTTPStatus != 503 ||
		len(run.Attempts) != 1 || run.FinishedAt == nil || run.WorkerID != one.WorkerID {
		t.Errorf("it is %+v: %v", run, err)
	}
	if n := count(t, s, `SELECT count(*) FROM belfry.history WHERE retain_until - settled_at BETWEEN interval '47 hours' AND interval '49 hours'`); n != 1 {
		t.Error("it does not have its job's retention")
	}
	for state, want := range map[belfry.RunStatus]belfry.ID{belfry.RunDiscarded: one.ID, belfry.RunDead: other.ID} {
		if list, err := s.ListRuns(t.Context(), "default", belfry.RunFilter{Status: state}, store.Page{Limit: 10}); err != nil || len(list.Runs) != 1 || list.Runs[0].ID != want {
			t.Errorf("the %s runs are %v, wants %s: %v", state, list.Runs, want, err)
		}
	}
}
