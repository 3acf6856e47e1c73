package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

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
