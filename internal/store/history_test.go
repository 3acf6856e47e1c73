package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// runsAt gives what was decided for an instant of a job, by id.
func (f *fixture) runsAt(t tb, job belfry.Job, at time.Time) []belfry.ID {
	t.Helper()
	runs, err := f.RunsAt(ctx, job.Namespace, job.ID, at)
	if err != nil {
		t.Fatalf("what was decided for %v: %v", at, err)
	}
	var out []belfry.ID
	for _, run := range runs {
		same := f.run(t, job.Namespace, run.ID)
		if run.Status != same.Status || run.Reason != same.Reason || !run.ScheduledAt.Equal(same.ScheduledAt) || run.SkippedCount != same.SkippedCount || run.Kind != same.Kind {
			t.Errorf("what was decided is %+v, found it is %+v", run, same)
		}
		out = append(out, run.ID)
	}
	slices.SortFunc(out, belfry.ID.Compare)
	return out
}

func TestRunsAtFindsRunsAndSkipsOfAnInstant(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job, other := f.createJob(t, 30, allowParallel, withRetries(0)), f.createJob(t, 30, withQueue("other"))
		f.fire(t, f.step(t, other))
		// A range of skips until 21 minutes ago, and then one of each state.
		first := plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.minutesAgo(20), f.Now())
		f.fire(t, first)
		for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeFailed, belfry.OutcomeCancelled} {
			f.finishAs(t, f.claimOne(t, worker), outcome)
			f.fire(t, f.step(t, job))
		}
		dead := f.listDeadLetters(t, namespace, belfry.DeadFilter{JobID: job.ID}, 10)
		f.discard(t, namespace, dead[1].ID)
		f.claimOne(t, worker)
		f.fire(t, f.step(t, job))
		noted := f.step(t, job)
		noted.Skips = []plan.Skip{noteSkip(job.ID, belfry.ReasonDSTGap, noted.Runs[0].ScheduledAt, 2)}
		f.fire(t, noted)
		at := noted.Runs[0].ScheduledAt
		trigger := f.backfill(job, at)
		f.recordAndFire(t, job, trigger)
		only := f.backfill(job, at)
		if err := f.Trigger(ctx, []plan.Trigger{only}, nil); err != nil {
			t.Fatal(err)
		}

		want := map[time.Time][]belfry.ID{}
		for _, run := range f.jobRuns(t, job) {
			to := run.ScheduledAt
			if run.SkippedTo != nil {
				to = *run.SkippedTo
			}
			for at := run.ScheduledAt; !at.After(to); at = at.Add(30 * time.Second) {
				want[at.UTC()] = append(want[at.UTC()], run.ID)
			}
		}
		if len(want[at.UTC()]) != 3 || len(f.jobRuns(t, job)) != 10 {
			t.Fatalf("the scene has %d records, and of %v %v", len(f.jobRuns(t, job)), at, want[at.UTC()])
		}
		for minute := -2; minute < 35; minute++ {
			for _, off := range []time.Duration{0, 30 * time.Second} {
				at := f.minutesAgo(minute).Add(off).UTC()
				slices.SortFunc(want[at], belfry.ID.Compare)
				if got := f.runsAt(t, job, at); !slices.Equal(got, want[at]) {
					t.Errorf("%d minutes ago plus %v: got %v, wants %v", minute, off, got, want[at])
				}
			}
		}
		if runs, err := f.RunsAt(ctx, "theirs", job.ID, at); len(runs) != 0 || err != nil && belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("another namespace sees %d runs (%v)", len(runs), err)
		}
	})
}

func TestRunsAtFindsALongRangeOfSkips(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 40*24*60, allowParallel)
		step := plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.minutesAgo(200), f.Now())
		f.fire(t, step)
		for range 150 { // many records between the range and now
			f.fire(t, f.step(t, job))
		}
		for _, at := range []time.Time{f.minutesAgo(40 * 24 * 60), f.minutesAgo(20 * 24 * 60), f.minutesAgo(202)} {
			if got := f.runsAt(t, job, at); !slices.Equal(got, []belfry.ID{step.Skips[0].ID}) {
				t.Errorf("%v: got %v, wants the range", at, got)
			}
		}
		if got := f.runsAt(t, job, f.minutesAgo(100)); len(got) != 1 {
			t.Errorf("of an instant after the range there are %v", got)
		}
	})
}

func TestRunWaitSaysWhatARunWaitsFor(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		retry := f.startRun(t, withNamespace("ours"), withRetries(3))
		r := result(retry, belfry.OutcomeFailed)
		r.RetryAfterSeconds = 3600
		f.finish(t, r)
		if w, err := f.RunWait(ctx, "ours", retry.ID); err != nil || w.State != belfry.RunRetry || !near(w.ReadyAt, f.Now().Add(time.Hour), 20*time.Second) {
			t.Errorf("a run that waits for its retry waits for %+v (%v)", w, err)
		}
		gone := f.deadRun(t)
		for doing, id := range map[string]belfry.ID{"is dead": gone.ID, "never was": newID(), "is of another namespace": retry.ID} {
			_, err := f.RunWait(ctx, namespace, id)
			wantCode(t, "what does a run wait for that "+doing, err, belfry.NotFound)
		}

		worker := f.registerWorker(t)
		job := f.createJob(t, 20, withQueueLimit(20), withRetries(3))
		var runs []belfry.ID
		for range 13 {
			step := f.step(t, job)
			f.fire(t, step)
			runs = append(runs, step.Runs[0].ID)
		}
		before, after := f.createJob(t, 25), f.createJob(t, 15)
		f.fire(t, f.step(t, before), f.step(t, after))

		w, err := f.RunWait(ctx, namespace, runs[0])
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "what a ready run waits for", w, store.RunWait{State: belfry.RunReady, ReadyAt: f.liveRow(t, runs[0]).ReadyAt, Lane: lane, Ahead: 1})
		for i, want := range map[int]int{1: 1, 5: 5, 12: 10} {
			w, err := f.RunWait(ctx, namespace, runs[i])
			if err != nil || w.State != belfry.RunWaiting || len(w.Before) != want || w.Ahead != 0 {
				t.Errorf("run %d waits for %+v (%v), wants %d before it", i, w, err, want)
			}
			for _, id := range w.Before {
				if !slices.Contains(runs[:i], id) {
					t.Errorf("run %d waits for %s, which does not come before it", i, id)
				}
			}
		}
		held := f.claim(t, worker, 2)[1]
		if w, err := f.RunWait(ctx, namespace, held.ID); err != nil || w.State != belfry.RunRunning || w.Running != 2 || w.Cancel {
			t.Errorf("a running run waits for %+v (%v)", w, err)
		}
		f.cancel(t, namespace, held.ID)
		if w, err := f.RunWait(ctx, namespace, held.ID); err != nil || !w.Cancel {
			t.Errorf("a cancelled run waits for %+v (%v)", w, err)
		}
	})
}

func TestRunFindsLiveDeadAndSettledRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withRetries(1), withBase(0))
		want := func(state belfry.RunStatus, attempts int) {
			t.Helper()
			got := f.run(t, run.Namespace, run.ID)
			if got.Status != state || len(got.Attempts) != attempts || got.JobID != run.JobID || !got.ScheduledAt.Equal(run.ScheduledAt) ||
				!got.FiredAt.Equal(run.FiredAt) || got.Kind != belfry.KindScheduled || got.Namespace != run.Namespace || got.Revision != 1 {
				t.Errorf("the %s run is %+v", state, got)
			}
			for i, a := range got.Attempts {
				if a.Number != i+1 {
					t.Errorf("attempt %d has number %d", i+1, a.Number)
				}
			}
			if final := state == belfry.RunDead || state == belfry.RunSucceeded; (got.FinishedAt != nil) != final {
				t.Errorf("the %s run was finished at %v", state, got.FinishedAt)
			}
		}
		want(belfry.RunRunning, 0)
		f.finishAs(t, run, belfry.OutcomeInterrupted)
		want(belfry.RunReady, 1)
		f.finishAs(t, f.claimOne(t, run.WorkerID), belfry.OutcomeFailed)
		want(belfry.RunRetry, 2)
		if n, _, err := f.Promote(ctx, f.allShards(), 1); n != 1 || err != nil {
			t.Fatalf("promoted %d (%v)", n, err)
		}
		f.finishAs(t, f.claimOne(t, run.WorkerID), belfry.OutcomeFailed)
		want(belfry.RunDead, 3)
		_, err := f.Run(ctx, run.Namespace, newID())
		wantCode(t, "find a run that never was", err, belfry.NotFound)
	})
}

func TestRunFindsAPendingTrigger(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -60, withNamespace("ours"))
		trigger := f.trigger(t, job, `"mine"`)
		want := func(state belfry.RunStatus) {
			t.Helper()
			got := f.run(t, "ours", trigger.RunID())
			if got.ID != trigger.RunID() || got.JobID != job.ID || got.Namespace != "ours" || got.Kind != belfry.KindManual ||
				got.Status != state || !got.ScheduledAt.Equal(trigger.At) || got.Revision != 1 {
				t.Errorf("the trigger is found as %+v, wants it %s", got, state)
			}
			_, err := f.Run(ctx, "theirs", trigger.RunID())
			wantCode(t, "find it from another namespace", err, belfry.NotFound)
		}
		want(belfry.RunReady)
		if got := f.run(t, "ours", trigger.RunID()); !got.FiredAt.IsZero() {
			t.Errorf("a trigger that is not fired was fired at %v", got.FiredAt)
		}
		f.fire(t, plan.Fire(subject(t, "ours", 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{trigger}))
		want(belfry.RunReady)
		run := f.claimOne(t, f.registerWorker(t))
		want(belfry.RunRunning)
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		want(belfry.RunSucceeded)
		_, err := f.Run(ctx, "ours", trigger.ID)
		wantCode(t, "find a run by the id of its trigger", err, belfry.NotFound)
	})
}

func TestTheRunsOfAJobAreListedLatestFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, other := f.createJob(t, 30, allowParallel, withRetries(0)), f.createJob(t, 30, withQueue("other"))
		f.fire(t, f.step(t, other))
		worker := f.registerWorker(t)
		// A range of skips, a success, a dead letter, and a live run of each kind.
		seen := f.plan(t, job.ID)
		f.fire(t, plan.Decide(subject(t, job.Namespace, 1, job.Spec), seen, f.minutesAgo(20), f.Now()))
		for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
			for _, run := range f.claim(t, worker, 1) {
				f.finishAs(t, run, outcome)
			}
			f.fire(t, f.step(t, job))
		}
		f.claim(t, worker, 1)
		f.fire(t, f.step(t, job))
		// Three triggers for the same instant have different ids only.
		at := f.Now().Truncate(time.Microsecond)
		var triggers []plan.Trigger
		for range 3 {
			w := f.newTrigger(job, "")
			w.At = at
			if err := f.Trigger(ctx, []plan.Trigger{w}, nil); err != nil {
				t.Fatal(err)
			}
			triggers = append(triggers, w)
		}
		f.fire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), triggers))

		all := f.jobRuns(t, job)
		var states []belfry.RunStatus
		for i, run := range all {
			states = append(states, run.Status)
			if run.JobID != job.ID || len(run.Attempts) != 0 {
				t.Errorf("record %d is %+v", i, run)
			}
			if i > 0 && !later(all[i-1], run) {
				t.Errorf("record %d (%v, %s) comes before %v, %s", i, all[i-1].ScheduledAt, all[i-1].ID, run.ScheduledAt, run.ID)
			}
		}
		want := []belfry.RunStatus{"ready", "ready", "ready", "ready", "running", "dead", "succeeded", "skipped"}
		if !slices.Equal(states, want) {
			t.Fatalf("the records are %v, wants %v", states, want)
		}
		f.wantPages(t, job, all)
	})
}

// later reports whether a comes before b in a list of runs.
func later(a, b belfry.Run) bool {
	if !a.ScheduledAt.Equal(b.ScheduledAt) {
		return a.ScheduledAt.After(b.ScheduledAt)
	}
	return a.ID.Compare(b.ID) > 0
}

// wantPages expects pages of every size to give the same list as one.
func (f *fixture) wantPages(t tb, job belfry.Job, all []belfry.Run) {
	t.Helper()
	for limit := 1; limit <= len(all)+1; limit++ {
		var got []belfry.ID
		page := store.Page{Limit: limit}
		for range len(all) + 1 {
			runs, _, err := f.JobRuns(ctx, job.Namespace, job.ID, belfry.JobRunFilter{}, page)
			if err != nil || len(runs) > limit {
				t.Fatalf("a page of %d has %d runs (%v)", limit, len(runs), err)
			}
			if len(runs) == 0 {
				break
			}
			for _, run := range runs {
				got = append(got, run.ID)
			}
			last := runs[len(runs)-1]
			page.After.At, page.After.ID = last.ScheduledAt, last.ID
		}
		if !slices.EqualFunc(got, all, func(id belfry.ID, run belfry.Run) bool { return id == run.ID }) {
			t.Errorf("pages of %d give %d runs %v, wants %d", limit, len(got), got, len(all))
		}
	}
}

func TestADSTGapNoteAndARunMayHaveTheSameInstant(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, worker := f.createJob(t, 5), f.registerWorker(t)
		at := f.minutesAgo(5)
		step := f.step(t, job)
		// Before the occurrence, at it, and behind the mark of a step that is applied later.
		step.Skips = []plan.Skip{noteSkip(job.ID, belfry.ReasonDSTGap, f.minutesAgo(50), 1), noteSkip(job.ID, belfry.ReasonDSTGap, at, 4)}
		f.fire(t, step)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		second := f.step(t, job)
		second.Skips = []plan.Skip{noteSkip(job.ID, belfry.ReasonDSTGap, f.minutesAgo(40), 1)}
		f.fire(t, second)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)

		runs := f.jobRuns(t, job)
		if len(runs) != 5 {
			t.Fatalf("there are %d records, wants 5: %+v", len(runs), runs)
		}
		gap, run := runs[1], runs[2]
		if gap.Status != belfry.RunSkipped {
			gap, run = run, gap
		}
		if gap.ID != step.Skips[1].ID || gap.Reason != belfry.ReasonDSTGap || gap.SkippedCount != 4 || !gap.ScheduledAt.Equal(at) ||
			run.ID != step.Runs[0].ID || run.Status != belfry.RunSucceeded || !run.ScheduledAt.Equal(at) {
			t.Errorf("of %v there are %+v and %+v", at, gap, run)
		}
		for _, r := range runs {
			if got := f.run(t, job.Namespace, r.ID); got.Status != r.Status || got.Reason != r.Reason {
				t.Errorf("%s is found as %+v, listed as %+v", r.ID, got, r)
			}
		}
		var paged []belfry.Run
		for page := (store.Page{Limit: 2}); ; page.After.At, page.After.ID = paged[len(paged)-1].ScheduledAt, paged[len(paged)-1].ID {
			some, _, err := f.JobRuns(ctx, job.Namespace, job.ID, belfry.JobRunFilter{}, page)
			if err != nil {
				t.Fatal(err)
			}
			if paged = append(paged, some...); len(some) < 2 {
				break
			}
		}
		if !cmp.Equal(paged, runs, asStored) {
			t.Errorf("in pages there are %+v, wants %+v", paged, runs)
		}
		list, err := f.ListRuns(ctx, job.Namespace, belfry.RunFilter{}, store.Page{Limit: 10})
		if err != nil || len(list.Runs) != 5 || !slices.IsSortedFunc(list.Runs, func(a, b belfry.Run) int { return b.ScheduledAt.Compare(a.ScheduledAt) }) {
			t.Errorf("all runs are %+v, %v", list.Runs, err)
		}
	})
}
