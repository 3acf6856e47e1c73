package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// instead gives a job a single instant in place of the rule that it had.
func instead(t tb, at time.Time) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		was := subject(t, job.Namespace, job.Revision, job.Spec)
		job.Schedule = at.Format(time.RFC3339)
		job.Revision++
		return &store.Change{Job: job, Step: plan.Edit(was, subject(t, job.Namespace, job.Revision, job.Spec).Policy, p, job.State == belfry.JobPaused, now)}, nil
	}
}

// A job that was cancelled leaves a record at the instant that was planned then. If
// it runs again before that, the record is no longer the last that is known of it.
func TestACancelledJobThatRunsAgainIsWhatCameOfThat(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
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
				f.edit(t, job, instead(t, f.minutesAgo(-30)))
				f.edit(t, job, abandon(t))
			}},
		} {
			job := f.created(t, -60, named(name), withRetries(0))
			f.edit(t, job, abandon(t))
			job = f.edit(t, job, instead(t, f.minutesAgo(1)))
			run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
			f.accepted(t, run, tt.outcome)
			if tt.then != nil {
				tt.then(job, run)
			}
			f.retire(t, 10)
			got := f.found(t, job)
			if got.Status != tt.want || (got.State == belfry.JobEnded) != tt.ended || got.LastRunAt == nil || !got.LastRunAt.Equal(run.ScheduledAt) {
				t.Errorf("%s: the job is %s and %s, and ran at %v; wants %s", name, got.State, got.Status, got.LastRunAt, tt.want)
			}
			if list := f.listed(t, namespace, belfry.JobFilter{Status: tt.want, Search: name}, 10); !slices.ContainsFunc(list, func(j belfry.Job) bool { return j.ID == job.ID }) {
				t.Errorf("%s: it is not among the jobs that are %s", name, tt.want)
			}
		}
	})
}

// What was under way when a job was cancelled does not undo that.
func TestACancelledJobWhoseLastRunSucceedsIsCancelled(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		job := f.created(t, 5)
		run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		f.edit(t, job, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			p.NominalAt, p.NextAt = f.minutesAgo(-60), f.minutesAgo(-60) // all before is decided
			return abandon(t)(job, p, now)
		})
		f.accepted(t, run, belfry.OutcomeSucceeded)
		if got := f.found(t, job); got.Status != belfry.StatusCancelled || got.LastRunAt == nil || !got.LastRunAt.Equal(run.ScheduledAt) {
			t.Errorf("the cancelled job is %s, and ran at %v", got.Status, got.LastRunAt)
		}
		wish := f.wish(job, "")
		f.fireWishes(t, job, wish)
		f.settleAll(t)
		if got := f.found(t, job); got.Status != belfry.StatusCompleted {
			t.Errorf("after it was run by hand the job is %s", got.Status)
		}
	})
}

// However many letters of a job come back at once, they follow one after another,
// and whoever keeps its plan in mind is told of that one job.
func TestManyLettersOfAJobComeBackAtOnce(t *testing.T) {
	const many = 1500
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		job := f.created(t, -60, withRetries(0))
		wishes := make([]plan.Trigger, many)
		for i := range wishes {
			wishes[i] = f.backfill(job, f.minutesAgo(i))
		}
		f.fireWishes(t, job, wishes...)
		if n := f.count(t, `SELECT count(*) FROM runs WHERE state = 'waiting'`); n != many-1 {
			t.Errorf("of %d backfilled instants %d wait", many, n)
		}
		f.edit(t, job, revise(t, parallel)) // which lets all go
		var results []belfry.Result
		var letters []store.Redrive
		for _, run := range f.claim(t, worker, many) {
			results, letters = append(results, result(run, belfry.OutcomeFailed)), append(letters, store.Redrive{Run: run.ID})
		}
		f.finish(t, results...)
		f.ChangedJobs()
		if n := f.redrive(t, namespace, letters...); n != many {
			t.Errorf("%d letters came back, wants %d", n, many)
		}
		if jobs, all := f.ChangedJobs(); all || len(jobs) != 1 || jobs[0] != job.ID {
			t.Errorf("the jobs that changed are %v (all: %v), wants one", jobs, all)
		}
		if n := f.count(t, `SELECT count(*) FROM runs WHERE state = 'waiting'`); n != many-1 {
			t.Errorf("of %d redriven runs %d wait", many, n)
		}
		if run := f.claimOne(t, worker); !run.ScheduledAt.Equal(f.minutesAgo(many - 1)) {
			t.Errorf("the first to go is that of %v, wants the earliest", run.ScheduledAt)
		}
		f.edit(t, job, removeAll(t))
	})
}
