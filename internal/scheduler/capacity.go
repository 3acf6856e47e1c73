package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	countInterval    = time.Second            // how often ready runs and workers are counted
	minCountInterval = 25 * time.Millisecond  // the same while a lane with workers elsewhere is full
	maxCountInterval = 400 * time.Millisecond // the same if nothing changes
	unservedInterval = 5 * time.Second        // the same while nobody serves it
	bufferPerSlot    = 4                      // ready runs per slot of another worker
	maxBuffer        = 4000                   // ready runs of one lane
	unservedBuffer   = 1000                   // ready runs of a lane that the local worker does not serve
)

// capacity is how many more runs of each lane to fire: what the local worker would
// start at once, and a few for each slot elsewhere. The rest stays planned, so that a
// burst never becomes a long queue.
type capacity struct {
	store    Store
	local    *Local
	serves   map[string]bool  // the lanes of the local worker
	others   map[string]int   // slots of other workers by lane
	offered  map[string]int   // of these, of workers that claim here
	ready    map[string]int   // ready runs by lane: those counted, and those fired since
	highest  map[string]int64 // the highest rank of the ready runs that were fired here, by lane
	counted  time.Time        // when the last count was begun
	counting bool             // it is not over
	since    map[string]int   // ready runs that were fired since it was begun
	firing   map[string]int   // runs that are being fired beyond the open claims
	interval time.Duration    // until the next count while a lane is full
	ask      func(ctx context.Context, read func(ctx context.Context) (apply func()))
}

func newCapacity(l *loop) *capacity {
	return &capacity{store: l.store, local: l.opts.Local, ready: map[string]int{}, highest: map[string]int64{}, firing: map[string]int{}, interval: minCountInterval, ask: l.ask}
}

// available is how many runs of the lane to fire, and below which rank. A ready run
// whose rank is lower than that of a due item is claimed first; a due item whose rank is
// lower than that of a ready run is fired beyond the usual capacity.
func (c *capacity) available(ctx context.Context, lane string) (n int, below int64) {
	interval := countInterval
	if c.load(lane) >= c.buffer(lane) {
		switch {
		case c.others[lane] > 0:
			interval = c.interval
		case !c.serves[lane]:
			interval = unservedInterval
		}
	}
	if time.Since(c.counted) >= interval {
		c.count(ctx)
	}
	free := max(c.buffer(lane)-c.load(lane), 0)
	if slots, below := c.local.openSlots(lane); slots > 0 {
		return free + slots, below
	}
	if highest, fired := c.highest[lane]; free == 0 && fired {
		return max(2*c.buffer(lane)-c.load(lane), 0), highest
	}
	return free, plan.MaxRank
}

// served reports whether a worker serves the lane.
func (c *capacity) served(lane string) bool { return c.serves[lane] || c.others[lane] > 0 }

// load is how many runs of the lane are ready or will be.
func (c *capacity) load(lane string) int { return c.ready[lane] + c.firing[lane] }

// buffer is how many runs of the lane may be ready. Workers that claim them here need
// none.
func (c *capacity) buffer(lane string) int {
	n := bufferPerSlot * c.others[lane]
	if c.local.offers(lane) {
		return min(n-bufferPerSlot*c.offered[lane], maxBuffer)
	}
	if !c.serves[lane] {
		n = max(n, unservedBuffer)
	}
	return min(n, maxBuffer)
}

// wait is how long there may be no capacity for the lanes of a backlog. The local worker
// says when it has some.
func (c *capacity) wait(b *backlog) time.Duration {
	for lane := range b.lanes {
		if c.others[lane] > 0 {
			return min(c.interval, offerPause)
		}
	}
	return countInterval
}

// count updates the counts from the store, the first ones at once. After an error the last
// ones stay.
func (c *capacity) count(ctx context.Context) {
	if c.counting {
		return
	}
	first := c.counted.IsZero()
	c.counted, c.counting, c.since = time.Now(), true, map[string]int{}
	if first {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		c.readCounts(call)()
		return
	}
	c.ask(ctx, c.readCounts)
}

// readCounts counts ready runs and slots.
func (c *capacity) readCounts(ctx context.Context) (apply func()) {
	workers, err := c.store.Workers(ctx)
	var ready map[string]int
	if err == nil {
		ready, err = c.store.CountReady(ctx, maxBuffer)
	}
	return func() {
		if c.counting = false; err == nil {
			c.setCounts(workers, ready)
		}
	}
}

func (c *capacity) setCounts(workers []store.Worker, ready map[string]int) {
	for lane, n := range c.since {
		ready[lane] += n // perhaps counted already
	}
	if maps.Equal(ready, c.ready) {
		c.interval = min(2*c.interval, maxCountInterval)
	} else {
		c.interval = minCountInterval
	}
	local := c.local.worker()
	c.ready, c.others, c.offered, c.serves = ready, map[string]int{}, map[string]int{}, map[string]bool{}
	offers := c.local.setRegistered(workers)
	maps.DeleteFunc(c.highest, func(lane string, _ int64) bool { return ready[lane] == 0 })
	for _, w := range workers {
		for _, lane := range w.Lanes {
			if w.ID == local {
				c.serves[lane] = true
				continue
			}
			if c.others[lane] += w.Slots; offers[w.ID] {
				c.offered[lane] += w.Slots
			}
		}
	}
}

// begin counts runs that are going to be fired, beyond the slots of the claims.
func (c *capacity) begin(steps []plan.Step, slots []store.FreeSlots) (beyond map[string]int) {
	free := slices.Clone(slots)
	beyond = map[string]int{}
	for i := range steps {
		lane := steps[i].Lane()
		for range steps[i].Runs {
			if store.TakeSlot(free, lane).IsZero() {
				beyond[lane]++
				c.firing[lane]++
			}
		}
	}
	return beyond
}

// end counts the runs that a Fire left ready.
func (c *capacity) end(steps []plan.Step, beyond map[string]int, fired store.FireResult) {
	for lane, n := range beyond {
		if c.firing[lane] -= n; c.firing[lane] == 0 {
			delete(c.firing, lane)
		}
	}
	for lane, n := range fired.Ready {
		c.ready[lane] += n
		if c.counting {
			c.since[lane] += n
		}
	}
	for i := range steps {
		lane := steps[i].Lane()
		if fired.Ready[lane] == 0 {
			continue
		}
		for _, r := range steps[i].Runs {
			if rank := plan.Rank(r.ReadyAt, steps[i].Policy.Weight()); rank > c.highest[lane] {
				c.highest[lane] = rank
			}
		}
	}
}
