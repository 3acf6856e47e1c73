package store_test

import (
	"encoding/json"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// What users do to jobs and runs.

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

func deleteJob(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State = belfry.JobDeleted
		return &store.Change{Job: job, Step: plan.Delete(subject(t, job.Namespace, job.Revision, job.Spec), p, now)}, nil
	}
}

// purgeJob deletes a job with its history.
func purgeJob(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		change, err := deleteJob(t)(job, p, now)
		change.Purge = true
		return change, err
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

// cancelJob plans nothing more of a job, and cancels its live runs.
func cancelJob(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		return &store.Change{Job: job, Step: plan.Cancel(subject(t, job.Namespace, job.Revision, job.Spec), p, now), Cancel: true}, nil
	}
}

// deleteAndCancel deletes a job and cancels its live runs.
func deleteAndCancel(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		change, err := deleteJob(t)(job, p, now)
		change.Cancel = true
		return change, err
	}
}

// trigger records a trigger of the job.
func (f *fixture) trigger(t tb, job belfry.Job, payload string) plan.Trigger {
	t.Helper()
	trigger := f.newTrigger(job, payload)
	if err := f.Trigger(ctx, []plan.Trigger{trigger}, nil); err != nil {
		t.Fatalf("trigger job %s: %v", job.ID, err)
	}
	return trigger
}

// newTrigger makes a trigger without recording it.
func (f *fixture) newTrigger(job belfry.Job, payload string) plan.Trigger {
	w := plan.Trigger{
		ID: newID(), Namespace: job.Namespace, JobID: job.ID, Shard: belfry.ShardOf(job.ID, f.Shards()),
		Kind: belfry.KindManual, At: f.Now().UTC().Truncate(time.Microsecond),
	}
	if payload != "" {
		w.Payload = json.RawMessage(payload)
	}
	return w
}

// oneTrigger is a list with one trigger of the job.
func (f *fixture) oneTrigger(job belfry.Job) []plan.Trigger {
	return []plan.Trigger{f.newTrigger(job, "")}
}

// backfill makes a trigger for an instant of the schedule.
func (f *fixture) backfill(job belfry.Job, at time.Time) plan.Trigger {
	w := f.newTrigger(job, "")
	w.Kind, w.At = belfry.KindBackfill, at
	return w
}

// recordAndFire records triggers of one job, and fires them.
func (f *fixture) recordAndFire(t tb, job belfry.Job, triggers ...plan.Trigger) store.FireResult {
	t.Helper()
	if err := f.Trigger(ctx, triggers, nil); err != nil {
		t.Fatalf("trigger job %s: %v", job.ID, err)
	}
	return f.fire(t, plan.Fire(subject(t, job.Namespace, job.Revision, job.Spec), f.plan(t, job.ID), triggers))
}

// pendingTriggers are the triggers that are not fired yet.
func (f *fixture) pendingTriggers(t tb) []store.PendingTrigger {
	t.Helper()
	found, err := f.PendingTriggers(ctx, f.allShards(), nil, 1000)
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

// deadRun gives a run of a new job that is out of attempts.
func (f *fixture) deadRun(t tb, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	run := f.startRun(t, append([]func(*belfry.Job){withRetries(0)}, changes...)...)
	f.finishAs(t, run, belfry.OutcomeFailed)
	return run
}

// createOneOff makes a one-off that has been due for so many minutes.
func (f *fixture) createOneOff(t tb, minutes int, changes ...func(*belfry.Job)) belfry.Job {
	t.Helper()
	at := f.minutesAgo(minutes)
	return f.createJob(t, minutes, append([]func(*belfry.Job){withSchedule(at.Format(time.RFC3339))}, changes...)...)
}

// promoteAll makes everything that waits for a retry ready, as if a day had gone by.
func (f *fixture) promoteAll(t tb) int {
	t.Helper()
	f.backdate(t, 24*time.Hour, "runs", "ready_at", "state = 'retry'")
	f.exec(t, `UPDATE runs SET rank = rank - ? WHERE state = 'retry'`, (24 * time.Hour).Microseconds())
	n, _, err := f.Promote(ctx, f.allShards(), 1000)
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
