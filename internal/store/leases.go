package store

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

// Leases says which owner holds which name, and for how long.
type Leases interface {
	// Hold acquires or renews each name for ttl unless somebody else holds it, and
	// returns the leases that the owner now has among them.
	Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) ([]Lease, error)

	// Release ends the owner's leases of the names.
	Release(ctx context.Context, owner belfry.ID, names []string) error

	// Held lists the leases whose name starts with prefix and that have not expired.
	Held(ctx context.Context, prefix string) ([]Lease, error)
}

// Term is the time during which an owner may assume that it owns a shard.
type Term struct {
	Shard int
	Epoch int64
	Since time.Time // by the store's clock
}

// Lease is a name held by an owner. The epoch grows whenever the owner changes.
type Lease struct {
	Name  string
	Owner belfry.ID
	Epoch int64
}
