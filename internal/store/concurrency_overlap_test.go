package store_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// nodes opens the store so many times, as nodes of a cluster do, where that can be.
func (f *fixture) nodes(t *testing.T, n int) []*fixture {
	t.Helper()
	nodes := []*fixture{f}
	for len(nodes) < n {
		other := *f
		if f.reopen != nil {
			other.Store = f.reopen(t)
		}
		nodes = append(nodes, &other)
	}
	return nodes
}

// overlappingRuns counts the jobs whose runs follow one after another and of which more
// than one does not wait.
const overlappingRuns = `SELECT count(*) FROM (SELECT 1 FROM runs r JOIN jobs j ON j.id = r.job_id
	WHERE r.state <> 'waiting' AND j.spec NOT LIKE '%"overlap":"parallel"%' GROUP BY r.job_id HAVING count(*) > 1) x`

// watch looks at the overlap, again and again, while something happens.
func (f *fixture) watch(t tb, happens func(), also ...string) {
	t.Helper()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			for _, query := range append(also, overlappingRuns) {
				if n := f.count(t, query); n != 0 {
					t.Errorf("at one moment %d: %s", n, query)
				}
			}
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	happens()
	close(done)
	watching.Wait()
}

// overfullQueues counts the jobs of which more than three runs wait.
const overfullQueues = `SELECT count(*) FROM (SELECT 1 FROM runs WHERE state = 'waiting' GROUP BY job_id HAVING count(*) > 3) x`

// Nodes that fire, finish and promote at once never promote two runs of a job,
// never overfill its queue, and leave none behind.
func TestConcurrentNodesObeyTheOverlapPolicy(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var jobs []belfry.Job
		for i := range 6 {
			jobs = append(jobs, f.createJob(t, 60, withRetries(1), withBase(0), func(j *belfry.Job) {
				j.Overlap, j.MaxQueued = []belfry.Overlap{belfry.OverlapQueue, belfry.OverlapSkip}[i%2], 3
			}))
		}
		var wait sync.WaitGroup
		for _, node := range f.nodes(t, 4) {
			wait.Go(func() { node.fireAndFinish(t, jobs) })
		}
		f.watch(t, wait.Wait, overfullQueues)
		f.backdate(t, time.Hour, "workers", "last_seen", "")
		f.reap(t, time.Minute)
		f.settleAll(t)
		if n := f.count(t, `SELECT count(*) FROM runs`); n != 0 {
			t.Errorf("%d runs are left", n)
		}
		for _, job := range jobs {
			f.wantCovered(t, job.ID, f.minutesAgo(60))
		}
	})
}

// fireAndFinish fires what is due and runs what is ready, as fast as it can.
func (f *fixture) fireAndFinish(t *testing.T, jobs []belfry.Job) {
	worker := f.registerWorker(t)
	fine := func(err error) {
		if err != nil {
			t.Errorf("in a hurry: %v", err)
		}
	}
	for range 40 {
		fired, err := f.Fire(ctx, worker, f.decide(t, f.due(t)), slots(worker, rand.IntN(3)))
		fine(err)
		job := jobs[rand.IntN(len(jobs))]
		trigger := f.oneTrigger(job)
		fine(f.Trigger(ctx, trigger, nil))
		byHand, err := f.Fire(ctx, worker, []plan.Step{plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), trigger)}, slots(worker, 1))
		fine(err)
		held := append(fired.Claimed, byHand.Claimed...)
		runs, err := f.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{lane}, Limit: 3})
		fine(err)
		var results []belfry.Result
		for _, run := range append(held, runs...) {
			results = append(results, result(run, outcomes[rand.IntN(len(outcomes))]))
		}
		_, err = f.Finish(ctx, results)
		fine(err)
		_, _, err = f.Promote(ctx, f.allShards(), 10)
		fine(err)
	}
}

func TestConcurrentCancelAndFinishEndARunOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		nodes := f.nodes(t, 2)
		for round := range 15 {
			job := f.createJob(t, 10, withQueueLimit(2), withRetries(0))
			f.fire(t, f.step(t, job))
			behind := f.fireNext(t, job)
			run := f.claimOne(t, f.registerWorker(t))
			var wait sync.WaitGroup
			both := func(calls ...func(*fixture)) {
				for i, call := range calls {
					wait.Go(func() { call(nodes[(i+round)%2]) })
				}
				wait.Wait()
			}
			cancel := func(n *fixture) {
				if err := n.Cancel(ctx, namespace, run.ID); err != nil && belfry.CodeOf(err) != belfry.Conflict {
					t.Errorf("cancel: %v", err)
				}
			}
			fail := func(n *fixture) { n.finish(t, result(run, belfry.OutcomeFailed)) }
			both(cancel, fail, cancel)
			end := f.state(t, run.ID)
			if end != belfry.RunCancelled && end != belfry.RunDead {
				t.Errorf("a run that failed and was cancelled is %s", end)
			}
			checkWaiting(t, f)
			f.wantState(t, "the one behind it", behind.ID, belfry.RunReady)
			if end == belfry.RunDead {
				var again, gone int
				both(func(n *fixture) { again = n.redrive(t, namespace, store.Redrive{Run: run.ID}) }, func(n *fixture) { gone = n.discard(t, namespace, run.ID) })
				want := map[bool]belfry.RunStatus{true: belfry.RunWaiting, false: belfry.RunDiscarded}[again == 1]
				if again+gone != 1 || f.state(t, run.ID) != want {
					t.Errorf("%d redriven and %d discarded, and the run is %s", again, gone, f.state(t, run.ID))
				}
			}
			// A claim and a cancel of what is ready: either it is held and marked, or gone.
			var claimed []*belfry.Run
			worker := f.registerWorker(t)
			both(func(n *fixture) { claimed = n.claim(t, worker, 1) }, func(n *fixture) { n.cancel(t, namespace, behind.ID) })
			switch state := f.state(t, behind.ID); {
			case state == belfry.RunRunning && len(claimed) == 1 && claimed[0].ID == behind.ID && !f.liveRow(t, behind.ID).CancelAt.IsZero():
				f.finishAs(t, claimed[0], belfry.OutcomeCancelled)
			case state == belfry.RunCancelled:
				if len(claimed) == 1 && claimed[0].ID == behind.ID {
					t.Errorf("a cancelled run was claimed")
				}
			default:
				t.Errorf("a run that was claimed and cancelled is %s, and %d were claimed", state, len(claimed))
			}
			f.edit(t, job, deleteAndCancel(t))
			f.settleAll(t)
			f.backdate(t, time.Hour, "workers", "last_seen", "")
			f.reap(t, time.Minute)
			f.settleAll(t)
		}
	})
}
