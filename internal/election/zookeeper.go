package election

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// sessionTimeout is what is asked for, the shortest that a server with usual settings grants.
const sessionTimeout = 4 * time.Second

// ZooKeeperOptions says how to reach ZooKeeper.
type ZooKeeperOptions struct {
	Servers  []string // host:port
	Root     string   // path under which everything is
	AuthFile string   // user:password for digest authentication; empty: none
}

// zooKeeper holds all names of a node by ephemeral nodes of one session.
type zooKeeper struct {
	servers []string
	root    string
	digest  string
	acl     []zk.ACL
	timeout atomic.Int64 // of the session, in milliseconds, as the server said last; 0: there is none
	calls   chan struct{}

	// The rest is for the holder of calls.
	conn    *zk.Conn // nil: not yet connected
	session int64
	held    map[string]bool // what the session holds
	unsure  bool            // it may hold more, or less
}

// NewZooKeeper is the service of a cluster. It reads the file, and connects when it is first used.
func NewZooKeeper(o ZooKeeperOptions, cluster string) (Service, error) {
	z := &zooKeeper{servers: o.Servers, root: strings.TrimSuffix(o.Root, "/") + "/" + cluster, acl: zk.WorldACL(zk.PermAll), calls: make(chan struct{}, 1)}
	if o.AuthFile == "" {
		return z, nil
	}
	var err error
	if z.digest, err = readSecret(o.AuthFile); err == nil && !strings.Contains(z.digest, ":") {
		err = fmt.Errorf("%s is not of the form user:password", o.AuthFile)
	}
	if err != nil {
		return nil, fmt.Errorf("--zookeeper-auth-file: %w", err)
	}
	z.acl = zk.AuthACL(zk.PermAll)
	return z, nil
}

func (z *zooKeeper) Kind() belfry.Election { return belfry.ElectionZooKeeper }

var errNoAnswer = errors.New("no server of --zookeeper-servers answers")

// zkCall calls do with the session. The client knows no contexts, so a call may go on after ctx has
// ended; no other begins before it has returned.
func zkCall[T any](ctx context.Context, z *zooKeeper, do func() (T, error)) (none T, err error) {
	select {
	case z.calls <- struct{}{}:
	case <-ctx.Done():
		return none, errNoAnswer
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-z.calls }()
		err := z.connect()
		var value T
		if err == nil {
			value, err = do()
			// What was asked in one session may have been answered in the next.
			if z.unsure = z.unsure || err != nil; err == nil && z.conn.SessionID() != z.session {
				err = errNoAnswer
			}
		}
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// connect returns an error unless there is a session. It waits for the first one only: after that the
// client connects again by itself.
func (z *zooKeeper) connect() (err error) {
	if z.conn == nil {
		var events <-chan zk.Event
		z.conn, events, err = zk.Connect(z.servers, sessionTimeout, zk.WithDialer(z.dial), zk.WithLogger(silent{}), zk.WithLogInfo(false))
		if err != nil {
			return err
		}
		for timeout := time.After(callTimeout); z.conn.State() != zk.StateHasSession; {
			select {
			case <-events:
			case <-timeout:
				return errNoAnswer
			}
		}
	}
	session := z.conn.SessionID()
	if z.conn.State() != zk.StateHasSession || session == 0 || z.timeout.Load() == 0 {
		return errNoAnswer
	}
	if z.digest != "" {
		if err := z.conn.AddAuth("digest", []byte(z.digest)); err != nil {
			return err
		}
		z.digest = "" // From now on the client repeats it.
	}
	if session != z.session {
		z.session, z.unsure = session, true
	}
	return nil
}

// Hold proves with a write that the session lives: reads are answered by servers that have lost
// the others. A server reports the sessions of its clients to the leader once in half a tick, and
// a session lasts two ticks at least: so a quarter of it may have passed already.
func (z *zooKeeper) Hold(ctx context.Context, owner belfry.ID, names []string) (held []string, lasts time.Duration, err error) {
	held, err = zkCall(ctx, z, func() ([]string, error) {
		self := store.NodeLease + owner.String()
		if z.unsure {
			if err := z.load(); err != nil {
				return nil, err
			}
		}
		if z.held[self] {
			if err := z.renew(self); err != nil {
				return nil, err
			}
		}
		want := map[string]bool{}
		for _, name := range names {
			want[name] = true
		}
		if err := z.remove(without(z.held, want), self); err != nil {
			return nil, err
		}
		err := z.change(without(want, z.held), func(name string) (bool, error) { return z.create(name, owner) })
		if err != nil {
			return nil, err
		}
		return without(z.held, nil), nil
	})
	return held, time.Duration(z.timeout.Load()) * time.Millisecond * 3 / 4, err
}

// renew writes to the node's own name, and checks that all others exist.
func (z *zooKeeper) renew(self string) error {
	ops := []any{&zk.SetDataRequest{Path: z.path(self), Version: -1}}
	for name := range z.held {
		ops = append(ops, &zk.CheckVersionRequest{Path: z.path(name), Version: -1})
	}
	_, err := z.conn.Multi(ops...)
	return err
}

// change calls what for each name, all at once, and notes what the session holds then.
func (z *zooKeeper) change(names []string, what func(name string) (held bool, err error)) error {
	var calls sync.WaitGroup
	held, errs := make([]bool, len(names)), make([]error, len(names))
	for i, name := range names {
		calls.Go(func() { held[i], errs[i] = what(name) })
	}
	calls.Wait()
	for i, name := range names {
		if delete(z.held, name); held[i] {
			z.held[name] = true
		}
	}
	return errors.Join(errs...)
}

func (z *zooKeeper) create(name string, owner belfry.ID) (bool, error) {
	_, err := z.conn.Create(z.path(name), []byte(owner.String()), zk.FlagEphemeral, z.acl)
	if errors.Is(err, zk.ErrNodeExists) {
		return false, nil
	}
	return err == nil, err
}

// remove deletes names. If the session has ended meanwhile, so has self, and what another
// session has of these names stays.
func (z *zooKeeper) remove(names []string, self string) error {
	if len(names) == 0 {
		return nil
	}
	ops := []any{&zk.CheckVersionRequest{Path: z.path(self), Version: -1}}
	for _, name := range names {
		ops = append(ops, &zk.DeleteRequest{Path: z.path(name), Version: -1})
		delete(z.held, name)
	}
	_, err := z.conn.Multi(ops...)
	return err
}

// load reads what the session holds.
func (z *zooKeeper) load() error {
	var names []string
	for _, kind := range []string{store.NodeLease, store.ShardLease} {
		found, err := z.list(kind)
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	z.held = map[string]bool{}
	err := z.change(names, func(name string) (bool, error) {
		_, stat, err := z.conn.Get(z.path(name))
		if errors.Is(err, zk.ErrNoNode) {
			return false, nil
		}
		return err == nil && stat.EphemeralOwner == z.session, err
	})
	z.unsure = err != nil
	return err
}

// list lists the names of a kind, and makes the path to them if there is none.
func (z *zooKeeper) list(kind string) (names []string, err error) {
	path := strings.TrimSuffix(z.path(kind), "/")
	children, _, err := z.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		for i := range path + "/" {
			if i > 0 && (i == len(path) || path[i] == '/') {
				if _, err := z.conn.Create(path[:i], nil, 0, z.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
					return nil, fmt.Errorf("create %s: %w", path[:i], err)
				}
			}
		}
		return nil, nil
	}
	for _, child := range children {
		names = append(names, kind+child)
	}
	return names, err
}

func (z *zooKeeper) Held(ctx context.Context, prefix string) ([]string, error) {
	return zkCall(ctx, z, func() ([]string, error) { return z.list(prefix) })
}

func (z *zooKeeper) Close() {
	select {
	case z.calls <- struct{}{}:
		if z.conn != nil {
			z.conn.Close()
		}
	case <-time.After(callTimeout): // a call gets no answer
	}
}

func (z *zooKeeper) path(name string) string { return z.root + "/" + name }

// without lists the keys of a that b does not have.
func without(a, b map[string]bool) (keys []string) {
	for key := range a {
		if !b[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (z *zooKeeper) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	return &zkConn{Conn: conn, timeout: &z.timeout}, err
}

// zkConn is a connection that reads the timeout of the session from the first reply of the
// server: the client does not tell which one was granted.
type zkConn struct {
	net.Conn
	timeout *atomic.Int64
	first   []byte // length, protocol and timeout, 4 bytes each
}

func (c *zkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if missing := 12 - len(c.first); missing > 0 {
		if c.first = append(c.first, b[:min(n, missing)]...); len(c.first) == 12 {
			c.timeout.Store(int64(binary.BigEndian.Uint32(c.first[8:])))
		}
	}
	return n, err
}

// SetReadDeadline is no later than a session lasts: the client gives a server that accepts
// connections and says nothing ten times as long.
func (c *zkConn) SetReadDeadline(t time.Time) error {
	session := max(sessionTimeout, time.Duration(c.timeout.Load())*time.Millisecond)
	if latest := time.Now().Add(session); t.After(latest) {
		t = latest
	}
	return c.Conn.SetReadDeadline(t)
}
