package node

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

const (
	activityInterval = 2 * time.Second
	maxUnrecorded    = 5000 // rows that wait for the database; the oldest are lost
)

// recordActivity records what this node does until ctx ends, and once more after that.
func (n *Node) recordActivity(ctx context.Context) {
	tick := time.NewTicker(activityInterval)
	defer tick.Stop()
	var waiting []store.Activity
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		waiting = append(waiting, n.metrics.TakeActivity()...)
		waiting = waiting[max(0, len(waiting)-maxUnrecorded):]
		if len(waiting) == 0 {
			continue
		}
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), collectTimeout)
		if err := n.store.PutActivity(call, n.id, waiting); err == nil {
			waiting = waiting[:0]
		}
		cancel()
	}
}
