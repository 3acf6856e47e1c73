package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	promoteLimit    = 5000
	reapInterval    = 5 * time.Second
	reapLimit       = 1000
	silence         = 20 * time.Second // after which a worker is reaped
	pruneInterval   = time.Minute
	pruneBudget     = 10 * time.Second // of one round
	prunePause      = time.Second      // before the next round if there is more to prune
	archiveInterval = time.Minute
	archiveSoon     = 5 * time.Second // if there may be more
	archiveLimit    = 1000
)

// sweeper maintains the store: it makes due retries ready, reaps silent workers and
// overdue attempts, archives ended one-offs and prunes old history. Each is a duty, and
// its fields belong to that duty alone.
type sweeper struct {
	*Scheduler
	poll time.Duration // between two calls of Promote without a wake-up

	reachableSince time.Time // reap: since when every call to the store has succeeded; zero after an error
	recoveredAt    time.Time // reap: when the store last answered again after a failure
	reapedAt       time.Time // reap: when its last round ended
	reapedTurn     int       // reap: the turn of its last round

	archivedTo belfry.ID // archive: position in the walk over ended one-offs
	archived   bool      // archive: it has waited once, for the previous owner
}

func newSweeper(s *Scheduler) *sweeper {
	now := time.Now()
	turn, _ := reapTurn(s.store.Now())
	return &sweeper{Scheduler: s, poll: 2 * s.store.PollInterval(), reachableSince: now, recoveredAt: now, reapedAt: now, reapedTurn: turn}
}

// duties lists the duties. Retries may be new when a plan was written, or when a term
// begins.
func (w *sweeper) duties(ctx context.Context) []duty {
	return []duty{
		{failure: "retries could not be made ready", timeout: callTimeout, wakeups: w.store.Wakeups(ctx, store.TopicPlans), round: w.promote},
		{failure: "lost attempts could not be reaped", timeout: reapTimeout, round: w.reap},
		{failure: "ended one-offs could not be archived", timeout: 3 * callTimeout, round: w.archive},
		{failure: "history could not be pruned", timeout: pruneBudget, round: w.prune},
	}
}

// promote makes due retries ready and returns when to call it next: when the next retry
// is due, or after the poll interval for those that come meanwhile.
func (w *sweeper) promote(ctx context.Context, terms map[int]store.Term) (time.Duration, error) {
	if len(terms) == 0 {
		return w.poll, nil
	}
	promoted, next, err := w.store.Promote(ctx, shardsOf(terms), promoteLimit)
	switch {
	case err != nil:
		return min(w.poll, time.Second), err
	case promoted == promoteLimit:
		return 0, nil
	case next.IsZero():
		return w.poll, nil
	}
	return min(w.poll, max(next.Sub(w.store.Now())+margin, margin)), nil
}

// reapTimeout bounds a round of reap, in which there may be many batches.
const reapTimeout = 30 * time.Second

// reap counts the silence of workers only if the store was reachable all that time:
// after an outage every worker looks silent, and healthy ones need time for a
// heartbeat. Nor are attempts overdue right after an outage: workers first report the
// results that they could not report during it.
func (w *sweeper) reap(ctx context.Context, terms map[int]store.Term) (time.Duration, error) {
	turn, next := reapTurn(w.store.Now())
	if turn == w.reapedTurn {
		return next, nil // The terms changed; the silence of workers does not depend on them.
	}
	now := time.Now()
	if w.reachableSince.IsZero() || now.Sub(w.reapedAt) > 2*reapInterval { // The store failed, or this process was frozen.
		w.reachableSince, w.recoveredAt = now, now
	}
	var err error
	if _, mine := terms[turn%w.store.Shards()]; mine && now.Sub(w.recoveredAt) >= store.DeadlineGrace {
		err = w.reapBatches(ctx, now)
	} else {
		err = w.store.Ping(ctx)
	}
	if err != nil {
		w.reachableSince = time.Time{}
	}
	w.reapedTurn, w.reapedAt = turn, time.Now()
	_, next = reapTurn(w.store.Now())
	return next, err
}

// reapTurn numbers the intervals of time and returns when the next begins. The owner of the
// shard with that number, modulo their count, reaps for all nodes: a node has as many
// turns as shards, and those of a dead node go to its successors.
func reapTurn(now time.Time) (turn int, next time.Duration) {
	n := now.UnixNano() / int64(reapInterval)
	return int(n), time.Duration((n+1)*int64(reapInterval) - now.UnixNano())
}

func (w *sweeper) reapBatches(ctx context.Context, now time.Time) error {
	limit := silence
	if now.Sub(w.reachableSince) < silence {
		limit = 0
	}
	total := 0
	defer func() {
		if total > 0 {
			w.log.Warn("attempts were taken from workers that did not finish them", "attempts", total)
		}
	}()
	for {
		reaped, err := w.store.Reap(ctx, limit, reapLimit)
		if total += len(reaped); err != nil || len(reaped) < reapLimit {
			return err
		}
	}
}

// archive archives ended one-offs that were not archived when their run was settled,
// and returns when to call it next. Each call looks at a limited number of jobs.
func (w *sweeper) archive(ctx context.Context, terms map[int]store.Term) (time.Duration, error) {
	if len(terms) == 0 || !w.archived {
		w.archived = len(terms) > 0
		return archiveSoon, nil // The previous owner may have left some.
	}
	archived, next, err := w.store.Archive(ctx, shardsOf(terms), w.archivedTo, archiveLimit)
	if err != nil {
		return archiveInterval, err
	}
	w.archivedTo = next
	if archived == archiveLimit {
		return archiveSoon, nil
	}
	return archiveInterval, nil
}

// prune deletes history and audit entries beyond their retention. The owner of the first shard does it.
func (w *sweeper) prune(ctx context.Context, terms map[int]store.Term) (time.Duration, error) {
	wait := max(min(pruneInterval, w.opts.Retention/2), time.Second)
	if _, first := terms[0]; !first {
		return wait, nil
	}
	pruned, err := w.store.Prune(ctx, w.opts.Retention)
	if pruned > 0 {
		w.log.Info("old history was pruned", "rows", pruned)
	}
	if err == nil && w.opts.AuditRetention > 0 {
		_, err = w.store.PruneAudit(ctx, w.opts.AuditRetention)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return prunePause, nil // The next round continues.
	}
	return wait, err
}

// callTimeout bounds every call to the store that the loop and the loader make. A
// connection may be silent for ever, and a slow statement must not hold up the others.
const callTimeout = 5 * time.Second

// duty is background work with a goroutine of its own, so that a slow one delays no
// other. What one round misses, the next one finds.
type duty struct {
	failure string          // logged with the first of several errors
	timeout time.Duration   // of a round; a duty that continues where it stopped may use all of it
	wakeups <-chan struct{} // run a round soon; nil: never
	round   func(ctx context.Context, terms map[int]store.Term) (wait time.Duration, err error)
}

// wakeDelay gathers wake-ups.
const wakeDelay = 100 * time.Millisecond

// runDuty runs rounds until ctx ends: after the wait that the last one returned, when
// the duty is woken, and when the owned shards change.
func (s *Scheduler) runDuty(ctx context.Context, d duty) {
	var next time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := func() {
		if time.Until(next) > wakeDelay {
			next = time.Now().Add(wakeDelay)
			timer.Reset(wakeDelay)
		}
	}
	failing := false
	var seen <-chan struct{} // identifies the terms of the last round
	for {
		terms, changed := s.owned()
		if changed != seen { // compared here, because another event may have come first
			seen = changed
			soon()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-d.wakeups:
			soon()
		case <-timer.C:
			call, cancel := context.WithTimeout(ctx, d.timeout)
			wait, err := d.round(call, terms)
			cancel()
			if err != nil && !failing {
				s.warn(ctx, d.failure, err)
			}
			failing = err != nil
			next = time.Now().Add(wait)
			timer.Reset(wait)
		}
	}
}
