package scheduler

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Behind an endless stream of runs of high priority that keeps all slots busy,
// however they came about, one of low priority waits ten minutes at most.
func TestLowPriorityIsNotStarved(t *testing.T) {
	for _, lowFirst := range []bool{true, false} {
		for _, manual := range []bool{true, false} {
			inBubble(t, func(b *bubble) {
				b.slots, b.handlerTime = 2, 10*time.Second // 12 runs a minute
				high := func(s *belfry.Spec) { s.Priority, s.Overlap = belfry.PriorityHigh, belfry.OverlapParallel }
				low := func(s *belfry.Spec) { s.Priority = belfry.PriorityLow }
				var job belfry.ID
				if lowFirst {
					job = b.create("2000-01-01T00:05:00Z", low)
				}
				var crowd []belfry.ID
				for range 12 {
					schedule := "* * * * *"
					if manual {
						schedule = "0 0 1 1 *"
					}
					crowd = append(crowd, b.create(schedule, high))
				}
				for range 6 { // from then on there is always something left
					b.create("2000-01-01T00:01:00Z", high)
				}
				if !lowFirst {
					job = b.create("2000-01-01T00:05:00Z", low)
				}
				b.start(b.store)
				for minute := 0; minute < 25; minute++ {
					if manual {
						for _, id := range crowd {
							b.trigger(id)
						}
					}
					b.sleep(time.Minute)
				}
				b.wantWithin(job, 10*time.Minute)
			})
		}
	}
}

func (b *bubble) wantWithin(job belfry.ID, most time.Duration) {
	b.Helper()
	due := time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)
	for _, call := range b.handled() {
		if call.run.JobID == job {
			if wait := call.at.Sub(due); wait > most || wait < 5*time.Minute {
				b.Errorf("the run of low priority waited %v, want at most %v, and behind most that came before", wait, most)
			}
			return
		}
	}
	b.Errorf("the run of low priority did not start")
}

// Of what waits for a slot, the higher priority comes first.
func TestHighPriorityOvertakes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.slots, b.handlerTime = 1, 10*time.Second
		for range 12 {
			b.create("2000-01-01T00:00:05Z", nil)
		}
		high := b.create("2000-01-01T00:00:30Z", func(s *belfry.Spec) { s.Priority = "9" })
		b.start(b.store)
		b.sleep(2 * time.Minute)
		for _, call := range b.handled() {
			if call.run.JobID == high {
				if wait := call.at.Sub(call.run.ScheduledAt); wait > b.handlerTime+time.Second {
					b.Errorf("the run of high priority waited %v behind runs that take %v", wait, b.handlerTime)
				}
				return
			}
		}
		b.Error("the run of high priority did not start")
	})
}

// Due items and ready runs are taken in one order: a trigger, which is ready at once, comes
// after what was due before it with a higher priority, and before what is due later.
func TestTriggersAndDueItemsAreInOneOrder(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.slots, b.handlerTime = 1, 10*time.Second
		high := func(s *belfry.Spec) { s.Priority = belfry.PriorityHigh }
		low := func(s *belfry.Spec) { s.Priority = belfry.PriorityLow }
		b.create("2000-01-01T00:00:01Z", nil) // It keeps the slot.
		names := map[belfry.ID]string{}
		for _, at := range []string{"03", "04", "05"} {
			names[b.create("2000-01-01T00:00:"+at+"Z", high)] = "high"
		}
		triggered := b.create("0 0 1 1 *", low)
		names[triggered] = "triggered"
		names[b.create("2000-01-01T00:00:08Z", low)] = "low"
		b.start(b.store)
		b.sleep(6 * time.Second)
		b.trigger(triggered)
		b.sleep(2 * time.Minute)
		var order []string
		for _, call := range b.handled()[1:] {
			order = append(order, names[call.run.JobID])
		}
		if want := []string{"high", "high", "high", "triggered", "low"}; !slices.Equal(order, want) {
			b.Errorf("they ran in the order %v, want %v", order, want)
		}
	})
}

// Ready runs are counted in their own lane, whatever was fired with them. Where a lane is
// full, only items go on that come before its ready runs.
func TestCapacityOfLanes(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	step := func(queue string, at time.Duration) plan.Step {
		return plan.Step{Subject: plan.Subject{Namespace: "default", Policy: &plan.Policy{Spec: belfry.Spec{Type: "handler", Queue: queue}}},
			Runs: []plan.Run{{ReadyAt: now.Add(at)}}}
	}
	a, b := step("a", time.Second), step("b", 2*time.Second)
	c := newCapacity(&loop{Scheduler: &Scheduler{opts: Options{Local: &Local{}}}})
	c.counted = time.Now()
	c.others = map[string]int{a.Lane(): 1, b.Lane(): 1}
	c.serves = map[string]bool{a.Lane(): true, b.Lane(): true}
	c.end([]plan.Step{a, b}, nil, store.FireResult{Ready: map[string]int{a.Lane(): 1, b.Lane(): bufferPerSlot}})
	if n, below := c.available(t.Context(), a.Lane()); n != bufferPerSlot-1 || below != plan.MaxRank {
		t.Errorf("lane a has capacity for %d below %d", n, below)
	}
	if n, below := c.available(t.Context(), b.Lane()); n != bufferPerSlot || below != plan.Rank(now.Add(2*time.Second), 0) {
		t.Errorf("lane b, which is full, has capacity for %d below %d", n, below)
	}
}

// A node whose worker claims many runs at once fires for it alone, also while it executes
// them. One with few free slots fires for other workers too.
func TestFullClaimsAreFilledBeforeOthersAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := plan.Step{Subject: plan.Subject{Namespace: "default", Policy: &plan.Policy{Spec: belfry.Spec{Type: "handler"}}}, Runs: []plan.Run{{}}}
		lane := step.Lane()
		local := &Local{below: plan.MaxRank, demand: make(chan struct{}, 1), recheck: make(chan struct{}, 1)}
		c := newCapacity(&loop{Scheduler: &Scheduler{opts: Options{Local: local}}})
		c.others, c.serves = map[string]int{lane: 10}, map[string]bool{lane: true}
		check := func(name string, slots, available, limit int) {
			t.Helper()
			c.counted = time.Now()
			var free []store.FreeSlots
			if slots > 0 {
				free = []store.FreeSlots{{Lanes: []string{lane}, Free: slots}}
			}
			if n, _ := c.available(t.Context(), lane); n != available {
				t.Errorf("%s: %d runs are to be fired, wants %d", name, n, available)
			}
			if n := c.limit(slices.Repeat([]plan.Step{step}, 600), free); n != limit {
				t.Errorf("%s: of 600 steps %d are fired, wants %d", name, n, limit)
			}
		}
		open := func(limit int) (closeClaim func()) {
			claim := belfry.Claim{WorkerID: belfry.ID{1}, Lanes: []string{lane}, Limit: limit}
			local.noteClaim(claim)
			r := local.add(claim, plan.MaxRank, true)
			return func() {
				local.close(r)
				local.noteClaim(claim)
			}
		}
		closeFew := open(manyRuns - 1)
		check("few free slots", manyRuns-1, manyRuns-1+10*bufferPerSlot, 600)
		closeFew()
		closeMany := open(manyRuns)
		check("many free slots", manyRuns, manyRuns, manyRuns)
		time.Sleep(time.Minute)
		check("many for a long time", manyRuns, manyRuns, manyRuns)
		closeMany()
		check("executing", 0, 0, 0)
		time.Sleep(manyPause)
		check("busy", 0, 10*bufferPerSlot, 600)
	})
}

// The worker of the node is known when something is due for the first time: its lane is not
// one that nobody serves.
func TestFirstBurstIsFiredAtOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.slots = 2 * unservedBatch
		for range b.slots {
			b.create("2000-01-01T00:00:10Z", nil)
		}
		s := &batchRecorder{polledStore: polledStore{Store: b.store}}
		b.start(s)
		b.sleep(20 * time.Second)
		b.stop()
		if want := []int{b.slots}; !slices.Equal(s.batches, want) {
			b.Errorf("batches of %v were fired, want %v", s.batches, want)
		}
	})
}

// batchRecorder records the sizes of fired batches.
type batchRecorder struct {
	polledStore
	mu      sync.Mutex
	batches []int
}

func (s *batchRecorder) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	s.mu.Lock()
	s.batches = append(s.batches, len(steps))
	s.mu.Unlock()
	return s.polledStore.Fire(ctx, owner, steps, slots...)
}

// Queues that nobody serves cost little: once they are full, they are counted every few
// seconds.
func TestUnservedLanesAreSeldomCounted(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for range unservedBuffer + 10 {
			b.create("2000-01-01T00:00:01Z", func(s *belfry.Spec) { s.Type, s.Handler = belfry.TypeWorker, "nobody" })
		}
		counting := &readyCounter{polledStore: polledStore{Store: b.store}}
		b.start(counting)
		b.sleep(30 * time.Second)
		before := counting.counts.Load()
		b.sleep(time.Minute)
		if n := counting.counts.Load() - before; n > 15 {
			b.Errorf("ready runs were counted %d times in a minute", n)
		}
	})
}

// readyCounter counts how often ready runs are counted.
type readyCounter struct {
	polledStore
	counts atomic.Int32
}

func (s *readyCounter) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	s.counts.Add(1)
	return s.polledStore.CountReady(ctx, limit)
}
