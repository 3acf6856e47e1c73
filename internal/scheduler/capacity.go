package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
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
	limitedBuffer    = 100                    // ready runs of a lane whose namespace may run only so many
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
		switch _, served := belfry.LaneNamespace(lane); {
		case c.others[served] > 0 || c.local.maxRunning(lane) > 0:
			interval = c.interval
		case !c.serves[served]:
			interval = unservedInterval
		}
	}
	if time.Since(c.counted) >= interval {
		c.count(ctx)
	}
	free := max(c.buffer(lane)-c.load(lane), 0)
	slots, below := c.local.openSlots(lane)
	if c.fillsClaims(lane) {
		return slots, below
	}
	if slots > 0 {
		return free + slots, below
	}
	if highest, fired := c.highest[lane]; free == 0 && fired {
		return max(2*c.buffer(lane)-c.load(lane), 0), highest
	}
	return free, plan.MaxRank
}

// fillsClaims reports whether runs of a lane are fired for open claims alone, because the
// worker of the node takes as many as are fired. Runs for others would cost more, since
// those have to claim them.
func (c *capacity) fillsClaims(lane string) bool {
	_, served := belfry.LaneNamespace(lane)
	return c.serves[served] && c.local.claimsMany() && c.local.maxRunning(lane) == 0
}

// limit is how many of the steps to fire, after claims with so many slots were taken: if
// only claims are to be filled, no more than they take.
func (c *capacity) limit(steps []plan.Step, slots []store.FreeSlots) int {
	lane, free := steps[0].Lane(), 0
	for _, s := range slots {
		free += s.Free
	}
	if free >= len(steps) || !c.fillsClaims(lane) || steps[len(steps)-1].Lane() != lane {
		return len(steps)
	}
	return free
}

// served reports whether a worker serves the lane. The first call counts the workers.
func (c *capacity) served(ctx context.Context, lane string) bool {
	if c.counted.IsZero() {
		c.count(ctx)
	}
	_, lane = belfry.LaneNamespace(lane)
	return c.serves[lane] || c.others[lane] > 0
}

// load is how many runs of the lane are ready or will be.
func (c *capacity) load(lane string) int { return c.ready[lane] + c.firing[lane] }

// buffer is how many runs of the lane may be ready. Workers that claim them here need
// none. Runs of a namespace that may run only so many are made ready for all, since the
// claim counts those that run.
func (c *capacity) buffer(lane string) int {
	if n := c.local.maxRunning(lane); n > 0 {
		return min(bufferPerSlot*n+limitedBuffer, maxBuffer)
	}
	_, lane = belfry.LaneNamespace(lane)
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
		if _, served := belfry.LaneNamespace(lane); c.others[served] > 0 || c.local.maxRunning(lane) > 0 {
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

// Offer opens a claim of a worker elsewhere for the loop to fill with items below a rank.
// Woken is closed when it was filled, or when ready runs may come first; take closes the
// claim, and returns what it was filled with.
func (l *Local) Offer(c belfry.Claim, below int64) (woken <-chan struct{}, take func() ([]*belfry.Run, error)) {
	r := l.add(c, below, false)
	return r.woken, func() ([]*belfry.Run, error) { return l.close(r) }
}

// Announce records that a worker elsewhere claims here, and returns the rank below which
// ready runs come before the due items of its lanes.
func (l *Local) Announce(c belfry.Claim) (below int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteOffer(&request{claim: c})
	return l.lowest(c.Lanes)
}

// noteOffer records that a registered worker elsewhere claims here; mu is held.
func (l *Local) noteOffer(r *request) {
	if r.own || !l.registered[r.claim.WorkerID] {
		return
	}
	if l.offeredAt == nil {
		l.offeredAt, l.claimedAt = map[string]time.Time{}, map[belfry.ID]time.Time{}
	}
	now := time.Now()
	l.claimedAt[r.claim.WorkerID] = now
	for _, lane := range r.claim.Lanes {
		l.offeredAt[lane] = now
	}
}

// offers reports whether workers elsewhere claim runs of the lane here: one does, or did a
// moment ago and is about to claim again.
func (l *Local) offers(lane string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.offeredAt[lane]
	if known && time.Since(at) < offerPause {
		return true
	}
	if !slices.ContainsFunc(l.open, func(r *request) bool {
		return !r.own && l.registered[r.claim.WorkerID] && slices.Contains(r.claim.Lanes, lane)
	}) {
		delete(l.offeredAt, lane)
		return false
	}
	return true
}

// offerPause is for how long a worker may execute what it got before it claims again.
const offerPause = 200 * time.Millisecond

// setRegistered records which workers elsewhere are registered, and returns those that
// claim here.
func (l *Local) setRegistered(workers []store.Worker) (offers map[belfry.ID]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.claimedAt, func(_ belfry.ID, at time.Time) bool { return time.Since(at) > time.Second })
	l.registered, offers = make(map[belfry.ID]bool, len(workers)), map[belfry.ID]bool{}
	for _, w := range workers {
		l.registered[w.ID] = true
		_, recent := l.claimedAt[w.ID]
		offers[w.ID] = recent || slices.ContainsFunc(l.open, func(r *request) bool { return !r.own && r.claim.WorkerID == w.ID })
	}
	return offers
}

const (
	manyRuns  = 500                    // a claim of so many is large
	manyPause = 500 * time.Millisecond // for how long a worker may execute them before it claims again
)

func (l *Local) noteClaim(c belfry.Claim) {
	if c.Limit >= manyRuns {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.manyAt = time.Now()
	}
}

// claimsMany reports whether the worker of the node has many free slots, or had a moment
// ago: it executes runs as fast as they are fired.
func (l *Local) claimsMany() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.manyAt) < manyPause || slices.ContainsFunc(l.open, func(r *request) bool { return r.own && r.claim.Limit >= manyRuns })
}
