package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// leases is the table of leases that all nodes of a test share.
type leases struct {
	shards int

	mu   sync.Mutex
	rows map[string]*row
}

type row struct {
	owner   belfry.ID
	epoch   int64
	expires time.Time
}

func (l *leases) hold(owner belfry.ID, names []string, ttl time.Duration) (out []store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, name := range names {
		r := l.rows[name]
		if r == nil {
			r = &row{owner: owner, epoch: 1, expires: now}
			l.rows[name] = r
		}
		if r.owner != owner && r.expires.After(now) {
			continue
		}
		if r.owner != owner {
			r.owner, r.epoch = owner, r.epoch+1
		}
		r.expires = now.Add(ttl)
		out = append(out, store.Lease{Name: name, Owner: owner, Epoch: r.epoch})
	}
	return out
}

func (l *leases) release(owner belfry.ID, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, name := range names {
		if r := l.rows[name]; r != nil && r.owner == owner && r.expires.After(now) {
			r.expires = now
		}
	}
}

func (l *leases) held(prefix string) (out []store.Lease) {
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
func (l *leases) row(name string) row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.rows[name]
}

// edit changes a lease behind everybody's back.
func (l *leases) edit(name string, change func(*row)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.rows[name])
}

// fault is what happens to a call on its way. The zero value is a call that takes
// no time.
type fault struct {
	before time.Duration // until the call is carried out
	after  time.Duration // from then until its answer
	fail   bool          // it is never carried out
	lose   bool          // it is carried out, and then fails
}

var (
	down = fault{fail: true}
	hang = fault{before: time.Hour}
	deaf = fault{after: time.Hour} // carries out what it is told, and never answers
)

var errDown = errors.New("the database does not answer")

// link is one node's way to the leases, with its faults.
type link struct {
	store.Store // what an elector has no business with
	*leases

	mu    sync.Mutex
	fault fault
}

func (l *link) suffer(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
}

// call carries something out, as well as the link can, unless the caller gives up
// before.
func (l *link) call(ctx context.Context, do func()) error {
	l.mu.Lock()
	f := l.fault
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

func (l *link) Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) (out []store.Lease, err error) {
	err = l.call(ctx, func() { out = l.hold(owner, names, ttl) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (l *link) Release(ctx context.Context, owner belfry.ID, names []string) error {
	return l.call(ctx, func() { l.release(owner, names) })
}

func (l *link) Held(ctx context.Context, prefix string) (out []store.Lease, err error) {
	err = l.call(ctx, func() { out = l.held(prefix) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (l *link) Shards() int    { return l.leases.shards }
func (l *link) Now() time.Time { return time.Now() }

// fleet is some nodes over the same leases, and a book of who led what and when.
type fleet struct {
	t      *testing.T
	leases *leases
	linger time.Duration // how long a node needs to stop leading

	mu     sync.Mutex
	reigns []*reign // in the order in which they began
}

// reign is one term as it was lived. It ends at once with its context; what a
// node needs to stop comes after that.
type reign struct {
	store.Term
	node  *node
	ctx   context.Context
	begin time.Time
	end   time.Time // zero while it lasts
}

type node struct {
	*link
	id   belfry.ID
	stop context.CancelFunc
	done chan struct{}
}

func newFleet(t *testing.T, shards int) *fleet {
	return &fleet{t: t, leases: &leases{shards: shards, rows: map[string]*row{}}}
}

// start adds a node.
func (f *fleet) start(suffers fault) *node {
	f.t.Helper()
	n := &node{link: &link{leases: f.leases, fault: suffers}, id: belfry.NewID(time.Now()), done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	elector := Leases{Store: n.link, Node: n.id, Log: slog.New(slog.DiscardHandler)}
	go func() {
		defer close(n.done)
		if err := elector.Run(ctx, func(ctx context.Context, term store.Term) { f.lead(ctx, n, term) }); err != nil {
			f.t.Errorf("the elector stopped: %v", err)
		}
	}()
	f.t.Cleanup(func() { n.resign() })
	return n
}

// resign ends a node in good order.
func (n *node) resign() {
	n.stop()
	<-n.done
}

func (f *fleet) lead(ctx context.Context, n *node, term store.Term) {
	r := &reign{Term: term, node: n, ctx: ctx, begin: time.Now()}
	f.mu.Lock()
	for _, other := range f.reigns {
		if other.Shard == r.Shard && other.end.IsZero() {
			f.t.Errorf("%v: shard %d is led by %s (epoch %d) and %s (epoch %d)", r.begin, r.Shard, other.node.id, other.Epoch, n.id, r.Epoch)
		}
	}
	f.reigns = append(f.reigns, r)
	f.mu.Unlock()

	<-ctx.Done()
	time.Sleep(f.linger)
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
	for _, r := range f.reigns {
		if r.end.IsZero() && r.ctx.Err() == nil {
			out[r.Shard] = r.node
		}
	}
	return out
}

// calm fails unless every shard is led by exactly the node that the leases and
// the spread of shards say.
func (f *fleet) calm(nodes ...*node) {
	f.t.Helper()
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.id.String())
	}
	leaders := f.leaders()
	for shard := range f.leases.shards {
		leader, want := leaders[shard], Owner(shard, ids)
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
		return "nobody"
	}
	return fmt.Sprint(n.id)
}

// checkEpochs looks at every shard's reigns in order: the epoch grows with every
// change of owner and never goes back.
func (f *fleet) checkEpochs() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	last := map[int]*reign{}
	for _, r := range f.reigns {
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
	return len(f.reigns)
}
