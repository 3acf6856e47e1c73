package metrics

import (
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// maxActivity is how many namespaces are counted in a minute. What the others do is not
// counted.
const maxActivity = 1000

// activity counts by namespace and minute, for the page.
type activity struct {
	mu     sync.Mutex
	minute time.Time
	counts map[string]*activityCounts // of the minute
	ended  []store.Activity           // of minutes before it, to be recorded
}

type activityCounts struct {
	store.ActivityCounts
	changed bool // since it was last recorded
}

// of finds the counts of a namespace in this minute; nil: there are too many. mu is held.
func (a *activity) of(namespace string, now time.Time) *activityCounts {
	if minute := now.Truncate(time.Minute); minute.After(a.minute) || a.counts == nil {
		a.ended = a.take(a.ended)
		a.minute, a.counts = minute, map[string]*activityCounts{}
	}
	c := a.counts[namespace]
	if c == nil && len(a.counts) < maxActivity {
		c = new(activityCounts)
		a.counts[namespace] = c
	}
	return c
}

func (a *activity) take(list []store.Activity) []store.Activity {
	for namespace, c := range a.counts {
		if c.changed {
			c.changed = false
			list = append(list, store.Activity{Minute: a.minute.UTC(), Namespace: namespace, Counts: c.ActivityCounts})
		}
	}
	return list
}

func (a *activity) started(runs []*belfry.Run) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, run := range runs {
		if c := a.of(run.Namespace, now); c != nil {
			c.AddLag(run.StartedAt.Sub(run.ReadyAt))
			c.changed = true
		}
	}
}

func (a *activity) settled(ended []Attempt) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range ended {
		c := a.of(ended[i].Namespace, now)
		if c == nil {
			continue
		}
		c.changed = true
		switch {
		case ended[i].Outcome == belfry.OutcomeSucceeded:
			c.ActivityCounts[store.CountSucceeded]++
		case ended[i].Dead != "":
			c.ActivityCounts[store.CountDead]++
		case ended[i].Outcome == belfry.OutcomeFailed || ended[i].Outcome == belfry.OutcomeTimedOut || ended[i].Outcome == belfry.OutcomeLost:
			c.ActivityCounts[store.CountFailed]++
		}
	}
}

// TakeActivity returns what changed since the last call, with all that was counted in the
// same minute.
func (m *Metrics) TakeActivity() []store.Activity {
	m.activity.mu.Lock()
	defer m.activity.mu.Unlock()
	list := m.activity.take(m.activity.ended)
	m.activity.ended = nil
	return list
}
