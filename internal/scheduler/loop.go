package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/wheel"
)

const (
	// margin is added to every instant: this process may believe the store's clock to
	// be ahead by half a round trip, and a step that comes early is not applied.
	margin = time.Millisecond

	maxPlanned   = 1_000_000   // plans in the wheel
	soon         = time.Second // plans that are due within it are kept, however many there are
	idleInterval = time.Second
)

// loop keeps plans in the wheel and fires them when they are due.
type loop struct {
	*Scheduler
	wheel       *wheel.Wheel[belfry.ID, entry]
	backlog     *backlog
	capacity    *capacity
	quarantined map[belfry.ID]quarantineEntry // jobs that cannot be fired for now
	reasons     map[belfry.ID]string          // why, as recorded in the store
	terms       map[int]store.Term            // those that have begun, see beginTerms
	outages     map[int][]store.Outage        // of the shards, oldest first

	failing    bool
	failedAt   time.Time     // since when
	batch      int           // steps in the next call of Fire: fewer after one that took too long
	firing     int           // calls of Fire that are under way
	firingMany bool          // the last of them has many steps
	spareSteps [][]plan.Step // memory of calls that are over
	retryAt    time.Time     // when to fire again after a failure

	answers                       chan func()    // what to do with the answers to calls that the loop does not wait for
	calls                         sync.WaitGroup // those under way
	readingTriggers, moreTriggers bool           // triggers are being read; they are to be read again

	clock   store.ClockWatch
	rewound int // plans that the store has lost steps of, to be reported
}

func newLoop(s *Scheduler) *loop {
	l := &loop{
		Scheduler:   s,
		wheel:       wheel.New[belfry.ID, entry](s.store.Now()),
		backlog:     newBacklog(),
		quarantined: map[belfry.ID]quarantineEntry{},
		reasons:     map[belfry.ID]string{},
		outages:     map[int][]store.Outage{},
		batch:       fireBatch,
		answers:     make(chan func(), 4),
	}
	l.capacity = newCapacity(l)
	return l
}

func (l *loop) run(ctx context.Context) {
	defer l.calls.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.noteProgress()
	var seen <-chan struct{} // identifies the terms for which triggers were read
	for {
		terms, changed := l.owned()
		l.beginTerms(ctx, terms)
		if changed != seen {
			seen = changed
			wake(l.triggers) // nothing wakes this loop for triggers from before the term
		}
		l.probe(ctx)
		timer.Reset(l.advance(ctx))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case dues := <-l.loads:
			l.addPlans(ctx, dues)
		case page := <-l.overdue:
			l.compare(ctx, page)
		case <-l.triggers:
			l.readTriggers(ctx)
		case apply := <-l.answers:
			apply()
		case <-l.localDemand():
		case <-timer.C:
		}
	}
}

// ask reads from the store while the loop goes on, and applies the answer in the loop: the
// store may be far away, and what is due must not wait for what is not.
func (l *loop) ask(ctx context.Context, read func(ctx context.Context) (apply func())) {
	l.calls.Go(func() {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		l.answer(ctx, read(call))
	})
}

// answer has an answer applied in the loop.
func (l *loop) answer(ctx context.Context, apply func()) {
	select {
	case l.answers <- apply:
	case <-ctx.Done():
	}
}

// probe asks the store something if it has not answered for a while: a loop that has
// nothing to do must notice too that it could not do it.
func (l *loop) probe(ctx context.Context) {
	if time.Since(*l.progress.Load()) < probePolls*l.store.PollInterval() {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.store.PendingTriggers(call, nil, nil, 1); err == nil {
		l.noteProgress()
	}
}

// localDemand signals that the local worker has free slots; nil while nothing waits
// for one.
func (l *loop) localDemand() <-chan struct{} {
	if l.backlog.empty() {
		return nil
	}
	return l.opts.Local.demand
}

// advance moves what is due from the wheel to the backlog, fires what the workers have
// capacity for, and returns how long there is nothing to do.
func (l *loop) advance(ctx context.Context) time.Duration {
	now := l.store.Now()
	l.watchClock(ctx, now)
	l.wheel.Advance(now.Add(-margin), func(job belfry.ID, at time.Time, e entry) {
		if _, mine := l.terms[int(e.shard)]; mine {
			l.backlog.push(dueItem{job: job, at: at, rank: plan.Rank(at, e.subject.Policy.Weight()), entry: e})
		}
	})
	l.evict(now)
	wait := l.fireBacklog(ctx)
	if next, ok := l.wheel.Next(); ok {
		wait = min(wait, max(next.Add(margin).Sub(l.store.Now()), 0))
	}
	return wait
}

// watchClock handles steps of the store's clock. After a step back the wheel is ahead:
// it begins again. What fell into a step forward was missed: no scheduler saw that time.
func (l *loop) watchClock(ctx context.Context, now time.Time) {
	switch step := l.clock.Observe(now, time.Now()); {
	case step < 0:
		l.log.Warn("the clock was set back; plans are read again", "by", step)
		l.wheel, l.backlog = wheel.New[belfry.ID, entry](now), newBacklog()
		clear(l.quarantined)
		l.reloadAll()
	case step > 0:
		l.log.Warn("the clock was set forward, or this machine slept; what was due meanwhile was missed", "by", step)
		l.addOutage(ctx, now.Add(-step), now)
	}
}

// evict removes the furthest plans from a wheel that is too full, and some more, so that
// this does not happen often. The loader reads them again in time.
func (l *loop) evict(now time.Time) {
	if excess := l.wheel.Len() - l.maxPlanned; excess > 0 {
		if n, from := l.wheel.Trim(excess+l.maxPlanned/16, now.Add(soon)); n > 0 {
			l.shortenReach(from, now)
		}
	}
	l.planned.Store(int64(l.wheel.Len()))
}

// addPlans puts loaded plans into the wheel, unless they are there already or the loader
// will read them again.
func (l *loop) addPlans(ctx context.Context, plans []loadedPlan) {
	now := l.store.Now()
	until := l.keepUntil(now)
	for _, p := range plans {
		if l.isQuarantined(p.JobID, now) {
			continue
		}
		if version, known := l.version(p.JobID); known && version >= p.Version {
			continue
		}
		delete(l.backlog.known, p.JobID)
		if p.NextAt.IsZero() {
			l.wheel.Remove(p.JobID)
			continue
		}
		subject, first, err := l.subjects.use(p.subject)
		if err != nil {
			l.quarantine(ctx, p.JobID, err, first)
			continue
		}
		if p.NextAt.After(until) {
			l.wheel.Remove(p.JobID)
		} else {
			l.wheel.Set(p.JobID, p.NextAt, newEntry(subject, p.Plan))
		}
	}
}

const (
	minQuarantine = time.Second // short at first: two connections may be lost in a row
	maxQuarantine = time.Minute // doubled each time up to this

	maxReasons = 10_000 // jobs whose recorded reason is remembered
	maxReason  = 500    // bytes kept of an error
)

type quarantineEntry struct {
	until    time.Time
	duration time.Duration
}

// quarantine does not fire a job for a while, and has its plan read again afterwards.
func (l *loop) quarantine(ctx context.Context, job belfry.ID, err error, log bool) {
	duration := min(max(2*l.quarantined[job].duration, minQuarantine), maxQuarantine)
	if log {
		l.log.Error("a job cannot be fired; it is quarantined", "job", job, "for", duration, "error", err)
	}
	l.quarantined[job] = quarantineEntry{l.store.Now().Add(duration), duration}
	time.AfterFunc(duration+margin, func() { l.reloadPlans(job) })
	l.recordReason(ctx, job, err)
}

// isQuarantined reports whether a job is not fired for now. The entry of a job that
// has caused no further error for long is removed.
func (l *loop) isQuarantined(job belfry.ID, now time.Time) bool {
	q, ok := l.quarantined[job]
	if ok && now.Sub(q.until) > maxQuarantine {
		delete(l.quarantined, job)
	}
	return ok && now.Before(q.until)
}

// recordReason records in the store why a job cannot be fired, for users to see. The
// next step of the job that is applied removes it.
func (l *loop) recordReason(ctx context.Context, job belfry.ID, err error) {
	reason := sanitize.Text(err.Error(), maxReason)
	if l.reasons[job] == reason {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := l.store.Quarantine(call, job, reason); err != nil {
		l.warn(ctx, "the reason why a job cannot be fired could not be recorded", err)
		return
	}
	if len(l.reasons) >= maxReasons {
		clear(l.reasons)
	}
	l.reasons[job] = reason
}

// decide returns the step of a due item. A rule that panics is an error of its job
// alone.
func (l *loop) decide(it dueItem, now time.Time) (step plan.Step, err error) {
	defer recoverPanic(&err)
	o := l.missedIn(int(it.shard), it.at, now)
	step = plan.Decide(*it.subject, it.plan(it.job, it.at), o.To, now)
	if !o.From.IsZero() {
		for i := range step.Skips {
			step.Skips[i].Detail = fmt.Sprintf("no scheduler was running from %s to %s", o.From.UTC().Format(time.RFC3339), o.To.UTC().Format(time.RFC3339))
		}
	}
	return step, nil
}

func decideTriggers(subject plan.Subject, d store.Due, triggers []plan.Trigger) (step plan.Step, err error) {
	defer recoverPanic(&err)
	return plan.Fire(subject, d.Plan, triggers), nil
}

func recoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the job's rule failed: %v", v)
	}
}
