package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// runScanLimit is how many runs of each table are scanned at a time for a page.
const runScanLimit = 4000

// Do executes statements of the part that all stores in SQL share.
func (s *Store) Do(ctx context.Context, access sqlstore.Access, doing string, f func(sqlstore.Tx) error) (err error) {
	if access == sqlstore.Write || access == sqlstore.Change {
		var cancel context.CancelFunc
		ctx, cancel = detach(ctx, callTimeout)
		defer cancel()
	}
	if access == sqlstore.Write && store.AuditOf(ctx) != nil {
		access = sqlstore.Change
	}
	switch access {
	case sqlstore.Read:
		err = f(sharedTx{ctx, s.readPool, nil})
	case sqlstore.Duty:
		err = f(sharedTx{ctx, s.pool, nil})
	case sqlstore.Search:
		err = f(sharedTx{ctx, s.readPool, []any{pgx.QueryExecModeExec}})
	case sqlstore.Scan:
		err = s.scanSnapshot(ctx, func(tx pgx.Tx) error { return f(sharedTx{ctx, tx, nil}) })
	case sqlstore.Write:
		err = f(sharedTx{ctx, s.pool, nil})
	case sqlstore.Change:
		err = s.change(ctx, func(tx pgx.Tx) error { return f(sharedTx{ctx, tx, nil}) })
	case sqlstore.Urgent, sqlstore.UrgentRead:
		err = f(sharedTx{ctx, s.priorityPool, nil})
	}
	return wrapError(doing, err)
}

func (s *Store) RunScan(table string, _ belfry.RunStatus) string {
	return `belfry.` + table + ` WHERE true`
}

// Contains looks for ASCII first, which is by far the fastest.
func (s *Store) Contains(text, part string, add func(any) string) string {
	part = storable(part)
	condition := `strpos(lower(` + text + ` COLLATE "C"), ` + add(strings.ToLower(longestASCII(part))) + `) > 0`
	if _, pattern := containsPattern(part); longestASCII(part) != part {
		condition += ` AND ` + text + ` ILIKE ` + add(pattern)
	}
	return condition
}

func (s *Store) ArchiveFinished(t sqlstore.Tx, jobs []belfry.ID) error {
	shared := t.(sharedTx)
	return s.archive(shared.ctx, shared.q, jobs)
}

func (s *Store) NotifyWritten(jobs []belfry.ID, ready bool) {
	if len(jobs) > 0 {
		s.notifier.notifyPlans(len(jobs) > maxInsertJobs, jobs...)
	}
	if ready {
		s.notifier.notifyReady()
	}
}

type sharedTx struct {
	ctx context.Context
	q   interface {
		querier
		SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	}
	mode []any // of queries
}

func (t sharedTx) Exec(sql string, args ...any) (int, error) {
	tag, err := t.q.Exec(t.ctx, sql, sharedArgs(args)...)
	if sqlState(err) == uniqueViolation {
		err = fmt.Errorf("%w: %w", sqlstore.ErrTaken, err)
	}
	return int(tag.RowsAffected()), err
}

func (t sharedTx) ExecEach(sql string, args [][]any) (changed []int, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	var batch pgx.Batch
	for _, args := range args {
		batch.Queue(sql, sharedArgs(args)...)
	}
	results := t.q.SendBatch(t.ctx, &batch)
	for range args {
		tag, err := results.Exec()
		if err != nil {
			results.Close()
			return nil, err
		}
		changed = append(changed, int(tag.RowsAffected()))
	}
	return changed, results.Close()
}

func (t sharedTx) Query(columns []any, next func(), sql string, args ...any) error {
	return forEach(t.ctx, t.q, sharedColumns(columns), func() error { next(); return nil }, sql, append(t.mode, sharedArgs(args)...)...)
}

func sharedColumns(columns []any) []any {
	for i, to := range columns {
		switch to := to.(type) {
		case *belfry.ID:
			columns[i] = idColumn(to)
		case *belfry.Token:
			columns[i] = idColumn(to)
		case *store.Digest:
			columns[i] = idColumn(to)
		case *time.Time:
			columns[i] = timeColumn{to}
		case **time.Time:
			columns[i] = nullTimeColumn{to}
		case *json.RawMessage:
			columns[i] = jsonColumn{to}
		}
	}
	return columns
}

func sharedArgs(args []any) []any {
	return column(args, func(arg *any) any {
		switch v := (*arg).(type) {
		case belfry.ID:
			return pgtype.UUID{Bytes: v, Valid: true}
		case belfry.Token:
			return pgtype.UUID{Bytes: v, Valid: true}
		case string:
			return storable(v)
		case []belfry.ID:
			return uuids(v)
		case []int:
			return int32s(v)
		}
		return *arg
	})
}
