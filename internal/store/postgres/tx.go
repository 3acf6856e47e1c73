package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error) // within a transaction: a savepoint
}

// detach keeps a write going when its caller is cancelled, so that a commit is not cut
// off half way. A caller that is cancelled already starts nothing.
func detach(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// collect returns the rows of a query; nil if there are none.
func collect[T any](ctx context.Context, q querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.AppendRows([]T(nil), rows, scan)
}

// scanInto scans a row into the fields of a value.
func scanInto[T any](fields func(*T) []any) pgx.RowToFunc[T] {
	return func(row pgx.CollectableRow) (value T, err error) {
		err = row.Scan(fields(&value)...)
		return value, err
	}
}

func collectIDs(ctx context.Context, q querier, sql string, args ...any) ([]pgtype.UUID, error) {
	return collect(ctx, q, pgx.RowTo[pgtype.UUID], sql, args...)
}

// forEach scans every row of a query into fields, then calls f.
func forEach(ctx context.Context, q querier, fields []any, f func() error, sql string, args ...any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, fields, f)
	return err
}

// collectMap returns the rows of a query that have a key and a value.
func collectMap[K string | belfry.ID, V any](ctx context.Context, q querier, sql string, args ...any) (map[K]V, error) {
	var key K
	var value V
	found, column := map[K]V{}, any(&key)
	if id, ok := column.(*belfry.ID); ok {
		column = idColumn(id)
	}
	err := forEach(ctx, q, []any{column, &value}, func() error {
		found[key] = value
		return nil
	}, sql, args...)
	return found, err
}

// change runs f in a transaction, which records the audit entries of ctx.
func (s *Store) change(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		store.AuditOf(ctx).Begin()
		if err := f(tx); err != nil {
			return err
		}
		return sqlstore.RecordAudit(ctx, sharedTx{ctx, tx, nil})
	})
}

// retryDeadlock repeats a transaction that lost a deadlock: two that settle the same
// attempts, or one that settles attempts of a job and one that cancels them. Nothing
// was written then.
func retryDeadlock(f func() error) error {
	err := f()
	for tries := 0; sqlState(err) == deadlockDetected && tries < 3; tries++ {
		err = f()
	}
	return err
}

// restrictPlanner leaves the planner one way for the length of a transaction: to scan
// in the order of an index and look up what belongs to each row. A scan that stops
// early must not sort or hash first, whatever the planner believes of a table that was
// never analysed. freePlanner undoes it, with a statement timeout.
const (
	restrictPlanner = `SELECT set_config(name, 'off', true) FROM unnest(ARRAY['enable_sort', 'enable_incremental_sort', 'enable_hashjoin', 'enable_mergejoin', 'jit']) name`
	freePlanner     = `SELECT set_config(name, 'on', true), set_config('statement_timeout', $1, true) FROM unnest(ARRAY['enable_sort', 'enable_incremental_sort', 'enable_hashjoin', 'enable_mergejoin']) name`
)

// scanSnapshot runs bounded scans in one snapshot, so that the rows of a scan and the
// position where it ended belong together.
func (s *Store) scanSnapshot(ctx context.Context, f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.readPool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, restrictPlanner); err != nil {
			return err
		}
		return f(tx)
	})
}

// SQLSTATE codes. After each of them nothing was written.
const (
	uniqueViolation  = "23505"
	checkViolation   = "23514"
	deadlockDetected = "40P01"
	duplicateTable   = "42P07"

	insufficientPrivilege = "42501"
	lockNotAvailable      = "55P03" // a statement waited too long for a lock
	tooManyConnections    = "53300"
	queryCanceled         = "57014" // a statement took too long
)

// sqlState is the code of an error that the server sent, empty otherwise.
func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// wrapError adds what was being done. Only an error that surely wrote nothing becomes
// a belfry.Error.
func wrapError(doing string, err error) error {
	var known *belfry.Error
	var duplicate *store.DuplicateRequest
	var refused *pgconn.ConnectError
	switch state := sqlState(err); {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.As(err, &duplicate):
		return err
	case errors.As(err, &refused):
		return belfry.Errorf(belfry.Unavailable, "the database cannot be reached: %w", err)
	case state == "":
		return fmt.Errorf("%s: %w", doing, err)
	case state == queryCanceled || slices.Contains(troubleClasses, state[:2]):
		return belfry.Errorf(belfry.Unavailable, "the database cannot do this now: %s: %w: %w", doing, store.ErrServer, err)
	case slices.Contains(unknownClasses, state[:2]):
		return fmt.Errorf("%s: %w: %w", doing, store.ErrServer, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// Classes of SQLSTATE codes that are about the server, not about the statement. After
// those of the first list nothing was written; after those of the second list, which
// end a connection, that is not known.
var (
	troubleClasses = []string{"25", "40", "53", "55"} // transaction state, rollback, resources, locks
	unknownClasses = []string{"08", "57", "58"}       // connection, operator intervention, system error
)

// hidePassword drops the URL, and with it the password, from a parse error.
func hidePassword(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return errors.New("it is not of the form postgres://user:password@host:5432/database")
}

// orTaken is an error, or what a violation of a unique name means.
func orTaken(err, taken error) error {
	if sqlState(err) != uniqueViolation {
		return err
	}
	return taken
}
