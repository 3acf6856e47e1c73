package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	fireBatch      = 5000 // steps in one call of Fire
	maxFiring      = 2    // calls of Fire at a time: one is decided and committed while the other is executed
	minFireBatch   = 50
	fireRetryDelay = 200 * time.Millisecond
	maxTriggers    = 1000
	unservedBatch  = 500 // of them, for lanes that nobody serves
)

// fireBacklog begins to fire a batch of due items for which there is capacity, and returns
// how long to wait before the next one. In between, what else has become due joins the
// backlog.
func (l *loop) fireBacklog(ctx context.Context) time.Duration {
	defer func() { l.opts.Local.setHeads(l.backlog.heads()) }()
	if l.backlog.empty() || l.firing == maxFiring || l.firing > 0 && l.firingMany && len(l.terms) < l.store.Shards() {
		return idleInterval
	}
	if pause := time.Until(l.retryAt); pause > 0 {
		return pause
	}
	l.opts.Local.setHeads(l.backlog.heads())
	items := l.takeAvailable(ctx)
	if len(items) == 0 || !l.fireItems(ctx, items) {
		return l.capacity.wait(l.backlog)
	}
	return 0
}

// takeAvailable takes the items that workers have capacity for, lowest rank first in
// each lane. Lanes that nobody serves come last, and get a part of the batch.
func (l *loop) takeAvailable(ctx context.Context) []dueItem {
	var items []dueItem
	several := len(l.backlog.lanes) > 1
	for _, served := range []bool{true, false} {
		most := l.batch
		if !served {
			most = min(l.batch, len(items)+unservedBatch)
		}
		for lane := range l.backlog.lanes {
			if l.capacity.served(ctx, lane) != served {
				continue
			}
			n, below := l.capacity.available(ctx, lane)
			if popped := l.backlog.pop(lane, min(n, most-len(items)), below); items == nil {
				items = popped
			} else {
				items = append(items, popped...)
			}
		}
	}
	if several {
		slices.SortFunc(items, func(a, b dueItem) int { return cmp.Compare(a.rank, b.rank) }) // they share the local worker's slots
	}
	return items
}

// fireItems decides items and begins to fire them. If the store fails, they are in the
// backlog again. It returns false if claims for all of them were closed meanwhile.
func (l *loop) fireItems(ctx context.Context, items []dueItem) bool {
	now := l.store.Now()
	steps, subjects := l.stepBuffer(len(items)), make([]*plan.Subject, 0, len(items))
	kept := items[:0]
	for _, it := range items {
		term, mine := l.terms[int(it.shard)]
		if !mine {
			l.backlog.release(it)
			continue
		}
		step, err := l.decide(it, now)
		if err != nil {
			l.backlog.release(it)
			l.quarantine(ctx, it.job, err, true)
			continue
		}
		step.Epoch = term.Epoch
		steps, subjects = append(steps, step), append(subjects, it.subject)
		kept = append(kept, it)
	}
	if len(steps) == 0 {
		return true
	}
	claims, slots := l.opts.Local.beginFill(steps)
	if n := l.capacity.limit(steps, slots); n < len(steps) {
		for _, it := range kept[n:] {
			l.backlog.putBack(it)
		}
		clear(steps[n:]) // which reuseSteps does not see
		steps, subjects, kept = steps[:n], subjects[:n], kept[:n]
	}
	if len(steps) == 0 {
		return false
	}
	l.firing++
	l.firingMany = len(steps) >= manyRuns // then the database is busy, and other nodes fire too
	b := l.beginFire(steps, subjects, claims, slots)
	l.calls.Go(func() {
		b.run(ctx)
		l.answer(ctx, func() {
			l.firing--
			ok := l.endFire(ctx, b)
			l.reuseSteps(steps)
			if ok {
				for _, it := range kept {
					l.backlog.release(it)
				}
				return
			}
			l.retryAt = time.Now().Add(fireRetryDelay)
			for _, it := range kept {
				l.backlog.putBack(it)
			}
		})
	})
	return true
}

// stepBuffer is memory for n steps: that of a call of Fire that is over, if it is large
// enough, so that a burst does not take new memory for every batch.
func (l *loop) stepBuffer(n int) []plan.Step {
	for i, spare := range l.spareSteps {
		if cap(spare) >= n {
			l.spareSteps = slices.Delete(l.spareSteps, i, i+1)
			return spare
		}
	}
	return make([]plan.Step, 0, n)
}

// reuseSteps keeps the memory of steps that nobody uses any more.
func (l *loop) reuseSteps(steps []plan.Step) {
	clear(steps)
	if l.spareSteps = append(l.spareSteps, steps[:0]); len(l.spareSteps) > maxFiring {
		l.spareSteps = l.spareSteps[1:]
	}
}

// fireCall is a call of Fire.
type fireCall struct {
	*loop
	steps    []plan.Step
	subjects []*plan.Subject // the shared copies
	claims   []*request
	slots    []store.FreeSlots
	beyond   map[string]int // runs that do not fit into the slots, by lane

	fired store.FireResult
	err   error
}

func (l *loop) beginFire(steps []plan.Step, subjects []*plan.Subject, claims []*request, slots []store.FreeSlots) *fireCall {
	l.reportRewound(steps)
	return &fireCall{loop: l, steps: steps, subjects: subjects, claims: claims, slots: slots, beyond: l.capacity.begin(steps, slots)}
}

// run calls the store, and delivers the runs that claims got.
func (b *fireCall) run(ctx context.Context) {
	b.fired, b.err = b.store.Fire(ctx, b.opts.Owner, b.steps, b.slots...)
	b.opts.Local.endFill(b.claims, b.fired.Claimed, b.err)
}

// fire applies steps and waits for it. It returns false if the store did not answer.
func (l *loop) fire(ctx context.Context, steps []plan.Step, subjects []*plan.Subject) bool {
	if len(steps) == 0 {
		return true
	}
	claims, slots := l.opts.Local.beginFill(steps)
	b := l.beginFire(steps, subjects, claims, slots)
	b.run(ctx)
	return l.endFire(ctx, b)
}

// endFire puts the new plans into the wheel, with the shared copy of the subject of each
// step. The plans of steps that were not applied are read again. It returns false if the
// store did not answer.
func (l *loop) endFire(ctx context.Context, b *fireCall) bool {
	steps, fired := b.steps, b.fired
	l.capacity.end(steps, b.beyond, fired)
	if b.err != nil {
		return l.fireFailed(ctx, steps, b.subjects, b.err)
	}
	l.noteProgress()
	l.batch = min(2*l.batch, fireBatch)
	l.storeRecovered(ctx)
	var stale []belfry.ID
	for i, applied := range fired.Applied {
		job := steps[i].Seen.JobID
		if !applied {
			stale = append(stale, job)
			continue
		}
		delete(l.quarantined, job)
		delete(l.reasons, job)
		l.measureMissed(&steps[i])
		if e := steps[i].Event; e != nil {
			l.log.Warn(e.Message, "event", e.Kind, "namespace", e.Namespace, "job", e.JobID)
		}
		if fired.Skipped[i] > 0 {
			stale = append(stale, job) // it has another plan than the step says
			continue
		}
		l.replan(&steps[i], b.subjects[i])
	}
	l.reloadPlans(stale...)
	return true
}

// measureMissed counts missed occurrences that a step has decided.
func (l *loop) measureMissed(step *plan.Step) {
	if step.CatchUps == 0 && len(step.Skips) == 0 {
		return
	}
	notRun := int64(0)
	for _, skip := range step.Skips {
		if skip.Reason == belfry.ReasonMissed || skip.Reason == belfry.ReasonMaxMissed {
			notRun += skip.Count
		}
	}
	l.opts.Metrics.Missed(step.Lane(), step.CatchUps, notRun)
}

// reportRewound records with one of the steps that the database has lost others.
func (l *loop) reportRewound(steps []plan.Step) {
	if l.rewound == 0 || steps[0].Event != nil {
		return
	}
	seen := steps[0].Seen
	steps[0].Event = &belfry.Event{
		ID: belfry.NewID(l.store.Now()), Namespace: steps[0].Namespace, JobID: seen.JobID, Kind: belfry.EventDatabaseRewound, At: l.store.Now(), Count: int64(l.rewound),
		Message: fmt.Sprintf("the database has lost what was fired for %d jobs, as after a failover without synchronous replication; what is due again is fired again", l.rewound),
	}
	l.rewound = 0
}

// replan puts the plan after a step into the wheel, unless a later one was loaded since.
func (l *loop) replan(step *plan.Step, subject *plan.Subject) {
	p := step.Next
	p.Version = step.Seen.Version + 1
	if e, ok := l.wheel.Get(p.JobID); ok && e.version >= p.Version {
		return
	}
	if p.NextAt.IsZero() || p.NextAt.After(l.keepUntil(l.store.Now())) {
		l.wheel.Remove(p.JobID)
		return
	}
	l.wheel.Set(p.JobID, p.NextAt, newEntry(subject, p))
}

// fireFailed handles an error of Fire. If the store answers and still returns one that is
// not about the store, a step is invalid: the batch is halved until that step is alone,
// and its job is quarantined so that the others are fired.
func (l *loop) fireFailed(ctx context.Context, steps []plan.Step, subjects []*plan.Subject, err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		l.batch = max(l.batch/4, minFireBatch)
	}
	if store.IsTrouble(err) || l.ping(ctx) != nil {
		l.storeFailed(ctx, "runs could not be fired", err)
		return false
	}
	if len(steps) > 1 {
		half := len(steps) / 2
		first := l.fire(ctx, steps[:half], subjects[:half])
		return l.fire(ctx, steps[half:], subjects[half:]) && first
	}
	job := steps[0].Seen.JobID
	if _, err = l.store.Fire(ctx, l.opts.Owner, steps); err == nil {
		l.reloadPlans(job) // only the connection was lost
		return true
	}
	if store.IsTrouble(err) {
		l.storeFailed(ctx, "runs could not be fired", err)
		return false
	}
	l.quarantine(ctx, job, err, true)
	return true
}

func (l *loop) ping(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return l.store.Ping(call)
}

// readTriggers has pending triggers read and turned into runs.
func (l *loop) readTriggers(ctx context.Context) {
	shards, skip := shardsOf(l.terms), l.notFired()
	if l.moreTriggers = l.readingTriggers; l.readingTriggers || len(shards) == 0 {
		return
	}
	l.readingTriggers = true
	l.ask(ctx, func(call context.Context) func() {
		pending, err := l.store.PendingTriggers(call, shards, skip, maxTriggers)
		for i := range pending {
			l.subjects.find(pending[i].Due)
		}
		return func() { l.fireTriggers(ctx, pending, err) }
	})
}

// fireTriggers turns triggers that were read into runs.
func (l *loop) fireTriggers(ctx context.Context, pending []store.PendingTrigger, err error) {
	l.readingTriggers = false
	if err != nil {
		l.storeFailed(ctx, "triggers could not be read", err)
		return
	}
	l.noteProgress()
	steps, subjects := l.triggerSteps(ctx, pending)
	if l.fire(ctx, steps, subjects) && len(pending) == maxTriggers || l.moreTriggers {
		wake(l.triggers)
	}
}

// notFired lists the quarantined jobs.
func (l *loop) notFired() (jobs []belfry.ID) {
	now := l.store.Now()
	for job := range l.quarantined {
		if l.isQuarantined(job, now) {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// triggerSteps makes one step of all the triggers of a job.
func (l *loop) triggerSteps(ctx context.Context, pending []store.PendingTrigger) (steps []plan.Step, subjects []*plan.Subject) {
	triggers := map[belfry.ID][]plan.Trigger{}
	var dues []store.Due
	for _, p := range pending {
		if triggers[p.Trigger.JobID] == nil {
			dues = append(dues, p.Due)
		}
		triggers[p.Trigger.JobID] = append(triggers[p.Trigger.JobID], p.Trigger)
	}
	now := l.store.Now()
	for _, d := range dues {
		if l.isQuarantined(d.Plan.JobID, now) {
			continue
		}
		subject, first, err := l.subjects.get(d)
		if err != nil {
			l.quarantine(ctx, d.Plan.JobID, err, first)
			continue
		}
		step, err := decideTriggers(*subject, d, triggers[d.Plan.JobID])
		if err != nil {
			l.quarantine(ctx, d.Plan.JobID, err, true)
			continue
		}
		term, mine := l.terms[d.Plan.Shard]
		if !mine {
			continue
		}
		step.Epoch = term.Epoch
		steps, subjects = append(steps, step), append(subjects, subject)
	}
	return steps, subjects
}
