package web

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

const (
	pollInterval      = time.Second
	pollTimeout       = 5 * time.Second
	keepAliveInterval = 15 * time.Second
	streamTimeout     = 10 * time.Second // of a write
	maxWatchers       = 1000
)

// hub says to those who watch a namespace that something has changed there. It asks once a
// second for all of them, while somebody watches.
type hub struct {
	control *control.Control
	mu      sync.Mutex
	watch   map[string]map[chan struct{}]bool // by namespace; true: it has been woken once
	count   int
	stop    context.CancelFunc
}

func newHub(c *control.Control) *hub {
	return &hub{control: c, watch: map[string]map[chan struct{}]bool{}}
}

// add adds a watcher; nil if there are too many.
func (h *hub) add(namespace string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count >= maxWatchers {
		return nil
	}
	if h.watch[namespace] == nil {
		h.watch[namespace] = map[chan struct{}]bool{}
	}
	ch := make(chan struct{}, 1)
	h.watch[namespace][ch] = false
	if h.count++; h.count == 1 {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		go h.poll(ctx)
	}
	return ch
}

func (h *hub) remove(namespace string, ch chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.watch[namespace], ch); len(h.watch[namespace]) == 0 {
		delete(h.watch, namespace)
	}
	if h.count--; h.count == 0 {
		h.stop()
	}
}

func (h *hub) changed(namespace string) { h.wake(namespace, true) }

// wake wakes all who watch a namespace, or those who are new: what has happened since their
// page was made may be part of what is known already.
func (h *hub) wake(namespace string, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch, woken := range h.watch[namespace] {
		if woken && !all {
			continue
		}
		h.watch[namespace][ch] = true
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (h *hub) namespaces() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for namespace := range h.watch {
		list = append(list, namespace)
	}
	return list
}

// poll compares what happened until ctx ends.
func (h *hub) poll(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	changes, known := h.control.Changes(ctx), map[string]string{}
	for edited := false; ; edited = false {
		select {
		case <-ctx.Done():
			return
		case <-changes: // others may follow within the second
			edited = true
		case <-tick.C:
		}
		for _, namespace := range h.namespaces() {
			call, cancel := context.WithTimeout(ctx, pollTimeout)
			now, err := h.control.Pulse(call, namespace)
			cancel()
			if err == nil {
				h.wake(namespace, known[namespace] != now || edited)
				known[namespace] = now
			}
		}
		if edited {
			select {
			case <-ctx.Done():
			case <-tick.C: // at most once a second
			}
		}
	}
}

// stream sends an event whenever something has changed in a namespace. A browser that lost
// it connects again, and then fetches what it missed.
func (s *server) stream(r *request) error {
	w, namespace := r.w, r.namespace
	ch := s.live.add(namespace)
	if ch == nil {
		return belfry.Errorf(belfry.Unavailable, "too many pages are open")
	}
	defer s.live.remove(namespace, ch)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // which proxies are not to collect
	connection := http.NewResponseController(w)
	connection.SetReadDeadline(time.Time{})
	alive := time.NewTicker(keepAliveInterval)
	defer alive.Stop()
	for text := "retry: 2000\n\n"; ; {
		connection.SetWriteDeadline(time.Now().Add(streamTimeout))
		if _, err := fmt.Fprint(w, text); err != nil || connection.Flush() != nil {
			return nil
		}
		select {
		case <-ch:
			text = "event: changed\ndata: \n\n"
		case <-alive.C:
			if text = ": nothing happened\n\n"; s.loggedIn(r.Context(), r.Request) == nil {
				return nil
			}
		case <-r.principal.Ended:
			return nil
		case <-r.Context().Done():
			return nil
		case <-s.Draining:
			return nil
		}
	}
}
