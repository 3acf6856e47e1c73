package control

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	maxFleetNodes   = 500
	maxFleetWorkers = 500
	fleetLifetime   = 2 * time.Second // in which the answer is used again
)

// RunsIn says which node this is, whether it owns all shards without leases, and otherwise
// what it elects by, if it does. It is called before anything else.
func (c *Control) RunsIn(node belfry.ID, ownsAll bool, by belfry.Election) {
	c.node, c.ownsAll, c.election = node, ownsAll, by
}

// Fleet says which nodes and workers there are, and how the database does. The answer may be
// some seconds old.
func (c *Control) Fleet(ctx context.Context) (belfry.Fleet, error) {
	return c.fleets.Get(ctx, struct{}{}, fleetLifetime, func(ctx context.Context) (f belfry.Fleet, err error) {
		f = belfry.Fleet{At: c.now(), NodeID: c.node, Shards: c.store.Shards()}
		for _, read := range []func(context.Context, *belfry.Fleet) error{c.readDatabase, c.readNodes, c.readWorkers} {
			if err := retryUnknown(ctx, "read the fleet", func() error { return read(ctx, &f) }); err != nil {
				return f, err
			}
		}
		return f, nil
	})
}

func (c *Control) readDatabase(ctx context.Context, f *belfry.Fleet) error {
	start := time.Now()
	if err := c.store.Ping(ctx); err != nil {
		return err
	}
	latency := time.Since(start)
	d, err := c.store.Database(ctx)
	f.Database = belfry.FleetDatabase{Kind: d.Kind, Version: d.Version, Bytes: d.Bytes, LatencySeconds: latency.Seconds(), Pools: []belfry.FleetPool{}}
	for _, p := range c.store.Pools() {
		f.Database.Pools = append(f.Database.Pools, belfry.FleetPool{Name: p.Name, Max: p.Max, InUse: p.InUse, Idle: p.Idle})
	}
	return err
}

// readNodes reads the nodes and what they own.
func (c *Control) readNodes(ctx context.Context, f *belfry.Fleet) error {
	nodes, err := c.store.Nodes(ctx)
	if err != nil {
		return err
	}
	leases, err := c.store.Held(ctx, "")
	if err != nil {
		return err
	}
	owners := make([]belfry.ID, f.Shards)
	alerts := belfry.ID{}
	elections, first := map[belfry.ID]belfry.Election{}, belfry.ID{}
	f.Election = c.election
	for _, lease := range leases {
		number, _ := strings.CutPrefix(lease.Name, store.ShardLease)
		if shard, err := strconv.Atoi(number); err == nil && shard >= 0 && shard < len(owners) {
			owners[shard] = lease.Owner
		}
		if lease.Name == store.AlertsLease {
			alerts = lease.Owner
		}
		if by := store.LeaseElection(lease.Name); by != "" {
			if elections[lease.Owner] = by; first.IsZero() || lease.Owner.Compare(first) < 0 {
				first, f.Election = lease.Owner, by
			}
		}
	}
	if c.ownsAll {
		for shard := range owners {
			owners[shard] = c.node
		}
	}
	names := map[belfry.ID]string{}
	f.Nodes, f.NodesAll, f.NodesUp, f.Unowned = make([]belfry.FleetNode, 0, len(nodes)), len(nodes), 0, []int{}
	for _, n := range nodes {
		node := belfry.FleetNode{
			ID: n.ID, Name: n.Name, Address: n.Address, Version: n.Version, Roles: n.Roles, State: nodeState(n, f.At), Election: elections[n.ID], Shards: []int{},
			ClockOffsetSeconds: n.Offset.Seconds(), StartedAt: n.StartedAt, SeenAt: n.SeenAt, LeftAt: n.LeftAt,
		}
		for shard, owner := range owners {
			if owner == n.ID {
				node.Shards = append(node.Shards, shard)
			}
		}
		if names[n.ID] = n.Name; node.State == belfry.NodeUp {
			f.NodesUp++
		}
		f.Nodes = append(f.Nodes, node)
	}
	for shard, owner := range owners {
		if owner.IsZero() {
			f.Unowned = append(f.Unowned, shard)
		}
	}
	f.Duties = []belfry.FleetDuty{{Name: "alerts", NodeID: alerts, Node: names[alerts]}, {Name: "maintenance", NodeID: owners[0], Node: names[owners[0]]}}
	slices.SortFunc(f.Nodes, func(a, b belfry.FleetNode) int {
		switch aUp, bUp := a.State == belfry.NodeUp, b.State == belfry.NodeUp; {
		case aUp && bUp:
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), a.ID.Compare(b.ID))
		case aUp:
			return -1
		case bUp:
			return 1
		}
		return b.SeenAt.Compare(a.SeenAt)
	})
	f.Nodes = f.Nodes[:min(len(f.Nodes), maxFleetNodes)]
	return nil
}

func nodeState(n store.Node, now time.Time) belfry.NodeState {
	switch {
	case n.LeftAt != nil:
		return belfry.NodeLeft
	case now.Sub(n.SeenAt) > store.NodeTimeout:
		return belfry.NodeLost
	}
	return belfry.NodeUp
}

func (c *Control) readWorkers(ctx context.Context, f *belfry.Fleet) error {
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return err
	}
	running, err := c.store.Running(ctx)
	f.Workers, f.Total = []belfry.FleetWorker{}, belfry.FleetTotal{Workers: len(workers)}
	for _, w := range workers {
		f.Total.Slots += w.Slots
		f.Total.Busy += running[w.ID]
		if len(f.Workers) == maxFleetWorkers {
			continue
		}
		worker := belfry.FleetWorker{ID: w.ID, Node: w.Node, Queues: []string{}, Handlers: []string{}, Slots: w.Slots, Busy: running[w.ID], StartedAt: w.StartedAt, SeenAt: w.LastSeen}
		for _, lane := range w.Lanes {
			if namespace, _, ok := strings.Cut(lane, ":"); ok {
				worker.Namespace = namespace
			}
			queue, handler := belfry.SplitLane(lane)
			worker.Queues, worker.Handlers = append(worker.Queues, queue), append(worker.Handlers, handler)
		}
		slices.Sort(worker.Queues)
		slices.Sort(worker.Handlers)
		worker.Queues, worker.Handlers = slices.Compact(worker.Queues), slices.Compact(worker.Handlers)
		f.Workers = append(f.Workers, worker)
	}
	return err
}
