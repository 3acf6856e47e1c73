package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestPromoteMakesDueRetriesReady(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		const size = 8
		for range size {
			f.createJob(t, 5)
		}
		f.fireDue(t)
		byShard := map[int]int{}
		for _, run := range f.claim(t, worker, size) {
			f.finishAs(t, run, belfry.OutcomeFailed)
			byShard[belfry.ShardOf(run.JobID, f.Shards())]++
		}
		soonest := read(t, f, scanTime, `SELECT min(ready_at) FROM runs WHERE state = 'retry'`)[0]
		promote := func(shards []int, limit, want int) time.Time {
			t.Helper()
			n, next, err := f.Promote(ctx, shards, limit)
			if err != nil || n != want {
				t.Fatalf("promoted %d (%v), wants %d", n, err, want)
			}
			return next
		}
		if next := promote(f.allShards(), 10, 0); !next.Equal(soonest) {
			t.Errorf("the next retry is due at %v, wants %v", next, soonest)
		}
		if f.count(t, `SELECT count(*) FROM runs WHERE state = 'retry'`) != size || len(f.claim(t, worker, size)) != 0 {
			t.Error("retries were promoted before they were due")
		}
		f.backdate(t, time.Hour, "runs", "ready_at", "")
		var shard int
		for shard = range byShard {
			break
		}
		if next := promote([]int{shard}, size, byShard[shard]); !next.IsZero() {
			t.Errorf("another retry of shard %d is due at %v, wants none", shard, next)
		}
		left := size - byShard[shard]
		if next := promote(f.allShards(), left-1, left-1); next.IsZero() || next.After(f.Now()) {
			t.Errorf("one due retry is left, and the next is said to be due at %v", next)
		}
		if next := promote(f.allShards(), 10, 1); !next.IsZero() {
			t.Errorf("none is left, and the next is said to be due at %v", next)
		}
		promote(f.allShards(), 10, 0)
		promote(nil, 10, 0)
		again := f.claim(t, worker, size+1)
		if len(again) != size {
			t.Fatalf("claimed %d runs after the promotion, wants %d", len(again), size)
		}
		for _, run := range again {
			if run.Attempt != 2 {
				t.Errorf("a promoted run is at attempt %d, wants 2", run.Attempt)
			}
		}
	})
}

// states gives the states of a job's scheduled runs and skips, the earliest first.
func (f *fixture) states(t tb, job belfry.Job) (states []belfry.RunStatus) {
	t.Helper()
	for _, run := range slices.Backward(f.jobRuns(t, job)) {
		states = append(states, run.Status)
	}
	return states
}

func TestAQueueHasRoomForSoManyRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10, withQueueLimit(2))
		ready := 0
		for range 5 {
			ready += f.fire(t, f.step(t, job)).ReadyCount()
		}
		want := []belfry.RunStatus{"ready", "waiting", "waiting", "skipped", "skipped"}
		if got := f.states(t, job); !slices.Equal(got, want) || ready != 1 {
			t.Fatalf("the runs are %v, %d counted as ready, wants %v", got, ready, want)
		}
		if trigger := f.newTrigger(job, ""); f.recordAndFire(t, job, trigger).ReadyCount() != 0 || f.run(t, job.Namespace, trigger.RunID()).Reason != belfry.ReasonQueueFull {
			t.Errorf("a triggered run is %+v, wants a skip because the queue is full", f.run(t, job.Namespace, trigger.RunID()))
		}
		for _, run := range f.jobRuns(t, job) {
			if run.Status == belfry.RunSkipped && (run.Reason != belfry.ReasonQueueFull || run.SkippedCount != 1) {
				t.Errorf("the skip is %+v", run)
			}
		}
		if got := f.getJob(t, job); got.Status != belfry.StatusQueued {
			t.Errorf("the job is %s", got.Status)
		}
		// A promoted run leaves its place to another.
		f.finishAs(t, f.claimOne(t, f.registerWorker(t)), belfry.OutcomeSucceeded)
		f.fire(t, f.step(t, job))
		want = []belfry.RunStatus{"succeeded", "ready", "waiting", "skipped", "skipped", "waiting"}
		if got := f.states(t, job)[:6]; !slices.Equal(got, want) {
			t.Errorf("the runs are %v, wants %v", got, want)
		}
	})
}

func TestEveryKindOfRunCountsForTheOverlap(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		makers := map[belfry.RunKind]func(belfry.Job) belfry.ID{
			belfry.KindScheduled: func(job belfry.Job) belfry.ID {
				step := f.step(t, job)
				f.fire(t, step)
				return step.Runs[0].ID
			},
			belfry.KindManual: func(job belfry.Job) belfry.ID {
				trigger := f.newTrigger(job, "")
				f.recordAndFire(t, job, trigger)
				return trigger.RunID()
			},
			belfry.KindBackfill: func(job belfry.Job) belfry.ID {
				trigger := f.backfill(job, f.minutesAgo(90))
				f.recordAndFire(t, job, trigger)
				return trigger.RunID()
			},
		}
		for first := range makers {
			for second := range makers {
				for _, tt := range []struct {
					overlap string
					change  func(*belfry.Job)
					want    belfry.RunStatus
				}{{"skip", func(*belfry.Job) {}, belfry.RunSkipped}, {"queue", withQueueLimit(1), belfry.RunWaiting}, {"parallel", allowParallel, belfry.RunReady}} {
					want := tt.want
					if want == belfry.RunSkipped && (first == belfry.KindBackfill || second == belfry.KindBackfill) {
						want = belfry.RunWaiting // a backfill takes no place of another run, and none of its runs is skipped
					}
					job := f.createJob(t, 10, tt.change)
					f.wantState(t, string(first)+", "+tt.overlap, makers[first](job), belfry.RunReady)
					run := makers[second](job)
					f.wantState(t, string(second)+" beside "+string(first)+", "+tt.overlap, run, want)
					if got := f.run(t, job.Namespace, run); want == belfry.RunSkipped && (got.Reason != belfry.ReasonOverlap || got.Kind != second) {
						t.Errorf("%s beside %s: the skip is %+v", second, first, got)
					}
				}
			}
		}
	})
}

func TestRunsThatWaitFollowInTheOrderOfTheirInstants(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 10, withQueueLimit(10), withRetries(0), withPriority(belfry.PriorityLow))
		step := f.step(t, job)
		f.fire(t, step)
		want := []belfry.ID{step.Runs[0].ID}
		// Asked for in one order, and to be run in another.
		late, early, middle := f.backfill(job, f.minutesAgo(60)), f.backfill(job, f.minutesAgo(80)), f.backfill(job, f.minutesAgo(70))
		f.recordAndFire(t, job, late, early)
		f.recordAndFire(t, job, middle)
		twin := []plan.Trigger{f.backfill(job, f.minutesAgo(50)), f.backfill(job, f.minutesAgo(50))}
		f.recordAndFire(t, job, twin...)
		want = append(want, early.RunID(), middle.RunID(), late.RunID())
		twins := []belfry.ID{twin[0].RunID(), twin[1].RunID()}
		slices.SortFunc(twins, belfry.ID.Compare)
		want = append(want, twins...)

		ends := []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeCancelled, belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeSucceeded}
		for i, id := range want {
			run := f.claimOne(t, worker) // there is no other
			if run.ID != id {
				t.Fatalf("run %d is %s, wants %s", i, run.ID, id)
			}
			f.finishAs(t, run, ends[i])
			if i+1 < len(want) {
				row := f.liveRow(t, want[i+1])
				if row.State != belfry.RunReady || !near(row.ReadyAt, f.Now(), 20*time.Second) || row.Rank != plan.Rank(row.ReadyAt, row.Weight) || row.Weight <= 0 {
					t.Errorf("after run %d the next is %+v", i, row)
				}
			}
		}
		if n := f.count(t, `SELECT count(*) FROM runs`); n != 0 {
			t.Errorf("%d runs are left", n)
		}
	})
}

func TestAWaitingRunIsPromotedOnlyWhenTheLiveRunEnds(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 10, withQueueLimit(5), withRetries(1))
		f.fire(t, f.step(t, job))
		next := f.step(t, job)
		f.fire(t, next)
		waits := func(doing string) {
			t.Helper()
			if _, _, err := f.Promote(ctx, f.allShards(), 100); err != nil {
				t.Fatal(err)
			}
			f.wantState(t, doing, next.Runs[0].ID, belfry.RunWaiting)
		}
		waits("while the other is ready")
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeInterrupted)
		waits("when it was interrupted")
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeFailed)
		waits("while it waits for its retry")
		f.promoteAll(t)
		lost := f.claimOne(t, worker)
		f.silenceWorker(t, worker, time.Hour)
		f.reap(t, time.Minute)
		waits("when its worker was lost")
		worker = f.registerWorker(t)
		last := f.claimOne(t, worker)
		if v := f.finish(t, result(lost, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
			t.Errorf("the late result is %s", v)
		}
		waits("when the lost worker reported its success")
		f.ageAttempt(t, last, time.Hour)
		f.reap(t, 0)
		f.wantState(t, "when the other is dead", last.ID, belfry.RunDead)
		f.wantState(t, "when the other is dead", next.Runs[0].ID, belfry.RunReady)

		// Three lost workers end a run as well.
		third := f.step(t, job)
		f.fire(t, third)
		for range belfry.PoisonLimit {
			f.claimOne(t, worker)
			f.silenceWorker(t, worker, time.Hour)
			f.reap(t, time.Minute)
			worker = f.registerWorker(t)
		}
		f.wantState(t, "poison", next.Runs[0].ID, belfry.RunDead)
		f.wantState(t, "after poison", third.Runs[0].ID, belfry.RunReady)
	})
}

func TestMissedOccurrencesCatchUpOneAfterAnother(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for _, tt := range []struct {
			overlap string
			change  func(*belfry.Job)
			want    []belfry.RunStatus
		}{
			{"skip", func(*belfry.Job) {}, []belfry.RunStatus{"skipped", "running", "waiting", "waiting", "waiting"}},
			{"queue", withQueueLimit(1), []belfry.RunStatus{"skipped", "running", "waiting", "waiting", "waiting"}},
			{"parallel", allowParallel, []belfry.RunStatus{"skipped", "running", "running", "running", "ready"}},
		} {
			job := f.createJob(t, 10, tt.change, func(j *belfry.Job) { j.MissedWindow, j.MaxMissed = belfry.MissedRunAll, 4 })
			step := plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.Now(), f.Now())
			fired := f.fireInto(t, slots(worker, 3), step)
			if got := f.states(t, job); !slices.Equal(got, tt.want) {
				t.Errorf("%s: the runs are %v, wants %v", tt.overlap, got, tt.want)
			}
			if len(fired.Claimed)+fired.ReadyCount() != map[string]int{"skip": 1, "queue": 1, "parallel": 4}[tt.overlap] {
				t.Errorf("%s: %d are claimed and %d ready", tt.overlap, len(fired.Claimed), fired.ReadyCount())
			}
			if runs := f.jobRuns(t, job); runs[4].Reason != belfry.ReasonMaxMissed || runs[4].SkippedCount < 6 {
				t.Errorf("%s: the skip is %+v", tt.overlap, runs[4])
			}
			for _, run := range fired.Claimed {
				f.finishAs(t, run, belfry.OutcomeSucceeded)
			}
			var order []time.Time
			for runs := f.claim(t, worker, 1); len(runs) > 0; runs = f.claim(t, worker, 1) {
				order = append(order, runs[0].ScheduledAt)
				f.finishAs(t, runs[0], belfry.OutcomeSucceeded)
			}
			if !slices.IsSortedFunc(order, time.Time.Compare) || len(order) != 4-len(fired.Claimed) {
				t.Errorf("%s: the others were run as of %v", tt.overlap, order)
			}
		}
	})
}

func TestARunThatWaitsIsNotReadyBeforeItsTime(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 10, withQueueLimit(5), withRetries(0))
		f.fire(t, f.step(t, job))
		dead := f.claimOne(t, worker)
		f.finishAs(t, dead, belfry.OutcomeFailed)
		f.fire(t, f.step(t, job))
		held := f.claimOne(t, worker)
		f.redrive(t, namespace, store.Redrive{Run: dead.ID, After: time.Hour})
		f.wantState(t, "behind another", dead.ID, belfry.RunWaiting)
		due := f.liveRow(t, dead.ID).ReadyAt
		f.finishAs(t, held, belfry.OutcomeSucceeded)
		if row := f.liveRow(t, dead.ID); row.State != belfry.RunRetry || !row.ReadyAt.Equal(due) || !near(due, f.Now().Add(time.Hour), 20*time.Second) {
			t.Errorf("the run that waited is %+v, wants it to wait for %v", row, due)
		}
		if _, next, err := f.Promote(ctx, f.allShards(), 10); err != nil || !next.Equal(due) || len(f.claim(t, worker, 1)) != 0 {
			t.Errorf("the next one is due at %v (%v), wants %v", next, err, due)
		}
		f.promoteAll(t)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
	})
}

// A backfill of last year must not be before everything else for its age.
func TestATriggeredRunIsReadyFromThenOn(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job, other := f.createJob(t, -60, allowParallel), f.createJob(t, 5)
		f.fire(t, f.step(t, other))
		old := f.backfill(job, f.minutesAgo(300*24*60))
		if err := f.Trigger(ctx, []plan.Trigger{old, f.newTrigger(job, "")}, nil); err != nil {
			t.Fatal(err)
		}
		for _, w := range f.pendingTriggers(t) {
			step := plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{w.Trigger})
			if got := step.Runs[0].ReadyAt; !near(got, f.Now(), 20*time.Second) || !step.Runs[0].ScheduledAt.Equal(w.Trigger.At) {
				t.Errorf("the run of %v may start at %v, wants now", w.Trigger.At, got)
			}
			f.fire(t, step)
		}
		if runs := f.claim(t, f.registerWorker(t), 1); len(runs) != 1 || runs[0].JobID != other.ID {
			t.Errorf("claimed %+v, wants what was due before the others were triggered", runs)
		}
	})
}

func TestPromoteFindsRunsThatWaitForNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var waiting []belfry.ID
		for range 5 {
			job := f.createJob(t, 10, withQueueLimit(5), withPriority(belfry.PriorityHigh))
			f.fire(t, f.step(t, job))
			for range 2 {
				step := f.step(t, job)
				f.fire(t, step)
				waiting = append(waiting, step.Runs[0].ID)
			}
		}
		// As if those before them had ended just when these were made.
		f.exec(t, `DELETE FROM runs WHERE state = 'ready'`)
		if n := f.count(t, stuckWaiting); n != 10 {
			t.Fatalf("%d runs wait for nothing, wants 10", n)
		}
		if n, _, err := f.Promote(ctx, nil, 100); n != 0 || err != nil || f.count(t, stuckWaiting) != 10 {
			t.Errorf("%d runs of no shard were promoted (%v)", n, err)
		}
		if _, _, err := f.Promote(ctx, f.allShards(), 100); err != nil {
			t.Fatal(err)
		}
		for i, id := range waiting {
			want := []belfry.RunStatus{belfry.RunReady, belfry.RunWaiting}[i%2]
			if row := f.liveRow(t, id); row.State != want {
				t.Errorf("run %d is %s, wants %s", i, row.State, want)
			}
		}
	})
}

func TestAnEditOfTheOverlapHoldsForWhatIsFiredAfterIt(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 20, allowParallel)
		f.fire(t, f.step(t, job))
		f.fire(t, f.step(t, job))
		side := f.claim(t, worker, 2)
		job = f.edit(t, job, revise(t, withQueueLimit(5)))
		waits := f.step(t, job)
		f.fire(t, waits)
		f.wantState(t, "behind two that run", waits.Runs[0].ID, belfry.RunWaiting)
		f.finishAs(t, side[0], belfry.OutcomeSucceeded)
		f.wantState(t, "behind one that runs", waits.Runs[0].ID, belfry.RunWaiting)
		job = f.edit(t, job, revise(t, allowParallel))
		f.wantState(t, "of a job that runs in parallel again", waits.Runs[0].ID, belfry.RunReady)
		beside := f.fireNext(t, job)
		f.wantState(t, "beside two others", beside.ID, belfry.RunReady)
		job = f.edit(t, job, revise(t, withQueueLimit(5)))
		last := f.fireNext(t, job)
		held := append(f.claim(t, worker, 5), side[1])
		if len(held) != 3 {
			t.Errorf("%d runs are held, wants the two that went beside the first, and no other", len(held))
		}
		for _, run := range held {
			f.wantState(t, "behind three", last.ID, belfry.RunWaiting)
			f.finishAs(t, run, belfry.OutcomeSucceeded)
		}
		f.wantState(t, "when nothing is before it", last.ID, belfry.RunReady)
	})
}

func TestOneResultOfABatchPromotesOneRun(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		var jobs []belfry.Job
		for range 8 {
			job := f.createJob(t, 10, withQueueLimit(5))
			for range 4 {
				f.fire(t, f.step(t, job))
			}
			jobs = append(jobs, job)
		}
		for round := range 4 {
			runs := f.claim(t, worker, 100)
			if len(runs) != len(jobs) {
				t.Fatalf("round %d: %d runs are ready, wants one a job", round, len(runs))
			}
			var results []belfry.Result
			for _, run := range runs {
				r := result(run, belfry.OutcomeSucceeded)
				results = append(results, r, r)
			}
			f.finish(t, results...)
			f.finish(t, results...)
		}
		if n := f.count(t, `SELECT count(*) FROM runs`); n != 0 {
			t.Errorf("%d runs are left", n)
		}
	})
}

func TestAnEarlierRetryWakesTheScheduler(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withQueueLimit(5))
		snooze := result(run, belfry.OutcomeSnoozed)
		snooze.RetryAfterSeconds = 3600
		f.finish(t, snooze)
		if _, next, err := f.Promote(ctx, f.allShards(), 10); err != nil || !near(next, f.Now().Add(time.Hour), 20*time.Second) {
			t.Errorf("the next retry is due at %v (%v), wants in an hour", next, err)
		}
		f.wantSettled(t, run, belfry.Settle(run.ID, belfry.AttemptCounts{}, run.Spec.Retry(), snooze))
		got := f.run(t, run.Namespace, run.ID)
		if len(got.Attempts) != 1 || got.Attempts[0].Outcome != belfry.OutcomeSnoozed {
			t.Errorf("the attempts are %+v", got.Attempts)
		}
		if _, err := f.RunWait(ctx, run.Namespace, run.ID); err != nil {
			t.Errorf("what does it wait for: %v", err)
		}
		if page, _, err := f.JobRuns(ctx, run.Namespace, run.JobID, belfry.JobRunFilter{}, store.Page{Limit: 5}); err != nil || len(page) != 1 || page[0].Status != belfry.RunRetry {
			t.Errorf("the runs are %+v (%v)", page, err)
		}
	})
}

// What waits for others need not any more once the job may have several at a time.
func TestAnEditToParallelPromotesWaitingRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 5, func(j *belfry.Job) { j.Overlap = belfry.OverlapQueue })
		held := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		f.recordAndFire(t, job, f.newTrigger(job, ""), f.newTrigger(job, ""))
		if got := f.claim(t, worker, 10); len(got) != 0 {
			t.Fatalf("%d runs do not wait", len(got))
		}
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.MaxRetries = belfry.Some(7) }))
		if got := f.claim(t, worker, 10); len(got) != 0 {
			t.Fatalf("after another edit %d runs do not wait", len(got))
		}
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.Overlap = belfry.OverlapParallel }))
		runs := f.claim(t, worker, 10)
		if len(runs) != 2 {
			t.Fatalf("%d runs may be claimed, wants 2", len(runs))
		}
		for _, run := range append(runs, held) {
			f.finishAs(t, run, belfry.OutcomeSucceeded)
		}
	})
}

// max_runs counts runs: the plan of a job whose run became a skip goes on.
func TestSkippedRunDoesNotCountForMaxRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 10, func(j *belfry.Job) { j.MaxRuns = 2 })
		worker := f.registerWorker(t)
		for i, want := range []struct {
			made, skipped int64
			goes          bool
		}{{1, 0, true}, {1, 1, true}, {1, 1, true}, {2, 0, false}} {
			if i == 3 {
				f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			}
			fired := f.fire(t, f.step(t, job))
			p := f.plan(t, job.ID)
			if p.RunsMade != want.made || int64(fired.Skipped[0]) != want.skipped || p.NextAt.IsZero() == want.goes || p.NominalAt.IsZero() == want.goes {
				t.Errorf("after step %d: %d runs made, %d skipped, the next is at %v", i, p.RunsMade, fired.Skipped[0], p.NextAt)
			}
		}
	})
}
