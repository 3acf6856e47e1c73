package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// hire makes a worker known that has so many slots.
func (g *stage) hire(slots int, lanes ...string) belfry.ID {
	g.Helper()
	id := belfry.NewID(time.Now())
	_, err := g.c.Heartbeat(g.Context(), ns, belfry.Heartbeat{WorkerID: id, Node: "test", Slots: slots, Lanes: lanes, Register: true})
	g.ok(err)
	return id
}

func TestWhatARunWaitsFor(t *testing.T) {
	const subject = "2000-01-03 09:00 +01:00 "
	for _, tt := range []struct {
		name     string
		play     func(g *stage) belfry.Job
		decision belfry.Decision
		want     string
		waits    belfry.Wait
	}{
		{"any worker", func(g *stage) belfry.Job {
			job := g.every("0 * * * *")
			g.hire(10, "default/other", "slow/send")
			g.fired("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: no worker serves handler send in queue default.",
			belfry.Wait{What: belfry.WaitForWorker, Queue: "default", Handler: "send"}},
		{"a worker that has gone", func(g *stage) belfry.Job {
			job := g.every("0 * * * *")
			g.hire(10, lane)
			g.fired("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: no worker serves handler send in queue default; the last that did was heard of at 08:58:30.",
			belfry.Wait{What: belfry.WaitForWorker, Queue: "default", Handler: "send"}},
		{"a free slot", func(g *stage) belfry.Job {
			job := g.every("0 * * * *", func(s *belfry.Spec) { s.Priority = "low" })
			for range 3 {
				g.trigger(g.every("@yearly"))
			}
			g.until("08:59:30")
			g.worker = g.hire(1, lane)
			fire(g.T, g.s)
			g.claim(1)
			g.fired("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: the only slot of the worker that serves default/send is busy; 2 runs come first.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 1, Slots: 1, Running: 1, Ahead: 2}},
		{"one of many slots", func(g *stage) belfry.Job {
			job := g.every("0 * * * *")
			for range 6 {
				g.trigger(g.every("@yearly"))
			}
			g.until("08:59:30")
			g.worker = g.hire(3, lane)
			g.hire(2, lane)
			fire(g.T, g.s)
			g.claim(5)
			g.fired("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: all 5 slots of 2 workers that serve default/send are busy; 1 run comes first.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 2, Slots: 5, Running: 5, Ahead: 1}},
		{"a worker that may take it", func(g *stage) belfry.Job {
			job := g.every("0 * * * *")
			g.until("08:59:30")
			g.hire(3, lane)
			g.fired("09:00")
			return job
		}, belfry.DecisionQueued, "is queued: no run comes first, and 0 of 3 slots of the worker that serves default/send are busy; it starts as soon as one of them takes it.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 1, Slots: 3}},
		{"a worker that is busy elsewhere", func(g *stage) belfry.Job {
			job := g.every("0 * * * *")
			g.fired("09:00")
			g.until("09:02")
			g.hire(3, lane, "default/other")
			return job
		}, belfry.DecisionQueued, "is queued: 0 of 3 slots of the worker that serves default/send are busy with its kind, and the others may be with other queues and handlers; no run comes first.",
			belfry.Wait{What: belfry.WaitForSlot, Queue: "default", Handler: "send", Workers: 1, Slots: 3}},
		{"an earlier run", func(g *stage) belfry.Job {
			job := g.every("0 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
			g.until("08:59:30")
			g.trigger(job)
			fire(g.T, g.s)
			g.claim(1)
			g.fired("09:00")
			return job
		}, belfry.DecisionWaiting, "waits for the manual run of 08:59:30 of the same job, which is running (overlap: queue).",
			belfry.Wait{What: belfry.WaitForRun, Runs: make([]belfry.ID, 1)}},
		{"several earlier runs", func(g *stage) belfry.Job {
			job := g.every("0 * * * *", func(s *belfry.Spec) { s.Overlap = "queue" })
			g.backfill(job, "07:00")
			g.backfill(job, "08:00")
			g.fired("08:59")
			g.fired("09:00")
			return job
		}, belfry.DecisionWaiting, "waits for the backfill of 07:00 of the same job, which is queued, and for 1 more (overlap: queue).",
			belfry.Wait{What: belfry.WaitForRun, Runs: make([]belfry.ID, 2)}},
		{"its next attempt", func(g *stage) belfry.Job {
			job := g.every("0 * * * *", func(s *belfry.Spec) { s.RetryDelays = "75" })
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeFailed, func(r *belfry.Result) { r.Error, r.HTTPStatus = "", 502 })
			return job
		}, belfry.DecisionRetrying, "failed 1 of 4 attempts; the next attempt is at 09:01:15. The last error was: HTTP status 502.",
			belfry.Wait{What: belfry.WaitForTime}},
		{"its time after a redrive", func(g *stage) belfry.Job {
			job := g.every("0 * * * *", func(s *belfry.Spec) { s.MaxRetries = 0 })
			g.another() // so that it is not the first
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeFailed)
			done, err := g.c.Redrive(g.Context(), ns, control.RedriveOrder{DeadOrder: control.DeadOrder{All: true}, Rate: 0.5})
			if err != nil || done.Done != 2 {
				g.Fatalf("got %+v, error %v", done, err)
			}
			return job
		}, belfry.DecisionRetrying, "had 1 attempt; the next attempt is at 09:00:02.", belfry.Wait{What: belfry.WaitForTime}},
	} {
		staged(t, tt.name, func(g *stage) {
			job := tt.play(g)
			why := g.why(job, "09:00", tt.decision, "", subject+tt.want)
			if why.Waits == nil {
				g.Fatal("it waits for nothing")
			}
			got := *why.Waits
			if tt.waits.What == belfry.WaitForTime && (got.Until == nil || !got.Until.Equal(why.Run.ReadyAt)) {
				g.Errorf("it waits until %v", got.Until)
			}
			if len(got.Runs) != len(tt.waits.Runs) {
				g.Errorf("it waits for %v", got.Runs)
			}
			got.Until, got.Runs, tt.waits.Runs = nil, nil, nil
			if fmt.Sprint(got) != fmt.Sprint(tt.waits) {
				g.Errorf("got  %+v\nwant %+v", got, tt.waits)
			}
		})
	}
}

// another makes a dead letter of another job.
func (g *stage) another() {
	g.Helper()
	g.trigger(g.every("@yearly"))
	fire(g.T, g.s)
	g.die(1)
}
