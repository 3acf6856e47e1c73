package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

var scanRun = scanInto(func(r *belfry.Run) []any { return sharedColumns(sqlstore.RunFields(r)) })

// runScanLimit is how many runs of each table are scanned at a time for a page.
const runScanLimit = 4000

// runTable is a table of runs that is scanned in descending order of their ids.
type runTable struct {
	columns string
	table   string
	id      string // column
	where   string // of the scan, which an index has too
	join    string
	state   string // expression; a constant if all rows have the same
	at      string // column of the scheduled instant
}

var (
	liveTable    = runTable{sqlstore.LiveColumns, "belfry.runs", "id", "true", sqlstore.JoinLastAttempt, "x.state", "scheduled_at"}
	deadTable    = runTable{sqlstore.DeadColumns, "belfry.dead", "id", "true", sqlstore.JoinLastAttempt, "'dead'", "scheduled_at"}
	settledTable = runTable{sqlstore.SettledColumns, "belfry.history", "id", "true", "", "x.state", "scheduled_at"}
	pendingTable = runTable{sqlstore.PendingColumns, "belfry.triggers", "run_id", "fired_at IS NULL", sqlstore.JoinLiveJob, "'ready'", "at"}
)

func runTablesFor(status belfry.RunStatus) []runTable {
	switch status {
	case "":
		return []runTable{liveTable, pendingTable, deadTable, settledTable}
	case belfry.RunReady:
		return []runTable{liveTable, pendingTable}
	case belfry.RunRunning, belfry.RunRetry, belfry.RunWaiting:
		return []runTable{liveTable}
	case belfry.RunDead:
		return []runTable{deadTable}
	case belfry.RunSucceeded, belfry.RunSkipped, belfry.RunCancelled, belfry.RunDiscarded:
		return []runTable{settledTable}
	}
	return nil
}

// ListRuns scans a bounded number of rows in each table, more if there is time.
func (s *Store) ListRuns(ctx context.Context, namespace string, filter belfry.RunFilter, page store.Page) (list store.RunList, err error) {
	if page.Limit < 1 {
		return list, nil
	}
	started := time.Now()
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		after := startAfter(store.ScanStart(filter.Until, page.After.ID))
		for {
			runs, end, err := scanRunTables(ctx, tx, namespace, filter, after, page.Limit+1-len(list.Runs))
			if err != nil {
				return err
			}
			list.Runs = append(list.Runs, runs...)
			if len(list.Runs) > page.Limit {
				list.Runs = list.Runs[:page.Limit]
				list.Next = list.Runs[page.Limit-1].ID
				return nil
			}
			if !end.Valid || store.ScanEnded(filter.Since, end.Bytes) {
				return nil
			}
			if after = end; time.Since(started) > searchTime {
				list.Next = end.Bytes
				return nil
			}
		}
	})
	return list, wrapError("list runs", err)
}

// scanRunTables scans the next runs of each table. It returns those that pass the
// filter, down to the id where the first scan ended; null if all tables ended.
func scanRunTables(ctx context.Context, tx pgx.Tx, namespace string, filter belfry.RunFilter, after pgtype.UUID, limit int) (all []belfry.Run, end pgtype.UUID, err error) {
	for _, table := range runTablesFor(filter.Status) {
		runs, tableEnd, err := table.scan(ctx, tx, namespace, filter, after, limit)
		if err != nil {
			return nil, end, err
		}
		all = append(all, runs...)
		if tableEnd.Valid && (!end.Valid || belfry.ID(tableEnd.Bytes).Compare(end.Bytes) > 0) {
			end = tableEnd
		}
	}
	slices.SortFunc(all, func(a, b belfry.Run) int { return b.ID.Compare(a.ID) })
	if end.Valid {
		all = slices.DeleteFunc(all, func(r belfry.Run) bool { return r.ID.Compare(end.Bytes) < 0 })
	}
	return all, end, nil
}

// scan reads the next runs of a table and returns where it ended; null at the end of
// the table.
func (t runTable) scan(ctx context.Context, tx pgx.Tx, namespace string, f belfry.RunFilter, after pgtype.UUID, limit int) (runs []belfry.Run, end pgtype.UUID, err error) {
	scan := fmt.Sprintf(` FROM %s WHERE %s < $1 AND %s ORDER BY %s DESC`, t.table, t.id, t.where, t.id)
	runs, err = collect(ctx, tx, scanRun, fmt.Sprintf(`%s FROM (SELECT *%s LIMIT $2) x%s WHERE x.namespace = $3 AND ($4 = '' OR %s = $4)
		AND ($6::timestamptz IS NULL OR x.%[6]s >= $6) AND ($7::timestamptz IS NULL OR x.%[6]s < $7) ORDER BY x.%[5]s DESC LIMIT $5`,
		t.columns, scan, t.join, t.state, t.id, t.at), after, runScanLimit, namespace, string(f.Status), limit, timestamptz(f.Since), timestamptz(f.Until))
	if err != nil {
		return nil, end, err
	}
	if len(runs) == limit {
		return runs, uuid(runs[limit-1].ID), nil
	}
	end, err = scanEnd(ctx, tx, t.id, scan, after, runScanLimit)
	return runs, end, err
}
