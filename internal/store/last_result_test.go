package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// wantResult expects the last result of a job, alone and in a list.
func (f *fixture) wantResult(t tb, doing string, job belfry.ID, want *belfry.LastResult) {
	t.Helper()
	got := f.getJob(t, belfry.Job{ID: job, Namespace: namespace})
	if got.LastResult != nil {
		f.wantRecent(t, doing, &got.LastResult.At)
		got.LastResult.At = time.Time{}
	}
	wantEqual(t, doing, got.LastResult, want)
	filter := belfry.JobFilter{}
	if got.State == belfry.JobEnded {
		filter.Status = got.Status
	}
	for _, listed := range f.listJobs(t, namespace, filter, 3) {
		if listed.ID != job {
			continue
		}
		if listed.LastResult != nil {
			listed.LastResult.At = time.Time{}
		}
		wantEqual(t, doing+", in a list", listed.LastResult, want)
		return
	}
	t.Errorf("%s: the job is not listed", doing)
}

func (f *fixture) fail(t tb, run *belfry.Run, message string) {
	t.Helper()
	r := result(run, belfry.OutcomeFailed)
	r.Error = message
	f.finish(t, r)
}

// retryNow claims all runs that wait for their next attempt, and returns one of them.
func (f *fixture) retryNow(t tb, run *belfry.Run, worker belfry.ID) *belfry.Run {
	t.Helper()
	f.promoteAll(t)
	for _, claimed := range f.claim(t, worker, 100) {
		if claimed.ID == run.ID {
			run = claimed
		}
	}
	return run
}

func TestLastResult(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.createJob(t, -10) // others in the list
		f.createJob(t, -10)
		job, worker := f.createJob(t, 10, withRetries(2)), f.registerWorker(t)
		f.wantResult(t, "before the first run", job.ID, nil)
		f.fire(t, f.step(t, job))
		f.wantResult(t, "while it is ready", job.ID, nil)
		run := f.claimOne(t, worker)
		f.fail(t, run, "boom")
		f.wantResult(t, "after a failure", job.ID, &belfry.LastResult{Status: belfry.ResultFailed, Failures: 1, RunID: run.ID, Error: "boom"})
		run = f.retryNow(t, run, worker)
		f.wantResult(t, "while it is tried again", job.ID, &belfry.LastResult{Status: belfry.ResultFailed, Failures: 1, RunID: run.ID, Error: "boom"})
		f.fail(t, run, strings.Repeat("ä", 300))
		long := strings.Repeat("ä", 199) + "…"
		f.wantResult(t, "after another", job.ID, &belfry.LastResult{Status: belfry.ResultFailed, Failures: 2, RunID: run.ID, Error: long})
		f.fire(t, f.step(t, job)) // skipped, because the run is alive
		f.wantResult(t, "after an occurrence was skipped because of it", job.ID, &belfry.LastResult{Status: belfry.ResultFailed, Failures: 2, RunID: run.ID, Error: long})
		f.fail(t, f.retryNow(t, run, worker), "bang")
		f.wantResult(t, "after the last attempt", job.ID, &belfry.LastResult{Status: belfry.ResultDead, Failures: 3, RunID: run.ID, Error: "bang"})

		f.fire(t, f.step(t, job))
		second := f.claimOne(t, worker)
		f.fail(t, second, "boom")
		f.wantResult(t, "when the next run fails", job.ID, &belfry.LastResult{Status: belfry.ResultFailed, Failures: 4, RunID: second.ID, Error: "boom"})
		f.finishAs(t, f.retryNow(t, second, worker), belfry.OutcomeSucceeded)
		f.wantResult(t, "after a success", job.ID, &belfry.LastResult{Status: belfry.ResultSucceeded, RunID: second.ID})

		f.fire(t, f.step(t, job))
		third := f.claimOne(t, worker)
		f.fail(t, third, "boom")
		f.wantResult(t, "a failure after a success", job.ID, &belfry.LastResult{Status: belfry.ResultFailed, Failures: 1, RunID: third.ID, Error: "boom"})
		f.cancel(t, namespace, third.ID)
		f.wantResult(t, "after it was cancelled", job.ID, f.settledResult(t, third, belfry.ResultCancelled))
	})
}

// settledResult is the last result of a job whose latest run is settled.
func (f *fixture) settledResult(t tb, run *belfry.Run, status belfry.ResultStatus) *belfry.LastResult {
	return &belfry.LastResult{Status: status, RunID: run.ID, Error: f.run(t, namespace, run.ID).Error}
}

func TestLastResultOfOneOffs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		start := func() *belfry.Run {
			job := f.createOneOff(t, 5, withRetries(0))
			return f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		}
		done := start()
		f.finishAs(t, done, belfry.OutcomeSucceeded)
		f.wantResult(t, "an archived one-off", done.JobID, &belfry.LastResult{Status: belfry.ResultSucceeded, RunID: done.ID})
		dead := start()
		f.fail(t, dead, "boom")
		f.wantResult(t, "a dead one-off", dead.JobID, &belfry.LastResult{Status: belfry.ResultDead, Failures: 1, RunID: dead.ID, Error: "boom"})
		f.discard(t, namespace, dead.ID)
		f.archiveAll(t, 10)
		f.wantResult(t, "a discarded one", dead.JobID, f.settledResult(t, dead, belfry.ResultDiscarded))
	})
}

func TestLastResultOfAJobThatWasOnlySkipped(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5)
		step := f.step(t, job)
		skip := noteSkip(job.ID, belfry.ReasonMissed, step.Runs[0].ScheduledAt, 1)
		skip.Note = false
		step.Skips, step.Runs, step.Next.RunsMade = append(step.Skips, skip), nil, 0
		f.fire(t, step)
		f.wantResult(t, "a skip", job.ID, &belfry.LastResult{Status: belfry.ResultSkipped, RunID: skip.ID})
	})
}

// A failing job is listed until it succeeds, before Recovered has seen that, too.
func TestListFailingJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		began, worker := f.Now().Add(-time.Second), f.registerWorker(t)
		var failed []*belfry.Run
		for range 7 {
			job := f.createJob(t, 5, withRetries(3), withTags("x"))
			run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
			f.fail(t, run, "boom")
			failed = append(failed, run)
		}
		f.finishAs(t, f.startRun(t), belfry.OutcomeSucceeded)
		theirs := f.deadRun(t, withNamespace("theirs"))
		failing := belfry.JobFilter{Status: belfry.StatusFailing}
		if list := f.listJobs(t, namespace, failing, 3); len(list) != 0 {
			t.Errorf("nothing is known to be failing, and %d jobs are listed", len(list))
		}
		if _, err := f.SetFailing(ctx, f.failures(t, began)); err != nil {
			t.Fatal(err)
		}
		want := func(doing string, filter belfry.JobFilter, runs ...*belfry.Run) {
			t.Helper()
			for _, limit := range []int{1, 2, 100} {
				list := f.listJobs(t, namespace, filter, limit)
				if len(list) != len(runs) {
					t.Errorf("%s: %d jobs are failing, wants %d", doing, len(list), len(runs))
					continue
				}
				for i, run := range runs {
					if got := list[len(runs)-1-i]; got.ID != run.JobID || got.LastResult.Failures != 1 || got.Status == belfry.StatusFailing {
						t.Errorf("%s: pages of %d have %s, %s with %+v in place of %s", doing, limit, got.ID, got.Status, got.LastResult, run.JobID)
					}
				}
			}
		}
		want("all", failing, failed...)
		want("by tag", belfry.JobFilter{Status: belfry.StatusFailing, Tags: []string{"x"}}, failed...)
		want("by another tag", belfry.JobFilter{Status: belfry.StatusFailing, Tags: []string{"y"}})
		if list := f.listJobs(t, "theirs", failing, 3); len(list) != 1 || list[0].ID != theirs.JobID {
			t.Errorf("in the other namespace %+v is failing", list)
		}
		f.finishAs(t, f.retryNow(t, failed[3], worker), belfry.OutcomeSucceeded)
		f.edit(t, f.getJob(t, belfry.Job{ID: failed[5].JobID, Namespace: namespace}), deleteJob(t))
		rest := []*belfry.Run{failed[0], failed[1], failed[2], failed[4], failed[6]}
		want("without a success and a deleted job", failing, rest...)
		f.recovered(t)
		want("after both were forgotten", failing, rest...)
	})
}

// Earlier runs are counted where SetFailing has counted them, unless the job succeeded since.
func TestFailuresOfEarlierRuns(t *testing.T) {
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	dead := belfry.LastResult{Status: belfry.ResultDead, Failures: 2, At: at.Add(time.Minute)}
	for _, tt := range []struct {
		name    string
		success time.Time
		failing store.Failure
		want    int64
	}{
		{"no other is known", time.Time{}, store.Failure{}, 2},
		{"earlier ones too", time.Time{}, store.Failure{Count: 9, LatestAt: at}, 9},
		{"an earlier count", time.Time{}, store.Failure{Count: 1, LatestAt: at}, 2},
		{"a success since", at.Add(time.Second), store.Failure{Count: 9, LatestAt: at}, 2},
	} {
		r := store.Results{Dead: dead, Failing: tt.failing}
		if !tt.success.IsZero() {
			r.Settled = belfry.LastResult{Status: belfry.ResultSucceeded, At: tt.success}
		}
		if got := r.Last(); got == nil || got.Status != belfry.ResultDead || got.Failures != tt.want {
			t.Errorf("%s: %+v, wants %d failures", tt.name, got, tt.want)
		}
	}
}
