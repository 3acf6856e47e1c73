package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

// How long a job that cannot be fired is left alone: a moment at first, since two
// connections may be lost in a row, and longer each time.
const (
	minQuarantine = time.Second
	maxQuarantine  = time.Minute
)

const (
	maxReasons = 10_000 // jobs of which it is remembered that people were told
	maxReason  = 500    // bytes told of an error
)

// parking is a job that is left alone for a while.
type quarantineEntry struct {
	until time.Time
	duration  time.Duration
}

// park leaves a job alone and has its plan read again afterwards.
func (l *loop) quarantine(ctx context.Context, job belfry.ID, err error) {
	span := min(max(2*l.quarantined[job].duration, minQuarantine), maxQuarantine)
	l.log.Error("a job cannot be fired; it is left alone for a while", "job", job, "for", span, "error", err)
	l.quarantined[job] = quarantineEntry{l.store.Now().Add(span), span}
	time.AfterFunc(span+margin, func() { l.reload([]belfry.ID{job}) })
	l.recordReason(ctx, job, err)
}

// isParked reports whether a job is left alone for now. One that caused no
// trouble for long is forgotten.
func (l *loop) isQuarantined(job belfry.ID, now time.Time) bool {
	p, ok := l.quarantined[job]
	if ok && now.Sub(p.until) > maxQuarantine {
		delete(l.quarantined, job)
	}
	return ok && now.Before(p.until)
}

// unpark forgets that a job caused trouble.
func (l *loop) endQuarantine(job belfry.ID) {
	delete(l.quarantined, job)
	delete(l.reasons, job)
}

// tell has the store remember why a job cannot be fired, for whoever looks at it. A
// step of the job that is applied takes it back.
func (l *loop) recordReason(ctx context.Context, job belfry.ID, err error) {
	why := sanitize.Text(err.Error(), maxReason)
	if l.reasons[job] == why {
		return
	}
	if err := l.store.Quarantine(ctx, job, why); err != nil {
		l.warn(ctx, "the reason why a job cannot be fired could not be noted", err)
		return
	}
	if len(l.reasons) >= maxReasons {
		clear(l.reasons)
	}
	l.reasons[job] = why
}

// decide asks for the step of an item. A rule that panics is an error of that job
// alone.
func (l *loop) decide(it dueItem, now time.Time) (step plan.Step, err error) {
	defer recoverPanic(&err)
	return plan.Decide(*it.subject, it.plan(it.job, it.at), l.runningSince(int(it.shard)), now), nil
}

// grantOne asks for the step of the triggers of a job.
func decideTriggers(subject plan.Subject, d store.Due, triggers []plan.Trigger) (step plan.Step, err error) {
	defer recoverPanic(&err)
	return plan.Fire(subject, d.Plan, triggers), nil
}

// broke makes an error of a panic.
func recoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the job's rule failed: %v", v)
	}
}
