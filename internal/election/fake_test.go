package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// leaseTable is the leases that all nodes of a test share.
type leaseTable struct {
	shards int

	mu   sync.Mutex
	rows map[string]*row
}

type row struct {
	owner   belfry.ID
	epoch   int64
	expires time.Time
}

func (l *leaseTable) hold(owner belfry.ID, names []string, ttl time.Duration) (out []store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, name := range names {
		r := l.rows[name]
		var ended time.Time
		if r == nil {
			r = &row{owner: owner, epoch: 1, expires: now}
			l.rows[name] = r
		} else if !r.expires.After(now) {
			ended = r.expires
		}
		if r.owner != owner && r.expires.After(now) {
			continue
		}
		if r.owner != owner {
			r.owner, r.epoch = owner, r.epoch+1
		}
		r.expires = now.Add(ttl)
		out = append(out, store.Lease{Name: name, Owner: owner, Epoch: r.epoch, EndedAt: ended})
	}
	return out
}

func (l *leaseTable) release(owner belfry.ID, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, name := range names {
		if r := l.rows[name]; r != nil && r.owner == owner && r.expires.After(now) {
			r.expires = now
		}
	}
}

func (l *leaseTable) held(prefix string) (out []store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, r := range l.rows {
		if strings.HasPrefix(name, prefix) && r.expires.After(time.Now()) {
			out = append(out, store.Lease{Name: name, Owner: r.owner, Epoch: r.epoch})
		}
	}
	slices.SortFunc(out, func(a, b store.Lease) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// row gives a copy of a lease, expired or not.
func (l *leaseTable) row(name string) row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.rows[name]
}

// edit changes a lease as another process might.
func (l *leaseTable) edit(name string, change func(*row)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.rows[name])
}

// linkState is what happens to calls of a node. The zero value is calls that take no
// time.
type linkState struct {
	before time.Duration // until the call is executed
	after  time.Duration // from then until its reply
	fail   bool          // it is never executed
	lose   bool          // it is executed, and then fails
}

var (
	down    = linkState{fail: true}
	hang    = linkState{before: time.Hour}
	noReply = linkState{after: time.Hour} // the call is executed, but its reply never arrives
)

var errDown = errors.New("the database does not answer")

// nodeStore is the store as one node sees it.
type nodeStore struct {
	*leaseTable

	mu    sync.Mutex
	state linkState
}

func (l *nodeStore) setState(f linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = f
}

// call executes do as the state of the link allows, unless ctx ends before.
func (l *nodeStore) call(ctx context.Context, do func()) error {
	l.mu.Lock()
	f := l.state
	l.mu.Unlock()
	if err := wait(ctx, f.before); err != nil {
		return err
	}
	if f.fail {
		return errDown
	}
	do()
	if err := wait(ctx, f.after); err != nil {
		return err
	}
	if f.lose {
		return errDown
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}

func (l *nodeStore) Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) (out []store.Lease, err error) {
	err = l.call(ctx, func() { out = l.hold(owner, names, ttl) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (l *nodeStore) Release(ctx context.Context, owner belfry.ID, names []string) error {
	return l.call(ctx, func() { l.release(owner, names) })
}

func (l *nodeStore) Held(ctx context.Context, prefix string) (out []store.Lease, err error) {
	err = l.call(ctx, func() { out = l.held(prefix) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Wakeups never come: polling has to do.
func (l *nodeStore) Wakeups(context.Context, store.Topic) <-chan struct{} { return nil }

func (l *nodeStore) Shards() int    { return l.leaseTable.shards }
func (l *nodeStore) Now() time.Time { return time.Now() }

// fleet is nodes that share leases, with a record of the terms that they led.
type fleet struct {
	t         *testing.T
	leases    *leaseTable
	stopDelay time.Duration // how long a node needs to stop leading

	mu    sync.Mutex
	terms []*ledTerm // in the order in which they began
}

// ledTerm is one term as a node led it. It ends with its context; what a node needs to
// stop comes after that.
type ledTerm struct {
	store.Term
	node  *node
	ctx   context.Context
	begin time.Time
	end   time.Time // zero while it lasts
}

type node struct {
	stalled atomic.Int64 // for how long its leader makes no progress
	taken   atomic.Int64 // shards that it has reported to have taken over
	*nodeStore
	id   belfry.ID
	stop context.CancelFunc
	done chan struct{}
}

func newFleet(t *testing.T, shards int) *fleet {
	return &fleet{t: t, leases: &leaseTable{shards: shards, rows: map[string]*row{}}}
}

// start adds a node.
func (f *fleet) start(state linkState) *node {
	f.t.Helper()
	n := &node{nodeStore: &nodeStore{leaseTable: f.leases, state: state}, id: belfry.NewID(time.Now()), done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	elector := Leases{Store: n.nodeStore, Node: n.id, Log: slog.New(slog.DiscardHandler), Stalled: func() time.Duration { return time.Duration(n.stalled.Load()) },
		TakenOver: func(shards []int) { n.taken.Add(int64(len(shards))) }}
	go func() {
		defer close(n.done)
		if err := elector.Run(ctx, func(ctx context.Context, term store.Term) { f.lead(ctx, n, term) }); err != nil {
			f.t.Errorf("the elector stopped: %v", err)
		}
	}()
	f.t.Cleanup(func() { n.resign() })
	return n
}

func (n *node) resign() {
	n.stop()
	<-n.done
}

func (f *fleet) lead(ctx context.Context, n *node, term store.Term) {
	r := &ledTerm{Term: term, node: n, ctx: ctx, begin: time.Now()}
	f.mu.Lock()
	for _, other := range f.terms {
		if other.Shard == r.Shard && other.end.IsZero() {
			f.t.Errorf("%v: shard %d is led by %s (epoch %d) and %s (epoch %d)", r.begin, r.Shard, other.node.id, other.Epoch, n.id, r.Epoch)
		}
	}
	f.terms = append(f.terms, r)
	f.mu.Unlock()

	<-ctx.Done()
	time.Sleep(f.stopDelay)
	f.mu.Lock()
	r.end = time.Now()
	f.mu.Unlock()
}

// leaders gives the node that leads each shard now; a term whose context ended is
// over even if its node still tidies up.
func (f *fleet) leaders() map[int]*node {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[int]*node{}
	for _, r := range f.terms {
		if r.end.IsZero() && r.ctx.Err() == nil {
			out[r.Shard] = r.node
		}
	}
	return out
}

// wantLeaders fails unless every shard is led by one of the nodes, which has the lease, and
// they lead equally many.
func (f *fleet) wantLeaders(nodes ...*node) {
	f.t.Helper()
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.id.String())
	}
	leaders, holders := f.leaders(), make([]string, f.leases.shards)
	for shard, leader := range leaders {
		holders[shard] = leader.id.String()
	}
	for shard, want := range Owners(holders, ids) {
		leader := leaders[shard]
		if leader == nil || leader.id.String() != want {
			f.t.Errorf("%v: shard %d is led by %v, want %s", time.Now(), shard, leader.name(), want)
			continue
		}
		if r := f.leases.row(shardName(shard)); r.owner != leader.id || !r.expires.After(time.Now()) {
			f.t.Errorf("shard %d is led by %s without a lease", shard, leader.id)
		}
	}
	f.checkEpochs()
}

func (n *node) name() string {
	if n == nil {
		return "no node"
	}
	return fmt.Sprint(n.id)
}

// checkEpochs compares the terms of every shard in order: the epoch grows with every
// change of owner and never goes back.
func (f *fleet) checkEpochs() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[int]*ledTerm{}
	for _, r := range f.terms {
		if before := last[r.Shard]; before != nil && (r.Epoch < before.Epoch || r.Epoch == before.Epoch && r.node != before.node) {
			f.t.Errorf("shard %d went from epoch %d of %s to %d of %s", r.Shard, before.Epoch, before.node.id, r.Epoch, r.node.id)
		}
		last[r.Shard] = r
	}
}

// count is how many terms began so far.
func (f *fleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.terms)
}
