package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// detach gives a write a life of its own: a caller that goes away must not leave
// a commit half way. A caller that is gone already starts nothing.
func detach(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	return ctx, cancel, nil
}

var snapshotOptions = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// holdPlanner leaves the planner one way for the length of a transaction: to
// walk in the order of the list and look up what belongs to each row. A look
// that stops early must not sort or hash first, whatever the planner believes of
// a table that was never analysed. With letPlanner it is free again, for a time.
const (
	restrictPlanner = `SELECT set_config(name, 'off', true) FROM unnest(ARRAY['enable_sort', 'enable_incremental_sort', 'enable_hashjoin', 'enable_mergejoin', 'jit']) name`
	freePlanner     = `SELECT set_config(name, 'on', true), set_config('statement_timeout', $1, true) FROM unnest(ARRAY['enable_sort', 'enable_incremental_sort', 'enable_hashjoin', 'enable_mergejoin']) name`
)

// collectIDs reads a column of ids.
func collectIDs(rows pgx.Rows, err error) ([]pgtype.UUID, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error) // within a transaction: a part of it that can be undone
}
