package store_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestFiringFillsTheFreeSlotsFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for i := range 5 {
			f.createJobs(t, f.job(f.minutesAgo(20-i), withQueue("fast")), f.job(f.minutesAgo(20-i), withQueue("other")))
		}
		f.createJobs(t, f.job(f.minutesAgo(30), withQueue("slow")))
		room := store.FreeSlots{Worker: worker, Lanes: []string{"fast/http", "slow/http", "none/http"}, Free: 4}
		fired := f.fireInto(t, room, f.decide(t, f.due(t))...)
		if len(fired.Claimed) != 4 || fired.ReadyCount() != 7 {
			t.Errorf("%d runs were claimed and %d are ready, wants 4 and 7", len(fired.Claimed), fired.ReadyCount())
		}
		for _, run := range fired.Claimed {
			if run.Spec.Lane(run.Namespace) == "other/http" {
				t.Errorf("a run of lane %s was claimed", run.Spec.Lane(run.Namespace))
			}
		}
		if n := f.count(t, `SELECT count(*) FROM runs WHERE state = 'running' AND worker = ?`, worker); n != 4 {
			t.Errorf("%d runs are running, wants 4", n)
		}
		if ready, err := f.CountReady(ctx, 100); err != nil || ready["other/http"] != 5 || ready["fast/http"]+ready["slow/http"] != 2 {
			t.Errorf("%v are ready (%v)", ready, err)
		}
	})
}

func TestFiringFillsTheSlotsOfSeveralWorkers(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		first, second := f.registerWorker(t), f.registerWorker(t)
		for i := range 60 {
			f.createJobs(t, f.job(f.minutesAgo(100-i), withQueue("fast")), f.job(f.minutesAgo(100-i), withQueue("slow")))
		}
		fired, err := f.Fire(ctx, owner, f.decide(t, f.due(t)), store.FreeSlots{Worker: first, Lanes: []string{"fast/http"}, Free: 2},
			store.FreeSlots{Worker: second, Lanes: []string{"slow/http", "fast/http"}, Free: 4})
		if err != nil {
			t.Fatal(err)
		}
		claimed := map[string]int{}
		for _, run := range fired.Claimed {
			name := "first"
			if run.WorkerID == second {
				name = "second"
			}
			claimed[name]++
			if lane := run.Spec.Lane(run.Namespace); name == "first" && lane != "fast/http" {
				t.Errorf("the first worker has a run of lane %s", lane)
			}
			if n := f.count(t, `SELECT count(*) FROM runs WHERE id = ? AND worker = ? AND token = ?`, run.ID, run.WorkerID, belfry.ID(run.Token)); n != 1 {
				t.Errorf("run %s is not held by its worker", run.ID)
			}
		}
		if claimed["first"] != 2 || claimed["second"] > 4 || len(fired.Claimed)+fired.ReadyCount() != 120 {
			t.Errorf("claimed %v, %d are ready", claimed, fired.ReadyCount())
		}
		if !f.pooled && claimed["second"] != 4 {
			t.Errorf("claimed %v", claimed)
		}
	})
}

func TestTheOldestOfABatchGetsTheSlots(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, minutes := range []int{3, 9, 5, 7} {
			f.createJobs(t, f.job(f.minutesAgo(minutes)))
		}
		fired := f.fireInto(t, slots(f.registerWorker(t), 2), f.decide(t, f.due(t))...)
		for _, run := range fired.Claimed {
			if run.ScheduledAt.After(f.minutesAgo(7)) {
				t.Errorf("the run for %v was claimed while an older one waits", run.ScheduledAt)
			}
		}
		if len(fired.Claimed) != 2 || fired.ReadyCount() != 2 {
			t.Errorf("%d runs were claimed and %d are ready, wants 2 and 2", len(fired.Claimed), fired.ReadyCount())
		}
	})
}

func TestARunThatWasFiredIntoASlotIsLikeAClaimedOne(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		job := f.createJob(t, 5, withNamespace("ours"), withPayload(`{"a":  1}`), withTimeout(120))
		fired := f.fireInto(t, slots(worker, 1), f.step(t, job))
		if len(fired.Claimed) != 1 {
			t.Fatalf("%d runs were claimed, wants 1", len(fired.Claimed))
		}
		run := fired.Claimed[0]
		f.wantClaimed(t, run, job, worker, 1)
		if !run.ScheduledAt.Equal(f.plan(t, job.ID).FiredFor) || run.Kind != belfry.KindScheduled {
			t.Errorf("the run is %+v", run)
		}
		f.finishAs(t, run, belfry.OutcomeFailed)
		if got := f.run(t, "ours", run.ID); got.Status != belfry.RunRetry || len(got.Attempts) != 1 || got.Attempts[0].WorkerID != worker {
			t.Errorf("the failed run is %+v", got)
		}

		manual := f.trigger(t, f.createJob(t, -60, withNamespace("ours"), withPayload(`"own"`)), `"instead"`)
		w := f.pendingTriggers(t)[0]
		step := plan.Fire(f.decide(t, []store.Due{w.Due})[0].Subject, w.Due.Plan, []plan.Trigger{w.Trigger})
		fired = f.fireInto(t, slots(worker, 1), step)
		if len(fired.Claimed) != 1 || fired.Claimed[0].ID != manual.RunID() || string(fired.Claimed[0].Payload) != `"instead"` {
			t.Errorf("the trigger was fired into %+v", fired.Claimed)
		}
	})
}

func TestSlotsAreNotUsedForWhatDoesNotRun(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		busy := f.createJob(t, 20)
		f.fire(t, f.step(t, busy))
		free := f.createJob(t, 10)
		stale := f.step(t, f.createJob(t, 5))
		stale.Seen.Version = 9
		fired, err := f.Fire(ctx, owner, []plan.Step{stale, f.step(t, busy), f.step(t, free)}, slots(worker, 1))
		if err != nil {
			t.Fatal(err)
		}
		if len(fired.Claimed) != 1 || fired.Claimed[0].JobID != free.ID || fired.ReadyCount() != 0 {
			t.Errorf("claimed %+v and %d ready; wants the run of the one job that was free", fired.Claimed, fired.ReadyCount())
		}
	})
}

func TestRunsOfAnUnknownWorkerAreReaped(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5)
		stranger := newID()
		fired := f.fireInto(t, slots(stranger, 1), f.step(t, job))
		f.backdate(t, time.Minute, "runs", "started_at", "state = 'running'")
		f.reap(t, time.Second)
		runs := f.claim(t, f.registerWorker(t), 2)
		if len(runs) != 1 || len(fired.Claimed)+fired.ReadyCount() != 1 {
			t.Errorf("fired %+v for an unknown worker; %d runs can be claimed after the reaper came, wants 1", fired, len(runs))
		}
	})
}
