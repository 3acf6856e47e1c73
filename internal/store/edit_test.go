package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestAPausedJobIsNotDueUntilItIsResumed(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, -3)
		stale := f.step(t, job)
		paused := f.edit(t, job, pause(t))
		if paused.State != belfry.JobPaused || paused.Status != belfry.StatusPaused || paused.NextRunAt != nil {
			t.Errorf("the paused job is %s, %s, next at %v", paused.State, paused.Status, paused.NextRunAt)
		}
		if diff := cmp.Diff(f.getJob(t, job), paused, asStored); diff != "" {
			t.Errorf("what the edit answered differs from what is stored (-stored +answered):\n%s", diff)
		}
		window := store.AllUntil(f.minutesAgo(-60), f.allShards(), 10)
		if found, err := f.Upcoming(ctx, window); err != nil || len(found) != 0 {
			t.Errorf("%d plans are upcoming (%v), wants none", len(found), err)
		}
		if p := f.plan(t, job.ID); p.Version != 2 || !p.NextAt.IsZero() || !p.NominalAt.Equal(stale.Seen.NominalAt) {
			t.Errorf("the plan of the paused job is %+v", p)
		}
		resumed := f.edit(t, job, resume(t))
		if resumed.Status != belfry.StatusScheduled || resumed.NextRunAt == nil || !resumed.NextRunAt.Equal(stale.Seen.NominalAt) {
			t.Errorf("the resumed job is %s, next at %v", resumed.Status, resumed.NextRunAt)
		}
		if found, err := f.Upcoming(ctx, window); err != nil || len(found) != 1 || found[0].Plan.Version != 3 {
			t.Errorf("after the resume %+v are upcoming (%v), wants version 3", found, err)
		}
	})
}

func TestPausingDecidesWhatIsDue(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10, allowParallel)
		at := f.plan(t, job.ID).NominalAt
		f.edit(t, job, pause(t))
		runs := f.jobRuns(t, job)
		if len(runs) != 2 || runs[0].Status != belfry.RunReady || runs[0].ScheduledAt.Before(f.minutesAgo(0)) {
			t.Fatalf("pausing left %+v, wants a run for the latest occurrence and a skip", runs)
		}
		if skip := runs[1]; skip.Reason != belfry.ReasonMissed || !skip.ScheduledAt.Equal(at) || skip.SkippedTo == nil || !skip.SkippedTo.Equal(runs[0].ScheduledAt.Add(-time.Minute)) {
			t.Errorf("the skip is %+v", skip)
		}
		if got := f.getJob(t, job); got.Status != belfry.StatusPaused {
			t.Errorf("the paused job with a live run is %s", got.Status)
		}
		// What is due cannot be decided again by whoever saw it before the pause.
		if worker := f.registerWorker(t); len(f.claim(t, worker, 10)) != 1 {
			t.Error("there is not exactly one run to claim")
		}
	})
}

func TestResumeSkipsThePauseOrCatchesUp(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, catchUp := range []bool{false, true} {
			paused := f.job(f.minutesAgo(10))
			paused.Job.State, paused.Plan.NextAt = belfry.JobPaused, time.Time{}
			f.createJobs(t, paused)
			job := paused.Job
			f.edit(t, job, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
				job.State = belfry.JobActive
				return &store.Change{Job: job, Step: plan.Resume(subject(t, job.Namespace, 1, job.Spec), p, catchUp, now)}, nil
			})
			runs := f.jobRuns(t, job)
			skip, ran := runs[len(runs)-1], 0
			if catchUp {
				ran = 1
			}
			if len(runs) != 1+ran || skip.Status != belfry.RunSkipped || skip.Reason != belfry.ReasonPaused || !skip.ScheduledAt.Equal(f.minutesAgo(10)) ||
				skip.SkippedTo == nil || skip.SkippedTo.Before(f.minutesAgo(1)) || skip.SkippedCount < int64(11-ran) {
				t.Fatalf("catch up %v: there are %+v", catchUp, runs)
			}
			p := f.plan(t, job.ID)
			if !p.NominalAt.Equal(p.FiredFor.Add(time.Minute)) || p.FiredFor.Before(f.minutesAgo(0)) || !p.NextAt.Equal(p.NominalAt) {
				t.Errorf("catch up %v: the plan after the resume is %+v", catchUp, p)
			}
			if n := len(f.claim(t, f.registerWorker(t), 10)); n != ran {
				t.Errorf("catch up %v: %d runs can be claimed, wants %d", catchUp, n, ran)
			}
		}
	})
}

func TestADeletedJobIsInvisibleButItsRunsContinue(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, allowParallel, withName("report"))
		f.fire(t, f.step(t, job))
		stale := f.step(t, job)
		f.edit(t, job, deleteJob(t))
		_, err := f.Job(ctx, job.Namespace, job.ID)
		wantCode(t, "find a deleted job", err, belfry.NotFound)
		_, err = f.EditJob(ctx, job.Namespace, job.ID, pause(t))
		wantCode(t, "edit a deleted job", err, belfry.NotFound)
		wantCode(t, "trigger a deleted job", f.Trigger(ctx, f.oneTrigger(job), nil), belfry.NotFound)
		if due := f.due(t); len(due) != 0 {
			t.Errorf("a deleted job is due")
		}
		if fired, err := f.Fire(ctx, owner, []plan.Step{stale}, store.FreeSlots{}); err != nil || fired.Applied[0] || fired.ReadyCount() != 0 {
			t.Errorf("a deleted job was fired: %+v (%v)", fired, err)
		}
		run := f.claimOne(t, f.registerWorker(t))
		if run.JobID != job.ID || string(run.Payload) != string(job.Payload) {
			t.Errorf("the run of the deleted job has payload %q", run.Payload)
		}
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		if n := f.count(t, `SELECT count(*) FROM history WHERE job_id = ? AND state = 'skipped' AND reason = 'deleted' AND skipped_count >= 4`, job.ID); n != 1 {
			t.Errorf("%d skips are of what was due, wants 1", n)
		}
	})
}

func TestARunKeepsTheRevisionItWasFiredFrom(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, allowParallel, withPayload(`"old"`), withRetries(1), withTimeout(100))
		f.fire(t, f.step(t, job))
		stale := f.step(t, job)
		edited := f.edit(t, job, revise(t, func(j *belfry.Job) {
			j.Payload, j.MaxRetries, j.TimeoutSeconds = []byte(`"new"`), belfry.Some(0), 200
		}))
		if edited.Revision != 2 || string(edited.Payload) != `"new"` || edited.TimeoutSeconds != 200 {
			t.Errorf("the edited job is revision %d with %s", edited.Revision, edited.Payload)
		}
		if fired, err := f.Fire(ctx, owner, []plan.Step{stale}, store.FreeSlots{}); err != nil || fired.Applied[0] {
			t.Errorf("a step from before the edit was applied: %+v (%v)", fired, err)
		}
		f.fire(t, f.step(t, edited))
		worker := f.registerWorker(t)
		runs := f.claim(t, worker, 10)
		if len(runs) != 2 {
			t.Fatalf("claimed %d runs, wants 2", len(runs))
		}
		for i, want := range []struct {
			revision, timeout, retries int
			payload                    string
		}{{1, 100, 1, `"old"`}, {2, 200, 0, `"new"`}} {
			r := runs[i]
			if r.Revision != want.revision || string(r.Payload) != want.payload || r.Spec.TimeoutSeconds != want.timeout || r.Spec.MaxRetries.Value() != want.retries {
				t.Errorf("run %d is of revision %d with payload %s and spec %+v, wants %+v", i, r.Revision, r.Payload, r.Spec, want)
			}
			if row := f.liveRow(t, r.ID); row.TimeoutMS != int64(want.timeout)*1000 {
				t.Errorf("run %d has a timeout of %d ms, wants %d s", i, row.TimeoutMS, want.timeout)
			}
			f.finishAs(t, r, belfry.OutcomeFailed)
		}
		if a, b := f.state(t, runs[0].ID), f.state(t, runs[1].ID); a != belfry.RunRetry || b != belfry.RunDead {
			t.Errorf("failing made the old run %s and the new one %s, wants retry and dead", a, b)
		}
	})
}

func TestAnEditThatRefusesChangesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, withName("report"))
		before := f.getJob(t, job)
		broken := errors.New("no such zone")
		_, err := f.EditJob(ctx, job.Namespace, job.ID, func(got belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			if diff := cmp.Diff(before.Spec, got.Spec, asStored); diff != "" || got.Name != "report" || string(got.Payload) != string(job.Payload) || got.Revision != 1 {
				t.Errorf("the edit got %+v", got)
			}
			if p != f.plan(t, job.ID) {
				t.Errorf("the edit got plan %+v, stored is %+v", p, f.plan(t, job.ID))
			}
			if !near(now, f.Now(), 10*time.Second) {
				t.Errorf("the edit got the time %v, the store says %v", now, f.Now())
			}
			return &store.Change{Job: got}, broken
		})
		if err != broken {
			t.Errorf("got error %q, wants the edit's own as it is", err)
		}
		_, err = f.EditJob(ctx, job.Namespace, job.ID, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) {
			return nil, belfry.Errorf(belfry.Conflict, "it changed meanwhile")
		})
		wantCode(t, "an edit that refuses", err, belfry.Conflict)
		got := f.edit(t, job, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) { return nil, nil })
		for _, job := range []belfry.Job{got, f.getJob(t, job)} {
			if diff := cmp.Diff(before, job, asStored); diff != "" {
				t.Errorf("the job changed (-before +after):\n%s", diff)
			}
		}
		if p := f.plan(t, job.ID); p.Version != 1 {
			t.Errorf("the plan has version %d, wants 1", p.Version)
		}
	})
}

func TestEditsOfOneJobFollowOneAnother(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5)
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t))
		}
		const editors, edits = 4, 5
		var wait sync.WaitGroup
		for i := range editors {
			wait.Go(func() {
				for range edits {
					_, err := stores[i%len(stores)].EditJob(ctx, job.Namespace, job.ID, revise(t, func(j *belfry.Job) {
						j.Payload = fmt.Appendf(nil, "%d", j.Revision+1)
					}))
					if err != nil {
						t.Errorf("edit: %v", err)
					}
				}
			})
		}
		wait.Wait()
		got := f.getJob(t, job)
		if got.Revision != 1+editors*edits || string(got.Payload) != fmt.Sprint(got.Revision) {
			t.Errorf("the job is at revision %d with payload %s, wants %d", got.Revision, got.Payload, 1+editors*edits)
		}
		if p := f.plan(t, job.ID); p.Version != 1+editors*edits {
			t.Errorf("the plan is at version %d, wants %d", p.Version, 1+editors*edits)
		}
		if n := f.count(t, `SELECT count(*) FROM revisions WHERE job_id = ?`, job.ID); n != editors*edits {
			t.Errorf("%d earlier revisions are kept, wants %d", n, editors*edits)
		}
	})
}

func TestAnEditWhoseCallerLeavesIsAllOrNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5)
		gone, leave := context.WithCancel(ctx)
		defer leave()
		_, err := f.EditJob(gone, job.Namespace, job.ID, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			leave()
			return pause(t)(job, p, now)
		})
		state, version, runs := f.getJob(t, job).State, f.plan(t, job.ID).Version, len(f.jobRuns(t, job))
		whole := state == belfry.JobPaused && version == 2 && runs == 2
		if nothing := state == belfry.JobActive && version == 1 && runs == 0; !whole && (err == nil || !nothing) {
			t.Errorf("the edit answered %v and left state %s, version %d and %d runs", err, state, version, runs)
		}
	})
}

func TestAFiringAndAPauseMakeOneDecision(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		other := f.Store
		if f.reopen != nil {
			other = f.reopen(t)
		}
		for range 10 {
			job := f.createJob(t, 3, allowParallel)
			step := f.step(t, job)
			var wait sync.WaitGroup
			wait.Go(func() {
				if _, err := other.Fire(ctx, owner, []plan.Step{step}, store.FreeSlots{}); err != nil {
					t.Errorf("fire: %v", err)
				}
			})
			wait.Go(func() {
				if _, err := f.EditJob(ctx, job.Namespace, job.ID, pause(t)); err != nil {
					t.Errorf("pause: %v", err)
				}
			})
			wait.Wait()
			if got := f.getJob(t, job); got.State != belfry.JobPaused {
				t.Errorf("the job is %s, wants paused", got.State)
			}
			p := f.plan(t, job.ID)
			made := int64(0)
			for _, run := range f.jobRuns(t, job) {
				if run.Status != belfry.RunSkipped {
					made++
				}
			}
			if !p.NextAt.IsZero() || made != p.RunsMade || p.FiredFor.Before(f.minutesAgo(0)) {
				t.Errorf("the plan is %+v and there are %d runs", p, made)
			}
			f.wantCovered(t, job.ID, f.minutesAgo(3))
		}
	})
}
