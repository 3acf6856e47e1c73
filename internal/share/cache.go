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
	of     atomic.Pointer[map[string]belfry.Quota]
	shared atomic.Bool
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
	of, shared := make(map[string]belfry.Quota, len(used)), false
	for _, name := range used {
		of[name] = belfry.Quota{}
	}
	for _, n := range namespaces {
		of[n.Name] = n.Quota
	}
	for name, quota := range of {
		shared = shared || name != belfry.DefaultNamespace || quota.MaxRunning > 0
	}
	q.of.Store(&of)
	q.shared.Store(shared)
	return nil
}

// All returns the quotas by namespace, not to be changed. Every namespace that has jobs or a
// quota of its own is there.
func (q *Quotas) All() map[string]belfry.Quota {
	if q != nil {
		if of := q.of.Load(); of != nil {
			return *of
		}
	}
	return nil
}

// Shared reports whether there is anything to divide: without other namespaces than the
// default one, and no limit for that, there is not.
func (q *Quotas) Shared() bool { return q != nil && q.shared.Load() }

// MaxRunning is how many runs of a namespace may run at once; zero: as many as there are
// slots.
func (q *Quotas) MaxRunning(namespace string) int { return q.All()[namespace].MaxRunning }

// Limits returns those of the namespaces that have a limit of running runs, with it.
func (q *Quotas) Limits() (limits map[string]int) {
	for name, quota := range q.All() {
		if quota.MaxRunning > 0 {
			if limits == nil {
				limits = map[string]int{}
			}
			limits[name] = quota.MaxRunning
		}
	}
	return limits
}
