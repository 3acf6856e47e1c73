package node

import (
	"context"
	"fmt"
	"net"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/dispatch"
	"github.com/belfry-sh/belfry/internal/scheduler"
	"github.com/belfry-sh/belfry/worker"
)

// checkShell says why jobs may not use the shell of this machine; empty if they may.
func (c Config) checkShell() string {
	switch {
	case !c.AllowShell:
		return ""
	case c.DatabaseURL != "":
		return "is only for the embedded database: with --database-url other machines create jobs; name commands in a file and use --commands"
	case !c.loopback():
		return "is only for a node that this machine alone reaches: listen on 127.0.0.1, or name commands in a file and use --commands"
	}
	return ""
}

// loopback reports whether only this machine can reach the node.
func (c Config) loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && isLoopback(host)
}

// commandPool executes the commands of the file of this node. It is a worker of its own:
// its lanes have namespaces, as those of a worker elsewhere.
func (n *Node) commandPool(local *scheduler.Local) *worker.Pool {
	command.HideEnvironment()
	mux := worker.NewMux()
	n.config.Commands.Register(mux)
	return worker.New(namespaceSource{local, n.config.Commands.Namespaces}, mux,
		worker.Concurrency(n.config.Concurrency), worker.DrainTimeout(n.config.DrainTimeout), worker.Log(n.log))
}

// namespaceSource is a source of runs of some namespaces alone.
type namespaceSource struct {
	worker.Source
	namespaces []string
}

func (s namespaceSource) lanes(handlers []string) (lanes []string) {
	for _, namespace := range s.namespaces {
		for _, lane := range handlers {
			lanes = append(lanes, belfry.NamespaceLane(namespace, lane))
		}
	}
	return lanes
}

// Claim takes runs of the namespaces.
func (s namespaceSource) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	c.Lanes = s.lanes(c.Lanes)
	return s.Source.Claim(ctx, c)
}

// Heartbeat reports that the worker serves the namespaces.
func (s namespaceSource) Heartbeat(ctx context.Context, h belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	h.Lanes = s.lanes(h.Lanes)
	return s.Source.Heartbeat(ctx, h)
}

// DispatchDatabase lets workers find ready runs in the database.
const DispatchDatabase = "database"

// overBroker reports whether ready runs are announced over a broker.
func (c Config) overBroker() bool { return c.Dispatch != "" && c.Dispatch != DispatchDatabase }

func (n *Node) openQueue(context.Context) (err error) {
	if n.config.overBroker() && (n.config.has(RoleScheduler) || n.config.has(RoleWorker)) {
		if n.queue, err = dispatch.Open(n.config.Dispatch); err != nil {
			err = fmt.Errorf("--dispatch: %w", err)
		}
	}
	return err
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

// openConnections reads the file of connections. No broker is connected to until a message
// goes there.
func (n *Node) openConnections(context.Context) (err error) {
	if n.config.ConnectionsFile == "" {
		return nil
	}
	if n.connections, err = broker.Load(n.config.ConnectionsFile); err != nil {
		return fmt.Errorf("--connections: %w", err)
	}
	return nil
}
