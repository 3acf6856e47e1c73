package belfry

import (
	"maps"
	"sync"
)

// Slots is which namespaces hold the slots of a worker. A Source in the same process counts
// what it hands out, before it does; the worker counts what ends. A nil Slots counts nothing.
type Slots struct {
	Size  int
	Freed chan struct{} // signals once that a slot was freed after Watch

	mu      sync.Mutex
	held    map[string]int
	watched bool
}

// NewSlots makes so many slots, which nobody holds.
func NewSlots(n int) *Slots {
	return &Slots{Size: n, Freed: make(chan struct{}, 1), held: map[string]int{}}
}

// Take gives more slots to a namespace.
func (s *Slots) Take(namespace string, n int) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[namespace] += n
}

// TakeRuns gives a slot to each of the runs.
func (s *Slots) TakeRuns(runs []*Run) {
	for i, from := 0, 0; i < len(runs); i++ {
		if i+1 == len(runs) || runs[i+1].Namespace != runs[i].Namespace {
			s.Take(runs[i].Namespace, i+1-from)
			from = i + 1
		}
	}
}

// Free takes slots from a namespace. One that holds fewer was never given them.
func (s *Slots) Free(namespace string, n int) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[namespace] -= n; s.held[namespace] <= 0 {
		delete(s.held, namespace)
	}
	if s.watched {
		s.watched = false
		select {
		case s.Freed <- struct{}{}:
		default:
		}
	}
}

// Held returns how many slots each namespace holds.
func (s *Slots) Held() map[string]int {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.held)
}

// Watch has the next slot that is freed signalled.
func (s *Slots) Watch() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = true
}
