package scheduler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	fireBatch     = 5000 // steps in one fire
	fireRetryDelay = 200 * time.Millisecond
	maxTriggers = 1000
	overtakenBatch = 100 // items of a lane that are fired at once because others were passed to the worker before them
)

// drain fires the backlog at the pace of demand and says how long to wait before
// trying again.
func (l *loop) fireBacklog(ctx context.Context) time.Duration {
	for l.backlog.len() > 0 && ctx.Err() == nil {
		items := l.takeAvailable(ctx)
		if len(items) == 0 {
			return fullLaneInterval
		}
		if !l.fireItems(ctx, items) {
			return fireRetryDelay
		}
	}
	return idleInterval
}

// pick takes the items that workers have room for, lowest rank first in each
// lane. Where there is no room it takes those that the local worker has passed over
// for ready runs of a higher rank: once they are ready too, they come first.
func (l *loop) takeAvailable(ctx context.Context) []dueItem {
	var items []dueItem
	several := len(l.backlog.lanes) > 1
	for lane := range l.backlog.lanes {
		left := fireBatch - len(items)
		if n := min(l.capacity.available(ctx, lane), left); n > 0 {
			items = append(items, l.backlog.pop(lane, n, maxRank)...)
		} else if rank, passed := l.capacity.lastClaimedRank(lane, l.opts.Defaults); passed {
			items = append(items, l.backlog.pop(lane, min(overtakenBatch, left), rank)...)
		}
	}
	if several {
		slices.SortFunc(items, func(a, b dueItem) int { return cmp.Compare(a.rank, b.rank) }) // for the slots that they share
	}
	return items
}

// decided is a step with the shared copy of its subject.
type sharedStep struct {
	plan.Step
	subject *plan.Subject
}

// fireItems decides and fires items; false means that the store failed, and
// they are in the backlog again.
func (l *loop) fireItems(ctx context.Context, items []dueItem) bool {
	now := l.store.Now()
	steps := make([]sharedStep, 0, len(items))
	kept := items[:0]
	for _, it := range items {
		term, mine := l.terms[int(it.shard)]
		if !mine {
			continue
		}
		step, err := l.decide(it, now)
		if err != nil {
			l.quarantine(ctx, it.job, err)
			continue
		}
		step.Epoch = term.Epoch
		steps = append(steps, sharedStep{step, it.subject})
		kept = append(kept, it)
	}
	if l.fire(ctx, steps) {
		return true
	}
	for _, it := range kept {
		l.backlog.push(it)
	}
	return false
}

// fire applies steps, hands the local worker its runs, and puts the plans back
// into the wheel as they are now. Steps that were not applied are looked up
// again. False means that the store did not answer.
func (l *loop) fire(ctx context.Context, steps []sharedStep) bool {
	if len(steps) == 0 {
		return true
	}
	plain := make([]plan.Step, len(steps))
	for i := range steps {
		plain[i] = steps[i].Step
	}
	fired, err := l.store.Fire(ctx, l.opts.Owner, plain, l.capacity.takeSlots())
	l.capacity.deliver(plain, fired, err)
	if err != nil {
		return l.fireFailed(ctx, steps, err)
	}
	l.storeRecovered()
	var stale []belfry.ID
	for i, applied := range fired.Applied {
		if applied {
			l.endQuarantine(steps[i].Seen.JobID)
			l.logEvent(steps[i].Event)
			l.replan(&steps[i])
		} else {
			stale = append(stale, steps[i].Seen.JobID)
		}
	}
	l.reload(stale)
	return true
}

// replan keeps the plan that a step has left behind.
func (l *loop) replan(step *sharedStep) {
	p := step.Next
	p.Version = step.Seen.Version + 1
	if p.NextAt.IsZero() || p.NextAt.Sub(l.store.Now()) > horizon {
		l.wheel.Remove(p.JobID)
		return
	}
	l.wheel.Set(p.JobID, p.NextAt, newEntry(step.subject, p))
}

// ask has plans read again. If too many are asked for already, the overdue sweep
// finds them.
func (l *loop) reload(jobs []belfry.ID) {
	if len(jobs) == 0 {
		return
	}
	select {
	case l.reloads <- jobs:
	default:
	}
}

// refused deals with an error. If the store is there and still refuses, one of
// the steps is bad: the batch is halved until that one is alone, and it is left
// alone for a while so that the others go on.
func (l *loop) fireFailed(ctx context.Context, steps []sharedStep, err error) bool {
	if ctx.Err() != nil || belfry.CodeOf(err) == belfry.Unavailable || l.store.Ping(ctx) != nil {
		l.storeFailed(ctx, "runs could not be fired", err)
		return false
	}
	if len(steps) > 1 {
		half := len(steps) / 2
		first := l.fire(ctx, steps[:half])
		return l.fire(ctx, steps[half:]) && first
	}
	job := steps[0].Seen.JobID
	if _, err = l.store.Fire(ctx, l.opts.Owner, []plan.Step{steps[0].Step}, store.FreeSlots{}); err == nil {
		l.reload([]belfry.ID{job}) // only the connection was lost
		return true
	}
	l.quarantine(ctx, job, err)
	return true
}

// announce says in the log what the store was told with a decision.
func (l *loop) logEvent(e *belfry.Event) {
	if e != nil {
		l.log.Warn(e.Message, "event", e.Kind, "namespace", e.Namespace, "job", e.JobID)
	}
}

// grant turns triggers into runs.
func (l *loop) fireTriggers(ctx context.Context) {
	shards := shardsOf(l.terms)
	if len(shards) == 0 {
		return
	}
	wishes, err := l.store.PendingTriggers(ctx, shards, maxTriggers)
	if err != nil {
		l.storeFailed(ctx, "triggers could not be read", err)
		return
	}
	l.fire(ctx, l.triggerSteps(ctx, wishes))
	if len(wishes) == maxTriggers {
		wake(l.triggers)
	}
}

// wishSteps makes one step of all the triggers of a job.
func (l *loop) triggerSteps(ctx context.Context, wishes []store.PendingTrigger) []sharedStep {
	triggers := map[belfry.ID][]plan.Trigger{}
	var dues []store.Due
	for _, w := range wishes {
		if triggers[w.Trigger.JobID] == nil {
			dues = append(dues, w.Due)
		}
		triggers[w.Trigger.JobID] = append(triggers[w.Trigger.JobID], w.Trigger)
	}
	var steps []sharedStep
	now := l.store.Now()
	for _, d := range dues {
		subject, fresh, err := l.subjects.get(d)
		if err != nil {
			if fresh {
				l.log.Error("a job's spec cannot be read; its triggers are left alone", "job", d.Plan.JobID, "error", err)
			}
			l.recordReason(ctx, d.Plan.JobID, err)
			continue
		}
		if l.isQuarantined(d.Plan.JobID, now) {
			continue
		}
		step, err := decideTriggers(*subject, d, triggers[d.Plan.JobID])
		if err != nil {
			l.quarantine(ctx, d.Plan.JobID, err)
			continue
		}
		step.Epoch = l.terms[d.Plan.Shard].Epoch
		steps = append(steps, sharedStep{step, subject})
	}
	return steps
}
