package scheduler

import (
	"context"
	"time"

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
	store   Store
	local   *Local
	serves  map[string]bool // the lanes of the local worker
	others  map[string]int  // slots of other workers by lane
	ready   map[string]int  // ready runs by lane: those counted, and those fired since
	counted time.Time
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
	return max(min(buffer, maxBuffer)-c.ready[lane], 0) + c.local.openSlots(lane)
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
	local := c.local.worker()
	c.ready, c.others, c.serves = ready, map[string]int{}, map[string]bool{}
	for _, w := range workers {
		for _, lane := range w.Lanes {
			if w.ID == local {
				c.serves[lane] = true
			} else {
				c.others[lane] += w.Slots
			}
		}
	}
}

// deliver passes on the runs that a Fire has claimed for the local worker, and counts
// those that it left ready.
func (c *capacity) deliver(steps []plan.Step, fired store.FireResult, err error) {
	c.local.endFill(fired.Claimed, err)
	if fired.Ready > 0 && len(steps) > 0 {
		c.ready[steps[0].Lane()] += fired.Ready
	}
}
