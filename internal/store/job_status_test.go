package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestJobStatus(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		want := func(job belfry.Job, doing string, status belfry.JobStatus, last *time.Time) {
			t.Helper()
			got := f.getJob(t, job)
			if got.Status != status || (got.LastRunAt == nil) != (last == nil) || last != nil && !got.LastRunAt.Equal(*last) {
				t.Errorf("%s: status %s and last run at %v, wants %s and %v", doing, got.Status, got.LastRunAt, status, last)
			}
			list, err := f.ListJobs(ctx, job.Namespace, belfry.JobFilter{Status: status}, store.Page{Limit: 1})
			if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Status != status {
				t.Errorf("%s: the list says %+v (%v), wants %s", doing, list.Jobs, err, status)
			}
		}
		for _, outcome := range []struct {
			outcome belfry.Outcome
			once    belfry.JobStatus
		}{{belfry.OutcomeSucceeded, belfry.StatusCompleted}, {belfry.OutcomeFailed, belfry.StatusFailed}} {
			at := f.minutesAgo(5)
			once := f.job(at, withSchedule(at.Format(time.RFC3339)), withRetries(0))
			f.createJobs(t, once)
			worker := f.registerWorker(t)
			want(once.Job, "a one-off that is due", belfry.StatusQueued, nil)
			f.fire(t, f.step(t, once.Job))
			want(once.Job, "a one-off that was fired", belfry.StatusQueued, &at)
			run := f.claimOne(t, worker)
			want(once.Job, "a one-off that was claimed", belfry.StatusRunning, &at)
			f.finishAs(t, run, outcome.outcome)
			want(once.Job, "a one-off that "+string(outcome.outcome), outcome.once, &at)
			if got := f.getJob(t, once.Job); got.NextRunAt != nil {
				t.Errorf("a one-off that is over has a next run at %v", got.NextRunAt)
			}
		}
		job := f.createJob(t, 5, withRetries(1))
		at, worker := f.plan(t, job.ID).NominalAt, f.registerWorker(t)
		f.fire(t, f.step(t, job))
		run := f.claimOne(t, worker)
		f.finishAs(t, run, belfry.OutcomeFailed)
		want(job, "a job whose run waits for a retry", belfry.StatusQueued, &at)
		f.edit(t, job, pause(t))
		want(job, "a paused job", belfry.StatusPaused, f.getJob(t, job).LastRunAt)
	})
}

// reschedule gives a job a single instant in place of the rule that it had.
func reschedule(t tb, at time.Time) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		was := subject(t, job.Namespace, job.Revision, job.Spec)
		job.Schedule = at.Format(time.RFC3339)
		job.Revision++
		return &store.Change{Job: job, Step: plan.Edit(was, subject(t, job.Namespace, job.Revision, job.Spec).Policy, p, job.State == belfry.JobPaused, now)}, nil
	}
}

// A job that was cancelled leaves a record at the instant that was planned then. If
// it runs again before that, the record is no longer the last that is known of it.
func TestJobStatusOfACancelledJobThatRunsAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for name, tt := range map[string]struct {
			outcome belfry.Outcome
			then    func(job belfry.Job, run *belfry.Run)
			want    belfry.JobStatus
			ended   bool
		}{
			"succeeded": {outcome: belfry.OutcomeSucceeded, want: belfry.StatusCompleted, ended: true},
			"cancelled": {outcome: belfry.OutcomeCancelled, want: belfry.StatusCancelled, ended: true},
			"failed":    {outcome: belfry.OutcomeFailed, want: belfry.StatusFailed},
			"discarded": {outcome: belfry.OutcomeFailed, want: belfry.StatusFailed, ended: true, then: func(_ belfry.Job, run *belfry.Run) {
				f.discard(t, namespace, run.ID)
			}},
			"cancelled once more": {outcome: belfry.OutcomeFailed, want: belfry.StatusCancelled, then: func(job belfry.Job, run *belfry.Run) {
				f.edit(t, job, reschedule(t, f.minutesAgo(-30)))
				f.edit(t, job, cancelJob(t))
			}},
		} {
			job := f.createJob(t, -60, withName(name), withRetries(0))
			f.edit(t, job, cancelJob(t))
			job = f.edit(t, job, reschedule(t, f.minutesAgo(1)))
			run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
			f.finishAs(t, run, tt.outcome)
			if tt.then != nil {
				tt.then(job, run)
			}
			f.archiveAll(t, 10)
			got := f.getJob(t, job)
			if got.Status != tt.want || (got.State == belfry.JobEnded) != tt.ended || got.LastRunAt == nil || !got.LastRunAt.Equal(run.ScheduledAt) {
				t.Errorf("%s: the job is %s and %s, and ran at %v; wants %s", name, got.State, got.Status, got.LastRunAt, tt.want)
			}
			if list := f.listJobs(t, namespace, belfry.JobFilter{Status: tt.want, Search: name}, 10); !slices.ContainsFunc(list, func(j belfry.Job) bool { return j.ID == job.ID }) {
				t.Errorf("%s: it is not among the jobs that are %s", name, tt.want)
			}
		}
	})
}

// What was under way when a job was cancelled does not undo that.
func TestJobStatusOfACancelledJobWhoseLastRunSucceeds(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 5)
		run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		f.edit(t, job, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			p.NominalAt, p.NextAt = f.minutesAgo(-60), f.minutesAgo(-60) // all before is decided
			return cancelJob(t)(job, p, now)
		})
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		if got := f.getJob(t, job); got.Status != belfry.StatusCancelled || got.LastRunAt == nil || !got.LastRunAt.Equal(run.ScheduledAt) {
			t.Errorf("the cancelled job is %s, and ran at %v", got.Status, got.LastRunAt)
		}
		trigger := f.newTrigger(job, "")
		f.recordAndFire(t, job, trigger)
		f.settleAll(t)
		if got := f.getJob(t, job); got.Status != belfry.StatusCompleted {
			t.Errorf("after it was run by hand the job is %s", got.Status)
		}
	})
}

// noteSkip is a note beside the occurrences of a job.
func noteSkip(job belfry.ID, reason belfry.Reason, at time.Time, count int64) plan.Skip {
	return plan.Skip{ID: belfry.RunID(job, belfry.RunKind(reason), at, belfry.ID{}), From: at, To: at, Count: count, Reason: reason, Note: true}
}

func TestNotesDoNotChangeTheJobStatus(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		ended := map[belfry.ID]belfry.JobStatus{}
		end := func(want belfry.JobStatus, outcome belfry.Outcome, notes ...func(job belfry.ID) plan.Skip) {
			job := f.createJob(t, 30, withRetries(0))
			step := f.step(t, job)
			step.Next.NextAt, step.Next.NominalAt = time.Time{}, time.Time{}
			for _, note := range notes {
				step.Skips = append(step.Skips, note(job.ID))
			}
			if outcome == "" {
				step.Runs, step.Next.RunsMade, step.Next.FiredFor = nil, 0, time.Time{}
			}
			f.fire(t, step)
			if outcome != "" {
				f.finishAs(t, f.claimOne(t, worker), outcome)
			}
			ended[job.ID] = want
		}
		gap := func(minutes int) func(belfry.ID) plan.Skip {
			return func(job belfry.ID) plan.Skip { return noteSkip(job, belfry.ReasonDSTGap, f.minutesAgo(minutes), 1) }
		}
		moved := func(minutes int) func(belfry.ID) plan.Skip {
			return func(job belfry.ID) plan.Skip { return noteSkip(job, belfry.ReasonZoneChange, f.minutesAgo(minutes), 1) }
		}
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded)
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded, gap(30))
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded, moved(-24*60))
		end(belfry.StatusCompleted, belfry.OutcomeSucceeded, gap(60), moved(10))
		end(belfry.StatusFailed, belfry.OutcomeFailed, gap(30), moved(5))
		end(belfry.StatusCancelled, "", moved(5))
		for id, want := range ended {
			job := f.getJob(t, belfry.Job{ID: id, Namespace: belfry.DefaultNamespace})
			if job.Status != want {
				t.Errorf("job %s is %s, wants %s", id, job.Status, want)
			}
			if want == belfry.StatusCancelled && job.LastRunAt != nil || want != belfry.StatusCancelled && (job.LastRunAt == nil || !job.LastRunAt.Equal(f.minutesAgo(30))) {
				t.Errorf("the %s job ran at %v last", want, job.LastRunAt)
			}
		}
		for _, status := range []belfry.JobStatus{belfry.StatusCompleted, belfry.StatusFailed, belfry.StatusCancelled} {
			want := 0
			for _, s := range ended {
				if s == status {
					want++
				}
			}
			list, err := f.ListJobs(ctx, belfry.DefaultNamespace, belfry.JobFilter{Status: status}, store.Page{Limit: 10})
			if err != nil || len(list.Jobs) != want {
				t.Errorf("%d jobs are listed as %s (%v), wants %d", len(list.Jobs), status, err, want)
			}
		}
	})
}
