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
	overdueAfter = 500 * time.Millisecond // from when a due plan that was not fired is looked for
	overduePage  = 5_000                  // plans of all shards: a node reads as large a part as it owns
	overdueShare = 50                     // all nodes together search for one part in 50 of the time
	overdueRest  = 10 * time.Second       // the longest pause that the number of nodes may cause
)

// overdueSearch finds overdue plans that the loop does not know. It is the guarantee
// behind everything that may be lost: notifications, requests to read a plan again, and
// what the loop fired if the database loses that.
//
// A round costs the same however many plans wait for workers. One walk goes through all
// overdue plans, some in each round, and begins again at the end. While a round does not
// get through all plans of a shard, another walk follows those that have become due since
// the last round, so that a new one is found soon.
type overdueSearch struct {
	*Scheduler
	page   int                    // plans that one walk reads in a round if the node owns all shards
	all    map[int]store.Position // by shard: where the walk through all plans continues
	recent map[int]store.Position // by shard: what was due until then needs no walk of its own
}

func newOverdueSearch(s *Scheduler) *overdueSearch {
	return &overdueSearch{Scheduler: s, page: overduePage, all: map[int]store.Position{}, recent: map[int]store.Position{}}
}

func (o *overdueSearch) duty() duty {
	return duty{failure: "overdue plans could not be read", timeout: 2 * callTimeout, round: func(ctx context.Context, terms map[int]store.Term) (time.Duration, error) {
		start, interval := time.Now(), 2*o.store.PollInterval()
		if err := o.round(ctx, shardsOf(terms)); err != nil {
			return interval, err
		}
		return max(interval, restAfter(time.Since(start), len(terms), o.store.Shards())), ctx.Err()
	}}
}

// restAfter is the pause after a round that took so long. It is longer the fewer shards the
// node owns, so that more nodes do not search more. With a far database a round is mostly
// latency, which costs nobody anything, hence the limit.
func restAfter(took time.Duration, owned, shards int) time.Duration {
	alone := overdueShare * took
	return max(alone, min(alone*time.Duration(shards)/time.Duration(max(owned, 1)), overdueRest))
}

// round reads a page of each walk.
func (o *overdueSearch) round(ctx context.Context, shards []int) error {
	all := store.AllUntil(o.store.Now().Add(-overdueAfter), shards, max(o.page/o.store.Shards(), 1))
	notMine := func(shard int, _ store.Position) bool {
		_, mine := all.After[shard]
		return !mine
	}
	maps.DeleteFunc(o.all, notMine)
	maps.DeleteFunc(o.recent, notMine)
	maps.Copy(all.After, o.all)
	reached, err := o.read(ctx, all)
	if err != nil {
		return err
	}
	recent := store.Window{After: map[int]store.Position{}, Until: all.Until, Limit: all.Limit}
	for shard, from := range all.After {
		end := reached[shard] == all.End()
		if o.all[shard] = reached[shard]; end {
			o.all[shard] = store.Position{}
		}
		since, known := o.recent[shard]
		if known && !(end && from == store.Position{}) {
			recent.After[shard] = since
		} else {
			o.recent[shard] = all.End()
		}
	}
	reached, err = o.read(ctx, recent)
	maps.Copy(o.recent, reached)
	return err
}

// read sends the plans of a window to the loop and returns how far they reach.
func (o *overdueSearch) read(ctx context.Context, w store.Window) (map[int]store.Position, error) {
	if len(w.After) == 0 {
		return nil, nil
	}
	plans, err := o.store.Upcoming(ctx, w)
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(plans, sendPage) {
		send(ctx, o.overdue, chunk)
	}
	return w.Reached(plans), nil
}

// compare has plans read that are overdue in the store and unknown here. Where the store
// has an earlier version than this process it is asked again: a step may have been
// applied since the plans were read. If it still has one, it has lost a part of its past,
// and the plan is fired again.
func (l *loop) compare(ctx context.Context, page []store.Planned) {
	now := l.store.Now()
	var stale, ahead []belfry.ID
	versions := map[belfry.ID]int64{}
	for i := range page {
		p := &page[i].Plan
		version, known := l.version(p.JobID)
		switch {
		case l.isQuarantined(p.JobID, now):
		case !known || version < p.Version:
			stale = append(stale, p.JobID)
		case version > p.Version:
			ahead, versions[p.JobID] = append(ahead, p.JobID), version
		}
	}
	l.reloadPlans(stale...)
	if len(ahead) == 0 {
		return
	}
	l.ask(ctx, func(call context.Context) func() {
		dues, err := l.store.PlansByJob(call, ahead)
		if err != nil {
			return func() {} // the next walk finds them again
		}
		dues = slices.DeleteFunc(dues, func(d store.Due) bool { return d.Plan.Version >= versions[d.Plan.JobID] })
		plans := make([]loadedPlan, len(dues))
		for i, d := range dues {
			plans[i] = loadedPlan{d.Plan, l.subjects.find(d)}
		}
		return func() { l.rewind(ctx, plans) }
	})
}

// version is that of the plan that the loop has of a job.
func (l *loop) version(job belfry.ID) (version int64, known bool) {
	version, known = l.backlog.known[job]
	if e, ok := l.wheel.Get(job); ok {
		version, known = max(version, e.version), true
	}
	return version, known
}

// rewind replaces plans by earlier versions.
func (l *loop) rewind(ctx context.Context, plans []loadedPlan) {
	if len(plans) == 0 {
		return
	}
	l.rewound += len(plans)
	l.log.Error("the database has lost what was fired; it is fired again", "jobs", len(plans))
	for _, p := range plans {
		delete(l.backlog.known, p.JobID)
		l.wheel.Remove(p.JobID)
	}
	l.addPlans(ctx, plans)
}
