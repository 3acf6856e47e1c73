package store

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/belfry-sh/belfry"
)

// maxChanged is how many changed jobs a hub names before it reports "many".
const maxChanged = 1000

// Hub implements Notifier within a process. The zero value is ready for use.
type Hub struct {
	mu          sync.Mutex
	subscribers map[Topic]map[chan struct{}]bool
	changed     map[belfry.ID]bool
	many        bool
}

// Wakeups is Notifier.Wakeups.
func (h *Hub) Wakeups(ctx context.Context, topic Topic) <-chan struct{} {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscribers == nil {
		h.subscribers = map[Topic]map[chan struct{}]bool{}
	}
	if h.subscribers[topic] == nil {
		h.subscribers[topic] = map[chan struct{}]bool{}
	}
	h.subscribers[topic][ch] = true
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers[topic], ch)
	})
	return ch
}

// ChangedJobs is Plans.ChangedJobs.
func (h *Hub) ChangedJobs() ([]belfry.ID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids, many := slices.AppendSeq(make([]belfry.ID, 0, len(h.changed)), maps.Keys(h.changed)), h.many
	h.changed, h.many = nil, false
	return ids, many
}

// Notify wakes the subscribers of the topic.
func (h *Hub) Notify(topic Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(topic)
}

// NotifyChanged records that the plans of the jobs were written and wakes the
// subscribers of TopicPlans.
func (h *Hub) NotifyChanged(jobs []belfry.ID, many bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = map[belfry.ID]bool{}
	}
	h.many = h.many || many || len(h.changed)+len(jobs) > maxChanged
	if h.many {
		clear(h.changed)
	} else {
		for _, id := range jobs {
			h.changed[id] = true
		}
	}
	h.wake(TopicPlans)
}

func (h *Hub) wake(topic Topic) {
	for ch := range h.subscribers[topic] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
