package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// silenceWorker makes it look as if a worker had been silent for so long.
func (f *fixture) silenceWorker(t tb, worker belfry.ID, by time.Duration) {
	t.Helper()
	if n := f.backdate(t, by, "workers", "last_seen", "id = ?", worker); n != 1 {
		t.Fatalf("worker %s is registered %d times, wants once", worker, n)
	}
}

// ageAttempt makes it look as if an attempt had been claimed so long ago, by a worker that
// has been connected since before.
func (f *fixture) ageAttempt(t tb, run *belfry.Run, by time.Duration) {
	t.Helper()
	f.backdate(t, by, "workers", "since", "id = ?", run.WorkerID)
	if n := f.backdate(t, by, "runs", "started_at deadline_at", "id = ? AND state = 'running'", run.ID); n != 1 {
		t.Fatalf("run %s is running %d times, wants once", run.ID, n)
	}
}

func TestASilentWorkerLosesItsRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		lost, kept := f.startRun(t), f.startRun(t)
		f.silenceWorker(t, lost.WorkerID, 40*time.Second)
		f.silenceWorker(t, kept.WorkerID, 20*time.Second)
		if n := f.reap(t, 0); n != 0 || f.state(t, lost.ID) != belfry.RunRunning {
			t.Errorf("a reaper that was not connected long enough took %d runs", n)
		}
		if n := f.reap(t, 30*time.Second); n != 1 {
			t.Errorf("reaped %d runs, wants 1", n)
		}
		if n := f.reap(t, 30*time.Second); n != 0 {
			t.Errorf("reaped %d runs again", n)
		}
		if row := f.liveRow(t, lost.ID); row.State != belfry.RunReady || row.Lost != 1 || row.Failures != 0 || row.ReadyAt.After(f.Now().Add(time.Second)) {
			t.Errorf("the lost run is %+v", row)
		}
		if got := f.run(t, lost.Namespace, lost.ID); len(got.Attempts) != 1 || got.Attempts[0].Outcome != belfry.OutcomeLost || got.Attempts[0].WorkerID != lost.WorkerID {
			t.Errorf("the attempts are %+v", got.Attempts)
		}
		if f.state(t, kept.ID) != belfry.RunRunning {
			t.Error("a worker that sent heartbeats lost its run")
		}
		workers, err := f.Workers(ctx)
		if err != nil || len(workers) != 1 || workers[0].ID != kept.WorkerID {
			t.Errorf("the workers are %+v (%v), wants the one that sent heartbeats", workers, err)
		}
		if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: lost.WorkerID}); !reply.Unknown {
			t.Errorf("the lost worker got %+v, wants to learn that it is unregistered", reply)
		}
		if got := f.claim(t, lost.WorkerID, 1); len(got) != 0 {
			t.Error("the lost worker claimed a run")
		}
		f.finishAs(t, kept, belfry.OutcomeSucceeded)
		second := f.claimOne(t, kept.WorkerID)
		if second.ID != lost.ID || second.Attempt != 2 {
			t.Errorf("the run came back as %+v", second)
		}
		f.finishAs(t, second, belfry.OutcomeFailed)
		if row := f.liveRow(t, lost.ID); row.Lost != 0 || row.Failures != 1 {
			t.Errorf("a failure after the loss left %+v, wants the count of lost workers to start again", row)
		}
	})
}

func TestASilentWorkerIsUnregisteredEvenIfItHoldsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		idle := f.registerWorker(t)
		f.silenceWorker(t, idle, time.Hour)
		if n := f.reap(t, time.Minute); n != 0 {
			t.Errorf("reaped %d runs of an idle worker", n)
		}
		if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: idle}); !reply.Unknown {
			t.Errorf("the idle worker got %+v", reply)
		}
	})
}

func TestAnAttemptBeyondItsDeadlineIsTaken(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withTimeout(60), withRetries(1))
		f.ageAttempt(t, run, 60*time.Second+store.DeadlineGrace/2)
		if n := f.reap(t, 0); n != 0 {
			t.Errorf("reaped %d runs within the grace", n)
		}
		f.ageAttempt(t, run, store.DeadlineGrace/2+time.Second)
		if n := f.reap(t, 0); n != 1 {
			t.Errorf("reaped %d runs after the grace, wants 1", n)
		}
		f.wantSettled(t, run, belfry.Settle(run.ID, belfry.AttemptCounts{}, run.Spec.Retry(), result(run, belfry.OutcomeTimedOut)))
		got := f.run(t, run.Namespace, run.ID)
		if len(got.Attempts) != 1 || got.Attempts[0].Outcome != belfry.OutcomeTimedOut {
			t.Errorf("the attempts are %+v", got.Attempts)
		}
		if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Complete: true, Held: []belfry.HeldAttempt{{RunID: run.ID, Attempt: 1}}}); reply.Unknown || len(reply.Lost) != 1 {
			t.Errorf("the worker gets %+v, wants that it lost the run", reply)
		}
		if v := f.finish(t, result(run, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
			t.Errorf("a result after the deadline is %s, wants late", v)
		}

		last := f.startRun(t, withTimeout(60), withRetries(0))
		f.ageAttempt(t, last, time.Hour)
		if n := f.reap(t, 0); n != 1 || f.state(t, last.ID) != belfry.RunDead {
			t.Errorf("reaped %d, and the run without retries is %s, wants dead", n, f.state(t, last.ID))
		}
	})
}

// An attempt whose worker may be lost waits until that is known: a lost attempt costs no
// retry. So does one of a worker that was cut off, which first reports what it has.
func TestADeadlineCountsOnlyForAConnectedWorker(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		silent, back := f.startRun(t, withTimeout(2), withRetries(0)), f.startRun(t, withTimeout(2), withRetries(0))
		for _, run := range []*belfry.Run{silent, back} {
			f.ageAttempt(t, run, 25*time.Second)
			f.silenceWorker(t, run.WorkerID, 24*time.Second) // It was heard once after the claim, and not after the deadline.
		}
		f.heartbeat(t, belfry.Heartbeat{WorkerID: back.WorkerID})
		if n := f.reap(t, 0); n != 0 {
			t.Errorf("reaped %d runs by their deadline", n)
		}
		if n := f.reap(t, 20*time.Second); n != 1 {
			t.Errorf("reaped %d runs of a silent worker, wants 1", n)
		}
		if row := f.liveRow(t, silent.ID); row.State != belfry.RunReady || row.Lost != 1 || row.Failures != 0 {
			t.Errorf("the run of the silent worker is %+v, wants it lost", row)
		}
		if v := f.finish(t, result(back, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictAccepted {
			t.Errorf("the result of the worker that was cut off is %s", v)
		}
	})
}

// A heartbeat that was held up on its way lists what its worker held when it was sent.
// Claims after it are not released.
func TestALateHeartbeatReleasesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t)
		f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Sequence: 8})
		f.ageAttempt(t, run, store.ConfirmAfter+time.Second)
		f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Sequence: 7, Complete: true})
		if state := f.state(t, run.ID); state != belfry.RunRunning {
			t.Errorf("a late list made the run %s", state)
		}
		f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Sequence: 9, Complete: true})
		if state := f.state(t, run.ID); state != belfry.RunReady {
			t.Errorf("a list that is up to date left the run %s", state)
		}
	})
}

// A worker that was heard in the future, before the clock was set back, is silent unless it
// is heard again.
func TestAWorkerHeardInTheFutureIsSilent(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		lost, kept := f.startRun(t), f.startRun(t)
		for _, run := range []*belfry.Run{lost, kept} {
			f.silenceWorker(t, run.WorkerID, -time.Hour)
		}
		f.heartbeat(t, belfry.Heartbeat{WorkerID: kept.WorkerID})
		if n := f.reap(t, 20*time.Second); n != 1 || f.state(t, kept.ID) != belfry.RunRunning {
			t.Errorf("reaped %d runs, and the run of the other worker is %s", n, f.state(t, kept.ID))
		}
	})
}

func TestARunThatLosesThreeWorkersIsPoison(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withRetries(0))
		for lost := 1; ; lost++ {
			f.silenceWorker(t, run.WorkerID, time.Hour)
			if n := f.reap(t, time.Minute); n != 1 {
				t.Fatalf("reaped %d runs, wants 1", n)
			}
			if lost == belfry.PoisonLimit {
				break
			}
			if row := f.liveRow(t, run.ID); row.State != belfry.RunReady || row.Lost != lost {
				t.Fatalf("after %d lost workers the run is %+v", lost, row)
			}
			run = f.claimOne(t, f.registerWorker(t))
		}
		got := f.run(t, run.Namespace, run.ID)
		if got.Status != belfry.RunDead || got.Reason != belfry.ReasonPoison || got.Attempt != 3 || len(got.Attempts) != 3 {
			t.Errorf("the run is %+v, wants a dead letter by poison", got)
		}
		if v := f.finish(t, result(run, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate || f.state(t, run.ID) != belfry.RunDead {
			t.Errorf("a late result is %s and the run is %s; wants late and dead", v, f.state(t, run.ID))
		}
	})
}

func TestReapKeepsToItsLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const size, limit = 12, 7
		worker := f.registerWorker(t)
		for range size {
			f.createJob(t, 5)
		}
		f.fireDue(t)
		f.claim(t, worker, size)
		f.silenceWorker(t, worker, time.Hour)
		if reaped, err := f.Reap(ctx, time.Minute, limit); err != nil || len(reaped) != limit {
			t.Errorf("reaped %v with a limit of %d (%v)", reaped, limit, err)
		}
		if n := f.count(t, `SELECT count(*) FROM runs WHERE state = 'running'`); n != size-limit {
			t.Errorf("%d runs are still held, wants %d", n, size-limit)
		}
		// The worker is unregistered by now; its other runs are still found.
		if reaped, err := f.Reap(ctx, 0, 100); err != nil || len(reaped) != size-limit {
			t.Errorf("reaped %v (%v), wants the %d that were left", reaped, err, size-limit)
		}
	})
}

func TestConcurrentReapersSettleAnAttemptOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t))
		}
		const size = 30
		worker := f.registerWorker(t)
		for range size {
			f.createJobs(t, f.job(f.minutesAgo(5)))
		}
		f.fireDue(t)
		runs := f.claim(t, worker, size)
		f.silenceWorker(t, worker, time.Hour)
		var mu sync.Mutex
		var wait sync.WaitGroup
		reaped, won := 0, 0
		for i := range 4 {
			wait.Go(func() {
				results, err := stores[i%len(stores)].Reap(ctx, time.Minute, 100)
				mu.Lock()
				defer mu.Unlock()
				if reaped += len(results); err != nil {
					t.Errorf("reap: %v", err)
				}
			})
		}
		wait.Go(func() {
			for _, run := range runs {
				verdicts, err := f.Finish(ctx, []belfry.Result{result(run, belfry.OutcomeSucceeded)})
				mu.Lock()
				if err != nil {
					t.Errorf("finish: %v", err)
				} else if verdicts[0] == belfry.VerdictAccepted {
					won++
				}
				mu.Unlock()
			}
		})
		wait.Wait()
		reaped += f.reap(t, time.Minute)
		done := f.count(t, `SELECT count(*) FROM history WHERE state = 'succeeded'`)
		lost := f.count(t, `SELECT count(*) FROM runs WHERE state = 'ready' AND lost = 1`)
		if int(done) != won || int(lost) != reaped || won+reaped != size {
			t.Errorf("%d runs succeeded (%d accepted) and %d were lost (%d reaped), wants %d together", done, won, lost, reaped, size)
		}
	})
}
