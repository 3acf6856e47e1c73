package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/belfry-sh/belfry"
)

// readers is how many calls may read at the same time. They never wait for the
// writer, nor it for them.
const readers = 4

var (
	writerPragmas = []string{
		"busy_timeout(5000)", // somebody may look into the file with other tools
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"wal_autocheckpoint(4000)",
		"journal_size_limit(67108864)",
		"cache_size(-32768)",
		"temp_store(MEMORY)",
	}
	readerPragmas = []string{"busy_timeout(5000)", "query_only(1)", "cache_size(-8192)", "temp_store(MEMORY)"}
)

// pool hands its sessions out to one caller each. Waiting for one is waiting on
// a channel.
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

// take waits for a session until ctx ends.
func (p *pool) take(ctx context.Context) (*session, error) {
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

func (p *pool) give(s *session) { p.idle <- s }

// close waits for the sessions that are in use.
func (p *pool) close() error {
	close(p.closed)
	for range p.size {
		s := <-p.idle
		s.drop()
	}
	return p.db.Close()
}

// session is a connection with the statements that were prepared on it. It
// connects when it is first used.
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
	stmt, err := s.conn.PrepareContext(context.WithoutCancel(ctx), query)
	if err != nil {
		return nil, err
	}
	s.stmts[query] = stmt
	return stmt, nil
}

// drop ends the connection, in whatever state it is; the next use makes another.
func (s *session) drop() {
	for _, stmt := range s.stmts {
		stmt.Close()
	}
	if s.conn != nil {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // Close would keep it for others
		s.conn.Close()
	}
	s.conn, s.stmts = nil, nil
}

// tx is a transaction. All that it writes carries one instant.
type tx struct {
	ctx     context.Context
	session *session
	specs   *specs
	now     time.Time
	news    news
}

// write runs f in a transaction that sees and changes the newest state. From
// its beginning on it does not heed ctx. Its news are told once it is committed.
func (s *Store) write(ctx context.Context, doing string, f func(*tx) error) error {
	session, err := s.writer.take(ctx)
	if err != nil {
		return err
	}
	t := &tx{ctx: context.WithoutCancel(ctx), session: session, specs: &s.specs, now: s.Now()}
	err = func() error {
		defer s.writer.give(session)
		return t.do(`BEGIN IMMEDIATE`, f)
	}()
	if err != nil {
		return failed(doing, err)
	}
	s.tell(&t.news)
	return nil
}

// read runs f on one snapshot.
func (s *Store) read(ctx context.Context, doing string, f func(*tx) error) error {
	session, err := s.reader.take(ctx)
	if err != nil {
		return err
	}
	defer s.reader.give(session)
	t := &tx{ctx: ctx, session: session, specs: &s.specs, now: s.Now()}
	if err := t.do(`BEGIN`, f); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return failed(doing, err)
	}
	return nil
}

func (t *tx) do(begin string, f func(*tx) error) (err error) {
	defer func() {
		if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
			t.session.drop()
		}
	}()
	if err := t.command(begin); err != nil {
		return err
	}
	ended := false
	defer func() {
		if ended {
			return
		}
		// An error or a panic. SQLite rolls back by itself when the disk fails, and
		// then refuses to do so again.
		if t.command(`ROLLBACK`) != nil {
			t.session.drop()
		}
	}()
	if err := f(t); err != nil {
		return err
	}
	if err := t.command(`COMMIT`); err != nil {
		return &commitError{err}
	}
	ended = true
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

// get reads the only or first row; sql.ErrNoRows if there is none.
func (t *tx) get(into []any, query string, args ...any) error {
	stmt, err := t.session.prepare(t.ctx, query)
	if err != nil {
		return err
	}
	return stmt.QueryRowContext(t.ctx, args...).Scan(into...)
}

// all reads every row.
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
