package store

import (
	"context"
	"sync"

	"github.com/belfry-sh/belfry"
)

// maxChanged is how many changed jobs a hub names before it says "many".
const maxChanged = 1000

// Hub passes wake-ups on within a process. The zero value is ready for use.
type Hub struct {
	mu      sync.Mutex
	waiting map[Topic]map[chan struct{}]bool
	changed map[belfry.ID]bool
	many    bool
}

// Wakeups is Store.Wakeups.
func (h *Hub) Wakeups(ctx context.Context, topic Topic) <-chan struct{} {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[Topic]map[chan struct{}]bool{}
	}
	if h.waiting[topic] == nil {
		h.waiting[topic] = map[chan struct{}]bool{}
	}
	h.waiting[topic][ch] = true
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting[topic], ch)
	})
	return ch
}

// Changed is Plans.Changed.
func (h *Hub) ChangedJobs() ([]belfry.ID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]belfry.ID, 0, len(h.changed))
	for id := range h.changed {
		ids = append(ids, id)
	}
	many := h.many
	h.changed, h.many = nil, false
	return ids, many
}

// Signal wakes whoever waits for the topic.
func (h *Hub) Notify(topic Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signal(topic)
}

// Change notes that the jobs' plans were written and wakes whoever waits for
// plans.
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
	h.signal(TopicPlans)
}

func (h *Hub) signal(topic Topic) {
	for ch := range h.waiting[topic] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
