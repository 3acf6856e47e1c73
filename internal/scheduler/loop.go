package scheduler

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/wheel"
)

const (
	// margin is added to every instant: our idea of the store's clock may be ahead
	// of it by half a round trip, and a step that comes early is refused.
	margin = time.Millisecond

	maxInWheel = 1_000_000 // plans beyond that are brought by the sweep when they are due
	idleInterval       = time.Second
)

// loop keeps plans in the wheel and fires them when they are due.
type loop struct {
	*Scheduler
	wheel    *wheel.Wheel[belfry.ID, entry]
	backlog  *backlog
	subjects *subjects
	capacity     *capacity
	quarantined   map[belfry.ID]quarantineEntry // jobs that could not be fired
	reasons     map[belfry.ID]string  // why, as the store knows
	terms    map[int]store.Term

	recoveredAt  time.Time // the store failed before; nobody was in charge until then
	failing bool
}

func newLoop(s *Scheduler) *loop {
	return &loop{
		Scheduler: s,
		wheel:     wheel.New[belfry.ID, entry](s.store.Now()),
		backlog:   newBacklog(),
		subjects:  newSubjects(s.opts.Defaults),
		capacity:      newCapacity(s.store, s.opts.Local),
		quarantined:    map[belfry.ID]quarantineEntry{},
		reasons:      map[belfry.ID]string{},
	}
}

func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var known <-chan struct{} // stands for the terms that wishes were looked for in
	for {
		terms, moved := l.owned()
		l.terms = terms
		if moved != known {
			known = moved
			wake(l.triggers) // nobody will hint again at what was wished for before a term
		}
		timer.Reset(l.advance(ctx))
		select {
		case <-ctx.Done():
			return
		case <-moved:
		case dues := <-l.loads:
			l.addPlans(ctx, dues)
		case <-l.triggers:
			l.fireTriggers(ctx)
		case <-l.localDemand():
		case <-timer.C:
		}
	}
}

// demand signals that the local worker asks for runs; it matters only while
// something waits for it.
func (l *loop) localDemand() <-chan struct{} {
	if l.opts.Local == nil || l.backlog.len() == 0 {
		return nil
	}
	return l.opts.Local.demand
}

// pass moves what is due from the wheel to the backlog, fires what the workers
// can take, and says how long nothing needs to be done.
func (l *loop) advance(ctx context.Context) time.Duration {
	now := l.store.Now()
	l.wheel.Advance(now.Add(-margin), func(job belfry.ID, at time.Time, e entry) {
		if _, mine := l.terms[int(e.shard)]; mine {
			l.backlog.push(dueItem{job: job, at: at, rank: plan.Rank(at, e.subject.Policy.Weight()), entry: e})
		}
	})
	wait := l.fireBacklog(ctx)
	if next, ok := l.wheel.Next(); ok {
		wait = min(wait, max(next.Add(margin).Sub(l.store.Now()), 0))
	}
	return wait
}

// take puts loaded plans where they belong, unless they are known already.
func (l *loop) addPlans(ctx context.Context, dues []store.Due) {
	now := l.store.Now()
	for _, d := range dues {
		p := d.Plan
		if l.isQuarantined(p.JobID, now) {
			continue
		}
		if version, ok := l.backlog.known[p.JobID]; ok && version >= p.Version {
			continue
		}
		if e, ok := l.wheel.Get(p.JobID); ok && e.version >= p.Version {
			continue
		}
		delete(l.backlog.known, p.JobID)
		if p.NextAt.IsZero() {
			l.wheel.Remove(p.JobID)
			continue
		}
		subject, fresh, err := l.subjects.get(d)
		if err != nil {
			if fresh {
				l.log.Error("a job's spec cannot be read; it is left alone", "job", p.JobID, "error", err)
			}
			l.recordReason(ctx, p.JobID, err)
			continue
		}
		if p.NextAt.Sub(now) <= horizon && l.wheel.Len() < maxInWheel {
			l.wheel.Set(p.JobID, p.NextAt, newEntry(subject, p))
		} else {
			l.wheel.Remove(p.JobID)
		}
	}
}

// broken notes that the store failed; mended that it works again. Occurrences
// in between were in nobody's charge.
func (l *loop) storeFailed(ctx context.Context, what string, err error) {
	if !l.failing {
		l.warn(ctx, what, err)
	}
	l.failing = true
}

func (l *loop) storeRecovered() {
	if l.failing {
		l.failing = false
		l.recoveredAt = l.store.Now()
		l.log.Info("the store answers again")
	}
}

// since is the instant from which somebody was in charge of the shard.
func (l *loop) runningSince(shard int) time.Time {
	since := l.terms[shard].Since
	if l.recoveredAt.After(since) {
		return l.recoveredAt
	}
	return since
}
