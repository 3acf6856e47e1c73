package scheduler

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	promoteLimit = 5000
	wakeDelay    = 100 * time.Millisecond // gathers hints
	minReapInterval    = 5 * time.Second        // at least
	reapLimit    = 1000
	silence      = 20 * time.Second // after which a worker is given up
	pruneInterval   = time.Minute
	archiveInterval  = time.Minute
	archiveSoon   = 5 * time.Second // where there may be more
	archiveLimit  = 1000
)

// sweeper repairs by looking: it makes due retries ready, gives up silent
// workers and overdue attempts, and forgets old history. Whatever it misses, the
// next sweep finds.
type sweeper struct {
	*Scheduler
	reapInterval     time.Duration // between two reaps
	poll      time.Duration // between two looks for retries without a hint
	promoteAt      time.Time     // when retries are looked for next
	reachableSince time.Time     // since when every call to the store has worked
	recoveredAt    time.Time     // when the store was reached again after it had failed
	reapedAt    time.Time     // when Reap was last called
	archivedTo   belfry.ID     // where the walk over one-offs that are over is
}

func newSweeper(s *Scheduler) *sweeper {
	poll := 2 * s.store.PollInterval()
	return &sweeper{Scheduler: s, reapInterval: minReapInterval, poll: poll}
}

func (w *sweeper) run(ctx context.Context) {
	w.reachableSince, w.recoveredAt, w.reapedAt = time.Now(), time.Now(), time.Now()
	promote := time.NewTimer(0)
	defer promote.Stop()
	reap := time.NewTicker(w.reapInterval)
	defer reap.Stop()
	hints := w.store.Wakeups(ctx, store.TopicPlans) // a retry was planned, perhaps
	prune := time.NewTimer(0)
	defer prune.Stop()
	retire := time.NewTimer(archiveSoon) // whoever was here before may have left some
	defer retire.Stop()
	var known <-chan struct{} // stands for the terms that were last seen
	for {
		_, moved := w.owned()
		if moved != known {
			known = moved
			w.promoteSoon(promote) // nobody will hint again at the retries of a shard that is new
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		case <-hints:
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
		case <-retire.C:
			retire.Reset(w.archive(ctx))
		}
	}
}

// look has retries be looked for within a moment.
func (w *sweeper) promoteSoon(promote *time.Timer) {
	if time.Until(w.promoteAt) > wakeDelay {
		w.promoteAt = time.Now().Add(wakeDelay)
		promote.Reset(wakeDelay)
	}
}

// promote makes due retries ready and says when to come back: when the next one
// is due, or after a while for those that it does not know of yet.
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

// reap counts a worker's silence only if the store could be reached all that
// time: after an outage every worker looks silent, and the healthy ones must get
// the time to be heard. Nor is anything overdue at once after one: results that
// could not be handed in come first.
func (w *sweeper) reap(ctx context.Context) {
	terms, _ := w.owned()
	now := time.Now()
	if w.reachableSince.IsZero() || now.Sub(w.reapedAt) > 2*w.reapInterval { // the store failed, or this process was frozen
		w.reachableSince, w.recoveredAt = now, now
	}
	w.reapedAt = now
	if now.Sub(w.recoveredAt) < store.DeadlineGrace {
		w.noteError(ctx, w.store.Ping(ctx))
		return
	}
	quiet := silence
	if now.Sub(w.reachableSince) < silence {
		quiet = 0
	}
	reaped, err := w.store.Reap(ctx, shardsOf(terms), quiet, reapLimit)
	if w.noteError(ctx, err); reaped > 0 {
		w.log.Warn("attempts were taken from workers that did not finish them", "attempts", reaped)
	}
}

// reached notes whether the store answered.
func (w *sweeper) noteError(ctx context.Context, err error) {
	if err != nil {
		w.reachableSince = time.Time{}
		w.warn(ctx, "lost attempts could not be looked for", err)
	}
}

// retire has one-offs leave the live tables that did not when their run was
// settled, and says when to come back. Each time it looks at some of those that are
// over and still there.
func (w *sweeper) archive(ctx context.Context) time.Duration {
	terms, _ := w.owned()
	if len(terms) == 0 {
		return archiveSoon
	}
	retired, next, err := w.store.Archive(ctx, shardsOf(terms), w.archivedTo, archiveLimit)
	if err != nil {
		w.warn(ctx, "one-offs that are over could not be put away", err)
		return archiveInterval
	}
	w.archivedTo = next
	if retired == archiveLimit {
		return archiveSoon
	}
	return archiveInterval
}

// prune is the duty of whoever owns the first shard.
func (w *sweeper) prune(ctx context.Context) {
	if terms, _ := w.owned(); len(terms) == 0 {
		return
	} else if _, first := terms[0]; !first {
		return
	}
	pruned, err := w.store.Prune(ctx, w.opts.Retention)
	if err != nil {
		w.warn(ctx, "history could not be pruned", err)
	} else if pruned > 0 {
		w.log.Info("old history was forgotten", "rows", pruned)
	}
}
