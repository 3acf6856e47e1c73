package scheduler

import (
	"time"

	"github.com/belfry-sh/belfry"
)

// How long a job that cannot be fired is left alone: a moment at first, since two
// connections may be lost in a row, and longer each time.
const (
	parkLeast = time.Second
	parkMost  = time.Minute
)

// parking is a job that is left alone for a while.
type parking struct {
	until time.Time
	span  time.Duration
}

// park leaves a job alone and has its plan read again afterwards.
func (l *loop) park(job belfry.ID, err error) {
	span := min(max(2*l.parked[job].span, parkLeast), parkMost)
	l.log.Error("a job cannot be fired; it is left alone for a while", "job", job, "for", span, "error", err)
	l.parked[job] = parking{l.store.Now().Add(span), span}
	time.AfterFunc(span+margin, func() { l.ask([]belfry.ID{job}) })
}

// isParked reports whether a job is left alone for now. One that caused no
// trouble for long is forgotten.
func (l *loop) isParked(job belfry.ID, now time.Time) bool {
	p, ok := l.parked[job]
	if ok && now.Sub(p.until) > parkMost {
		delete(l.parked, job)
	}
	return ok && now.Before(p.until)
}
