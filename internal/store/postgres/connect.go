package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-sh/belfry"
)

// Connections of a node.
const (
	DefaultConnections = 20
	MinConnections     = 8

	listenConnections   = 1 // for notifications
	priorityConnections = 3 // for heartbeats, leases, the clock and Reap
	readShare           = 4 // of all connections, one in so many is for reads of the API, at least two
	fireConnections     = 2 // for Fire, and as many for Finish, unless the node may open few
)

const (
	minVersion     = 150000 // of the server, as it reports it
	connectTimeout = 3 * time.Second
)

// connection is how to connect to a server.
type connection struct {
	config       *pgxpool.Config
	behindPooler bool // in transaction mode: a session keeps no settings, no prepared statements and no LISTEN
}

// inspect parses a URL, checks the server's version and finds out whether there is a
// pooler in between. A session of the server has the process id that the server gave when
// it began; a pooler gives one of its own. A URL can also name the query mode that a pooler
// needs (default_query_exec_mode=exec).
func inspect(ctx context.Context, url string) (*connection, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, belfry.Errorf(belfry.Invalid, "read the database URL: %w", hidePassword(err))
	}
	config.ConnConfig.ConnectTimeout = connectTimeout
	config.MaxConnLifetimeJitter = 5 * time.Minute
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = 0
	}
	c := &connection{config: config, behindPooler: usesPooler(config.ConnConfig)}
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var version int
	var process uint32
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&version, &process); err != nil {
		return nil, wrapError("read the version of the database", err)
	}
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	if c.behindPooler = c.behindPooler || process != conn.PgConn().PID(); c.behindPooler && !usesPooler(config.ConnConfig) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	c.setSession()
	return c, nil
}

// open opens a connection outside of the pools. The error says what was tried and why it
// failed, in one line.
func (c *connection) open(ctx context.Context) (conn *pgx.Conn, err error) {
	err = retryConnect(ctx, func() error {
		conn, err = pgx.ConnectConfig(ctx, c.config.ConnConfig)
		return err
	})
	if err != nil {
		to := c.config.ConnConfig
		return nil, belfry.Errorf(belfry.Unavailable, "cannot connect to PostgreSQL at %s, database %q, user %q: %s",
			strings.Join(addresses(&to.Config), ", "), cmp.Or(to.Database, to.User), to.User, connectFailure(err))
	}
	return conn, nil
}

// addresses are the servers that are tried, each once although it may be tried with and
// without TLS.
func addresses(c *pgconn.Config) []string {
	_, first := pgconn.NetworkAddress(c.Host, c.Port)
	list := []string{first}
	for _, f := range c.Fallbacks {
		if _, next := pgconn.NetworkAddress(f.Host, f.Port); !slices.Contains(list, next) {
			list = append(list, next)
		}
	}
	return list
}

// connectFailure says in a few words why a connection failed: what a server answered, or
// else the cause of the first failure.
func connectFailure(err error) string {
	var refused *pgconn.PgError
	var lookup *net.DNSError
	var cause syscall.Errno
	switch {
	case errors.As(err, &refused):
		return refused.Message
	case errors.As(err, &lookup):
		return lookup.Err
	case errors.As(err, &cause):
		return cause.Error()
	case pgconn.Timeout(err):
		return fmt.Sprintf("no answer within %s", connectTimeout)
	}
	for deeper := err; deeper != nil; deeper = errors.Unwrap(deeper) {
		err = deeper
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// warnAboutTLS logs that the connection to another machine does not check the certificate of
// the server, or not its name.
func (c *connection) warnAboutTLS(log *slog.Logger) {
	to := &c.config.ConnConfig.Config
	for _, host := range append([]*pgconn.FallbackConfig{{Host: to.Host}}, to.Fallbacks...) {
		addr, err := netip.ParseAddr(host.Host)
		if network, _ := pgconn.NetworkAddress(host.Host, 1); network == "unix" || host.Host == "localhost" || err == nil && addr.Unmap().IsLoopback() {
			continue
		}
		if mode := tlsMode(to); mode != "verify-full" {
			log.Warn("the connection to the database is not protected from who is between: set sslmode=verify-full and sslrootcert in the URL", "sslmode", mode, "host", host.Host)
			return
		}
	}
}

// tlsMode is the sslmode that made a configuration. One of several ways to connect may be
// without TLS.
func tlsMode(c *pgconn.Config) string {
	first, plain := c.TLSConfig, c.TLSConfig == nil
	for _, f := range c.Fallbacks {
		plain = plain || f.TLSConfig == nil
		if first == nil && f.TLSConfig != nil {
			return "allow"
		}
	}
	switch {
	case first == nil:
		return "disable"
	case plain:
		return "prefer"
	case first.InsecureSkipVerify && first.VerifyPeerCertificate == nil:
		return "require"
	case first.InsecureSkipVerify:
		return "verify-ca"
	}
	return "verify-full"
}

func checkVersion(version int) error {
	if version < minVersion {
		return belfry.Errorf(belfry.Invalid, "the server is PostgreSQL %d.%d, and Belfry needs %d or newer", version/10000, version%10000, minVersion/10000)
	}
	return nil
}

// sessionSettings are settings that guarantees depend on, with the values that they need. A
// session behind a pooler has those of its role.
var sessionSettings = map[string]string{"synchronous_commit": "on", "default_transaction_isolation": "read committed"}

// setSession limits how long a session may wait. A pooler in transaction mode keeps no
// session settings, and refuses most startup parameters.
func (c *connection) setSession() {
	defaults := map[string]string{"application_name": "belfry"}
	if !c.behindPooler {
		defaults["timezone"] = "UTC"
		defaults["statement_timeout"] = strconv.FormatInt(statementTimeout.Milliseconds(), 10)
		defaults["lock_timeout"] = "2000"
		defaults["idle_in_transaction_session_timeout"] = "5000"
		defaults["jit"] = "off"
		maps.Copy(defaults, sessionSettings)
	}
	maps.Copy(defaults, c.config.ConnConfig.RuntimeParams)
	c.config.ConnConfig.RuntimeParams = defaults
}

// usesPooler reports whether a URL has the query mode that a pooler in transaction mode
// needs.
func usesPooler(c *pgx.ConnConfig) bool {
	return c.DefaultQueryExecMode == pgx.QueryExecModeExec || c.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol
}

// connect opens the pools, which together have as many connections as the node may open:
// the given number, that of the URL (pool_max_conns), or the default.
func (s *Store) connect(ctx context.Context, c *connection, connections int) error {
	if connections == 0 {
		connections = int(c.config.MaxConns)
	}
	if connections == 0 {
		connections = DefaultConnections
	}
	if connections < MinConnections {
		return belfry.Errorf(belfry.Invalid, "%d connections to the database are too few for a node: allow it %d or more", connections, MinConnections)
	}
	s.behindPooler = c.behindPooler
	reads := max(2, connections/readShare)
	writes, own := connections-priorityConnections-listenConnections-reads, fireConnections
	if writes < 3*own {
		own = 0
	}
	tracer := &healthTracer{log: s.log, writeFailure: &s.writeFailure, metrics: s.metrics}
	var pools []*pgxpool.Pool
	// A plan that was cached while runs were few must not read all of them when they are many.
	// A bitmap scan reads the entries of finished runs again and again: it marks none as dead.
	// The few long statements of a burst have one good plan, whatever their arguments; by
	// default PostgreSQL would make it anew five times in each connection.
	lookup := map[string]string{"enable_seqscan": "off"}
	burst := map[string]string{"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
	for _, p := range []struct {
		pool     **pool
		max      int
		settings map[string]string
	}{
		{&s.priorityPool, priorityConnections, map[string]string{"enable_seqscan": "off", "enable_bitmapscan": "off"}},
		{&s.readPool, reads, nil},
		{&s.firePool, own, burst},
		{&s.finishPool, own, burst},
		{&s.pool, writes - 2*own, lookup},
	} {
		if p.max == 0 {
			continue
		}
		config := c.config.Copy()
		config.MaxConns, config.MinIdleConns = int32(p.max), 1 // so that a call seldom waits for a new one
		for setting, value := range p.settings {
			if _, set := config.ConnConfig.RuntimeParams[setting]; !set && !c.behindPooler {
				config.ConnConfig.RuntimeParams[setting] = value
			}
		}
		config.ConnConfig.Tracer, config.ShouldPing, config.BeforeClose = tracer, tracer.ping, tracer.closeNow
		config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			registerArrays(conn.TypeMap())
			return nil
		}
		opened, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			s.closePools()
			return fmt.Errorf("open the database: %w", err)
		}
		*p.pool = &pool{opened}
		pools = append(pools, opened)
	}
	tracer.pools.Store(&pools)
	return nil
}

func (s *Store) closePools() {
	for _, p := range s.pools() {
		p.Close()
	}
}

// warnAboutSettings logs settings that weaken guarantees, where they cannot be set.
func (s *Store) warnAboutSettings(ctx context.Context) error {
	for name, want := range sessionSettings {
		var got string
		if err := s.pool.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&got); err != nil {
			return wrapError("read the settings of the database", err)
		}
		if got != want {
			s.log.Warn("a setting of the database role weakens guarantees; set it with ALTER ROLE", "setting", name, "value", got, "needed", want)
		}
	}
	return nil
}
