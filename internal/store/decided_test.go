package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// decided gives what was decided for an instant of a job, by id.
func (f *fixture) decided(t tb, job belfry.Job, at time.Time) []belfry.ID {
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

func TestWhatWasDecidedIsFoundByItsInstant(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		job, other := f.created(t, 30, parallel, withRetries(0)), f.created(t, 30, inQueue("other"))
		f.fire(t, f.step(t, other))
		// A range of skips until 21 minutes ago, and then one of each state.
		first := plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.minutesAgo(20), f.Now())
		f.fire(t, first)
		for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeFailed, belfry.OutcomeCancelled} {
			f.accepted(t, f.claimOne(t, worker), outcome)
			f.fire(t, f.step(t, job))
		}
		dead := f.letters(t, namespace, belfry.DeadFilter{JobID: job.ID}, 10)
		f.discard(t, namespace, dead[1].ID)
		f.claimOne(t, worker)
		f.fire(t, f.step(t, job))
		noted := f.step(t, job)
		noted.Skips = []plan.Skip{aside(job.ID, belfry.ReasonDSTGap, noted.Runs[0].ScheduledAt, 2)}
		f.fire(t, noted)
		at := noted.Runs[0].ScheduledAt
		wish := f.backfill(job, at)
		f.fireWishes(t, job, wish)
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
				if got := f.decided(t, job, at); !slices.Equal(got, want[at]) {
					t.Errorf("%d minutes ago plus %v: got %v, wants %v", minute, off, got, want[at])
				}
			}
		}
		if runs, err := f.RunsAt(ctx, "theirs", job.ID, at); len(runs) != 0 || err != nil && belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("another namespace is told of %d runs (%v)", len(runs), err)
		}
	})
}

func TestARangeThatBeganLongBeforeIsFound(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, 40*24*60, parallel)
		step := plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.minutesAgo(200), f.Now())
		f.fire(t, step)
		for range 150 { // many records between the range and now
			f.fire(t, f.step(t, job))
		}
		for _, at := range []time.Time{f.minutesAgo(40 * 24 * 60), f.minutesAgo(20 * 24 * 60), f.minutesAgo(202)} {
			if got := f.decided(t, job, at); !slices.Equal(got, []belfry.ID{step.Skips[0].ID}) {
				t.Errorf("%v: got %v, wants the range", at, got)
			}
		}
		if got := f.decided(t, job, f.minutesAgo(100)); len(got) != 1 {
			t.Errorf("of an instant after the range there are %v", got)
		}
	})
}

func TestWaitTellsWhatARunWaitsFor(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		retry := f.started(t, inNamespace("ours"), withRetries(3))
		r := result(retry, belfry.OutcomeFailed)
		r.RetryAfterSeconds = 3600
		f.finish(t, r)
		if w, err := f.RunWait(ctx, "ours", retry.ID); err != nil || w.State != belfry.RunRetry || !near(w.ReadyAt, f.Now().Add(time.Hour), 20*time.Second) {
			t.Errorf("a run that waits for its retry waits for %+v (%v)", w, err)
		}
		gone := f.dead(t)
		for doing, id := range map[string]belfry.ID{"is dead": gone.ID, "never was": newID(), "is of another namespace": retry.ID} {
			_, err := f.RunWait(ctx, namespace, id)
			wantCode(t, "what does a run wait for that "+doing, err, belfry.NotFound)
		}

		worker := f.worker(t)
		job := f.created(t, 20, queued(20), withRetries(3))
		var runs []belfry.ID
		for range 13 {
			step := f.step(t, job)
			f.fire(t, step)
			runs = append(runs, step.Runs[0].ID)
		}
		before, after := f.created(t, 25), f.created(t, 15)
		f.fire(t, f.step(t, before), f.step(t, after))

		w, err := f.RunWait(ctx, namespace, runs[0])
		if err != nil || w.State != belfry.RunReady || w.Lane != lane || w.Ahead != 1 || w.Running != 0 || len(w.Before) != 0 || w.Cancel || !w.ReadyAt.Equal(f.live(t, runs[0]).ReadyAt) {
			t.Errorf("a ready run waits for %+v (%v)", w, err)
		}
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
