package election

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/servertest"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// recovery only stops a test that would hang.
const recovery = time.Minute

// gate is a connection to a server that a test can hold up, like a network that loses
// everything, or close, like a process that was killed.
type gate struct {
	net.Listener
	mu     sync.RWMutex // held while nothing passes
	closed bool
	conns  []net.Conn
}

func newGate(t *testing.T, server string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l}
	t.Cleanup(g.shut)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, client, upstream)
			closed := g.closed
			g.mu.Unlock()
			if closed {
				client.Close()
				upstream.Close()
			}
			go g.copy(upstream, client)
			go g.copy(client, upstream)
		}
	}()
	return g
}

func (g *gate) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		g.mu.RLock()
		g.mu.RUnlock() //lint:ignore SA2001 it waits while nothing passes
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (g *gate) shut() {
	g.Listener.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, conn := range g.conns {
		conn.Close()
	}
}

// backend is something that elects.
type backend struct {
	kind    belfry.Election
	server  *servertest.Server // nil: PostgreSQL
	limit   time.Duration      // in which a dead owner must be replaced
	current bool               // false: only what may depend on the release is tested
}

// cluster is nodes that elect on a database of their own.
type cluster struct {
	*fleet
	backend
	url, id string
}

// member is a node of a cluster.
type member struct {
	*node
	gate     *gate // to what elects
	database *gate
	store    *postgres.Store
	service  Service    // nil: the database elects
	err      chan error // of the last attempt to renew its leases
}

func newCluster(t *testing.T, b backend) *cluster {
	t.Helper()
	return &cluster{fleet: newFleet(t, 12), backend: b, url: pgtest.Database(t, postgres.Migrate), id: belfry.NewID(time.Now()).String()}
}

// connect makes a client of the service of the cluster.
func (c *cluster) connect(server string) (s Service) {
	c.t.Helper()
	var err error
	if c.kind == belfry.ElectionEtcd {
		s, err = NewEtcd(EtcdOptions{Endpoints: []string{server}}, c.id)
	} else {
		s, err = NewZooKeeper(ZooKeeperOptions{Servers: []string{server}, Root: "/belfry"}, c.id)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// deleteAll ends everything that is held, as an operator may.
func (c *cluster) deleteAll(s Service) {
	c.t.Helper()
	ctx := c.t.Context()
	for _, kind := range []string{store.ShardLease, store.NodeLease} {
		names, err := s.Held(ctx, kind)
		if err != nil || len(names) == 0 {
			c.t.Fatalf("%q are held: %v", names, err)
		}
		for _, name := range names {
			switch s := s.(type) {
			case *etcd:
				var found *clientv3.GetResponse
				if found, err = s.client.Get(ctx, s.prefix+name); err == nil && len(found.Kvs) > 0 { // the first takes all others along
					_, err = s.client.Revoke(ctx, clientv3.LeaseID(found.Kvs[0].Lease))
				}
			case *zooKeeper:
				err = s.conn.Delete(s.path(name), -1)
			}
			if err != nil {
				c.t.Fatal(err)
			}
		}
		if c.kind == belfry.ElectionEtcd {
			return
		}
	}
}

// join starts a node.
func (c *cluster) join() *member {
	c.t.Helper()
	m := &member{node: &node{id: belfry.NewID(time.Now()), done: make(chan struct{})}, err: make(chan error, 1)}
	address, err := url.Parse(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	m.database = newGate(c.t, address.Host)
	address.Host = m.database.Addr().String()
	if c.server == nil {
		m.gate = m.database
	} else {
		m.gate = newGate(c.t, c.server.Addr)
		m.service = c.connect(m.gate.Addr().String())
	}
	m.store, err = postgres.Open(c.t.Context(), postgres.Options{URL: address.String(), Shards: c.leases.shards, Connections: postgres.MinConnections})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	elector := Leases{Store: m.store, Service: m.service, Node: m.id, Log: slog.New(slog.DiscardHandler), Renewed: func(err error) {
		select {
		case <-m.err:
		default:
		}
		m.err <- err
	}}
	go func() {
		defer close(m.done)
		if err := elector.Run(ctx, func(ctx context.Context, term store.Term) { c.lead(ctx, m.node, term) }); err != nil {
			c.t.Errorf("the elector stopped: %v", err)
		}
		if m.service != nil {
			m.service.Close()
		}
	}()
	c.t.Cleanup(func() {
		m.resign()
		m.store.Close()
	})
	return m
}

// lead records a term. A term is over when its context has ended.
func (c *cluster) lead(ctx context.Context, n *node, term store.Term) {
	r := &ledTerm{Term: term, node: n, ctx: ctx, begin: time.Now()}
	c.mu.Lock()
	for _, other := range c.terms {
		if other.Shard == r.Shard && other.end.IsZero() && other.ctx.Err() == nil {
			c.t.Errorf("shard %d is led by %s (epoch %d) and %s (epoch %d)", r.Shard, other.node.id, other.Epoch, n.id, r.Epoch)
		}
	}
	c.terms = append(c.terms, r)
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.end.IsZero() {
		r.end = time.Now()
	}
}

// kill ends a node like kill -9: its connections close, and it leads nothing any more.
func (c *cluster) kill(m *member) {
	m.gate.shut()
	m.database.shut()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.terms {
		if r.node == m.node && r.end.IsZero() {
			r.end = time.Now()
		}
	}
}

// waitLeaders waits until every shard is led by its owner among the nodes, and returns how
// long that took.
func (c *cluster) waitLeaders(members ...*member) time.Duration {
	c.t.Helper()
	var ids []string
	for _, m := range members {
		ids = append(ids, m.id.String())
	}
	return c.wait("every shard has its leader", func() bool {
		leaders := c.leaders()
		holders := make([]string, c.leases.shards)
		for shard, leader := range leaders {
			holders[shard] = leader.id.String()
		}
		return slices.Equal(Owners(holders, ids), holders)
	})
}

func (c *cluster) wait(what string, done func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for !done() {
		if time.Since(start) > recovery {
			c.t.Fatalf("not so after %s: %s; terms: %v", recovery, what, c.leaders())
		}
		time.Sleep(5 * time.Millisecond) // A poll of real servers; nothing depends on how long it is.
	}
	return time.Since(start)
}

// within fails if something took longer than the limit, by much: machines may be busy.
func (c *cluster) within(what string, took, limit time.Duration) {
	c.t.Helper()
	c.t.Logf("%s: %s", what, took.Round(time.Millisecond))
	if os.Getenv("BELFRY_TEST_CHAOS") != "1" {
		limit += 5 * time.Second
	}
	if took > limit {
		c.t.Errorf("%s took %s, want %s", what, took, limit)
	}
}

// since lists the terms that began after the first n.
func (c *cluster) since(n int) []*ledTerm {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.terms[n:])
}

// failure is why the leases of the node could not be renewed last.
func (m *member) failure() string {
	if err := <-m.err; err != nil {
		return err.Error()
	}
	return ""
}

// atOnce runs tests beside each other, however few processors there are: they mostly wait.
func atOnce(t *testing.T, tests map[string]func(t *testing.T)) {
	t.Helper()
	var running sync.WaitGroup
	for name, test := range tests {
		running.Go(func() { t.Run(name, test) })
	}
	running.Wait()
}
