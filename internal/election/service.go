package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Service holds leases outside the database. The service decides who may lead. The database
// has a record of each lease, which its holder renews as well: from there come the epochs,
// which thus grow whatever elects, and the end of the term before. A term begins with its
// record and lasts as long as the service says, also while the database does not answer.
type Service interface {
	// Kind is which service it is.
	Kind() belfry.Election

	// Hold takes or renews names, which are all that the owner wants: others that it holds
	// are released. It returns those that it holds now, and for how long at least, counted
	// from the start of the call.
	Hold(ctx context.Context, owner belfry.ID, names []string) (held []string, lasts time.Duration, err error)

	// Held lists the names with a prefix that anybody holds.
	Held(ctx context.Context, prefix string) ([]string, error)

	// Close ends the connection. What is held ends by itself.
	Close()
}

// kind is what elects.
func (c *campaign) kind() belfry.Election {
	if c.Service == nil {
		return belfry.ElectionDatabase
	}
	return c.Service.Kind()
}

// acquireFromService is acquire with a service, with call as the context of calls. Terms are
// extended before the database is asked, which may not answer.
func (c *campaign) acquireFromService(ctx, call context.Context, names []string) error {
	start := time.Now()
	held, lasts, err := c.Service.Hold(call, c.Node, names)
	if err != nil {
		return fmt.Errorf("%s: %w", c.kind(), err)
	}
	until := start.Add(lasts - margin)
	shards := map[int]bool{}
	for _, name := range held {
		if shard, ok := shardOf(name); ok {
			shards[shard] = c.terms[shard] == nil || c.terms[shard].extend(until)
		}
	}
	c.endTerms(func(shard int, _ *term) bool { return !shards[shard] })
	leases, err := c.Store.Hold(call, c.Node, c.records(held), lasts)
	if err != nil {
		return fmt.Errorf("leases of %s could not be recorded: %w", c.kind(), err)
	}
	c.apply(ctx, leases, until)
	return nil
}

// release ends leases on names; the node keeps the others.
func (c *campaign) release(ctx context.Context, names, keep []string) error {
	var err error
	if c.Service != nil {
		_, _, err = c.Service.Hold(ctx, c.Node, keep)
	}
	return errors.Join(err, c.Store.Release(ctx, c.Node, c.records(names)))
}

// records are the names in the database of leases. Nodes have other names there for each
// kind of election, so that they see who elects otherwise.
func (c *campaign) records(names []string) []string {
	records := slices.Clone(names)
	for i, name := range names {
		if strings.HasPrefix(name, store.NodeLease) {
			records[i] = store.NodeLeaseName(c.kind(), c.Node)
		}
	}
	return records
}

// members lists the ids of the nodes that take part, and which nodes hold the shards by the
// records. It returns a conflict if the cluster elects otherwise than this node: the node that
// started first decides.
func (c *campaign) members(ctx context.Context) (nodes, holders []string, err error) {
	holders = make([]string, c.Store.Shards())
	leases, err := c.Store.Held(ctx, "")
	if err != nil {
		return nil, holders, err
	}
	first := store.Lease{Owner: c.Node, Name: store.NodeLeaseName(c.kind(), c.Node)}
	for _, lease := range leases {
		if shard, ok := shardOf(lease.Name); ok && shard >= 0 && shard < len(holders) {
			holders[shard] = lease.Owner.String()
			continue
		}
		by := store.LeaseElection(lease.Name)
		if by == "" {
			continue
		}
		if lease.Owner.Compare(first.Owner) < 0 {
			first = lease
		}
		if c.Service == nil && by == c.kind() {
			nodes = append(nodes, lease.Owner.String())
		}
	}
	if other := store.LeaseElection(first.Name); other != c.kind() {
		return nil, holders, belfry.Errorf(belfry.Conflict, "this node elects by %s, but node %s of the same cluster by %s: start all of them with the same --election; until then this one owns no shards", c.kind(), first.Owner, other)
	}
	if c.Service == nil {
		return nodes, holders, nil
	}
	names, err := c.Service.Held(ctx, store.NodeLease)
	for _, name := range names {
		nodes = append(nodes, strings.TrimPrefix(name, store.NodeLease))
	}
	return nodes, holders, err
}
