package postgres

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfry-sh/belfry/internal/metrics"
)

// pool is connections whose users wait while the server has none left for them, such as
// when a cluster has as many nodes as the server can bear.
type pool struct{ *pgxpool.Pool }

// pools are the open ones by name.
func (s *Store) pools() iter.Seq2[string, *pool] {
	return func(yield func(string, *pool) bool) {
		for _, p := range []struct {
			name string
			pool *pool
		}{{"main", s.pool}, {"fire", s.firePool}, {"finish", s.finishPool}, {"read", s.readPool}, {"priority", s.priorityPool}} {
			if p.pool != nil && !yield(p.name, p.pool) {
				return
			}
		}
	}
}

// orMain is the pool, or the main one while all connections of the pool are in use. Firing and
// results have connections of their own, so that other writes do not delay them, and that few
// sessions plan and execute these statements.
func (s *Store) orMain(p *pool) *pool {
	if p == nil {
		return s.pool
	}
	if stat := p.Stat(); stat.AcquiredConns() == stat.MaxConns() {
		return s.pool
	}
	return p
}

// maxConnectionWait bounds the wait of a call without a deadline.
const maxConnectionWait = 10 * time.Second

// retryConnect repeats a call that got no connection. It did nothing.
func retryConnect(ctx context.Context, call func() error) error {
	started := time.Now()
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, 500*time.Millisecond) {
		err := call()
		if !noConnectionLeft(err) || time.Since(started) > maxConnectionWait {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(delay):
		}
	}
}

// noConnectionLeft reports whether a server or a pooler has refused another connection.
func noConnectionLeft(err error) bool {
	var refused *pgconn.ConnectError
	return errors.As(err, &refused) && (sqlState(err) == tooManyConnections || strings.Contains(err.Error(), "no more connections allowed"))
}

func (p *pool) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = retryConnect(ctx, func() error {
		tag, err = p.Pool.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

func (p *pool) Query(ctx context.Context, sql string, args ...any) (rows pgx.Rows, err error) {
	err = retryConnect(ctx, func() error {
		rows, err = p.Pool.Query(ctx, sql, args...)
		return err
	})
	return rows, err
}

func (p *pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return rowFunc(func(into ...any) error {
		return retryConnect(ctx, func() error { return p.Pool.QueryRow(ctx, sql, args...).Scan(into...) })
	})
}

func (p *pool) Begin(ctx context.Context) (pgx.Tx, error) { return p.BeginTx(ctx, pgx.TxOptions{}) }

func (p *pool) BeginTx(ctx context.Context, o pgx.TxOptions) (tx pgx.Tx, err error) {
	err = retryConnect(ctx, func() error {
		tx, err = p.Pool.BeginTx(ctx, o)
		return err
	})
	return tx, err
}

func (p *pool) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	// Its own error comes too late to repeat it.
	_ = retryConnect(ctx, func() error {
		conn, err := p.Acquire(ctx)
		if err == nil {
			conn.Release()
		}
		return err
	})
	return p.Pool.SendBatch(ctx, b)
}

// rowFunc is a pgx.Row.
type rowFunc func(into ...any) error

func (f rowFunc) Scan(into ...any) error { return f(into...) }

// healthTracer replaces all connections after a statement that got no answer in time, and
// after one whose connection was closed. A route or a firewall that drops packets makes
// them all silent at once, a server that restarts closes them all, and to find that out one
// by one would take long.
type healthTracer struct {
	pools atomic.Pointer[[]*pgxpool.Pool] // nil while they are being opened
	last  atomic.Int64                    // when connections were last replaced for silence, in Unix seconds
	log   *slog.Logger

	writeFailure *atomic.Pointer[writeFailure] // of the last write
	metrics      *metrics.Metrics
}

// statement is a statement or batch that is being executed.
type statement struct {
	what  string
	began time.Time
}

type statementKey struct{}

func (t *healthTracer) begin(ctx context.Context, sql string) context.Context {
	if t.metrics == nil {
		return ctx
	}
	return context.WithValue(ctx, statementKey{}, &statement{statementName(sql), time.Now()})
}

// statementName is the comment that a statement begins with. Those of the path of a run
// have one.
func statementName(sql string) string {
	if rest, commented := strings.CutPrefix(sql, "/* "); commented {
		if name, _, ended := strings.Cut(rest, " */"); ended {
			return name
		}
	}
	return "other"
}

func (t *healthTracer) end(ctx context.Context, err error) {
	if s, ok := ctx.Value(statementKey{}).(*statement); ok {
		t.metrics.Statement(s.what, time.Since(s.began), isFailure(err))
	}
}

// isFailure reports whether an error says that something is wrong: not that a caller has
// stopped waiting, nor that two calls have met, which the store resolves.
func isFailure(err error) bool {
	switch state := sqlState(err); {
	case err == nil, errors.Is(err, context.Canceled):
		return false
	default:
		return state == "" || !slices.Contains([]string{"22", "23", "40", "55"}, state[:2])
	}
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

func (t *healthTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return t.begin(ctx, d.SQL)
}

func (t *healthTracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryEndData) {
	t.end(ctx, d.Err)
	t.noteWrite(d.CommandTag, d.Err)
	t.check(conn, d.Err)
}

// TraceBatchStart names a batch by its last statement: the ones before prepare it.
func (t *healthTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	return t.begin(ctx, d.Batch.QueuedQueries[len(d.Batch.QueuedQueries)-1].SQL)
}

func (t *healthTracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	t.noteWrite(d.CommandTag, d.Err)
}

func (t *healthTracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, d pgx.TraceBatchEndData) {
	t.end(ctx, d.Err)
	t.check(conn, d.Err)
}

// check looks at the end of a statement. A connection that the server closed says that it
// may have closed others.
func (t *healthTracer) check(conn *pgx.Conn, err error) {
	pools := t.pools.Load()
	if pools == nil || err == nil || errors.Is(err, context.Canceled) {
		return
	}
	silent := errors.Is(err, context.DeadlineExceeded)
	if silent {
		last, now := t.last.Load(), time.Now().Unix()
		if now-last < int64(minReset.Seconds()) || !t.last.CompareAndSwap(last, now) {
			return
		}
		t.log.Warn("the database did not answer in time; its connections are replaced")
	} else if !conn.IsClosed() {
		return
	}
	for _, pool := range *pools {
		pool.Reset()
	}
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
	t.check(p.Conn, err)
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
