package share

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
)

// interval is how often quotas are read.
const interval = 2 * time.Second

// Source has the namespaces of a cluster.
type Source interface {
	// Namespaces lists the namespaces that were declared.
	Namespaces(ctx context.Context) ([]belfry.Namespace, error)

	// JobNamespaces lists those that have jobs.
	JobNamespaces(ctx context.Context) ([]string, error)
}

// Quotas is what the namespaces of a cluster may use, as it was some seconds ago. The zero
// value has none.
type Quotas struct {
	current atomic.Pointer[quotas]
}

type quotas struct {
	of     map[string]belfry.Quota
	shared bool
	single string
}

// Run reads the quotas again and again until ctx ends. While they cannot be read the last
// ones stay.
func (q *Quotas) Run(ctx context.Context, s Source) {
	for {
		_ = q.read(ctx, s)
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

func (q *Quotas) read(ctx context.Context, s Source) error {
	call, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	used, err := s.JobNamespaces(call)
	if err != nil {
		return err
	}
	namespaces, err := s.Namespaces(call)
	if err != nil {
		return err
	}
	next := quotas{of: make(map[string]belfry.Quota, len(used)), single: belfry.DefaultNamespace}
	for _, name := range used {
		next.of[name] = belfry.Quota{}
	}
	for _, n := range namespaces {
		next.of[n.Name] = n.Quota
	}
	next.shared = len(next.of) > 1
	for name, quota := range next.of {
		next.single = name
		next.shared = next.shared || quota.MaxRunning > 0
	}
	q.current.Store(&next)
	return nil
}

func (q *Quotas) get() *quotas {
	if q != nil {
		if current := q.current.Load(); current != nil {
			return current
		}
	}
	return &quotas{single: belfry.DefaultNamespace}
}

// All returns the quotas by namespace, not to be changed. Every namespace that has jobs or was
// declared is there.
func (q *Quotas) All() map[string]belfry.Quota { return q.get().of }

// Shared reports whether there is anything to divide: more than one namespace, or a limit.
func (q *Quotas) Shared() bool { return q.get().shared }

// Single is the only namespace if nothing is shared, as far as is known.
func (q *Quotas) Single() string { return q.get().single }

// MaxRunning is how many runs of a namespace may run at once; zero: as many as there are
// slots.
func (q *Quotas) MaxRunning(namespace string) int { return q.All()[namespace].MaxRunning }
