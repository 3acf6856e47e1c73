package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Several nodes believe at once that everything is theirs, and users interfere.
// Only speed may suffer.
func TestConcurrentCallsLoseAndDuplicateNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		nodes := f.nodes(t, 3)
		first := f.minutesAgo(25)
		var jobs []belfry.Job
		for i := range 12 {
			job := f.job(first, withRetries(1), withBase(0), func(j *belfry.Job) {
				j.Overlap, j.MaxQueued = []belfry.Overlap{belfry.OverlapParallel, belfry.OverlapSkip, belfry.OverlapQueue}[i%3], 3
			})
			f.createJobs(t, job)
			jobs = append(jobs, job.Job)
		}
		var wait sync.WaitGroup
		for _, node := range nodes {
			wait.Go(func() { node.randomCalls(t, jobs) })
		}
		f.watch(t, wait.Wait)
		// Each run that waits needs an attempt, and one more if that fails.
		f.backdate(t, time.Hour, "workers", "last_seen", "")
		f.reap(t, time.Minute)
		f.settleAll(t)
		if n := f.count(t, `SELECT count(*) FROM runs`); n != 0 {
			t.Errorf("%d runs are left when everything was run that could be", n)
		}
		for _, job := range jobs {
			f.wantCovered(t, job.ID, first)
		}
	})
}

// randomCalls does what a node does, and what users do to it, in no order.
func (f *fixture) randomCalls(t *testing.T, jobs []belfry.Job) {
	worker := f.registerWorker(t)
	var held []*belfry.Run
	for range 60 {
		if err := f.randomCall(t, worker, jobs, &held); err != nil {
			var known *belfry.Error
			if !errors.As(err, &known) || known.Code != belfry.Conflict && known.Code != belfry.NotFound {
				t.Errorf("concurrent call: %v", err)
			}
		}
	}
}

func (f *fixture) randomCall(t *testing.T, worker belfry.ID, jobs []belfry.Job, held *[]*belfry.Run) error {
	job := jobs[rand.IntN(len(jobs))]
	switch rand.IntN(12) {
	default:
		fired, err := f.Fire(ctx, worker, f.decide(t, f.due(t)), slots(worker, rand.IntN(3)))
		*held = append(*held, fired.Claimed...)
		return err
	case 1:
		runs, err := f.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{lane}, Limit: 1 + rand.IntN(5)})
		*held = append(*held, runs...)
		return err
	case 2, 3:
		results := make([]belfry.Result, len(*held))
		for i, run := range *held {
			results[i] = result(run, outcomes[rand.IntN(len(outcomes))])
		}
		*held = nil
		_, err := f.Finish(ctx, results)
		return err
	case 4:
		_, _, err := f.Promote(ctx, f.allShards(), 10)
		return err
	case 5:
		heartbeat := belfry.Heartbeat{WorkerID: worker, Complete: true}
		for _, run := range *held {
			heartbeat.Held = append(heartbeat.Held, belfry.HeldAttempt{RunID: run.ID, Attempt: run.Attempt})
		}
		_, err := f.Heartbeat(ctx, heartbeat)
		return err
	case 6:
		if _, err := f.EditJob(ctx, job.Namespace, job.ID, togglePause(t)); err != nil {
			return err
		}
		return f.Trigger(ctx, append(f.oneTrigger(job), f.backfill(job, f.minutesAgo(rand.IntN(60)))), nil)
	case 7:
		var steps []plan.Step
		for _, w := range f.pendingTriggers(t) {
			steps = append(steps, plan.Fire(f.decide(t, []store.Due{w.Due})[0].Subject, w.Due.Plan, []plan.Trigger{w.Trigger}))
		}
		_, err := f.Fire(ctx, worker, steps, store.FreeSlots{})
		return err
	case 8:
		runs := f.jobRuns(t, job)
		if len(runs) == 0 {
			return nil
		}
		return f.Cancel(ctx, job.Namespace, runs[rand.IntN(len(runs))].ID)
	case 9, 10:
		return f.settleDeadLetters(ctx)
	}
}

// settleDeadLetters redrives some dead letters and discards others.
func (f *fixture) settleDeadLetters(ctx context.Context) error {
	dead, err := f.ListDeadLetters(ctx, namespace, belfry.DeadFilter{}, store.Page{Limit: 4})
	if err != nil {
		return err
	}
	var again []store.Redrive
	var gone []belfry.ID
	for _, d := range dead {
		if rand.IntN(4) == 0 {
			gone = append(gone, d.ID)
		} else {
			again = append(again, store.Redrive{Run: d.ID, After: time.Duration(rand.IntN(2)) * time.Millisecond})
		}
	}
	_, err = f.Redrive(ctx, namespace, again)
	if err == nil {
		_, err = f.Discard(ctx, namespace, gone)
	}
	return err
}

// togglePause pauses a job, or moves it to its next revision without a pause, so
// that occurrences stay due.
func togglePause(t tb) store.Edit {
	return func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		switch {
		case job.State == belfry.JobPaused:
			// The first undecided occurrence is due again; nothing is skipped.
			step := plan.Step{Subject: subject(t, job.Namespace, job.Revision, job.Spec), Seen: p, Next: p}
			step.Next.NextAt = p.NominalAt
			job.State = belfry.JobActive
			return &store.Change{Job: job, Step: step}, nil
		case rand.IntN(2) == 0:
			return pause(t)(job, p, now)
		default:
			return revise(t, withTimeout(60+job.Revision))(job, p, now)
		}
	}
}

// wantCovered expects one decision for every occurrence from the first to the
// high-water mark: the rows of a job that is due every minute have no gap.
func (f *fixture) wantCovered(t tb, job belfry.ID, first time.Time) {
	t.Helper()
	mark := f.plan(t, job).FiredFor
	want := int64(0)
	if !mark.IsZero() {
		want = int64(mark.Sub(first)/time.Minute) + 1
	}
	got := f.count(t, `SELECT (SELECT count(*) FROM runs WHERE job_id = ? AND kind = 'scheduled') + (SELECT count(*) FROM dead WHERE job_id = ? AND kind = 'scheduled')
		+ (SELECT count(*) FROM history WHERE job_id = ? AND kind = 'scheduled' AND state <> 'skipped')
		+ (SELECT coalesce(sum(skipped_count), 0) FROM history WHERE job_id = ? AND kind = 'scheduled' AND state = 'skipped')`, job, job, job, job)
	if got != want {
		t.Errorf("job %s was decided until %v with %d decisions since %v, wants %d", job, mark, got, first, want)
	}
}

// What is there of a job in two tables, or of a one-off that is over and has not
// left. A job that is deleted has its own way.
const (
	endedAndLive = `SELECT count(*) FROM ended e WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.id = e.id AND j.state <> 'deleted')
		OR EXISTS (SELECT 1 FROM runs r WHERE r.job_id = e.id) OR EXISTS (SELECT 1 FROM dead d WHERE d.job_id = e.id)`

	notArchived = `SELECT count(*) FROM jobs j JOIN plans p ON p.job_id = j.id WHERE p.one_off AND p.next_at IS NULL AND p.nominal_at IS NULL AND j.state = 'active'
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id) AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.job_id = j.id)
		AND NOT EXISTS (SELECT 1 FROM triggers w WHERE w.job_id = j.id AND w.fired_at IS NULL)`
)

// Several nodes run one-offs at once while users cancel, delete, move, trigger,
// redrive and discard them: each ends once, and whole.
func TestConcurrentCallsArchiveOneOffsOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var jobs []belfry.Job
		for i := range 10 {
			jobs = append(jobs, f.createOneOff(t, 30, withRetries(i%2), withBase(0), func(j *belfry.Job) {
				j.Overlap, j.MaxQueued = []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel}[i%3], 3
			}))
		}
		var wait sync.WaitGroup
		for _, node := range f.nodes(t, 3) {
			wait.Go(func() { node.randomOneOffCalls(t, jobs) })
		}
		f.watch(t, wait.Wait, endedAndLive)
		f.backdate(t, time.Hour, "workers", "last_seen", "")
		f.reap(t, time.Minute)
		f.settleAll(t)
		f.archiveAll(t, 3)
		for _, query := range []string{endedAndLive, notArchived, `SELECT count(*) FROM runs`} {
			if n := f.count(t, query); n != 0 {
				t.Errorf("in the end %d: %s", n, query)
			}
		}
	})
}

func (f *fixture) randomOneOffCalls(t *testing.T, jobs []belfry.Job) {
	worker := f.registerWorker(t)
	var held []*belfry.Run
	for range 80 {
		var err error
		if rand.IntN(2) == 0 {
			err = f.randomCall(t, worker, jobs, &held)
		} else {
			err = f.randomOneOffCall(t, jobs[rand.IntN(len(jobs))])
		}
		var known *belfry.Error
		if err != nil && (!errors.As(err, &known) || known.Code != belfry.Conflict && known.Code != belfry.NotFound) {
			t.Errorf("concurrent call: %v", err)
		}
	}
}

// randomOneOffCall does something to a job that it may end of, or lets it live a little longer.
func (f *fixture) randomOneOffCall(t *testing.T, job belfry.Job) error {
	edit := cancelJob(t)
	switch rand.IntN(8) {
	case 0:
		_, _, err := f.Archive(ctx, f.allShards(), belfry.ID{}, 100)
		return err
	case 1:
		_, err := f.Reap(ctx, 0, 100)
		return err
	case 2:
		return f.Trigger(ctx, f.oneTrigger(job), nil)
	case 3:
		edit = revise(t, allowParallel) // never back: what runs beside others by then goes on
	case 4:
		if rand.IntN(4) > 0 {
			return nil
		}
		edit = deleteAndCancel(t)
	case 5, 6:
		edit = reschedule(t, f.minutesAgo(rand.IntN(29)))
	}
	_, err := f.EditJob(ctx, job.Namespace, job.ID, edit)
	return err
}
