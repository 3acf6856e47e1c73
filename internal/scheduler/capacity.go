package scheduler

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	fullLaneInterval = 25 * time.Millisecond // how often the ready runs of a full lane are counted
	countInterval    = time.Second           // how often those of other lanes are
	bufferPerSlot    = 4                     // ready runs per slot of another worker
	maxBuffer        = 4000                  // ready runs of one lane
	unservedBuffer   = 1000                  // ready runs of a lane that the local worker does not serve
)

// capacity is how many more runs of each lane to fire: what the local worker would
// start at once, and a few for each slot elsewhere. The rest stays planned, so that a
// burst never becomes a long queue.
type capacity struct {
	store   workerCounter
	local   *Local
	worker  belfry.ID       // the local worker, as far as known
	serves  map[string]bool // its lanes
	others  map[string]int  // slots of other workers by lane
	ready   map[string]int  // ready runs by lane: those counted, and those fired since
	counted time.Time
}

// workerCounter counts workers and the runs that wait for them.
type workerCounter interface {
	Workers(ctx context.Context) ([]store.Worker, error)
	CountReady(ctx context.Context, limit int) (map[string]int, error)
}

func newCapacity(s workerCounter, local *Local) *capacity {
	return &capacity{store: s, local: local, ready: map[string]int{}}
}

// available is how many runs of the lane to fire.
func (c *capacity) available(ctx context.Context, lane string) int {
	age := time.Since(c.counted)
	if age >= countInterval || age >= fullLaneInterval && c.estimate(lane) <= 0 {
		c.count(ctx)
	}
	return c.estimate(lane)
}

func (c *capacity) estimate(lane string) int {
	buffer := bufferPerSlot * c.others[lane]
	if !c.serves[lane] {
		buffer = max(buffer, unservedBuffer)
	}
	n := max(min(buffer, maxBuffer)-c.ready[lane], 0)
	if c.local != nil {
		n += c.local.openSlots(lane)
	}
	return n
}

// count updates the counts from the store. After an error the last ones stay.
func (c *capacity) count(ctx context.Context) {
	c.counted = time.Now()
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return
	}
	ready, err := c.store.CountReady(ctx, maxBuffer)
	if err != nil {
		return
	}
	if c.local != nil {
		c.worker = c.local.worker()
	}
	c.ready, c.others, c.serves = ready, map[string]int{}, map[string]bool{}
	for _, w := range workers {
		for _, lane := range w.Lanes {
			if w.ID == c.worker {
				c.serves[lane] = true
			} else {
				c.others[lane] += w.Slots
			}
		}
	}
}

// lastClaimedRank is the rank of the last ready run of the lane that the local worker
// has claimed since the last call.
func (c *capacity) lastClaimedRank(lane string, d plan.Defaults) (rank int64, ok bool) {
	if c.local == nil {
		return 0, false
	}
	return c.local.lastClaimedRank(lane, d)
}

// takeSlots takes the free slots of the local worker, to be filled by a Fire.
func (c *capacity) takeSlots() store.FreeSlots {
	if c.local == nil {
		return store.FreeSlots{}
	}
	return c.local.beginFill()
}

// deliver passes on the runs that a Fire has claimed for the local worker, and counts
// those that it left ready.
func (c *capacity) deliver(steps []plan.Step, fired store.FireResult, err error) {
	if c.local != nil {
		c.local.endFill(fired.Claimed, err)
	}
	if fired.Ready > 0 && len(steps) > 0 {
		c.ready[steps[0].Lane()] += fired.Ready
	}
}
