package node

import (
	"context"
	"fmt"

	"github.com/belfry-sh/belfry/internal/dispatch"
	"github.com/belfry-sh/belfry/internal/scheduler"
	"github.com/belfry-sh/belfry/worker"
)

// DispatchDatabase lets workers find ready runs in the database.
const DispatchDatabase = "database"

// overBroker reports whether ready runs are announced over a broker.
func (c Config) overBroker() bool { return c.Dispatch != "" && c.Dispatch != DispatchDatabase }

func (n *Node) openQueue() (err error) {
	if n.config.overBroker() && (n.config.has(RoleScheduler) || n.config.has(RoleWorker)) {
		if n.queue, err = dispatch.Open(n.config.Dispatch); err != nil {
			err = fmt.Errorf("--dispatch: %w", err)
		}
	}
	return err
}

// announce announces ready runs in the shards that this node owns, until ctx ends.
func (n *Node) announce(ctx context.Context, owned func() []int) {
	if n.queue != nil {
		a := dispatch.Announcer{Store: n.store, Queue: n.queue, Owned: owned, Log: n.log, Metrics: n.metrics}
		a.Run(ctx)
	}
}

// source is where the pool of this node gets runs. The scheduler of the node, if there is
// one, fills its claims; otherwise they wait for announcements, or for a notification that
// runs are ready.
func (n *Node) source(ctx context.Context, local *scheduler.Local) worker.Source {
	if n.queue == nil || n.config.has(RoleScheduler) {
		return local
	}
	return dispatch.NewSource(ctx, local, scheduler.Direct{Local: local}, n.queue, n.log, n.metrics)
}
