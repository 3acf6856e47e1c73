package sqlite

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// changes is what a transaction notifies of once it is committed. Only this process
// needs to know.
type changes struct {
	ready bool        // runs became ready
	plans bool        // plans were written, or a run waits for an instant
	jobs  []belfry.ID // whose plans were written
	many  bool        // too many jobs to name
}

func (c *changes) planWritten(job belfry.ID) {
	c.plans = true
	if len(c.jobs) == 0 || c.jobs[len(c.jobs)-1] != job { // many writes in a row may be about one job
		c.jobs = append(c.jobs, job)
	}
}

// requeued records the new state of a run that is not held: the scheduler must know of
// the instant of a retry.
func (c *changes) requeued(state belfry.RunStatus) {
	if state == belfry.RunReady {
		c.ready = true
	} else {
		c.plans = true
	}
}

func (s *Store) notify(c *changes) {
	if c.plans {
		s.NotifyChanged(c.jobs, c.many)
	}
	if c.ready {
		s.Notify(store.TopicReady)
	}
}

// PollInterval is long: no wake-up is lost within one process.
func (s *Store) PollInterval() time.Duration { return time.Minute }
