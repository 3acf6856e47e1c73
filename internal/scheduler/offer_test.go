package scheduler

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
)

const elsewhere = "elsewhere"

// claimElsewhere claims as a worker does over HTTP.
func (b *bubble) claimElsewhere(c *control.Control, id belfry.ID, limit int, wait time.Duration) []*belfry.Run {
	b.Helper()
	runs, err := c.Claim(context.Background(), "default", belfry.Claim{WorkerID: id, Handlers: []string{elsewhere}, Limit: limit, WaitSeconds: belfry.Some(wait.Seconds())})
	if err != nil {
		b.Error(err)
	}
	return runs
}

func (b *bubble) registerElsewhere(c *control.Control, id belfry.ID) {
	b.Helper()
	if _, err := c.Heartbeat(context.Background(), "default", belfry.Heartbeat{WorkerID: id, Handlers: []string{elsewhere}, Slots: 10, Register: true}); err != nil {
		b.Fatal(err)
	}
}

func handledElsewhere(s *belfry.Spec) { s.Type, s.Handler = belfry.TypeWorker, elsewhere }

// A claim of a worker elsewhere that waits at the node is filled with runs as they are
// fired: they are never ready, and others that wait stay open.
func TestWaitingClaimsAreFilledWhenRunsAreFired(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(b.store)
		c := control.New(b.store, plan.Defaults{})
		c.FillClaims(b.scheduler.opts.Local)
		first, second := belfry.NewID(time.Now()), belfry.NewID(time.Now())
		b.registerElsewhere(c, first)
		b.registerElsewhere(c, second)
		var jobs []belfry.ID
		for range 3 {
			jobs = append(jobs, b.create("2000-01-01T00:00:10Z", handledElsewhere))
		}
		b.create("2000-01-01T00:00:12Z", handledElsewhere)
		b.sleep(5 * time.Second)
		var claims sync.WaitGroup
		var got [2][]*belfry.Run
		claims.Go(func() { got[0] = b.claimElsewhere(c, first, 3, 20*time.Second) })
		b.sleep(time.Second)
		claims.Go(func() { got[1] = b.claimElsewhere(c, second, 3, 20*time.Second) })
		claims.Wait()
		if len(got[0]) != 3 || len(got[1]) != 1 {
			t.Fatalf("the workers have %d and %d runs", len(got[0]), len(got[1]))
		}
		for _, run := range got[0] {
			if run.WorkerID != belfry.WorkerID("default", first) || run.StartedAt == nil || !run.StartedAt.Equal(run.FiredAt) {
				t.Errorf("the run was claimed after it was fired: %+v", run)
			}
		}
		if runs := b.runs(jobs[0]); len(runs) != 1 || runs[0].Status != belfry.RunRunning || runs[0].WorkerID != belfry.WorkerID("default", first) {
			t.Errorf("runs are %+v", runs)
		}
	})
}

// A worker that is not registered gets no runs, also while they are fired.
func TestClaimsOfUnknownWorkersAreNotFilled(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(b.store)
		c := control.New(b.store, plan.Defaults{})
		c.FillClaims(b.scheduler.opts.Local)
		job := b.create("2000-01-01T00:00:10Z", handledElsewhere)
		if runs := b.claimElsewhere(c, belfry.NewID(time.Now()), 3, 20*time.Second); len(runs) != 0 {
			t.Errorf("a stranger has %+v", runs)
		}
		if runs := b.runs(job); len(runs) != 1 || runs[0].Status != belfry.RunReady {
			t.Errorf("runs are %+v", runs)
		}
	})
}

// A worker that claimed here may claim elsewhere next time: what is due then becomes ready
// for it a moment later.
func TestDueItemsDoNotWaitForAClaimThatDoesNotComeBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(b.store)
		c := control.New(b.store, plan.Defaults{})
		c.FillClaims(b.scheduler.opts.Local)
		id := belfry.NewID(time.Now())
		b.registerElsewhere(c, id)
		var jobs []belfry.ID
		for range 20 {
			jobs = append(jobs, b.create("2000-01-01T00:00:10Z", handledElsewhere))
		}
		b.sleep(5 * time.Second)
		if runs := b.claimElsewhere(c, id, 2, 20*time.Second); len(runs) != 2 {
			t.Errorf("claimed %d runs", len(runs))
		}
		b.sleep(2 * offerPause)
		other := control.New(b.store, plan.Defaults{}) // of another node
		if runs := b.claimElsewhere(other, id, 20, 0); len(runs) != 18 {
			t.Errorf("claimed %d runs of %d elsewhere", len(runs), len(jobs))
		}
	})
}

// Runs that were made ready while nobody claimed are taken first, and then the worker gets
// its runs as they are fired again.
func TestClaimsAreFilledAgainAfterRunsWereReady(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(b.store)
		c := control.New(b.store, plan.Defaults{})
		c.FillClaims(b.scheduler.opts.Local)
		id := belfry.NewID(time.Now())
		b.registerElsewhere(c, id)
		const total = 100
		for range total {
			b.create("2000-01-01T00:00:10Z", handledElsewhere)
		}
		b.sleep(15 * time.Second) // a few for each slot are ready
		ready, err := b.store.CountReady(context.Background(), total)
		if err != nil {
			t.Fatal(err)
		}
		direct := 0
		for n := 0; n < total; {
			runs := b.claimElsewhere(c, id, 10, time.Second)
			if len(runs) == 0 {
				t.Fatalf("%d runs came", n)
			}
			n += len(runs)
			if runs[0].StartedAt.Equal(runs[0].FiredAt) {
				direct += len(runs)
			}
			b.sleep(20 * time.Millisecond)
		}
		if most := ready[belfry.NamespaceLane("default", belfry.Lane("default", elsewhere))]; direct < total-most-10 {
			t.Errorf("%d of %d runs were claimed as they were fired; %d were ready before", direct, total, most)
		}
	})
}
