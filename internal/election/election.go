// Package election decides which node owns which shard, and for how long.
//
// Ownership is for speed, never for safety: two nodes that both believe that they own a
// shard cost each other some work, and the store still makes one run of each occurrence.
// So an elector is simple. Every node holds a lease on its own name while it lives. From
// the leases held, every node computes the same distribution of shards, in equal shares
// (when a node comes or goes, only its shards move), takes leases on its share and releases
// the rest.
//
// A term is a context. It ends before the lease can expire: its end counts from the
// start of the last renewal that succeeded, minus a margin, so that a slow reply never
// extends it.
//
// Leases are in the database, or in a coordination service: etcd or ZooKeeper. Then the
// database has a record of each of them, see service.go.
package election

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Lead is called in its own goroutine for each term that begins. It returns soon after
// ctx ends.
type Lead func(ctx context.Context, term store.Term)

// AllShards leads every shard while it runs. It is for a store that only one node can
// use.
type AllShards struct {
	Store interface {
		store.Sharding
		store.Clock
	}
	DownSince time.Time // when the process before it stopped; zero: unknown
}

// Run leads until ctx ends.
func (e AllShards) Run(ctx context.Context, lead Lead) error {
	var terms sync.WaitGroup
	since := e.Store.Now()
	for shard := range e.Store.Shards() {
		terms.Go(func() { lead(ctx, store.Term{Shard: shard, Since: since, DownSince: e.DownSince}) })
	}
	<-ctx.Done()
	terms.Wait()
	return nil
}

// A dead owner is replaced within ttl plus renewInterval.
const (
	ttl           = 4 * time.Second
	margin        = 500 * time.Millisecond
	renewInterval = 750 * time.Millisecond
	callTimeout   = time.Second // of a call to the store
)

// Leases elects by leases in the store, or in a service.
type Leases struct {
	Store interface {
		store.Leases
		store.Sharding
		store.Clock
		Wakeups(ctx context.Context, topic store.Topic) <-chan struct{}
	}
	Service Service   // nil: the leases are in the store
	Node    belfry.ID // this node's incarnation
	Log     *slog.Logger

	// TakenOver is called with the shards that this node leads since the last call. Nil: nobody
	// wants to know.
	TakenOver func(shards []int)

	// Stalled is for how long the leader has made no progress, if that is too long;
	// otherwise zero. A node that is stalled leads nothing, so that others do. Nil:
	// never.
	Stalled func() time.Duration

	// Renewed is called after every attempt to renew the leases, with its error. Nil: nobody
	// wants to know.
	Renewed func(err error)
}

// campaign is the state of a running elector.
type campaign struct {
	Leases
	lead     Lead
	terms    map[int]*term
	led      map[int]bool // shards that this process has led before
	reported map[int]bool // shards that it led when it last said so
	running  sync.WaitGroup
}

// term is a shard that this node leads.
type term struct {
	epoch  int64
	until  time.Time   // when it ends, by the monotonic clock
	expiry *time.Timer // ends the term then, even if a call to the store blocks
	end    context.CancelFunc
	ended  chan struct{}
}

// extend reports whether the term goes on; otherwise it has ended already.
func (t *term) extend(until time.Time) bool {
	goesOn := t.expiry.Reset(time.Until(until))
	t.until = until
	return goesOn
}

// Run leads the node's share of the shards until ctx ends, then releases it.
func (d Leases) Run(ctx context.Context, lead Lead) error {
	c := &campaign{Leases: d, lead: lead, terms: map[int]*term{}, led: map[int]bool{}, reported: map[int]bool{}}
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	released := d.Store.Wakeups(ctx, store.TopicLeases)
	for failing, stalled := false, false; ; {
		var err error
		if stall := c.stall(); stall == 0 {
			stalled, err = false, c.rebalance(ctx)
		} else if !stalled {
			stalled = true
			c.Log.Error("the scheduler makes no progress; its shards are given to others", "for", stall.Round(time.Millisecond))
			c.resign(ctx)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil && !failing:
			c.Log.Warn("leases could not be renewed", "election", c.kind(), "error", err)
		case err == nil && failing:
			c.Log.Info("leases are renewed again", "election", c.kind())
		}
		if failing = err != nil; c.Renewed != nil {
			c.Renewed(err)
		}
		c.expire(time.Now())
		c.report()
		select {
		case <-ctx.Done():
			c.resign(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
		case <-released:
		}
	}
}

// report says which shards this node has begun and ceased to lead.
func (c *campaign) report() {
	var gained, lost []int
	for shard := range c.Store.Shards() {
		switch leads := c.terms[shard] != nil; {
		case leads && !c.reported[shard]:
			gained = append(gained, shard)
		case !leads && c.reported[shard]:
			lost = append(lost, shard)
		}
		c.reported[shard] = c.terms[shard] != nil
	}
	if len(lost) > 0 {
		c.Log.Info("shards were given up", "shards", lost, "left", len(c.terms))
	}
	if len(gained) > 0 {
		c.Log.Info("shards were taken over", "shards", gained, "now", len(c.terms))
		if c.TakenOver != nil {
			c.TakenOver(gained)
		}
	}
}

func (c *campaign) stall() time.Duration {
	if c.Stalled == nil {
		return 0
	}
	return c.Stalled()
}

// rebalance renews the leases of the node and adjusts its share.
func (c *campaign) rebalance(ctx context.Context) error {
	if err := c.acquire(ctx, c.names()); err != nil {
		return err
	}
	ctx1, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes, holders, err := c.members(ctx1)
	if err != nil && belfry.CodeOf(err) != belfry.Conflict {
		return err
	}
	var gain, lose []int
	for shard, owner := range Owners(holders, nodes) {
		mine := err == nil && owner == c.Node.String()
		if _, have := c.terms[shard]; mine && !have {
			gain = append(gain, shard)
		} else if have && !mine {
			lose = append(lose, shard)
		}
	}
	if len(lose) > 0 {
		c.endTerms(func(shard int, _ *term) bool { return slices.Contains(lose, shard) })
		if err := c.release(ctx1, shardNames(lose), c.names()); err != nil {
			return err
		}
	}
	if len(gain) == 0 {
		return err
	}
	return c.acquire(ctx, append(c.names(), shardNames(gain)...))
}

// acquire takes or renews leases on names, which are all that the node wants. It begins new
// terms and ends those of leases that another node holds.
func (c *campaign) acquire(ctx context.Context, names []string) error {
	start := time.Now()
	// A call that is given up may still be executed, after a release even.
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if c.Service != nil {
		return c.acquireFromService(ctx, callCtx, names)
	}
	leases, err := c.Store.Hold(callCtx, c.Node, names, ttl)
	if err == nil {
		c.apply(ctx, leases, start.Add(ttl-margin))
	}
	return err
}

// apply begins or extends the terms of the leases, and ends all others.
func (c *campaign) apply(ctx context.Context, leases []store.Lease, until time.Time) {
	held := map[int]bool{}
	for _, lease := range leases {
		if shard, ok := shardOf(lease.Name); ok {
			held[shard] = true
			c.extendTerm(ctx, shard, lease, until)
		}
	}
	c.endTerms(func(shard int, _ *term) bool { return !held[shard] })
}

func (c *campaign) extendTerm(ctx context.Context, shard int, lease store.Lease, until time.Time) {
	if t := c.terms[shard]; t != nil {
		if t.epoch == lease.Epoch && t.extend(until) {
			return
		}
		c.endTerms(func(s int, _ *term) bool { return s == shard }) // it ended meanwhile, or another node had the lease
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	t := &term{epoch: lease.Epoch, until: until, end: end, ended: make(chan struct{})}
	t.expiry = time.AfterFunc(time.Until(until), end)
	c.terms[shard] = t
	since, down := c.Store.Now(), lease.EndedAt
	if down.IsZero() && c.led[shard] {
		down = since // The lease was renewed; only this process believed that it had ended.
	}
	c.led[shard] = true
	c.running.Go(func() {
		defer close(t.ended)
		c.lead(ctx, store.Term{Shard: shard, Epoch: lease.Epoch, Since: since, DownSince: down})
	})
}

// endTerms ends terms together and waits until their Lead functions have returned.
func (c *campaign) endTerms(which func(shard int, t *term) bool) {
	var ended []*term
	for shard, t := range c.terms {
		if which(shard, t) {
			t.expiry.Stop()
			t.end()
			delete(c.terms, shard)
			ended = append(ended, t)
		}
	}
	for _, t := range ended {
		<-t.ended
	}
}

func (c *campaign) expire(now time.Time) {
	c.endTerms(func(shard int, t *term) bool {
		if now.After(t.until) {
			c.Log.Warn("a shard's lease could not be renewed in time", "shard", shard)
		}
		return now.After(t.until)
	})
}

// resign ends all terms and releases the leases, so that others can have the shards at
// once.
func (c *campaign) resign(ctx context.Context) {
	names := c.names()
	c.endTerms(func(int, *term) bool { return true })
	c.running.Wait()
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	if err := c.release(ctx, names, nil); err != nil {
		c.Log.Warn("leases could not be released; they expire by themselves", "error", err)
	}
}

func shardName(shard int) string { return fmt.Sprint(store.ShardLease, shard) }

func shardOf(name string) (shard int, ok bool) {
	_, err := fmt.Sscanf(name, store.ShardLease+"%d", &shard)
	return shard, err == nil
}

func shardNames(shards []int) []string {
	names := make([]string, 0, len(shards)+1)
	for _, shard := range shards {
		names = append(names, shardName(shard))
	}
	return names
}

// names are the leases of the node: those of its terms, and its own name.
func (c *campaign) names() []string {
	return append(shardNames(slices.Sorted(maps.Keys(c.terms))), store.NodeLease+c.Node.String())
}

// Owners are the nodes that are to own the shards, given those that hold them now; none if
// there are no nodes. Every node owns as many shards as any other, or one more. Up to that a
// node keeps what it holds, and the rest goes to nodes that own fewer. Nodes that see the same
// leases compute the same owners.
func Owners(holders, nodes []string) []string {
	owners := make([]string, len(holders))
	if len(nodes) == 0 {
		return owners
	}
	nodes = slices.Sorted(slices.Values(nodes))
	owned := make(map[string]int, len(nodes))
	for _, node := range nodes {
		owned[node] = 0
	}
	share, more := len(holders)/len(nodes), len(holders)%len(nodes) // so many nodes own one more
	for shard, node := range holders {
		n, member := owned[node]
		if !member || n > share || n == share && more == 0 {
			continue
		}
		if n == share {
			more--
		}
		owned[node]++
		owners[shard] = node
	}
	for shard, owner := range owners {
		if owner == "" {
			owner = slices.MinFunc(nodes, func(a, b string) int { return cmp.Compare(owned[a], owned[b]) })
			owned[owner]++
			owners[shard] = owner
		}
	}
	return owners
}
