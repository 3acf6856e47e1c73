// Package node assembles and runs one process: store, API, scheduler and worker.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/alert"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/broker"
	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/dispatch"
	"github.com/belfry-sh/belfry/internal/election"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/scheduler"
	"github.com/belfry-sh/belfry/internal/secretstore"
	"github.com/belfry-sh/belfry/internal/share"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/tracing"
	"github.com/belfry-sh/belfry/worker"
)

// Node is one process with some of the roles.
type Node struct {
	config    Config
	log       *slog.Logger
	id        belfry.ID
	store     store.Store
	downSince time.Time // when the process before it stopped, if only one can use the store
	listener  net.Listener
	keyFile   *api.Keys // nil: there is none
	access    *api.Access
	bootstrap string         // the key that was made for the first start
	oidc      *oidc.Provider // nil: people log in with API keys
	targets   *target.Guard
	metrics   *metrics.Metrics
	tracing   *tracing.Tracing     // nil: no traces are exported
	draining  chan struct{}        // closed when the node begins to shut down
	stalled   func() time.Duration // of the scheduler: for how long it makes no progress
	taken     chan []int           // shards that it has begun to lead
	service   election.Service     // which elects; nil: the database does
	elections elections
	quotas    share.Quotas // of namespaces

	queue       dispatch.Queue      // of announcements; nil: workers find ready runs in the database
	connections *broker.Connections // nil: no jobs of type message
	secrets     *secretstore.Source
	encryption  *secretstore.Store

	certificates    *certificates // nil: no TLS
	metricsListener net.Listener  // nil: metrics are served with the API alone
}

// New opens the store and the port. The caller calls Run, which closes them.
func New(ctx context.Context, c Config, log *slog.Logger) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := &Node{config: c, log: log, id: belfry.NewID(time.Now()), metrics: metrics.New(), draining: make(chan struct{}), stalled: func() time.Duration { return 0 }, taken: make(chan []int, 16)}
	if err := n.open(ctx); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// open opens everything in order, keys last: one that is made is shown once.
func (n *Node) open(ctx context.Context) error {
	for _, open := range []func(context.Context) error{
		n.openTargets, n.readKeyFile, n.openTLS, n.openConnections, n.openQueue, n.openStore, n.openSecrets, n.openOIDC, n.openTracing, n.listen, n.openKeys,
	} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) openTargets(context.Context) error {
	allow, err := parsePrefixes(n.config.AllowTargets)
	n.targets = target.NewGuard(n.config.privateTargets(), allow)
	n.targets.Log = n.log
	return err
}

func (n *Node) openTracing(ctx context.Context) error {
	if n.tracing = tracing.New(ctx, n.id, n.config.Version, n.log); n.tracing != nil {
		n.store = n.tracing.Store(n.store)
	}
	return nil
}

// listen opens the port, and the one for metrics, if there is to be one: on this machine alone,
// unless its address names another host. A peer of the API that has disappeared, such as a
// worker that waits for a run, is noticed within half a minute.
func (n *Node) listen(ctx context.Context) (err error) {
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	if n.listener, err = config.Listen(ctx, "tcp", n.config.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if host, port, invalid := net.SplitHostPort(n.config.MetricsListen); invalid == nil {
		if n.metricsListener, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)); err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
	}
	return nil
}

func (n *Node) openStore(ctx context.Context) error {
	if n.config.DatabaseURL != "" {
		var opened *postgres.Store
		err := n.waitForDatabase(ctx, func() (err error) {
			opened, err = postgres.Open(ctx, postgres.Options{URL: n.config.DatabaseURL, Shards: n.config.Shards, Connections: n.config.Connections, Log: n.log, Metrics: n.metrics})
			return err
		})
		if err != nil {
			return err
		}
		n.store = opened
		return n.openElection(ctx, opened.ClusterID)
	}
	opened, err := sqlite.Open(ctx, sqlite.Options{Dir: n.config.Data, Shards: n.config.Shards, Log: n.log, Metrics: n.metrics})
	if err == nil {
		n.store, n.downSince = opened, opened.DownSince()
	}
	return err
}

// Migrate brings the schema of a PostgreSQL database up to date. It returns the version that
// it had, 0 if there was none, and the scripts that were missing. With check it changes
// nothing.
func Migrate(ctx context.Context, url string, check bool) (before int, missing []string, err error) {
	before, missing, err = postgres.Versions(ctx, url)
	if err == nil && !check {
		err = postgres.Migrate(ctx, url)
	}
	return before, missing, err
}

// The pauses between two attempts to open the database at the start.
const (
	firstDatabasePause = 250 * time.Millisecond
	maxDatabasePause   = 4 * time.Second
)

// waitForDatabase repeats open while the database cannot be used, for as long as the
// configuration says: a server that starts at the same time may not answer yet, and its
// databases and roles may be created later. A reason is logged when it is a new one.
func (n *Node) waitForDatabase(ctx context.Context, open func() error) error {
	said := ""
	pause := firstDatabasePause
	for started := time.Now(); ; pause = min(2*pause, maxDatabasePause) {
		err := open()
		left := n.config.DatabaseWait - time.Since(started)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !store.IsTrouble(err) || n.config.DatabaseWait == 0:
			return fmt.Errorf("--database-url: %w", err)
		case left <= 0:
			return fmt.Errorf("--database-url: %w; it was tried for %s, see --database-wait", err, n.config.DatabaseWait)
		case err.Error() != said:
			said = err.Error()
			n.log.Warn("waiting for the database", "error", err, "at_most", left.Round(time.Second))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, left)):
		}
	}
}

// Addr is the address that the node listens on.
func (n *Node) Addr() net.Addr { return n.listener.Addr() }

// MetricsAddr is the address of the listener for metrics; nil: there is none.
func (n *Node) MetricsAddr() net.Addr {
	if n.metricsListener == nil {
		return nil
	}
	return n.metricsListener.Addr()
}

// AllowsTarget reports whether jobs may call a host, which is an address or localhost, from
// this node.
func (n *Node) AllowsTarget(host string) bool { return n.targets.Blocked(host) == nil }

// Shards is the number of shards of its store.
func (n *Node) Shards() int { return n.store.Shards() }

// Run runs the node until ctx ends, then drains: nothing more is claimed, running
// attempts finish or are returned, leases are released, and the port is closed last.
func (n *Node) Run(ctx context.Context) error {
	defer n.close()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	work, ctx := errgroup.WithContext(ctx)
	local := scheduler.NewLocal(ctx, n.store)
	local.Share(&n.quotas, n.metrics)
	go n.quotas.Run(ctx, n.store)
	var offers control.Offers
	var s *scheduler.Scheduler
	if n.config.has(RoleScheduler) {
		offers = local
		s = scheduler.New(n.store, scheduler.Options{Owner: n.id, Local: local, Retention: n.config.Retention, AuditRetention: n.config.AuditRetention, Defaults: n.config.planDefaults(), Log: n.log, Metrics: n.metrics})
		n.stalled = s.Stalled
		work.Go(func() error { return s.Run(ctx) })
		work.Go(func() error { return n.elect(ctx, s.Lead) })
		work.Go(func() error { return alert.New(n.store, n.sender(), n.id, n.log).Run(ctx) })
		background(ctx, work, func(ctx context.Context) { n.collectCluster(ctx, s.Owned) })
		if n.queue != nil {
			background(ctx, work, (&dispatch.Announcer{Store: n.store, Queue: n.queue, Owned: s.Owned, Log: n.log, Metrics: n.metrics}).Run)
		}
	}
	background(ctx, work, n.keepMembership)
	background(ctx, work, n.recordActivity)
	var pool *worker.Pool
	if n.config.has(RoleWorker) {
		pool = n.pool(n.source(ctx, local))
		work.Go(func() error { return pool.Run(ctx) })
		if n.config.Commands != nil {
			work.Go(func() error { return n.commandPool(local).Run(ctx) })
		}
	}
	n.metrics.ObserveNode(func() metrics.Node { return n.state(s, pool) })
	server := n.startServing(serving, stop, offers)
	background(ctx, work, func(ctx context.Context) {
		<-ctx.Done()
		close(n.draining)
	})
	err := work.Wait()
	stopServing()
	return errors.Join(err, server.Wait())
}

// background runs what cannot fail in a group.
func background(ctx context.Context, g *errgroup.Group, run func(context.Context)) {
	g.Go(func() error {
		run(ctx)
		return nil
	})
}

// sender sends alerts to receivers that jobs may call as well.
func (n *Node) sender() *notify.Sender {
	s := notify.New(n.targets.Dialer(nil).DialContext, nil)
	s.PublicURL = n.config.PublicURL
	return s
}

// pool executes runs of the built-in handlers.
func (n *Node) pool(source worker.Source) *worker.Pool {
	mux := worker.NewMux()
	options := target.HTTPOptions{Guard: n.targets, Concurrency: n.config.Concurrency, Secrets: n.secrets}
	if n.tracing != nil {
		options.Span = n.tracing.ClientSpan
	}
	options.SigningKeys = (&target.SigningKeys{Secrets: n.secrets, Namespaces: n.store.Namespaces}).Find
	mux.Handle(belfry.TypeHTTP, target.NewHTTP(options))
	if n.config.AllowShell {
		command.HideEnvironment()
		mux.Handle(belfry.TypeCommand, command.Shell())
	}
	if n.connections != nil {
		mux.Handle(belfry.TypeMessage, n.connections)
	}
	for kind, handler := range n.config.Handlers {
		mux.Handle(kind, handler)
	}
	return worker.New(source, mux, worker.Concurrency(n.config.Concurrency), worker.DrainTimeout(n.config.DrainTimeout), worker.Log(n.log))
}

// ready returns an error if the node should get no requests.
func (n *Node) ready(ctx context.Context) error {
	select {
	case <-n.draining:
		return belfry.Errorf(belfry.Unavailable, "this node is shutting down")
	default:
	}
	if n.access.File != nil {
		if err := n.access.File.Err(); err != nil {
			return err
		}
	}
	if err := n.store.Ping(ctx); err != nil {
		return err
	}
	if stalled := n.stalled(); stalled > 0 {
		return belfry.Errorf(belfry.Unavailable, "the scheduler of this node has made no progress for %s; its shards are given to other nodes", stalled.Round(time.Second))
	}
	return n.elections.err()
}

func (n *Node) close() {
	n.connections.Close()
	for _, l := range []net.Listener{n.listener, n.metricsListener} {
		if l != nil {
			l.Close()
		}
	}
	if n.queue != nil {
		n.queue.Close()
	}
	if n.store != nil {
		if err := n.store.Close(); err != nil {
			n.log.Warn("the store did not close cleanly", "error", err)
		}
	}
}
