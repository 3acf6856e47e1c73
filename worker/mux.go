package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/belfry-sh/belfry"
)

// Handler does the work of a run. A nil error is success; after any other the run is
// retried by the retry policy of the job. These errors, also wrapped in others, do
// something else:
//
//   - belfry.Snooze(d) returns the run for d, at most 7 days, and is no failure.
//   - belfry.RetryAfter(err, d) is a failure that is retried after d, at most 7 days,
//     instead of the delay of the policy.
//   - belfry.Permanent(err) is a failure that retries cannot fix: the run becomes a dead
//     letter at once.
//
// The context ends when the attempt must, and context.Cause returns why: ErrTimedOut,
// ErrInterrupted when the worker shuts down, which costs the run no retry, ErrCancelled
// when the run was cancelled, and ErrLeaseLost when another worker may hold the run.
// After that the error itself is ignored; nil is still success, unless the lease was
// lost. A handler that does not return within 5 seconds is abandoned, and its slot stays
// taken until it returns.
//
// A handler reports output and HTTP status in run.Report. It must not use the run after
// it returned.
type Handler interface {
	Handle(ctx context.Context, run *belfry.Run) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, run *belfry.Run) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, run *belfry.Run) error { return f(ctx, run) }

// Mux finds the handler of a run by its name. It may be used by several goroutines.
type Mux struct {
	mu       sync.RWMutex // guards handlers
	handlers map[string]Handler
}

// NewMux makes a Mux without handlers.
func NewMux() *Mux { return &Mux{handlers: make(map[string]Handler)} }

// Handle registers a handler by its name. Like that of net/http it panics on an empty
// name, a nil handler or a name that is taken.
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

// HandleFunc registers a function as a handler.
func (m *Mux) HandleFunc(name string, fn func(ctx context.Context, run *belfry.Run) error) {
	if fn == nil {
		panic("worker: a handler needs a name and must not be nil")
	}
	m.Handle(name, HandlerFunc(fn))
}

// Handlers lists the registered names, sorted.
func (m *Mux) Handlers() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.handlers))
}

// Dispatch calls the handler of the run. HandlerFunc(m.Dispatch) makes a Mux a Handler.
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
