package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// patience is how long a test waits for a hint that must come; nearly always it
// comes at once.
const patience = time.Minute

// wantSignal waits for a hint.
func wantSignal(t tb, what string, wakeups <-chan struct{}) {
	t.Helper()
	select {
	case <-wakeups:
	case <-time.After(patience):
		t.Errorf("%s: nobody was woken", what)
	}
}

func drain(wakeups <-chan struct{}) {
	for {
		select {
		case <-wakeups:
		default:
			return
		}
	}
}

func TestWakeupsForPlans(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		one, two := f.Wakeups(t.Context(), store.TopicPlans), f.Wakeups(t.Context(), store.TopicPlans)
		job := f.job(f.minutesAgo(-60))
		for _, act := range []struct {
			what string
			do   func()
		}{
			{"a job was created", func() { f.createJobs(t, job) }},
			{"a job was paused", func() { f.edit(t, job.Job, pause(t)) }},
			{"a job was triggered", func() { f.trigger(t, job.Job, "") }},
			{"a job was deleted", func() { f.edit(t, job.Job, deleteJob(t)) }},
		} {
			drain(one)
			drain(two)
			act.do()
			wantSignal(t, act.what, one)
			wantSignal(t, act.what, two)
		}
	})
}

func TestWakeupsForReadyRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		wakeups := f.Wakeups(t.Context(), store.TopicReady)
		worker := f.registerWorker(t)
		job := f.createJob(t, 5, allowParallel, withBase(0))
		var run *belfry.Run
		for _, act := range []struct {
			what string
			do   func()
		}{
			{"a run was fired", func() { f.fire(t, f.step(t, job)) }},
			{"a run was handed back", func() { f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeInterrupted) }},
			{"a retry became due", func() {
				f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeFailed)
				drain(wakeups)
				if n, _, err := f.Promote(ctx, f.allShards(), 1); n != 1 || err != nil {
					t.Fatalf("promoted %d (%v)", n, err)
				}
			}},
			{"a worker was lost", func() {
				run = f.claimOne(t, worker)
				f.silenceWorker(t, worker, time.Hour)
				f.reap(t, time.Minute)
			}},
			{"a claim was not confirmed", func() {
				worker = f.registerWorker(t)
				run = f.claimOne(t, worker)
				f.ageAttempt(t, run, store.ConfirmAfter+time.Second)
				drain(wakeups)
				f.heartbeat(t, belfry.Heartbeat{WorkerID: worker, Complete: true})
			}},
			{"a pause decided what was due", func() { f.edit(t, job, pause(t)) }},
		} {
			drain(wakeups)
			act.do()
			wantSignal(t, act.what, wakeups)
		}
	})
}

func TestWakeupsReachOtherNodes(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.needSeveralNodes(t)
		if f.pooled {
			t.Skip("nobody can listen through a pooler; polling is what there is")
		}
		other := f.reopen(t)
		plans, ready := other.Wakeups(t.Context(), store.TopicPlans), other.Wakeups(t.Context(), store.TopicReady)
		// Hints may be lost while the other is still about to listen.
		woken := false
		for deadline := time.Now().Add(patience); !woken && time.Now().Before(deadline); {
			f.fire(t, f.step(t, f.createJob(t, 5)))
			select {
			case <-ready:
				woken = true
			case <-time.After(200 * time.Millisecond):
			}
		}
		if !woken {
			t.Fatal("another node was not woken by a ready run")
		}
		drain(plans)
		f.createJob(t, -60)
		wantSignal(t, "a job was created on another node", plans)
	})
}

func TestChangedJobsNamesTheJobsThatOthersWrote(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		changed := func(what string, want ...belfry.ID) {
			t.Helper()
			got, many := f.ChangedJobs()
			slices.SortFunc(got, belfry.ID.Compare)
			slices.SortFunc(want, belfry.ID.Compare)
			if many || !slices.Equal(got, want) {
				t.Errorf("%s: changed are %v (many: %v), wants %v", what, got, many, want)
			}
		}
		f.ChangedJobs()
		changed("nothing was written")
		one, two := f.job(f.minutesAgo(5)), f.job(f.minutesAgo(5))
		f.createJobs(t, one, two)
		changed("two jobs were created", one.Job.ID, two.Job.ID)
		f.edit(t, one.Job, revise(t, withTimeout(5)))
		f.edit(t, one.Job, pause(t))
		changed("a job was edited", one.Job.ID)
		f.fire(t, f.step(t, two.Job))
		changed("the owner fired")
		refused := belfry.Errorf(belfry.Invalid, "no")
		f.EditJob(ctx, two.Job.Namespace, two.Job.ID, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) { return nil, refused })
		f.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
			_ = yield(f.job(f.minutesAgo(1)), nil) && yield(store.NewJob{}, refused)
		}, nil)
		changed("nothing came of what was asked")
		many := make([]store.NewJob, 2000)
		for i := range many {
			many[i] = f.job(f.minutesAgo(-60))
		}
		f.createJobs(t, many...)
		if got, tooMany := f.ChangedJobs(); !tooMany && len(got) != len(many) {
			t.Errorf("after %d jobs were created %d are named", len(many), len(got))
		}
		changed("it was asked before")
	})
}

func TestClockAndPing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		if err := f.Ping(ctx); err != nil {
			t.Errorf("ping: %v", err)
		}
		if f.PollInterval() <= 0 {
			t.Errorf("a caller is to poll every %v", f.PollInterval())
		}
		if f.Shards() != shards {
			t.Errorf("there are %d shards, wants %d", f.Shards(), shards)
		}
		if now := f.Now(); !near(now, time.Now(), 5*time.Second) || now.Nanosecond()%1000 != 0 {
			t.Errorf("the store says that it is %v", now)
		}
	})
}
