package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// tx is a transaction. Everything it writes carries one instant.
type tx struct {
	ctx     context.Context
	session *session
	specs   *store.Specs
	now     time.Time
	changes changes
	settled []metrics.Attempt
	args    []any // reused from statement to statement
}

// write runs f in a transaction that sees and changes the newest state. Once it has
// begun it ignores the end of ctx. It records the audit entries of ctx. Notifications are sent
// after the commit.
func (s *Store) write(ctx context.Context, doing string, f func(*tx) error) error {
	session, err := s.writer.acquire(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	t := &tx{ctx: context.WithoutCancel(ctx), session: session, specs: &s.specs}
	err = func() error {
		defer s.writer.release(session)
		return t.transact(`BEGIN IMMEDIATE`, func(t *tx) error {
			store.AuditOf(ctx).Begin()
			if err := f(t); err != nil {
				return err
			}
			return sqlstore.RecordAudit(ctx, sharedTx{t})
		})
	}()
	if err != nil {
		err = failed(doing, err)
	}
	s.metrics.Statement(statementName(doing), time.Since(began), isFailure(err))
	if err != nil {
		return err
	}
	s.metrics.Settled(t.settled)
	s.notify(&t.changes)
	return nil
}

// read runs f on one snapshot.
func (s *Store) read(ctx context.Context, doing string, f func(*tx) error) error {
	session, err := s.reader.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.reader.release(session)
	began := time.Now()
	t := &tx{ctx: ctx, session: session, specs: &s.specs}
	if err = t.transact(`BEGIN`, f); err != nil {
		if err = failed(doing, err); ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	s.metrics.Statement(statementName(doing), time.Since(began), isFailure(err))
	return err
}

// writeValue is write for a function with a result, which is zero after an error.
func writeValue[T any](ctx context.Context, s *Store, doing string, f func(*tx) (T, error)) (T, error) {
	return withValue(f, func(f func(*tx) error) error { return s.write(ctx, doing, f) })
}

// readValue is read for a function with a result, which is zero after an error.
func readValue[T any](ctx context.Context, s *Store, doing string, f func(*tx) (T, error)) (T, error) {
	return withValue(f, func(f func(*tx) error) error { return s.read(ctx, doing, f) })
}

func withValue[T any](f func(*tx) (T, error), do func(func(*tx) error) error) (T, error) {
	var value, zero T
	err := do(func(t *tx) (err error) {
		value, err = f(t)
		return err
	})
	if err != nil {
		return zero, err
	}
	return value, nil
}

func (t *tx) transact(begin string, f func(*tx) error) (err error) {
	defer func() {
		if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
			t.session.disconnect()
		}
	}()
	if err := t.command(begin); err != nil {
		return err
	}
	t.now = now() // not before: another tool may have made us wait
	committed := false
	defer func() {
		if committed {
			return
		}
		// An error or a panic. SQLite rolls back by itself when the disk fails, and
		// then refuses to do so again.
		if t.command(`ROLLBACK`) != nil {
			t.session.disconnect()
		}
	}()
	if err := f(t); err != nil {
		return err
	}
	if err := t.command(`COMMIT`); err != nil {
		return &commitError{err}
	}
	committed = true
	return nil
}

// command runs a statement that ctx must not interrupt.
func (t *tx) command(query string) error {
	ctx := context.WithoutCancel(t.ctx)
	stmt, err := t.session.prepare(ctx, query)
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(ctx)
	return err
}

// exec says how many rows it changed.
func (t *tx) exec(query string, args ...any) (int, error) {
	stmt, err := t.session.prepare(t.ctx, query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// run is exec for a statement whose number of rows does not matter.
func (t *tx) run(query string, args ...any) error {
	_, err := t.exec(query, args...)
	return err
}

// runEach runs statements that all have the same parameters.
func (t *tx) runEach(args []any, queries ...string) error {
	for _, query := range queries {
		if err := t.run(query, args...); err != nil {
			return err
		}
	}
	return nil
}

// get reads the only or first row; sql.ErrNoRows if there is none.
func (t *tx) get(into []any, query string, args ...any) error {
	stmt, err := t.session.prepare(t.ctx, query)
	if err != nil {
		return err
	}
	return stmt.QueryRowContext(t.ctx, args...).Scan(into...)
}

// find is get for a row that may be missing.
func (t *tx) find(into []any, query string, args ...any) (found bool, err error) {
	err = t.get(into, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// exists is for a query whose result is one boolean.
func (t *tx) exists(query string, args ...any) (found bool, err error) {
	err = t.get([]any{&found}, query, args...)
	return found, err
}

func all[T any](t *tx, scan func(*sql.Rows, *T) error, query string, args ...any) ([]T, error) {
	stmt, err := t.session.prepare(t.ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(t.ctx, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// allPairs returns the rows of a query that have a key and a value.
func allPairs[K string | belfry.ID, V any](t *tx, query string, args ...any) (map[K]V, error) {
	found := map[K]V{}
	_, err := all(t, func(rows *sql.Rows, key *K) error {
		var value V
		column := any(key)
		if id, ok := column.(*belfry.ID); ok {
			column = bytesColumn{id[:]}
		}
		err := rows.Scan(column, &value)
		found[*key] = value
		return err
	}, query, args...)
	return found, err
}

// scanInto scans a row into the fields of a value.
func scanInto[T any](fields func(*T) []any) func(*sql.Rows, *T) error {
	return func(rows *sql.Rows, value *T) error { return rows.Scan(fields(value)...) }
}

// one reads the first row, or returns the error missing.
func one[T any](t *tx, scan func(*sql.Rows, *T) error, missing error, query string, args ...any) (T, error) {
	rows, err := all(t, scan, query, args...)
	if err == nil && len(rows) == 0 {
		err = missing
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return rows[0], nil
}

// readers is how many calls may read at the same time. Readers and the writer never
// wait for each other.
const readers = 4

var (
	writerPragmas = []string{
		"busy_timeout(5000)", // other tools may open the file
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"fullfsync(1)", // where a plain fsync leaves data in the disk's cache
		"wal_autocheckpoint(4000)",
		"journal_size_limit(67108864)",
		"cache_size(-32768)",
		"temp_store(MEMORY)",
	}
	readerPragmas = []string{"busy_timeout(5000)", "query_only(1)", "cache_size(-8192)", "temp_store(MEMORY)"}
)

// pool lends its sessions to one caller each.
type pool struct {
	db     *sql.DB
	size   int
	idle   chan *session
	closed chan struct{}
}

func newPool(file string, size int, pragmas []string) (*pool, error) {
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: file, RawQuery: url.Values{"_pragma": pragmas}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	p := &pool{db: db, size: size, idle: make(chan *session, size), closed: make(chan struct{})}
	for range size {
		p.idle <- &session{db: db}
	}
	return p, nil
}

// acquire waits for a session until ctx ends.
func (p *pool) acquire(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, belfry.Errorf(belfry.Unavailable, "the store is closed")
	case s := <-p.idle:
		return s, nil
	}
}

func (p *pool) release(s *session) { p.idle <- s }

// close waits for the sessions that are in use.
func (p *pool) close() error {
	close(p.closed)
	for range p.size {
		(<-p.idle).disconnect()
	}
	return p.db.Close()
}

// session is a connection with the statements that are prepared on it. It connects
// when it is first used.
type session struct {
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func (s *session) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := s.stmts[query]; ok {
		return stmt, nil
	}
	if s.conn == nil {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		s.conn, s.stmts = conn, map[string]*sql.Stmt{}
	}
	// SQLite plans for the value of a limit, and so prepares the statement again whenever one is
	// bound. It does not look into an expression.
	text := strings.ReplaceAll(query, "LIMIT ?", "LIMIT 0+?")
	stmt, err := s.conn.PrepareContext(context.WithoutCancel(ctx), text)
	if err != nil {
		return nil, err
	}
	s.stmts[query] = stmt
	return stmt, nil
}

// disconnect ends the connection, whatever its state; the next use connects again.
func (s *session) disconnect() {
	for _, stmt := range s.stmts {
		stmt.Close()
	}
	if s.conn != nil {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // Close would return it to the pool
		s.conn.Close()
	}
	s.conn, s.stmts = nil, nil
}
