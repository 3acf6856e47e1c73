package scheduler

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/share"
	"github.com/belfry-sh/belfry/internal/store"
)

// blockedPause is how long ready runs that were held back wait at least until the store is
// asked again: slots that are freed meanwhile are filled with due items.
const blockedPause = 20 * time.Millisecond

// limitedPoll is how often the store is asked while ready runs are held back: those that hold
// their slots, or that had a claim to these, may end elsewhere.
const limitedPoll = 200 * time.Millisecond

// divided is what Local knows while several namespaces share the slots of the node's worker.
type divided struct {
	quotas  *share.Quotas
	metrics *metrics.Metrics
	below   map[string]int64 // by lane: the lowest rank of the ready runs that come after due items
	blocked bool             // ready runs were held back
	limited bool             // by a limit of their namespace, perhaps
}

// Share divides the slots of the node's worker among namespaces.
func (l *Local) Share(quotas *share.Quotas, m *metrics.Metrics) {
	l.divided.quotas, l.divided.metrics = quotas, m
}

func (l *Local) isShared() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sharesHeads()
}

// sharesHeads reports whether slots are to be divided; mu is held. Due items may be of a
// namespace that was not known a moment ago.
func (l *Local) sharesHeads() bool { return l.divided.quotas.Shared() || hasOther(l, l.heads) }

// hasOther reports whether there are lanes of other namespaces than the only one that is known.
func hasOther[V any](l *Local, lanes map[string]V) bool {
	for lane := range lanes {
		if namespace, served := belfry.LaneNamespace(lane); served != lane && namespace != l.divided.quotas.Single() {
			return true
		}
	}
	return false
}

// withSingle adds to the lanes of a worker those of the only namespace, if it is not the
// default one. Then nothing is divided.
func (l *Local) withSingle(lanes []string) []string {
	single := l.divided.quotas.Single()
	if single == belfry.DefaultNamespace {
		return lanes
	}
	all := slices.Clone(lanes)
	for _, lane := range lanes {
		if !strings.Contains(lane, ":") {
			all = append(all, belfry.BuiltinLane(single, lane))
		}
	}
	return all
}

// maxRunning is how many runs of the namespace of a lane may run at once; zero: any number.
func (l *Local) maxRunning(lane string) int {
	if !l.divided.quotas.Shared() {
		return 0
	}
	namespace, _ := belfry.LaneNamespace(lane)
	return l.divided.quotas.MaxRunning(namespace)
}

// divide says how many slots of a claim each namespace may take, of those that could use some.
// Every namespace that the worker serves has a reserve.
func (l *Local) divide(c belfry.Claim, demand map[string]int) (grants map[string]int) {
	c.Slots.Watch() // before slots are counted, lest one that is freed is missed
	held, quotas := c.Slots.Held(), l.divided.quotas.All()
	grants = map[string]int{}
	for _, lane := range c.Lanes {
		if namespace, _ := belfry.LaneNamespace(lane); strings.Contains(lane, ":") {
			grants[namespace] = 0
			continue
		}
		for namespace := range quotas {
			grants[namespace] = 0
		}
		break
	}
	for _, more := range []map[string]int{held, demand} {
		for namespace := range more {
			grants[namespace] = 0
		}
	}
	slots, names := c.Limit, slices.Sorted(maps.Keys(grants))
	if c.Slots != nil {
		slots = c.Slots.Size
	}
	parties := make([]share.Party, len(names))
	for i, name := range names {
		parties[i] = share.Party{Weight: quotas[name].Weight, Held: held[name], Demand: demand[name]}
	}
	if share.Divide(slots, c.Limit, parties) {
		l.divided.metrics.HeldBack()
	}
	for i, name := range names {
		grants[name] = parties[i].Grant
	}
	return grants
}

// claimShares claims the ready runs that come before the due items of their lane, for each
// namespace as many as it may take beside its due items and those of others.
func (l *Local) claimShares(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	ready, err := l.ReadyLanes(ctx, c.Limit)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(ready, func(lane string, _ store.ReadyLane) bool {
		return !belfry.ServesLane(c.Lanes, lane)
	})
	limits, running := map[string]int{}, map[string]int(nil)
	for lane := range ready {
		if n := l.maxRunning(lane); n > 0 {
			namespace, _ := belfry.LaneNamespace(lane)
			limits[namespace] = n
		}
	}
	if len(limits) > 0 {
		if running, err = l.CountRunning(ctx, slices.Sorted(maps.Keys(limits))); err != nil {
			return nil, err
		}
	}
	claim := c
	shares, taken := l.sharesOf(&claim, ready, limits, running)
	var runs []*belfry.Run
	if len(claim.Lanes) > 0 {
		runs, err = l.ClaimShares(ctx, claim, shares)
	}
	settleSlots(c.Slots, taken, runs)
	return runs, err
}

// sharesOf divides the slots of a claim, takes those for ready runs, and leaves to the claim
// the lanes with ready runs that come first.
func (l *Local) sharesOf(c *belfry.Claim, ready map[string]store.ReadyLane, limits, running map[string]int) (shares store.Shares, taken map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	shares = store.Shares{Below: map[string]int64{}, MaxRunning: limits}
	demand, first, lanes := l.dueDemand(c.Lanes), map[string]int{}, []string(nil)
	l.divided.below = map[string]int64{}
	for lane, r := range ready {
		namespace, _ := belfry.LaneNamespace(lane)
		head, due := l.heads[lane]
		if due && head.rank < r.Rank {
			l.divided.below[lane] = r.Rank
			continue
		}
		if due {
			shares.Below[lane] = head.rank + 1
		}
		lanes = append(lanes, lane)
		first[namespace] += r.Count
	}
	for namespace, n := range first {
		if limit, limited := limits[namespace]; limited {
			n = max(min(n, limit-running[namespace]), 0)
		}
		demand[namespace] += n
		first[namespace] = n
	}
	shares.Most = l.divide(*c, demand)
	c.Lanes, taken = lanes, map[string]int{}
	l.divided.blocked, l.divided.limited = false, len(limits) > 0
	for namespace, n := range first {
		taken[namespace] = min(n, shares.Most[namespace])
		l.divided.blocked = l.divided.blocked || taken[namespace] < n || limits[namespace] > 0
		c.Slots.Take(namespace, taken[namespace])
	}
	c.Lanes = slices.DeleteFunc(c.Lanes, func(lane string) bool {
		namespace, _ := belfry.LaneNamespace(lane)
		return taken[namespace] == 0
	})
	return shares, taken
}

// settleSlots counts the runs that a claim got, instead of those that it could have got.
func settleSlots(slots *belfry.Slots, taken map[string]int, runs []*belfry.Run) {
	slots.TakeRuns(runs)
	for namespace, n := range taken {
		slots.Take(namespace, -n)
	}
}

// dueDemand counts the due items by namespace that open claims for some lanes may be filled
// with; mu is held.
func (l *Local) dueDemand(lanes []string) map[string]int {
	demand := map[string]int{}
	for lane, due := range l.heads {
		if below, ready := l.divided.below[lane]; ready && below <= due.rank || l.maxRunning(lane) > 0 {
			continue
		}
		if belfry.ServesLane(lanes, lane) {
			namespace, _ := belfry.LaneNamespace(lane)
			demand[namespace] += due.count
		}
	}
	return demand
}

// divideOpen divides the slots of the open claims that may be filled, one of each worker; mu
// is held.
func (l *Local) divideOpen() {
	var divided []*request
	for _, r := range l.open {
		if r.grants = nil; l.mayFill(r) && !fillsWorker(divided, r) {
			r.grants = l.divide(r.claim, l.dueDemand(r.claim.Lanes))
			divided = append(divided, r)
		}
	}
}

// shareOf is how many slots of an open claim are for due items of a lane, and below which
// rank; mu is held. Runs of a namespace with a limit are claimed, since that counts them.
func (l *Local) shareOf(r *request, lane string) (below int64, free int) {
	if l.maxRunning(lane) > 0 {
		return plan.MaxRank, 0
	}
	namespace, _ := belfry.LaneNamespace(lane)
	below = r.below
	if ready, found := l.divided.below[lane]; r.own && found {
		below = ready
	}
	return below, r.grants[namespace]
}

// fillShares is beginFill for needed runs by lane, if namespaces share slots; mu is held.
func (l *Local) fillShares(needed map[string]int) (claims []*request, slots []store.FreeSlots) {
	for _, r := range l.open {
		if !l.mayFill(r) || fillsWorker(claims, r) {
			continue
		}
		demand, lanes := map[string]int{}, map[string][]string{}
		for lane, n := range needed {
			if n > 0 && belfry.ServesLane(r.claim.Lanes, lane) && l.maxRunning(lane) == 0 {
				namespace, _ := belfry.LaneNamespace(lane)
				demand[namespace] += n
				lanes[namespace] = append(lanes[namespace], lane)
			}
		}
		r.taken = l.divide(r.claim, demand)
		maps.DeleteFunc(r.taken, func(_ string, n int) bool { return n == 0 })
		for namespace, n := range r.taken {
			slots = append(slots, store.FreeSlots{Worker: r.claim.WorkerID, Lanes: lanes[namespace], Free: n})
			r.claim.Slots.Take(namespace, n)
			for _, lane := range lanes[namespace] {
				filled := min(n, needed[lane])
				needed[lane] -= filled
				n -= filled
			}
		}
		if r.filling = len(r.taken) > 0; r.filling {
			claims = append(claims, r)
		}
	}
	return claims, slots
}

// recheckLanes has the node's worker look at the store again if ready runs that came after the
// due items of their lane come first now; mu is held.
func (l *Local) recheckLanes() {
	for lane, rank := range l.divided.below {
		if head, due := l.heads[lane]; !due || rank <= head.rank {
			wake(l.recheck)
			return
		}
	}
}

// slotFreed has slots divided again after one was freed. Ready runs that were held back are
// claimed after a pause.
func (l *Local) slotFreed() (pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wake(l.demand)
	if l.divided.blocked {
		pause = max(blockedPause-time.Since(l.checked), time.Millisecond)
	}
	return pause
}

// pollInterval is how often to ask the store without a wake-up; mu is held.
func (l *Local) pollInterval() time.Duration {
	if l.divided.limited || l.divided.blocked {
		return min(l.poll, limitedPoll)
	}
	return l.poll
}

// mayUnblock reports whether it is time to claim ready runs that were held back; mu is held.
func (l *Local) mayUnblock() bool {
	return l.divided.blocked && time.Since(l.checked) >= blockedPause
}

// Direct is the same source with claims that do not wait.
type Direct struct{ *Local }

// Claim claims ready runs.
func (d Direct) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	if d.isShared() {
		return d.claimShares(ctx, c)
	}
	c.Lanes = d.withSingle(c.Lanes)
	runs, err := d.LocalStore.Claim(ctx, c)
	c.Slots.TakeRuns(runs)
	return runs, err
}

// ClaimRuns claims those of the runs that are ready, or, if namespaces share the slots, what
// they may take.
func (d Direct) ClaimRuns(ctx context.Context, c belfry.Claim, ids []belfry.ID) ([]*belfry.Run, error) {
	if d.isShared() {
		return d.claimShares(ctx, c)
	}
	c.Lanes = d.withSingle(c.Lanes)
	runs, err := d.LocalStore.ClaimRuns(ctx, c, ids)
	c.Slots.TakeRuns(runs)
	return runs, err
}
