package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// Events is what operators should know.
type Events interface {
	// ListEvents returns the events of a namespace that match a filter, latest first.
	ListEvents(ctx context.Context, namespace string, f belfry.EventFilter, page Page) ([]belfry.Event, error)

	// EventsAfter returns the events of all namespaces with a greater id, the oldest first.
	EventsAfter(ctx context.Context, after belfry.ID, limit int) ([]belfry.Event, error)

	// AddEvents records events, except those whose dedup id is known, and returns the ids of
	// those that it recorded, in their order.
	AddEvents(ctx context.Context, events []NewEvent) ([]belfry.ID, error)
}

// NewEvent is an event to record.
type NewEvent struct {
	belfry.Event
	Dedup belfry.ID // the same for the same event, whoever notices it

}

// Nodes is the processes of the cluster.
type Nodes interface {
	// KeepNode records that a node is alive. One that was lost starts again.
	KeepNode(ctx context.Context, n Node) error

	// EndNode records that a node has stopped.
	EndNode(ctx context.Context, id belfry.ID) error

	// Nodes lists the nodes that were alive within NodeRetention, the oldest first.
	Nodes(ctx context.Context) ([]Node, error)
}

// Node is a process of the cluster.
type Node struct {
	ID        belfry.ID
	Name      string // of its machine
	Address   string // where it listens
	Version   string
	Roles     []string
	Offset    time.Duration // of the store's clock from its own
	StartedAt time.Time     // this and the next two are by the store's clock, and set by the store
	SeenAt    time.Time
	LeftAt    *time.Time // nil: it has not stopped
}

// NodeRetention is how long nodes that are gone are kept.
const NodeRetention = 24 * time.Hour

// NodeTimeout is after how long without a sign of life a node is lost.
const NodeTimeout = 20 * time.Second
