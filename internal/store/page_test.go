package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestActivity(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		now := f.Now().Truncate(time.Minute)
		one, other := belfry.NewID(now), belfry.NewID(now)
		var counts store.ActivityCounts
		counts[store.CountSucceeded] = 3
		counts.AddLag(20 * time.Millisecond)
		put := func(node belfry.ID, minute time.Time, namespace string) {
			t.Helper()
			if err := f.PutActivity(ctx, node, []store.Activity{{Minute: minute, Namespace: namespace, Counts: counts}}); err != nil {
				t.Fatal(err)
			}
		}
		put(one, now.Add(-time.Minute), "a")
		put(one, now, "a")
		put(one, now, "a") // again: it stays the same
		put(other, now, "a")
		put(other, now, "b")
		put(one, now.Add(-time.Hour), "a")
		list, err := f.Activity(ctx, "a", now.Add(-30*time.Minute))
		if err != nil || len(list) != 2 || !list[0].Minute.Equal(now.Add(-time.Minute)) || !list[1].Minute.Equal(now) {
			t.Fatalf("the activity is %+v (%v)", list, err)
		}
		if got := list[1].Counts; got[store.CountSucceeded] != 6 || got.Started() != 2 || got.Lag(0.5) != 25*time.Millisecond {
			t.Errorf("two nodes counted %v", got)
		}
		f.backdate(t, store.ActivityRetention+time.Hour, "activity", "minute", "1 = 1")
		if _, err := f.Prune(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, `SELECT count(*) FROM activity`); n != 0 {
			t.Errorf("%d old rows are left", n)
		}
	})
}

func TestSessions(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		session := store.Session{ID: store.Hash{1}, Key: store.Hash{2}, Person: `{"subject":"ü"}`}
		found := func() bool {
			t.Helper()
			got, err := f.Session(ctx, session.ID)
			if err != nil && belfry.CodeOf(err) != belfry.NotFound || err == nil && got != session {
				t.Fatalf("got %v (%v)", got, err)
			}
			return err == nil
		}
		if found() {
			t.Error("a session was found before there was one")
		}
		if err := f.AddSession(ctx, session); err != nil || !found() {
			t.Fatalf("the session is not found (%v)", err)
		}
		f.backdate(t, store.SessionTimeout-time.Minute, "sessions", "seen_at", "1 = 1")
		if !found() {
			t.Error("a session ended before its time")
		}
		f.backdate(t, 2*time.Minute, "sessions", "seen_at", "1 = 1") // it was used just now
		if !found() {
			t.Error("a session that is used ended")
		}
		f.backdate(t, store.SessionTimeout+time.Minute, "sessions", "seen_at", "1 = 1")
		if found() {
			t.Error("an idle session goes on")
		}
		if _, err := f.Prune(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		if n := f.count(t, `SELECT count(*) FROM sessions`); n != 0 {
			t.Errorf("%d old sessions are left", n)
		}
		if err := f.AddSession(ctx, session); err != nil {
			t.Fatal(err)
		}
		if err := f.EndSession(ctx, session.ID); err != nil || found() {
			t.Errorf("a session goes on after its end (%v)", err)
		}
	})
}

func TestJobsByName(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		byName := map[string]belfry.ID{}
		for _, name := range []string{"b", "a", "c", ""} {
			byName[name] = f.createJob(t, 5, func(j *belfry.Job) { j.Name = name }).ID
		}
		first, err := f.JobsByName(ctx, namespace, belfry.ID{}, 2)
		if err != nil || !slices.Equal(first, []belfry.ID{byName["a"], byName["b"]}) {
			t.Errorf("the first are %v (%v), want those of a and b of %v", first, err, byName)
		}
		rest, err := f.JobsByName(ctx, namespace, byName["b"], 10)
		if err != nil || !slices.Equal(rest, []belfry.ID{byName["c"]}) {
			t.Errorf("the rest is %v (%v), want that of c of %v", rest, err, byName)
		}
	})
}

func TestRunTimes(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.populateSettled(t)
		f.deadRun(t)
		f.deadRun(t)
		for limit, want := range map[int]int{10: 2, 1: 1} {
			if n, err := f.CountDead(ctx, namespace, limit); err != nil || n != want {
				t.Errorf("%d dead letters up to %d, want %d (%v)", n, limit, want, err)
			}
		}
		runs, err := f.ListRuns(ctx, namespace, belfry.RunFilter{}, store.Page{Limit: 1000})
		if err != nil || len(runs.Runs) < 5 {
			t.Fatalf("there are %d runs (%v)", len(runs.Runs), err)
		}
		var jobs []belfry.ID
		for _, r := range runs.Runs {
			if !slices.Contains(jobs, r.JobID) {
				jobs = append(jobs, r.JobID)
			}
		}
		times, err := f.RunTimes(ctx, namespace, jobs, time.Time{}.AddDate(1990, 0, 0), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs.Runs {
			i := slices.IndexFunc(times, func(rt store.RunTime) bool { return rt.RunID == r.ID })
			if r.FiredAt.IsZero() { // a pending trigger
				continue
			}
			if i < 0 || times[i].Status != r.Status || times[i].JobID != r.JobID || !times[i].ScheduledAt.Equal(r.ScheduledAt) || times[i].Skipped != r.SkippedCount {
				t.Errorf("run %+v is not among %+v", r, times)
			}
		}
		if some, err := f.RunTimes(ctx, namespace, jobs[:1], f.Now().Add(time.Hour), 10); err != nil || len(some) != 0 {
			t.Errorf("in the future there were %+v (%v)", some, err)
		}
		if none, err := f.RunTimes(ctx, "other", jobs, time.Time{}.AddDate(1990, 0, 0), 10); err != nil || len(none) != 0 {
			t.Errorf("another namespace has %+v (%v)", none, err)
		}
	})
}
