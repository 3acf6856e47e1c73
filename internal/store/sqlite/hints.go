package sqlite

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// news is what a transaction has to tell once it is committed. There is no other
// process to tell it to.
type news struct {
	ready   bool        // runs became ready
	changed bool        // plans were written, or somebody has to look at them anew
	jobs    []belfry.ID // whose plans
	many    bool        // too many to name
}

// change notes that the plans of the jobs were written.
func (n *news) change(jobs ...belfry.ID) {
	n.changed = true
	for _, job := range jobs {
		if len(n.jobs) == 0 || n.jobs[len(n.jobs)-1] != job { // many writes in a row may be about one job
			n.jobs = append(n.jobs, job)
		}
	}
}

func (s *Store) tell(n *news) {
	if n.changed {
		s.hub.NotifyChanged(n.jobs, n.many)
	}
	if n.ready {
		s.hub.Notify(store.TopicReady)
	}
}

// Wakeups signals after something about the topic was written.
func (s *Store) Wakeups(ctx context.Context, topic store.Topic) <-chan struct{} {
	return s.hub.Wakeups(ctx, topic)
}

// PollEvery is long: every hint reaches everybody.
func (s *Store) PollInterval() time.Duration { return time.Minute }

// Changed gives the jobs whose plans were written by people.
func (s *Store) ChangedJobs() ([]belfry.ID, bool) { return s.hub.ChangedJobs() }
