package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// keepInterval is well within store.NodeTimeout.
const keepInterval = 5 * time.Second

// keepMembership records that this node is alive, until ctx ends, and then that it has
// stopped. It goes on after a failure: other nodes then believe that this one is lost.
func (n *Node) keepMembership(ctx context.Context) {
	name, _ := os.Hostname() // without one it has its id
	node := store.Node{ID: n.id, Name: name, Address: n.address(name), Version: n.config.Version, Roles: n.config.Roles}
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	failing := false
	for {
		node.Offset = n.clockOffset()
		call, cancel := context.WithTimeout(ctx, keepInterval)
		err := n.store.KeepNode(call, node)
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			n.log.Warn("other nodes could not be told that this one is alive", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := n.store.EndNode(call, n.id); err != nil {
				n.log.Warn("other nodes could not be told that this one stops", "error", err)
			}
			return
		case shards := <-n.taken:
			n.recordShards(ctx, name, shards)
		case <-ticker.C:
		}
	}
}

// address is where the node listens, with the name of its machine if that is everywhere.
func (n *Node) address(name string) string {
	address := n.listener.Addr().String()
	if host, port, err := net.SplitHostPort(address); err == nil && name != "" && net.ParseIP(host).IsUnspecified() {
		return net.JoinHostPort(name, port)
	}
	return address
}

// recordShards records that this node leads more shards.
func (n *Node) recordShards(ctx context.Context, node string, shards []int) {
	now := n.store.Now()
	event := belfry.Event{
		ID: belfry.NewID(now), Namespace: belfry.DefaultNamespace, Kind: belfry.EventShardsMoved, At: now, Count: int64(len(shards)),
		Message: fmt.Sprintf("node %s (%s) took over %d of %d shards", node, n.id, len(shards), n.store.Shards()),
	}
	call, cancel := context.WithTimeout(ctx, keepInterval)
	defer cancel()
	if _, err := n.store.AddEvents(call, []store.NewEvent{{Event: event}}); err != nil {
		n.log.Warn("an event could not be recorded", "event", event.Kind, "error", err)
	}
}
