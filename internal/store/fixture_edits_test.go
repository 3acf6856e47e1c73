package store_test

import (
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// What people do to jobs and runs.

func pause(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State = belfry.JobPaused
		return &store.Change{Job: job, Step: plan.Pause(subject(t, job.Namespace, job.Revision, job.Spec), p, now)}, nil
	}
}

func resume(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State = belfry.JobActive
		return &store.Change{Job: job, Step: plan.Resume(subject(t, job.Namespace, job.Revision, job.Spec), p, false, now)}, nil
	}
}

func remove(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State = belfry.JobDeleted
		return &store.Change{Job: job, Step: plan.Delete(subject(t, job.Namespace, job.Revision, job.Spec), p, now)}, nil
	}
}

// revise changes the spec or payload, which makes a new revision, and leaves
// the plan's instants alone.
func revise(t tb, change func(*belfry.Job)) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		change(&job)
		job.Revision++
		return &store.Change{Job: job, Step: plan.Step{Subject: subject(t, job.Namespace, job.Revision, job.Spec), Seen: p, Next: p}}, nil
	}
}

// abandon plans nothing more of a job, and cancels what is alive of it.
func abandon(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		return &store.Change{Job: job, Step: plan.Cancel(subject(t, job.Namespace, job.Revision, job.Spec), p, now), Cancel: true}, nil
	}
}

// removeAll deletes a job with what is alive of it.
func removeAll(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		change, err := remove(t)(job, p, now)
		change.Cancel = true
		return change, err
	}
}

// trigger records a wish for a run of the job.
func (f *fixture) trigger(t tb, job belfry.Job, payload string) plan.Trigger {
	t.Helper()
	wish := f.wish(job, payload)
	if err := f.Trigger(ctx, []plan.Trigger{wish}, nil); err != nil {
		t.Fatalf("trigger job %s: %v", job.ID, err)
	}
	return wish
}

// wish makes a trigger without recording it.
func (f *fixture) wish(job belfry.Job, payload string) plan.Trigger {
	w := plan.Trigger{
		ID: newID(), Namespace: job.Namespace, JobID: job.ID, Shard: belfry.ShardOf(job.ID, f.Shards()),
		Kind: belfry.KindManual, At: f.Now().UTC().Truncate(time.Microsecond),
	}
	if payload != "" {
		w.Payload = json.RawMessage(payload)
	}
	return w
}

// one is a list with one wish for a run of the job.
func (f *fixture) one(job belfry.Job) []plan.Trigger { return []plan.Trigger{f.wish(job, "")} }

// backfill makes a wish for the run of an instant of the schedule.
func (f *fixture) backfill(job belfry.Job, at time.Time) plan.Trigger {
	w := f.wish(job, "")
	w.Kind, w.At = belfry.KindBackfill, at
	return w
}

// fireWishes records wishes for runs of one job, and fires them.
func (f *fixture) fireWishes(t tb, job belfry.Job, wishes ...plan.Trigger) store.FireResult {
	t.Helper()
	if err := f.Trigger(ctx, wishes, nil); err != nil {
		t.Fatalf("trigger job %s: %v", job.ID, err)
	}
	return f.fire(t, plan.Fire(subject(t, job.Namespace, job.Revision, job.Spec), f.plan(t, job.ID), wishes))
}

// wishes are the triggers that are not fired yet.
func (f *fixture) wishes(t tb) []store.PendingTrigger {
	t.Helper()
	found, err := f.PendingTriggers(ctx, f.all(), 1000)
	if err != nil {
		t.Fatalf("list triggers: %v", err)
	}
	return found
}

// cancel cancels a run.
func (f *fixture) cancel(t tb, namespace string, run belfry.ID) {
	t.Helper()
	if err := f.Cancel(ctx, namespace, run); err != nil {
		t.Fatalf("cancel run %s: %v", run, err)
	}
}

// redrive makes runs of dead letters again, and says how many there were.
func (f *fixture) redrive(t tb, namespace string, list ...store.Redrive) int {
	t.Helper()
	n, err := f.Redrive(ctx, namespace, list)
	if err != nil {
		t.Fatalf("redrive %d runs: %v", len(list), err)
	}
	return n
}

// discard gives dead letters up, and says how many there were.
func (f *fixture) discard(t tb, namespace string, runs ...belfry.ID) int {
	t.Helper()
	n, err := f.Discard(ctx, namespace, runs)
	if err != nil {
		t.Fatalf("discard %d runs: %v", len(runs), err)
	}
	return n
}

// dead gives a run of a new job that is out of attempts.
func (f *fixture) dead(t tb, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	run := f.started(t, append([]func(*belfry.Job){withRetries(0)}, changes...)...)
	f.accepted(t, run, belfry.OutcomeFailed)
	return run
}

// once makes a one-off that has been due for so many minutes.
func (f *fixture) once(t tb, minutes int, changes ...func(*belfry.Job)) belfry.Job {
	t.Helper()
	at := f.minutesAgo(minutes)
	return f.created(t, minutes, append([]func(*belfry.Job){withSchedule(at.Format(time.RFC3339))}, changes...)...)
}

// promoteAll makes everything that waits for a retry ready, as if a day had gone by.
func (f *fixture) promoteAll(t tb) int {
	t.Helper()
	f.backdate(t, 24*time.Hour, "runs", "ready_at", "state = 'retry'")
	f.exec(t, `UPDATE runs SET rank = rank - ? WHERE state = 'retry'`, (24 * time.Hour).Microseconds())
	n, _, err := f.Promote(ctx, f.all(), 1000)
	if err != nil {
		t.Fatalf("promote: %v", err)
	}
	return n
}

// wantState expects a run to be where it should.
func (f *fixture) wantState(t tb, doing string, run belfry.ID, want belfry.RunStatus) {
	t.Helper()
	if got := f.state(t, run); got != want {
		t.Errorf("%s: the run %s is %q, wants %s", doing, run, got, want)
	}
}
