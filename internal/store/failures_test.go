package store_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func (f *fixture) failures(t tb, since time.Time) []store.Failure {
	t.Helper()
	failures, err := f.Failures(ctx, since, 100)
	if err != nil {
		t.Fatalf("failures: %v", err)
	}
	return failures
}

func (f *fixture) recovered(t tb) []store.Failure {
	t.Helper()
	recovered, next, err := f.Recovered(ctx, belfry.ID{}, 100)
	if err != nil || !next.IsZero() {
		t.Fatalf("recovered: %v, next %s", err, next)
	}
	return recovered
}

func TestFailingJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		began := f.Now().Add(-time.Second)
		dead := f.deadRun(t)
		retried := f.startRun(t, withRetries(3))
		failed := result(retried, belfry.OutcomeFailed)
		failed.Error = "boom"
		f.finish(t, failed)
		f.finishAs(t, f.startRun(t), belfry.OutcomeSucceeded)

		failures := f.failures(t, began)
		byJob := map[belfry.ID]store.Failure{}
		for _, x := range failures {
			byJob[x.JobID] = x
		}
		if len(failures) != 2 || byJob[dead.JobID].Count < 1 || byJob[dead.JobID].RunID != dead.ID {
			t.Fatalf("the failures are %+v", failures)
		}
		if x := byJob[retried.JobID]; x.Count != 1 || x.RunID != retried.ID || x.Error != "boom" || x.Namespace != namespace || x.LatestAt.Before(began) {
			t.Errorf("the failure of a run in retry is %+v", x)
		}
		if late := f.failures(t, f.Now().Add(time.Second)); len(late) != 0 {
			t.Errorf("failures before they happened: %+v", late)
		}

		if new, err := f.SetFailing(ctx, failures); err != nil || len(new) != 2 {
			t.Fatalf("set failing: %+v (%v)", new, err)
		}
		if new, err := f.SetFailing(ctx, failures); err != nil || len(new) != 0 {
			t.Errorf("set failing again: %+v (%v)", new, err)
		}
		if got := f.recovered(t); len(got) != 0 {
			t.Errorf("recovered too early: %+v", got)
		}

		// The run succeeds with its next attempt.
		f.backdate(t, time.Hour, "runs", "ready_at", "id = ?", retried.ID)
		f.promoteAll(t)
		f.finishAs(t, f.claimOne(t, f.registerWorker(t)), belfry.OutcomeSucceeded)
		ended := f.recovered(t)
		if len(ended) != 1 || ended[0].JobID != retried.JobID || !ended[0].SucceededAt.After(ended[0].LatestAt) {
			t.Fatalf("recovered: %+v", ended)
		}
		again := ended[0]
		again.LatestAt = again.LatestAt.Add(-time.Second) // it has failed since
		if err := f.EndFailing(ctx, []store.Failure{again}); err != nil || len(f.recovered(t)) != 1 {
			t.Errorf("one that has failed again is not failing any more (%v)", err)
		}
		if err := f.EndFailing(ctx, ended); err != nil {
			t.Fatal(err)
		}
		if got := f.recovered(t); len(got) != 0 {
			t.Errorf("recovered twice: %+v", got)
		}
		if got := f.failures(t, began); len(got) != 1 || got[0].JobID != dead.JobID {
			t.Errorf("the failures are now %+v", got)
		}
		// A job that is deleted did not recover.
		f.edit(t, f.getJob(t, belfry.Job{ID: dead.JobID, Namespace: namespace}), deleteJob(t))
		if got := f.recovered(t); len(got) != 1 || got[0].JobID != dead.JobID || !got[0].SucceededAt.IsZero() {
			t.Errorf("a deleted job is %+v", got)
		}
	})
}

func TestDeaths(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		began := f.Now().Add(-time.Second)
		job := f.createJob(t, 4, withRetries(0), allowParallel)
		worker := f.registerWorker(t)
		var last *belfry.Run
		for range 2 {
			f.fireDue(t)
			run := f.claimOne(t, worker)
			r := result(run, belfry.OutcomeFailed)
			r.Error = "boom"
			f.finish(t, r)
			last = run
		}
		deaths, err := f.Deaths(ctx, began, 10)
		if err != nil || len(deaths) != 1 || deaths[0].JobID != job.ID || deaths[0].Count < 2 || deaths[0].RunID != last.ID || deaths[0].Error != "boom" ||
			deaths[0].Reason != belfry.ReasonOutOfRetries || deaths[0].Fingerprint == "" {
			t.Fatalf("the deaths are %+v (%v)", deaths, err)
		}
		if deaths, err := f.Deaths(ctx, f.Now().Add(time.Second), 10); err != nil || len(deaths) != 0 {
			t.Errorf("deaths before they happened: %+v (%v)", deaths, err)
		}
	})
}

func TestExceptions(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		began := store.Position{At: f.Now().Add(-time.Second)}
		f.finishAs(t, f.startRun(t), belfry.OutcomeSucceeded) // scheduled more than a minute ago
		skipped := f.createJob(t, 3)
		for range 3 { // the first runs, and the others are skipped meanwhile
			f.fireDue(t)
		}
		var all []belfry.Run
		for after := began; ; {
			runs, err := f.Exceptions(ctx, after, 1)
			if err != nil || len(runs) > 1 {
				t.Fatalf("%+v (%v)", runs, err)
			}
			if len(runs) == 0 {
				break
			}
			all = append(all, runs[0])
			after = store.Position{At: *runs[0].FinishedAt, ID: runs[0].ID}
		}
		whole, err := f.Exceptions(ctx, began, 100)
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "the pages", all, whole)
		states := map[belfry.RunStatus]int{}
		for _, r := range all {
			states[r.Status]++
		}
		if states[belfry.RunSucceeded] != 1 || states[belfry.RunSkipped] == 0 {
			t.Errorf("the exceptions are %v", states)
		}
		if runs, err := f.Exceptions(ctx, store.Position{At: f.Now().Add(time.Second)}, 100); err != nil || len(runs) != 0 {
			t.Errorf("exceptions before they happened: %+v (%v)", runs, err)
		}

		skips, err := f.SkipsInARow(ctx, []belfry.ID{skipped.ID, newID()})
		if err != nil || skips[skipped.ID] == 0 || len(skips) > 2 {
			t.Fatalf("the skips are %v (%v)", skips, err)
		}
		want := int64(0)
		for _, r := range all {
			if r.JobID == skipped.ID {
				want += max(r.SkippedCount, 1)
			}
		}
		if skips[skipped.ID] != want {
			t.Errorf("%d skips in a row, want %d", skips[skipped.ID], want)
		}
	})
}

func TestDeadRunsAndCauses(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.deadRun(t)
		letter, err := f.DeadLetter(ctx, namespace, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		at := run.ScheduledAt
		for _, tt := range []struct {
			from, to time.Time
			want     int
		}{{at.Add(-time.Second), at.Add(time.Second), 1}, {at.Add(time.Second), at.Add(time.Hour), 0}, {at.Add(-time.Hour), at.Add(-time.Second), 0}} {
			got, err := f.DeadRuns(ctx, tt.from, tt.to, 10)
			if err != nil || len(got) != tt.want || tt.want == 1 && (got[0].RunID != run.ID || got[0].JobID != run.JobID || !got[0].ScheduledAt.Equal(at) || got[0].Namespace != namespace) {
				t.Errorf("from %s to %s: %+v (%v)", tt.from, tt.to, got, err)
			}
		}
		cause := store.DeathCause{JobID: run.JobID, Fingerprint: letter.Fingerprint}
		causes := []store.DeathCause{cause, {JobID: run.JobID, Fingerprint: "other"}, {JobID: newID(), Fingerprint: letter.Fingerprint}}
		left, err := f.DeadLeft(ctx, causes)
		wantEqual(t, "the causes that are left", left, map[store.DeathCause]bool{cause: true})
		if err != nil {
			t.Error(err)
		}
		if n, err := f.Discard(ctx, namespace, []belfry.ID{run.ID}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if left, err := f.DeadLeft(ctx, causes); err != nil || len(left) != 0 {
			t.Errorf("after it was discarded: %v (%v)", left, err)
		}
	})
}

func TestLateAndLongRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		running := f.startRun(t)
		waiting := f.createJob(t, 3, withQueue("nobody"))
		f.fireDue(t)
		late, err := f.LateRuns(ctx, belfry.ID{}, f.Now().Add(-30*time.Second), 10)
		if err != nil || len(late) != 2 {
			t.Fatalf("late runs: %+v (%v)", late, err)
		}
		for _, r := range late {
			if r.JobID == waiting.ID && r.Attempt != 0 || r.JobID == running.JobID && r.Status != belfry.RunRunning {
				t.Errorf("a late run is %+v", r)
			}
		}
		if rest, err := f.LateRuns(ctx, late[0].ID, f.Now().Add(-30*time.Second), 10); err != nil || len(rest) != 1 || rest[0].ID != late[1].ID {
			t.Errorf("after the first: %+v (%v)", rest, err)
		}
		if late, err := f.LateRuns(ctx, belfry.ID{}, f.Now().Add(-24*time.Hour), 10); err != nil || len(late) != 0 {
			t.Errorf("runs that are a day late: %+v (%v)", late, err)
		}
		if long, err := f.LongRuns(ctx, f.Now().Add(-time.Minute), 10); err != nil || len(long) != 0 {
			t.Errorf("long runs: %+v (%v)", long, err)
		}
		f.backdate(t, time.Hour, "runs", "started_at", "id = ?", running.ID)
		if long, err := f.LongRuns(ctx, f.Now().Add(-time.Minute), 10); err != nil || len(long) != 1 || long[0].ID != running.ID {
			t.Errorf("long runs: %+v (%v)", long, err)
		}
	})
}

func TestJobLabelsAndLastSuccess(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		began := f.Now().Add(-time.Second)
		named := f.startRun(t, withName("a"), withTags("x", "y"))
		f.finishAs(t, named, belfry.OutcomeSucceeded)
		gone := f.createJob(t, 1)
		f.edit(t, gone, deleteJob(t))
		paused := f.createJob(t, 0)
		f.edit(t, paused, pause(t))
		ids := []belfry.ID{named.JobID, gone.ID, paused.ID, newID()}
		labels, err := f.JobLabels(ctx, ids)
		if err != nil {
			t.Fatal(err)
		}
		if payload := labels[named.JobID].Payload; len(payload) == 0 {
			t.Error("there is no payload")
		}
		for id, l := range labels {
			l.Payload = nil
			labels[id] = l
		}
		wantEqual(t, "the labels", labels, map[belfry.ID]store.JobLabels{
			named.JobID: {Namespace: namespace, Name: "a", Tags: []string{"x", "y"}}, paused.ID: {Namespace: namespace, Paused: true},
		})
		successes, err := f.LastSuccess(ctx, ids, began)
		if at, ok := successes[named.JobID]; err != nil || len(successes) != 1 || !ok || at.Before(began) {
			t.Errorf("the successes are %v (%v)", successes, err)
		}
		if later, err := f.LastSuccess(ctx, ids, f.Now().Add(time.Second)); err != nil || len(later) != 0 {
			t.Errorf("successes before they happened: %v (%v)", later, err)
		}
	})
}
