package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/belfry-sh/belfry"
)

// Handler does the work of a run. A nil error means that it succeeded, and any
// other that it is tried again as the job's retry policy says. An error may ask for
// something else, also from inside another that wraps it:
//
//   - belfry.Snooze(d) hands the run back for d, at most 7 days, and is no failure.
//   - belfry.RetryAfter(err, d) is a failure that is tried again after d, at most
//     7 days, instead of the policy's delay.
//   - belfry.Permanent(err) is a failure that no retry would change: the run is a
//     dead letter at once.
//
// The context ends when the attempt must, and context.Cause tells why: ErrTimedOut,
// ErrInterrupted when the worker shuts down, which costs the run no retry,
// ErrCancelled when somebody cancelled the run, and ErrLeaseLost when the run is
// another worker's by now. After that an error says no more than that the handler
// ended; nil is a success all the same, unless the lease was lost. A handler that
// does not return within 5 seconds is given up, and its slot stays taken until it
// does.
//
// What there is to tell beyond the error goes into run.Report. The run must not be
// touched after Handle returned.
type Handler interface {
	Handle(ctx context.Context, run *belfry.Run) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, run *belfry.Run) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, run *belfry.Run) error { return f(ctx, run) }

// Mux finds the handler of a run by the type of its job. It may be used by
// several goroutines.
type Mux struct {
	mu       sync.RWMutex // guards handlers
	handlers map[string]Handler
}

// NewMux makes a Mux that knows no handler.
func NewMux() *Mux { return &Mux{handlers: make(map[string]Handler)} }

// Handle registers the handler of one type of job. Like its namesake in
// net/http it panics on an empty name, a nil handler or a name that is taken:
// these are mistakes in the program, seen the first time it starts.
func (m *Mux) Handle(name string, h Handler) {
	if name == "" || h == nil {
		panic("worker: a handler needs a name and must not be nil")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.handlers[name]; taken {
		panic(fmt.Sprintf("worker: handler %q is registered twice", name))
	}
	m.handlers[name] = h
}

// HandleFunc registers a function as the handler of one type of job.
func (m *Mux) HandleFunc(name string, fn func(ctx context.Context, run *belfry.Run) error) {
	if fn == nil {
		panic("worker: a handler needs a name and must not be nil")
	}
	m.Handle(name, HandlerFunc(fn))
}

// Handlers lists the registered types, sorted.
func (m *Mux) Handlers() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	names := make([]string, 0, len(m.handlers))
	for name := range m.handlers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Dispatch runs the handler that is registered for the run's type.
// HandlerFunc(m.Dispatch) makes a Mux a Handler itself.
func (m *Mux) Dispatch(ctx context.Context, run *belfry.Run) error {
	m.mu.RLock()
	name := run.Spec.HandlerName()
	h := m.handlers[name]
	m.mu.RUnlock()
	if h == nil {
		return fmt.Errorf("this worker has no handler named %q", name)
	}
	return h.Handle(ctx, run)
}
