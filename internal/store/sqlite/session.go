package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"

	"github.com/belfry-sh/belfry"
)

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
	stmt, err := s.conn.PrepareContext(context.WithoutCancel(ctx), query)
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
