package node

import (
	"fmt"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
	"github.com/belfry-sh/belfry/worker"
)

// openConnections reads the file of connections. No broker is connected to until a message
// goes there.
func (n *Node) openConnections() (err error) {
	if n.config.ConnectionsFile == "" {
		return nil
	}
	if n.connections, err = broker.Load(n.config.ConnectionsFile); err != nil {
		return fmt.Errorf("--connections: %w", err)
	}
	return nil
}

// handleMessages has the pool run jobs of type message if the node has connections.
func (n *Node) handleMessages(mux *worker.Mux) {
	if n.connections != nil {
		mux.Handle(belfry.TypeMessage, n.connections)
	}
}
