package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	horizon      = 10 * time.Minute       // how far ahead plans are loaded
	refill       = time.Minute            // how much of it may run out before more is loaded
	pageSize     = 2000                   // plans in one page
	overdueAfter = 500 * time.Millisecond // from when a due plan that was not fired is loaded again
	lookupDelay  = 10 * time.Millisecond  // gathers lookups, and keeps a step that is not applied from spinning
)

// loader reads plans from the store and sends them to the loop.
type loader struct {
	*Scheduler
	loaded  map[int]time.Time // by shard: all plans until then were loaded
	lookups map[belfry.ID]bool
}

func (l *loader) run(ctx context.Context) {
	wakeups := l.store.Wakeups(ctx, store.TopicPlans)
	overdue := time.NewTicker(2 * l.store.PollInterval())
	defer overdue.Stop()
	triggers := time.NewTicker(l.store.PollInterval())
	defer triggers.Stop()
	load := time.NewTimer(0)
	defer load.Stop()
	var seen <-chan struct{} // identifies the terms of the last round
	for {
		terms, changed := l.owned()
		l.syncShards(terms)
		if changed != seen { // compared here, because another event may have come first
			seen = changed
			load.Reset(0)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-wakeups:
			l.takeChanges()
			load.Reset(0)
			wake(l.triggers)
		case ids := <-l.reloads:
			if len(l.lookups) == 0 {
				load.Reset(lookupDelay)
			}
			for _, id := range ids {
				l.lookups[id] = true
			}
		case <-overdue.C:
			l.loadOverdue(ctx, shardsOf(terms))
		case <-triggers.C:
			wake(l.triggers)
		case <-load.C:
			load.Reset(l.load(ctx))
		}
	}
}

// syncShards removes shards that are no longer owned, and adds new ones from the
// beginning of time.
func (l *loader) syncShards(terms map[int]store.Term) {
	maps.DeleteFunc(l.loaded, func(shard int, _ time.Time) bool {
		_, mine := terms[shard]
		return !mine
	})
	for shard := range terms {
		if _, known := l.loaded[shard]; !known {
			l.loaded[shard] = time.Time{}
		}
	}
}

// takeChanges looks up the plans that notifications named. If there were too many to
// name, the whole horizon is read again.
func (l *loader) takeChanges() {
	jobs, many := l.store.ChangedJobs()
	for _, id := range jobs {
		l.lookups[id] = true
	}
	if many {
		for shard := range l.loaded {
			l.loaded[shard] = time.Time{}
		}
	}
}

// load reads the requested plans and the next page of the shards that are loaded least
// far, and returns when to load next.
func (l *loader) load(ctx context.Context) time.Duration {
	if len(l.lookups) > 0 {
		dues, err := l.store.PlansByJob(ctx, slices.Collect(maps.Keys(l.lookups)))
		if err != nil {
			l.warn(ctx, "plans could not be read", err)
			return time.Second
		}
		clear(l.lookups)
		l.send(ctx, dues)
	}
	now := l.store.Now()
	shards, from := l.leastLoaded()
	if len(shards) == 0 || from.After(now.Add(horizon-refill)) {
		return min(refill, max(from.Sub(now.Add(horizon-refill)), time.Second))
	}
	w := store.Window{Shards: shards, After: from, Until: now.Add(horizon), Limit: pageSize}
	dues, err := l.store.Upcoming(ctx, w)
	if err != nil {
		l.warn(ctx, "plans could not be read", err)
		return time.Second
	}
	until := w.Until
	if len(dues) >= w.Limit {
		until = dues[len(dues)-1].Plan.NextAt
	}
	for _, shard := range shards {
		l.loaded[shard] = until
	}
	l.send(ctx, dues)
	return 0
}

// leastLoaded returns the shards that are loaded least far, and how far.
func (l *loader) leastLoaded() (shards []int, from time.Time) {
	for shard, until := range l.loaded {
		switch {
		case len(shards) == 0 || until.Before(from):
			shards, from = []int{shard}, until
		case until.Equal(from):
			shards = append(shards, shard)
		}
	}
	return shards, from
}

// loadOverdue reads plans that are overdue: the loop ignores those that it has.
func (l *loader) loadOverdue(ctx context.Context, shards []int) {
	if len(shards) == 0 {
		return
	}
	dues, err := l.store.Overdue(ctx, shards, l.store.Now().Add(-overdueAfter), pageSize)
	if err != nil {
		l.warn(ctx, "overdue plans could not be read", err)
		return
	}
	l.send(ctx, dues)
}

func (l *loader) send(ctx context.Context, dues []store.Due) {
	if len(dues) == 0 {
		return
	}
	select {
	case l.loads <- dues:
	case <-ctx.Done():
	}
}

// warn logs an error unless ctx has ended.
func (s *Scheduler) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.log.Warn(what, "error", err)
	}
}

// wake signals on a channel with a buffer of one; signals are merged.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
