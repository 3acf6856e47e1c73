package scheduler

import (
	"errors"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// openSlots is how many runs of the lane the open claims would take, and below which rank. Of
// the claims of a worker it counts one, as beginFill fills one. A claim for which a ready run
// comes before the due items of the lane takes that one first.
func (l *Local) openSlots(lane string) (n int, below int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	head, due := l.heads[lane]
	below = plan.MaxRank
	shared := l.sharesHeads()
	var counted []*request
	for _, r := range l.open {
		if !l.mayFill(r) || !belfry.ServesLane(r.claim.Lanes, lane) {
			continue
		}
		ready, free := r.below, r.claim.Limit
		switch {
		case shared:
			ready, free = l.shareOf(r, lane)
		case r.own:
			ready = l.below
		}
		switch {
		case !due || head.rank < ready:
			if !fillsWorker(counted, r) {
				n += free
				counted = append(counted, r)
			}
			below = min(below, ready)
		case r.own:
			wake(l.recheck)
		default:
			r.wake()
		}
	}
	return n, below
}

// mayFill reports whether a claim may be filled; mu is held.
func (l *Local) mayFill(r *request) bool {
	if r.own {
		return !r.filling && !l.ready && !l.checking
	}
	return !r.filling && !r.isWoken && l.registered[r.claim.WorkerID]
}

// beginFill takes open claims to be filled with runs of the steps: as many as they need,
// oldest first, and one of a worker at most.
func (l *Local) beginFill(steps []plan.Step) (claims []*request, slots []store.FreeSlots) {
	needed := map[string]int{}
	for i := range steps {
		needed[steps[i].Lane()] += len(steps[i].Runs)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sharesHeads() || hasOther(l, needed) {
		return l.fillShares(needed)
	}
	for _, r := range l.open {
		lanes := l.withSingle(r.claim.Lanes)
		lane := slices.IndexFunc(lanes, func(lane string) bool { return needed[lane] > 0 })
		if lane < 0 || !l.mayFill(r) || fillsWorker(claims, r) {
			continue
		}
		needed[lanes[lane]] -= r.claim.Limit
		r.filling = true
		claims = append(claims, r)
		slots = append(slots, store.FreeSlots{Worker: r.claim.WorkerID, Lanes: lanes, Free: r.claim.Limit})
	}
	return claims, slots
}

// fillsWorker reports whether one of the claims is of the same worker as another one.
func fillsWorker(claims []*request, r *request) bool {
	return slices.ContainsFunc(claims, func(o *request) bool { return o.claim.WorkerID == r.claim.WorkerID })
}

// endFill sends their runs to the claims that were taken. Those that got none stay open.
func (l *Local) endFill(claims []*request, runs []*belfry.Run, err error) {
	of := map[belfry.ID][]*belfry.Run{}
	for _, run := range runs {
		of[run.WorkerID] = append(of[run.WorkerID], run)
	}
	if err != nil {
		err = errors.Join(errUnknownFire, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range claims {
		runs := of[r.claim.WorkerID]
		settleSlots(r.claim.Slots, r.taken, runs)
		r.taken = nil
		if len(runs) == 0 && err == nil && !r.closing {
			r.filling = false
			continue
		}
		l.open = slices.DeleteFunc(l.open, func(o *request) bool { return o == r })
		r.result <- claimResult{runs, err}
		r.wake()
	}
}
