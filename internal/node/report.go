package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/scheduler"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/worker"
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

const (
	collectInterval = 10 * time.Second // between two readings of the cluster
	collectTimeout  = 5 * time.Second
	ownerInterval   = time.Second // between two looks at who reads the cluster
	maxReadyCounted = 10_000      // runs of each handler
)

// metricsHandler serves metrics and profiles without a key, except the command line, in
// which there may be a password of the database.
func (n *Node) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.metrics.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !api.AcceptsHost(n.config.Hosts, r.Host) { // a web page may have pointed a name here
			http.Error(w, "this server does not accept this name in the Host header; its operator can allow it with --host", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// state reads what this process exports of itself. The scheduler and the worker are nil if
// it has none.
func (n *Node) state(s *scheduler.Scheduler, p *worker.Pool) metrics.Node {
	state := metrics.Node{Shards: n.store.Shards(), ClockOffset: n.clockOffset(), Pools: n.store.Pools()}
	if s != nil {
		state.ShardsOwned, state.Stalled = len(s.Owned()), s.Stalled()
	}
	if p != nil {
		stats := p.Stats()
		state.Slots, state.Busy, state.Stuck, state.Unsent = stats.Slots, stats.Busy, stats.Stuck, stats.Unsent
	}
	return state
}

// clockOffset is how far the store's clock is ahead of that of this process.
func (n *Node) clockOffset() time.Duration {
	if n.config.DatabaseURL == "" {
		return 0 // but for the microseconds between two looks at the same clock
	}
	return time.Until(n.store.Now())
}

// collectCluster reads the metrics of the cluster while this node owns the first shard.
// When it does not, or when they cannot be read, it exports none.
func (n *Node) collectCluster(ctx context.Context, owned func() []int) {
	defer n.metrics.SetCluster(nil)
	tick := time.NewTicker(ownerInterval)
	defer tick.Stop()
	var last time.Time
	for failing := false; ; {
		switch shards := owned(); {
		case !slices.Contains(shards, 0):
			last = time.Time{}
			n.metrics.SetCluster(nil)
		case time.Since(last) >= collectInterval:
			last = time.Now()
			c, err := n.readCluster(ctx, shards)
			if err != nil && !failing && ctx.Err() == nil {
				n.log.Warn("metrics of the cluster could not be read; they are missing until they can", "error", err)
			}
			failing = err != nil
			n.metrics.SetCluster(c)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Node) readCluster(ctx context.Context, owned []int) (*metrics.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	var err error
	c := &metrics.Cluster{At: n.store.Now(), Leases: map[string]int{"shard": 0, "node": 0}}
	if c.Stats, err = n.store.Stats(ctx); err != nil {
		return nil, err
	}
	if c.Ready, err = n.store.CountReady(ctx, maxReadyCounted); err != nil {
		return nil, err
	}
	if c.Workers, err = n.store.Workers(ctx); err != nil {
		return nil, err
	}
	if n.ownsAll() {
		c.Leases["shard"], c.Leases["node"] = len(owned), 1
		return c, nil
	}
	leases, err := n.store.Held(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, lease := range leases {
		kind, _, _ := strings.Cut(lease.Name, "/")
		if store.LeaseElection(lease.Name) != "" {
			kind = store.NodeLeases
		}
		c.Leases[kind]++
	}
	return c, nil
}
