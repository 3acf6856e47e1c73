package explain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
)

func TestExplainWaitingRuns(t *testing.T) {
	const subject = "2000-01-03 09:00 +01:00 "
	for _, tt := range []struct {
		name     string
		prepare  func(sc *controltest.Scenario) belfry.Job
		decision belfry.Decision
		want     string
		waits    belfry.Wait
	}{
		{"any worker", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *")
			controltest.Register(sc.T, sc.Control, 10, "other")
			registerIn(sc, "slow", 10)
			sc.FireAt("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: no worker serves handler send in queue default.",
			belfry.Wait{What: belfry.WaitForWorker, Queue: "default", Handler: "send"}},
		{"a worker that has gone", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *")
			controltest.Register(sc.T, sc.Control, 10, controltest.Handler)
			sc.FireAt("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: no worker serves handler send in queue default; the last one that did was seen at 08:58:30.",
			belfry.Wait{What: belfry.WaitForWorker, Queue: "default", Handler: "send"}},
		{"a free slot", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.Priority = "low" })
			for range 3 {
				sc.Trigger(sc.Create("@yearly"))
			}
			sc.SleepUntil("08:59:30")
			sc.Worker = controltest.Register(sc.T, sc.Control, 1, controltest.Handler)
			sc.Fire()
			sc.Claim(1)
			sc.FireAt("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: the only slot of the worker that serves default/send is busy; 2 runs are ahead of it.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 1, Slots: 1, Running: 1, Ahead: 2}},
		{"one of many slots", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *")
			for range 6 {
				sc.Trigger(sc.Create("@yearly"))
			}
			sc.SleepUntil("08:59:30")
			sc.Worker = controltest.Register(sc.T, sc.Control, 3, controltest.Handler)
			controltest.Register(sc.T, sc.Control, 2, controltest.Handler)
			sc.Fire()
			sc.Claim(5)
			sc.FireAt("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: all 5 slots of 2 workers that serve default/send are busy; 1 run is ahead of it.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 2, Slots: 5, Running: 5, Ahead: 1}},
		{"a worker that may take it", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *")
			sc.SleepUntil("08:59:30")
			controltest.Register(sc.T, sc.Control, 3, controltest.Handler)
			sc.FireAt("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: no run is ahead of it, and 0 of 3 slots of the worker that serves default/send are busy; it starts as soon as one of them claims it.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 1, Slots: 3}},
		{"a worker that is busy elsewhere", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *")
			sc.FireAt("09:00")
			sc.SleepUntil("09:02")
			controltest.Register(sc.T, sc.Control, 3, controltest.Handler, "other")
			return job
		}, belfry.DecisionQueued, "is queued: 0 of 3 slots of the worker that serves default/send are busy with this handler, and others may be busy with other queues and handlers; no run is ahead of it.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 1, Slots: 3}},
		{"an earlier run", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
			sc.SleepUntil("08:59:30")
			sc.Trigger(job)
			sc.Fire()
			sc.Claim(1)
			sc.FireAt("09:00")
			return job
		}, belfry.DecisionWaiting, "waits for the manual run of 08:59:30 of the same job, which is running (overlap: queue).",
			belfry.Wait{What: belfry.WaitForRun, RunIDs: make([]belfry.ID, 1)}},
		{"several earlier runs", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
			sc.Backfill(job, "07:00")
			sc.Backfill(job, "08:00") // It comes after all others.
			sc.FireAt("08:58")
			sc.SleepUntil("08:59")
			sc.Trigger(job)
			sc.Fire()
			sc.FireAt("09:00")
			return job
		}, belfry.DecisionWaiting, "waits for the backfill of 07:00 of the same job, which is queued, and for 1 more (overlap: queue).",
			belfry.Wait{What: belfry.WaitForRun, RunIDs: make([]belfry.ID, 2)}},
		{"its next attempt", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.RetryDelays, s.MaxRetries = "75", belfry.Some(3) })
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeFailed, func(r *belfry.Result) { r.Error, r.HTTPStatus = "", 502 })
			return job
		}, belfry.DecisionRetrying, "failed 1 of 4 attempts; the next attempt is at 09:01:15. The last error was: HTTP status 502.",
			belfry.Wait{What: belfry.WaitForTime}},
		{"its time after a redrive", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.MaxRetries = belfry.Some(0) })
			deadLetterOfAnother(sc) // so that it is not the first
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeFailed)
			done, err := sc.Control.Redrive(sc.Context(), controltest.Namespace, belfry.Redrive{All: true, Rate: 0.5})
			if err != nil || done.Done != 2 {
				sc.Fatalf("got %+v, error %v", done, err)
			}
			return job
		}, belfry.DecisionRetrying, "had 1 attempt; the next attempt is at 09:00:02.", belfry.Wait{What: belfry.WaitForTime}},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := tt.prepare(sc)
			why := explainAt(sc, job, "09:00", tt.decision, "", subject+tt.want)
			if why.WaitsFor == nil {
				sc.Fatal("it waits for nothing")
			}
			got := *why.WaitsFor
			if tt.waits.What == belfry.WaitForTime && (got.Until == nil || !got.Until.Equal(why.Run.ReadyAt)) {
				sc.Errorf("it waits until %v", got.Until)
			}
			if len(got.RunIDs) != len(tt.waits.RunIDs) {
				sc.Errorf("it waits for %v", got.RunIDs)
			}
			got.Until, got.RunIDs, tt.waits.RunIDs = nil, nil, nil
			if fmt.Sprint(got) != fmt.Sprint(tt.waits) {
				sc.Errorf("got  %+v\nwant %+v", got, tt.waits)
			}
		})
	}
}

// deadLetterOfAnother makes a dead letter of another job.
func deadLetterOfAnother(sc *controltest.Scenario) {
	sc.Helper()
	sc.Trigger(sc.Create("@yearly"))
	sc.Fire()
	sc.FailForGood(1)
}

// registerIn registers a worker that serves the handler in another queue.
func registerIn(sc *controltest.Scenario, queue string, slots int) {
	sc.Helper()
	_, err := sc.Control.Heartbeat(sc.Context(), controltest.Namespace, belfry.Heartbeat{
		WorkerID: belfry.NewID(time.Now()), Slots: slots, Queues: []string{queue}, Handlers: []string{controltest.Handler}, Register: true,
	})
	sc.OK(err)
}
