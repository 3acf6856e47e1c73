package store_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestCountReadyCountsUpToTheLimitOfALane(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		if got, err := f.CountReady(ctx, 10); err != nil || len(got) != 0 {
			t.Errorf("an empty store has %v (%v) ready", got, err)
		}
		for queue, size := range map[string]int{"small": 2, "large": 7} {
			for i := range size {
				f.createJob(t, 5, withQueue(queue), withName(fmt.Sprint(queue, i)))
			}
		}
		f.fireDue(t)
		for limit, want := range map[int]map[string]int{
			100: {"small/http": 2, "large/http": 7},
			5:   {"small/http": 2, "large/http": 5},
			1:   {"small/http": 1, "large/http": 1},
		} {
			got, err := f.CountReady(ctx, limit)
			if err != nil || got["small/http"] != want["small/http"] || got["large/http"] != want["large/http"] || len(got) != 2 {
				t.Errorf("with limit %d: %v (%v), wants %v", limit, got, err, want)
			}
		}
		f.claim(t, f.registerWorker(t), 2, "small/http")
		if got, err := f.CountReady(ctx, 100); err != nil || got["small/http"] != 0 || got["large/http"] != 7 {
			t.Errorf("after a claim: %v (%v)", got, err)
		}
	})
}

func TestRunsWaitInTheOrderInWhichTheyBecameReady(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		_, last := f.createDelayed(t, 3*time.Minute)
		first := f.step(t, f.createJob(t, 4)) // a later occurrence without a delay
		f.fire(t, last, first)
		runs := f.claim(t, worker, 1)
		runs = append(runs, f.claim(t, worker, 1)...)
		if len(runs) != 2 || runs[0].ID != first.Runs[0].ID || runs[1].ID != last.Runs[0].ID {
			t.Fatalf("claimed %v, wants %s and %s", runs, first.Runs[0].ID, last.Runs[0].ID)
		}
		_, local := f.createDelayed(t, 3*time.Minute)
		got := f.fireInto(t, slots(worker, 1), local).Claimed
		if len(got) != 1 || !got[0].ReadyAt.Equal(f.minutesAgo(2)) || !got[0].ScheduledAt.Equal(f.minutesAgo(5)) {
			t.Errorf("the local worker got %+v", got)
		}
		for _, run := range append(runs, got...) {
			f.finishAs(t, run, belfry.OutcomeSucceeded)
			if kept := f.run(t, run.Namespace, run.ID); !kept.ReadyAt.Equal(run.ReadyAt) || !kept.ScheduledAt.Equal(run.ScheduledAt) {
				t.Errorf("history says %v and %v, the run was of %v and ready at %v", kept.ScheduledAt, kept.ReadyAt, run.ScheduledAt, run.ReadyAt)
			}
		}
	})
}

// clockError is more than what a store may be wrong about the clock of its database.
const clockError = time.Second

// wantClaimed expects a run with all that its worker needs.
func (f *fixture) wantClaimed(t tb, run *belfry.Run, job belfry.Job, worker belfry.ID, attempt int) {
	t.Helper()
	deadline := f.Now().Add(job.Timeout())
	if run.Token == (belfry.Token{}) {
		t.Errorf("the claimed run has no token")
	}
	f.wantRecent(t, "the fire", &run.FiredAt)
	f.wantRecent(t, "the start", run.StartedAt)
	wantEqual(t, "the claimed run", *run, belfry.Run{
		ID: run.ID, JobID: job.ID, Namespace: job.Namespace, Revision: job.Revision, Kind: run.Kind, Status: belfry.RunRunning, ScheduledAt: run.ScheduledAt,
		ReadyAt: run.ReadyAt, FiredAt: run.FiredAt, Attempt: attempt, StartedAt: run.StartedAt, WorkerID: worker, JobName: run.JobName, TemplateKey: run.TemplateKey,
		Token: run.Token, Payload: job.Payload, Spec: job.Spec, DeadlineAt: run.DeadlineAt,
	})
	if run.DeadlineAt.Before(deadline.Add(-20*time.Second)) || run.DeadlineAt.After(deadline.Add(store.DeadlineGrace+clockError)) {
		t.Errorf("the claimed run's deadline is %v, wants about %v", run.DeadlineAt, deadline)
	}
	if row := f.liveRow(t, run.ID); row.State != belfry.RunRunning || row.Worker != worker || row.Attempt != attempt {
		t.Errorf("the claimed run's row is %+v", row)
	}
}

func TestAClaimedRunCarriesWhatItsWorkerNeeds(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 5, withNamespace("ours"), withPayload(`{"a":  1}`), withTimeout(120))
		step := f.step(t, job)
		f.fire(t, step)
		worker := f.registerWorker(t)
		run := f.claimOne(t, worker)
		f.wantClaimed(t, run, job, worker, 1)
		want := step.Runs[0]
		if run.ID != want.ID || run.Kind != want.Kind || !run.ScheduledAt.Equal(want.ScheduledAt) || !run.ReadyAt.Equal(want.ReadyAt) {
			t.Errorf("the claimed run is %+v, wants %+v", run, want)
		}
		if got := f.claim(t, worker, 1); len(got) != 0 {
			t.Errorf("the run was claimed twice: %+v", got)
		}
		f.finishAs(t, run, belfry.OutcomeInterrupted)
		second := f.claimOne(t, worker)
		f.wantClaimed(t, second, job, worker, 2)
		if second.Token == run.Token || second.Key() != run.Key() {
			t.Error("the second attempt has the first one's token, or another idempotency key")
		}
		bare := f.createJob(t, 5, withPayload(""))
		f.fire(t, f.step(t, bare))
		if run := f.claimOne(t, worker); len(run.Payload) != 0 {
			t.Errorf("a run without payload has %q", run.Payload)
		}
	})
}

func TestClaimsComeInTheOrderOfRank(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var want []time.Time
		queues := []string{"a", "b", "c"}
		for i, minutes := range []int{30, 10, 50, 20, 60, 40} {
			f.createJobs(t, f.job(f.minutesAgo(minutes), withQueue(queues[i%2])))
			want = append(want, f.minutesAgo(minutes))
		}
		f.createJobs(t, f.job(f.minutesAgo(90), withQueue("c")))
		// The latest is fired first: what counts is the rank.
		steps := f.decide(t, f.due(t))
		slices.Reverse(steps)
		for _, step := range steps {
			f.fire(t, step)
		}
		slices.SortFunc(want, time.Time.Compare)
		worker := f.registerWorker(t)
		var got []time.Time
		for _, limit := range []int{0, -1, 1, 2, 10, 10} {
			for _, run := range f.claim(t, worker, limit, "a/http", "b/http", "nobody/asks") {
				got = append(got, run.ScheduledAt)
			}
		}
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Errorf("claimed %v, wants %v", got, want)
		}
		if runs, err := f.Claim(ctx, belfry.Claim{WorkerID: worker, Limit: 10}); err != nil || len(runs) != 0 {
			t.Errorf("a claim for no lane got %d runs (%v)", len(runs), err)
		}
		if runs := f.claim(t, worker, 10, "c/http", "c/http"); len(runs) != 1 {
			t.Errorf("a claim that names its lane twice got %d runs, wants 1", len(runs))
		}
	})
}

func TestClaimBelowARank(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, minutes := range []int{30, 10, 20} {
			f.createJobs(t, f.job(f.minutesAgo(minutes), withQueue("a")))
		}
		f.createJobs(t, f.job(f.minutesAgo(40), withQueue("b")))
		f.fireDue(t)
		claim := belfry.Claim{WorkerID: f.registerWorker(t), Lanes: []string{"a/http"}, Limit: 10}
		rank := func(minutes int) int64 { return plan.Rank(f.minutesAgo(minutes), 0) }
		for _, step := range []struct {
			below, left int64
			claimed     int
		}{{rank(30), rank(30), 0}, {rank(20), rank(20), 1}, {plan.MaxRank, plan.MaxRank, 2}} {
			runs, err := f.ClaimBelow(ctx, claim, step.below)
			if err != nil || len(runs) != step.claimed {
				t.Errorf("claimed %d runs below %d (%v), want %d", len(runs), step.below, err, step.claimed)
			}
			if left, err := f.ReadyRank(ctx, claim.Lanes); err != nil || left != step.left {
				t.Errorf("the lowest rank is %d (%v), want %d", left, err, step.left)
			}
		}
	})
}

// What a worker was told of may be claimed already, gone, or of a lane that it does not serve.
func TestClaimRunsClaimsWhatIsReady(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, minutes := range []int{30, 10, 20} {
			f.createJobs(t, f.job(f.minutesAgo(minutes), withQueue("a")))
		}
		f.createJobs(t, f.job(f.minutesAgo(40), withQueue("b")))
		f.fireDue(t)
		ready := func(lane string, limit int) []belfry.ID {
			t.Helper()
			var shards []int
			for shard := range f.Shards() {
				shards = append(shards, shard)
			}
			ids, err := f.ReadyRuns(ctx, lane, shards, limit)
			if none, noneErr := f.ReadyRuns(ctx, lane, nil, limit); err != nil || noneErr != nil || len(none) > 0 {
				t.Fatalf("no shards have %v ready (%v, %v)", none, err, noneErr)
			}
			return ids
		}
		a, b := ready("a/http", 10), ready("b/http", 10)
		if len(a) != 3 || len(b) != 1 || !slices.Equal(ready("a/http", 2), a[:2]) {
			t.Fatalf("%v and %v are ready, %v with a limit of 2", a, b, ready("a/http", 2))
		}
		worker := f.registerWorker(t)
		told := append([]belfry.ID{newID(), b[0], a[2], a[2]}, a...)
		for _, step := range []struct {
			worker belfry.ID
			limit  int
			want   []belfry.ID
		}{{newID(), 10, nil}, {worker, 0, nil}, {worker, 1, a[:1]}, {worker, 10, a[1:]}, {worker, 10, nil}} {
			runs, err := f.ClaimRuns(ctx, belfry.Claim{WorkerID: step.worker, Lanes: []string{"a/http"}, Limit: step.limit}, told)
			var got []belfry.ID
			for _, run := range runs {
				got = append(got, run.ID)
				if row := f.liveRow(t, run.ID); run.Spec.Queue != "a" || row.State != belfry.RunRunning || row.Worker != worker || row.Attempt != run.Attempt {
					t.Errorf("claimed %+v, its row is %+v", run, row)
				}
			}
			if err != nil || !slices.Equal(got, step.want) {
				t.Errorf("with a limit of %d %v were claimed (%v), want %v", step.limit, got, err, step.want)
			}
		}
		if left := ready("b/http", 10); !slices.Equal(left, b) || len(ready("a/http", 10)) != 0 {
			t.Errorf("%v are ready in the lane that the worker does not serve", left)
		}
		if runs, err := f.ClaimRuns(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{"a/http"}, Limit: 5}, nil); err != nil || len(runs) > 0 {
			t.Errorf("%v were claimed without an id (%v)", runs, err)
		}
	})
}

func TestAnUnknownWorkerGetsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.createJob(t, 5)
		f.fireDue(t)
		if runs := f.claim(t, newID(), 10); len(runs) != 0 {
			t.Errorf("an unknown worker claimed %d runs", len(runs))
		}
		if got, err := f.CountReady(ctx, 10); err != nil || got[lane] != 1 {
			t.Errorf("%v are ready (%v), wants 1", got, err)
		}
	})
}

func TestClaimersNeverShareARun(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t), f.reopen(t))
		}
		const size = 300
		jobs := make([]store.NewJob, size)
		for i := range jobs {
			jobs[i] = f.job(f.minutesAgo(5 + i%7))
		}
		f.createJobs(t, jobs...)
		f.fireDue(t)
		var mu sync.Mutex
		seen := map[belfry.ID]belfry.Token{}
		tokens := map[belfry.Token]bool{}
		var wait sync.WaitGroup
		for i := range 6 {
			worker := f.registerWorker(t)
			wait.Go(func() {
				for empty := 0; empty < 3; {
					runs, err := stores[i%len(stores)].Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{lane}, Limit: 7})
					if err != nil {
						t.Errorf("claim: %v", err)
						return
					}
					if len(runs) == 0 {
						empty++
					}
					mu.Lock()
					for _, run := range runs {
						if _, twice := seen[run.ID]; twice || tokens[run.Token] {
							t.Errorf("run %s was handed out twice, or its token was", run.ID)
						}
						seen[run.ID], tokens[run.Token] = run.Token, true
					}
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		if len(seen) != size || f.count(t, `SELECT count(*) FROM runs WHERE state = 'running' AND attempt = 1`) != size {
			t.Errorf("%d runs were claimed, wants %d", len(seen), size)
		}
	})
}

func TestWorkersAreListedWhileTheyAreRegistered(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		id := newID()
		lanes := []string{"default/http", `odd "queue"/mail`}
		if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: id, Node: "here"}); !reply.Unknown {
			t.Errorf("a worker that never registered got %+v", reply)
		}
		register := belfry.Heartbeat{WorkerID: id, Node: "here", Slots: 12, Lanes: lanes, Register: true}
		for range 2 {
			if reply := f.heartbeat(t, register); reply.Unknown || len(reply.Lost) != 0 {
				t.Errorf("a registration got %+v", reply)
			}
		}
		workers, err := f.Workers(ctx)
		if err != nil || len(workers) != 1 {
			t.Fatalf("%d workers are listed (%v), wants 1", len(workers), err)
		}
		f.wantRecent(t, "the heartbeat", &workers[0].LastSeen)
		f.wantRecent(t, "the registration", &workers[0].StartedAt)
		wantEqual(t, "the worker", workers[0], store.Worker{ID: id, Node: "here", Slots: 12, Lanes: lanes, StartedAt: workers[0].StartedAt, LastSeen: workers[0].LastSeen})
		f.backdate(t, time.Hour, "workers", "last_seen", "")
		if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: id, Node: "here", Slots: 12, Lanes: lanes}); reply.Unknown {
			t.Errorf("a heartbeat of a known worker got %+v", reply)
		}
		if workers, err := f.Workers(ctx); err != nil || len(workers) != 1 || !near(workers[0].LastSeen, f.Now(), 10*time.Second) {
			t.Errorf("after a heartbeat the workers are %+v (%v)", workers, err)
		}
		f.heartbeat(t, belfry.Heartbeat{WorkerID: id, Leave: true})
		f.heartbeat(t, belfry.Heartbeat{WorkerID: id, Leave: true})
		if workers, err := f.Workers(ctx); err != nil || len(workers) != 0 {
			t.Errorf("after it left the workers are %+v (%v)", workers, err)
		}
		if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: id}); !reply.Unknown {
			t.Errorf("a worker that left got %+v", reply)
		}
	})
}

func TestAWorkerThatLeavesHoldsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t)
		f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Leave: true})
		f.reap(t, 0)
		if got := f.claim(t, run.WorkerID, 1); len(got) != 0 {
			t.Error("a worker that left claimed a run")
		}
		second := f.claimOne(t, f.registerWorker(t))
		if row := f.liveRow(t, run.ID); second.ID != run.ID || second.Attempt != 2 || row.Failures != 0 {
			t.Errorf("the run is at attempt %d with %d failures, wants 2 and 0", second.Attempt, row.Failures)
		}
		if v := f.finish(t, result(run, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
			t.Errorf("a result after leaving is %s, wants late", v)
		}
		f.finishAs(t, second, belfry.OutcomeSucceeded)
	})
}

func TestAHeartbeatReturnsWhatTheWorkerLost(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for range 4 {
			f.createJob(t, 5)
		}
		f.fireDue(t)
		runs := f.claim(t, worker, 4)
		held := func(runs ...*belfry.Run) (out []belfry.HeldAttempt) {
			for _, run := range runs {
				out = append(out, belfry.HeldAttempt{RunID: run.ID, Attempt: run.Attempt})
			}
			return out
		}
		heartbeat := belfry.Heartbeat{WorkerID: worker, Complete: true, Held: held(runs...)}
		if reply := f.heartbeat(t, heartbeat); reply.Unknown || len(reply.Lost) != 0 {
			t.Errorf("nothing was lost, and the answer is %+v", reply)
		}
		// The first is finished, the second went to another worker, the third is
		// here again under another number, and one was never there.
		f.finishAs(t, runs[0], belfry.OutcomeSucceeded)
		f.finishAs(t, runs[1], belfry.OutcomeInterrupted)
		other := f.claimOne(t, f.registerWorker(t))
		f.finishAs(t, runs[2], belfry.OutcomeInterrupted)
		again := f.claimOne(t, worker)
		if other.ID != runs[1].ID || again.ID != runs[2].ID {
			t.Fatal("the runs were not handed on as expected")
		}
		never := belfry.HeldAttempt{RunID: newID(), Attempt: 1}
		heartbeat.Held = append(held(runs...), held(again)...)
		heartbeat.Held = append(heartbeat.Held, never)
		reply := f.heartbeat(t, heartbeat)
		want := append(held(runs[:3]...), never)
		if reply.Unknown || len(reply.Lost) != len(want) {
			t.Errorf("lost %+v, wants %+v", reply.Lost, want)
		}
		for _, w := range want {
			if !slices.Contains(reply.Lost, w) {
				t.Errorf("lost %+v, %+v is missing", reply.Lost, w)
			}
		}
		heartbeat.Complete = false
		if reply := f.heartbeat(t, heartbeat); len(reply.Lost) != 0 {
			t.Errorf("what is held does not count, and the answer is %+v", reply)
		}
	})
}

func TestAClaimThatItsWorkerNeverConfirmsIsReleased(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for range 3 {
			f.createJob(t, 5)
		}
		f.fireDue(t)
		runs := f.claim(t, worker, 3)
		held := []belfry.HeldAttempt{{RunID: runs[0].ID, Attempt: 1}}
		age := func(run *belfry.Run, by time.Duration) {
			f.backdate(t, by, "runs", "started_at deadline_at", "id = ?", run.ID)
		}
		states := func() string {
			return fmt.Sprint(f.state(t, runs[0].ID), f.state(t, runs[1].ID), f.state(t, runs[2].ID))
		}
		age(runs[0], store.ConfirmAfter+5*time.Second)
		age(runs[1], store.ConfirmAfter+5*time.Second)
		f.heartbeat(t, belfry.Heartbeat{WorkerID: worker, Held: held})
		if got := states(); got != "runningrunningrunning" {
			t.Errorf("a heartbeat without a list made the runs %s", got)
		}
		for range 2 {
			if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: worker, Held: held, Complete: true}); reply.Unknown || len(reply.Lost) != 0 {
				t.Errorf("the answer is %+v", reply)
			}
		}
		if got := states(); got != "runningreadyrunning" {
			t.Errorf("the runs are %s, wants the old unlisted one ready", got)
		}
		got := f.run(t, runs[1].Namespace, runs[1].ID)
		if row := f.liveRow(t, runs[1].ID); len(got.Attempts) != 1 || got.Attempts[0].Outcome != belfry.OutcomeUnconfirmed || row.Failures != 0 || row.Lost != 0 {
			t.Errorf("the released run is %+v with row %+v", got, row)
		}
		if v := f.finish(t, result(runs[1], belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
			t.Errorf("the result of a released claim is %s, wants late", v)
		}
		f.finishAs(t, runs[0], belfry.OutcomeSucceeded)
		f.finishAs(t, runs[2], belfry.OutcomeSucceeded)
	})
}

func TestRunsAreClaimedByPriorityAndAge(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		// High is 9, low 1, and from one end of the scale to the other it is ten minutes.
		order := []struct {
			minutes  int
			priority belfry.Priority
		}{
			{12, "9"}, {3, "high"}, {11, "low"}, {6, "7"}, {4, ""}, {5, "3"}, {10, "0"}, {3, "low"}, {1, "0"},
		}
		weight := func(p belfry.Priority) time.Duration {
			return time.Duration(5-p.Level()) * 10 * time.Minute / 9
		}
		var steps []plan.Step
		var want []belfry.ID
		type place struct {
			at time.Time
			id belfry.ID
		}
		var places []place
		for _, o := range order {
			step := f.step(t, f.createJob(t, o.minutes, withPriority(o.priority)))
			steps = append(steps, step)
			places = append(places, place{f.minutesAgo(o.minutes).Add(weight(o.priority)), step.Runs[0].ID})
		}
		slices.SortFunc(places, func(a, b place) int { return a.at.Compare(b.at) })
		for _, p := range places {
			want = append(want, p.id)
		}
		f.fire(t, steps...)
		worker := f.registerWorker(t)
		var got []belfry.ID
		for runs := f.claim(t, worker, 1); len(runs) > 0; runs = f.claim(t, worker, 1) {
			got = append(got, runs[0].ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("claimed %v, wants %v", got, want)
		}
	})
}

func TestAPriorityHoldsOnEveryWayToBeReady(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for _, priority := range []belfry.Priority{"high", "", "low", "0"} {
			job := f.createJob(t, 10, withPriority(priority), withRetries(1), withQueueLimit(3))
			want := (&plan.Policy{Spec: job.Spec}).Weight()
			check := func(doing string, id belfry.ID) {
				t.Helper()
				if row := f.liveRow(t, id); row.State != belfry.RunReady || row.Weight != want || row.Rank != plan.Rank(row.ReadyAt, want) {
					t.Errorf("priority %s, %s: the run is %+v, wants weight %d", priority, doing, row, want)
				}
			}
			f.fireNext(t, job)
			waiting := f.fireNext(t, job)
			run := f.claimOne(t, worker)
			f.finishAs(t, run, belfry.OutcomeInterrupted)
			check("interrupted", run.ID)
			run = f.claimOne(t, worker)
			f.finishAs(t, run, belfry.OutcomeFailed)
			f.promoteAll(t)
			check("retried", run.ID)
			run = f.claimOne(t, worker)
			f.ageAttempt(t, run, time.Hour)
			f.reap(t, 0)
			f.wantState(t, "timed out", run.ID, belfry.RunDead)
			check("after another", waiting.ID)
			f.claimOne(t, worker)
			f.silenceWorker(t, worker, time.Hour)
			f.reap(t, time.Minute)
			check("lost", waiting.ID)
			worker = f.registerWorker(t)
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			f.redrive(t, namespace, store.Redrive{Run: run.ID})
			check("redriven", run.ID)
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeFailed)
			f.promoteAll(t)
			f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeFailed)
			f.redrive(t, namespace, store.Redrive{Run: run.ID, After: time.Hour})
			f.promoteAll(t)
			check("redriven later", run.ID)
			f.settleAll(t)
		}
	})
}
