package scheduler

import (
	"bytes"
	"cmp"
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
	compilePage  = 100                    // plans that are compiled before they are sent to the loop
	lookupPage   = 5000                   // plans that are looked up at once
	sweepPage    = 50_000                 // overdue plans in one page
	sweepShare   = 20                     // a sweep rests so many times as long as it took
	overdueAfter = 500 * time.Millisecond // from when a due plan that was not fired is looked for
	lookupDelay  = 10 * time.Millisecond  // gathers lookups, and keeps a step that is not applied from spinning
)

// loader reads plans from the store and sends them to the loop.
type loader struct {
	*Scheduler
	loaded  map[int]store.Position // by shard: all plans until then were loaded
	lookups map[belfry.ID]bool
}

func (l *loader) run(ctx context.Context) {
	wakeups := l.store.Wakeups(ctx, store.TopicPlans)
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
		case <-l.reload:
			if len(l.lookups) == 0 {
				load.Reset(lookupDelay)
			}
			l.takeReloads()
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
	maps.DeleteFunc(l.loaded, func(shard int, _ store.Position) bool {
		_, mine := terms[shard]
		return !mine
	})
	for shard := range terms {
		if _, known := l.loaded[shard]; !known {
			l.loaded[shard] = store.Position{}
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
		l.reloadHorizon()
	}
}

// reloadHorizon has the whole horizon read again.
func (l *loader) reloadHorizon() {
	for shard := range l.loaded {
		l.loaded[shard] = store.Position{}
	}
}

func (l *loader) takeReloads() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reloads == nil {
		l.reloadHorizon()
	}
	maps.Copy(l.lookups, l.reloads)
	l.reloads = map[belfry.ID]bool{}
}

// load reads the requested plans and the next page of the shards that are loaded least
// far, and returns when to load next.
func (l *loader) load(ctx context.Context) time.Duration {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if len(l.lookups) > 0 {
		dues, err := l.lookUp(call)
		if err != nil {
			l.warn(ctx, "plans could not be read", err)
			return time.Second
		}
		l.sendPlans(ctx, dues)
		if len(l.lookups) > 0 {
			return 0
		}
	}
	now := l.store.Now()
	shards, from := l.leastLoaded()
	if len(shards) == 0 || from.At.After(now.Add(horizon-refill)) {
		return min(refill, max(from.At.Sub(now.Add(horizon-refill)), time.Second))
	}
	w := store.Window{Shards: shards, After: from, Until: now.Add(horizon), Limit: pageSize}
	dues, err := l.store.Upcoming(call, w)
	if err != nil {
		l.warn(ctx, "plans could not be read", err)
		return time.Second
	}
	until := store.Position{At: w.Until, ID: lastID}
	if len(dues) >= w.Limit {
		last := dues[len(dues)-1].Plan
		until = store.Position{At: last.NextAt, ID: last.JobID}
	}
	for _, shard := range shards {
		l.loaded[shard] = until
	}
	l.sendPlans(ctx, dues)
	return 0
}

// lastID is after all ids.
var lastID = belfry.ID(bytes.Repeat([]byte{0xff}, len(belfry.ID{})))

// lookUp reads the requested plans, or many of them.
func (l *loader) lookUp(ctx context.Context) ([]store.Due, error) {
	jobs := make([]belfry.ID, 0, min(len(l.lookups), lookupPage))
	for job := range l.lookups {
		if jobs = append(jobs, job); len(jobs) == lookupPage {
			break
		}
	}
	dues, err := l.store.PlansByJob(ctx, jobs)
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		delete(l.lookups, job)
	}
	return dues, nil
}

// leastLoaded returns the shards that are loaded least far, and how far.
func (l *loader) leastLoaded() (shards []int, from store.Position) {
	for shard, until := range l.loaded {
		switch order := cmp.Or(until.At.Compare(from.At), until.ID.Compare(from.ID)); {
		case len(shards) == 0 || order < 0:
			shards, from = []int{shard}, until
		case order == 0:
			shards = append(shards, shard)
		}
	}
	return shards, from
}

// sweep compares all overdue plans with what the loop knows. It is the guarantee behind
// everything that may be lost: notifications, requests to read a plan again, and what
// the loop fired if the database loses that. It reads only versions, so that plans that
// wait for workers cost little however many they are.
func (l *loader) sweep() duty {
	interval := 2 * l.store.PollInterval()
	return duty{failure: "overdue plans could not be read", timeout: 2 * callTimeout, round: func(ctx context.Context, terms map[int]store.Term) (time.Duration, error) {
		start := time.Now()
		w := store.Window{Shards: shardsOf(terms), Until: l.store.Now().Add(-overdueAfter), Limit: sweepPage}
		for len(terms) > 0 {
			page, err := l.store.DueVersions(ctx, w)
			if err != nil {
				return interval, err
			}
			if len(page) > 0 {
				last := page[len(page)-1]
				w.After = store.Position{At: last.NextAt, ID: last.JobID}
				send(ctx, l.overdue, page)
			}
			if len(page) < w.Limit {
				break
			}
		}
		send(ctx, l.overdue, nil)
		return max(interval, sweepShare*time.Since(start)), ctx.Err()
	}}
}

// sendPlans sends plans to the loop, some at a time: the loop has no time to parse their
// schedules, and those that take long must not keep back all others.
func (l *loader) sendPlans(ctx context.Context, dues []store.Due) {
	for chunk := range slices.Chunk(dues, compilePage) {
		for i := range chunk {
			l.subjects.find(chunk[i])
		}
		send(ctx, l.loads, chunk)
	}
}

// send sends a page to the loop, unless ctx ends before the loop takes it.
func send[T any](ctx context.Context, to chan<- []T, page []T) {
	select {
	case to <- page:
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
