package scheduler

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	fullLaneInterval     = 25 * time.Millisecond // how often a full lane is looked at again
	countInterval  = time.Second           // how often any other is
	bufferPerSlot = 4                     // ready runs for each slot of another worker
	maxBuffer   = 4000                  // ready runs of one lane
	unservedBuffer    = 1000                  // ready runs of a lane that the local worker does not serve
)

// room knows how many more runs of a lane are worth firing: what the local
// worker would start at once, and a few for each slot elsewhere. The rest stays
// planned, so that a burst never becomes a long queue.
type capacity struct {
	store   store.Store
	local   *Local
	worker  belfry.ID       // the local worker, as far as known
	serves  map[string]bool // its lanes
	others  map[string]int  // slots of other workers by lane
	ready   map[string]int  // ready runs by lane, as counted and as made since
	counted time.Time
}

func newCapacity(s store.Store, local *Local) *capacity {
	return &capacity{store: s, local: local, ready: map[string]int{}}
}

// in is how many runs of the lane to fire.
func (r *capacity) available(ctx context.Context, lane string) int {
	age := time.Since(r.counted)
	if age >= countInterval || age >= fullLaneInterval && r.estimate(lane) <= 0 {
		r.count(ctx)
	}
	return r.estimate(lane)
}

func (r *capacity) estimate(lane string) int {
	buffer := bufferPerSlot * r.others[lane]
	if !r.serves[lane] {
		buffer = max(buffer, unservedBuffer)
	}
	n := max(min(buffer, maxBuffer)-r.ready[lane], 0)
	if r.local != nil {
		n += r.local.openSlots(lane)
	}
	return n
}

// count asks the store. Without an answer the last one stands.
func (r *capacity) count(ctx context.Context) {
	r.counted = time.Now()
	workers, err := r.store.Workers(ctx)
	if err != nil {
		return
	}
	ready, err := r.store.CountReady(ctx, maxBuffer)
	if err != nil {
		return
	}
	if r.local != nil {
		r.worker = r.local.worker()
	}
	r.ready, r.others, r.serves = ready, map[string]int{}, map[string]bool{}
	for _, w := range workers {
		for _, lane := range w.Lanes {
			if w.ID == r.worker {
				r.serves[lane] = true
			} else {
				r.others[lane] += w.Slots
			}
		}
	}
}

// passed is the highest rank among the ready runs of the lane that the local worker
// has claimed since this was last asked.
func (r *capacity) lastClaimedRank(lane string, d plan.Defaults) (rank int64, ok bool) {
	if r.local == nil {
		return 0, false
	}
	return r.local.lastClaimedRank(lane, d)
}

// slots takes the local worker's demand, to be filled by a fire.
func (r *capacity) takeSlots() store.FreeSlots {
	if r.local == nil {
		return store.FreeSlots{}
	}
	return r.local.beginFill()
}

// give hands over what a fire has claimed for the local worker, and counts what
// it left ready.
func (r *capacity) deliver(steps []plan.Step, fired store.FireResult, err error) {
	if r.local != nil {
		r.local.endFill(fired.Claimed, err)
	}
	if fired.Ready > 0 && len(steps) > 0 {
		r.ready[steps[0].Lane()] += fired.Ready
	}
}
