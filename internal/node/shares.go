package node

import (
	"context"

	"github.com/belfry-sh/belfry/internal/scheduler"
)

// shareSlots divides the slots of this node among namespaces until ctx ends.
func (n *Node) shareSlots(ctx context.Context, local *scheduler.Local) {
	local.Share(&n.quotas, n.metrics)
	go n.quotas.Run(ctx, n.store)
}
