package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-sh/belfry"
)

func (s *Store) connect(ctx context.Context, url string) error {
	config, err := poolConfig(url)
	if err != nil {
		return err
	}
	s.behindPooler = usesPooler(config.ConnConfig)
	if s.pool, err = s.newPool(ctx, config); err != nil {
		return err
	}
	config = config.Copy()
	config.MaxConns, config.MinConns = 3, 1
	if s.priorityPool, err = s.newPool(ctx, config); err != nil {
		s.pool.Close()
		return err
	}
	return nil
}

func (s *Store) newPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	tracer := &healthTracer{log: s.log, writeFailure: &s.writeFailure}
	config.ConnConfig.Tracer, config.ShouldPing, config.BeforeClose = tracer, tracer.ping, tracer.closeNow
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	tracer.pool.Store(pool)
	return pool, nil
}

// healthTracer replaces all connections of a pool after a statement that got no answer
// in time. A route or a firewall that drops packets makes them all silent at once, and
// to find that out one by one would take long.
type healthTracer struct {
	pool atomic.Pointer[pgxpool.Pool]
	last atomic.Int64 // when connections were last replaced, in Unix seconds
	log  *slog.Logger

	writeFailure *atomic.Pointer[writeFailure] // of the last write
}

// writeFailure is why the server took no writes.
type writeFailure struct {
	why string
	at  time.Time
}

// writeFailures are the SQLSTATE codes of a server that takes no writes at all.
var writeFailures = map[string]string{"53100": "its disk is full", "25006": "it is read-only"}

// noteWrite remembers that the server refuses all writes, until it takes one.
func (t *healthTracer) noteWrite(tag pgconn.CommandTag, err error) {
	if why := writeFailures[sqlState(err)]; why != "" {
		t.writeFailure.Store(&writeFailure{why, time.Now()})
	} else if err == nil && !tag.Select() && tag.RowsAffected() > 0 && t.writeFailure.Load() != nil {
		t.writeFailure.Store(nil)
	}
}

func (t *healthTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (t *healthTracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	t.noteWrite(d.CommandTag, d.Err)
	t.check(d.Err)
}

func (t *healthTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (t *healthTracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	t.noteWrite(d.CommandTag, d.Err)
}

func (t *healthTracer) TraceBatchEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	t.check(d.Err)
}

func (t *healthTracer) check(err error) {
	pool, last, now := t.pool.Load(), t.last.Load(), time.Now().Unix()
	if pool == nil || !errors.Is(err, context.DeadlineExceeded) || now-last < int64(minReset.Seconds()) || !t.last.CompareAndSwap(last, now) {
		return
	}
	t.log.Warn("the database did not answer in time; its connections are replaced")
	pool.Reset()
}

// ping checks a connection that was idle for a while before it is used. It returns
// whether the pool is to find out itself that the connection does not work.
func (t *healthTracer) ping(ctx context.Context, p pgxpool.ShouldPingParams) bool {
	if p.IdleDuration < time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := p.Conn.Ping(ctx)
	t.check(err)
	return err != nil
}

// closeNow closes a connection at once while others are silent: to wait for the server's
// answer would keep its place in the pool.
func (t *healthTracer) closeNow(conn *pgx.Conn) {
	if time.Now().Unix()-t.last.Load() < int64(silenceLasts.Seconds()) {
		conn.PgConn().Conn().Close()
	}
}

const (
	minReset     = 3 * time.Second  // between two replacements: a slow database must not be slowed further
	silenceLasts = 30 * time.Second // for how long connections are closed without waiting for the server after one was silent
)

// poolConfig parses the URL and limits how long a session may wait. A pooler in
// transaction mode keeps no session settings.
func poolConfig(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, belfry.Errorf(belfry.Invalid, "read the database URL: %w", hidePassword(err))
	}
	config.ConnConfig.ConnectTimeout = 3 * time.Second
	config.MaxConnLifetimeJitter = 5 * time.Minute
	config.MaxConns = max(config.MaxConns, 8)
	defaults := map[string]string{"application_name": "belfry"}
	if !usesPooler(config.ConnConfig) {
		defaults["timezone"] = "UTC"
		defaults["statement_timeout"] = strconv.FormatInt(statementTimeout.Milliseconds(), 10)
		defaults["lock_timeout"] = "2000"
		defaults["idle_in_transaction_session_timeout"] = "5000"
		defaults["jit"] = "off"
		// What is promised and reasoned about must not depend on a default of the server.
		defaults["synchronous_commit"] = "on"
		defaults["default_transaction_isolation"] = "read committed"
	}
	maps.Copy(defaults, config.ConnConfig.RuntimeParams)
	config.ConnConfig.RuntimeParams = defaults
	return config, nil
}

// usesPooler reports whether the URL has the query mode that a pooler in transaction
// mode needs (default_query_exec_mode=exec).
func usesPooler(c *pgx.ConnConfig) bool {
	return c.DefaultQueryExecMode == pgx.QueryExecModeExec || c.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol
}
