package scheduler

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	promoteLimit    = 5000
	wakeDelay       = 100 * time.Millisecond // gathers wake-ups
	reapInterval    = 5 * time.Second
	reapLimit       = 1000
	silence         = 20 * time.Second // after which a worker is reaped
	pruneInterval   = time.Minute
	archiveInterval = time.Minute
	archiveSoon     = 5 * time.Second // if there may be more
	archiveLimit    = 1000
)

// sweeper maintains the store: it makes due retries ready, reaps silent workers and
// overdue attempts, archives ended one-offs and prunes old history. What one sweep
// misses, the next one finds.
type sweeper struct {
	*Scheduler
	poll           time.Duration // between two calls of Promote without a wake-up
	promoteAt      time.Time     // when Promote is called next
	reachableSince time.Time     // since when every call to the store has succeeded; zero after an error
	recoveredAt    time.Time     // when the store last answered again after a failure
	reapedAt       time.Time     // when Reap was last due
	archivedTo     belfry.ID     // position in the walk over ended one-offs
}

func (w *sweeper) run(ctx context.Context) {
	w.reachableSince, w.recoveredAt, w.reapedAt = time.Now(), time.Now(), time.Now()
	promote := time.NewTimer(0)
	defer promote.Stop()
	reap := time.NewTicker(reapInterval)
	defer reap.Stop()
	wakeups := w.store.Wakeups(ctx, store.TopicPlans) // perhaps for a new retry
	prune := time.NewTimer(0)
	defer prune.Stop()
	archive := time.NewTimer(archiveSoon) // the previous owner may have left some
	defer archive.Stop()
	var seen <-chan struct{} // identifies the terms of the last round
	for {
		_, changed := w.owned()
		if changed != seen {
			seen = changed
			w.promoteSoon(promote) // nothing wakes the sweeper for retries from before the term
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-wakeups:
			w.promoteSoon(promote)
		case <-promote.C:
			wait := w.promote(ctx)
			w.promoteAt = time.Now().Add(wait)
			promote.Reset(wait)
		case <-reap.C:
			w.reap(ctx)
		case <-prune.C:
			w.prune(ctx)
			prune.Reset(max(min(pruneInterval, w.opts.Retention/2), time.Second))
		case <-archive.C:
			archive.Reset(w.archive(ctx))
		}
	}
}

// promoteSoon has Promote called within wakeDelay.
func (w *sweeper) promoteSoon(promote *time.Timer) {
	if time.Until(w.promoteAt) > wakeDelay {
		w.promoteAt = time.Now().Add(wakeDelay)
		promote.Reset(wakeDelay)
	}
}

// promote makes due retries ready and returns when to call it next: when the next retry
// is due, or after the poll interval for those that come meanwhile.
func (w *sweeper) promote(ctx context.Context) time.Duration {
	terms, _ := w.owned()
	if len(terms) == 0 {
		return w.poll
	}
	promoted, next, err := w.store.Promote(ctx, shardsOf(terms), promoteLimit)
	switch {
	case err != nil:
		w.warn(ctx, "retries could not be made ready", err)
		return w.poll
	case promoted == promoteLimit:
		return 0
	case next.IsZero():
		return w.poll
	}
	return min(w.poll, max(next.Sub(w.store.Now())+margin, margin))
}

// reap counts the silence of workers only if the store was reachable all that time:
// after an outage every worker looks silent, and healthy ones need time for a
// heartbeat. Nor are attempts overdue right after an outage: workers first report the
// results that they could not report during it.
func (w *sweeper) reap(ctx context.Context) {
	terms, _ := w.owned()
	now := time.Now()
	if w.reachableSince.IsZero() || now.Sub(w.reapedAt) > 2*reapInterval { // the store failed, or this process was frozen
		w.reachableSince, w.recoveredAt = now, now
	}
	w.reapedAt = now
	if now.Sub(w.recoveredAt) < store.DeadlineGrace {
		w.noteError(ctx, w.store.Ping(ctx))
		return
	}
	limit := silence
	if now.Sub(w.reachableSince) < silence {
		limit = 0
	}
	reaped, err := w.store.Reap(ctx, shardsOf(terms), limit, reapLimit)
	if w.noteError(ctx, err); reaped > 0 {
		w.log.Warn("attempts were taken from workers that did not finish them", "attempts", reaped)
	}
}

// noteError records an error of the store.
func (w *sweeper) noteError(ctx context.Context, err error) {
	if err != nil {
		w.reachableSince = time.Time{}
		w.warn(ctx, "lost attempts could not be reaped", err)
	}
}

// archive archives ended one-offs that were not archived when their run was settled,
// and returns when to call it next. Each call looks at a limited number of jobs.
func (w *sweeper) archive(ctx context.Context) time.Duration {
	terms, _ := w.owned()
	if len(terms) == 0 {
		return archiveSoon
	}
	archived, next, err := w.store.Archive(ctx, shardsOf(terms), w.archivedTo, archiveLimit)
	if err != nil {
		w.warn(ctx, "ended one-offs could not be archived", err)
		return archiveInterval
	}
	w.archivedTo = next
	if archived == archiveLimit {
		return archiveSoon
	}
	return archiveInterval
}

// prune deletes history beyond its retention. The owner of the first shard does it.
func (w *sweeper) prune(ctx context.Context) {
	terms, _ := w.owned()
	if _, first := terms[0]; !first {
		return
	}
	pruned, err := w.store.Prune(ctx, w.opts.Retention)
	if err != nil {
		w.warn(ctx, "history could not be pruned", err)
	} else if pruned > 0 {
		w.log.Info("old history was pruned", "rows", pruned)
	}
}
