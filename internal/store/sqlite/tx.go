package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// tx is a transaction. All that it writes carries one instant.
type tx struct {
	ctx     context.Context
	session *session
	specs   *store.Specs
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
	t := &tx{ctx: context.WithoutCancel(ctx), session: session, specs: &s.specs}
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
	t := &tx{ctx: ctx, session: session, specs: &s.specs}
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
	t.now = now() // not before: another tool may have made us wait
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
