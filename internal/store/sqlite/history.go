package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

var scanRun = scanInto(func(r *belfry.Run) []any { return sharedColumns(sqlstore.RunFields(r)) })

// runTable is a table that has runs, scanned in descending order of their ids.
type runTable struct {
	table string // with the alias x
	query string // reads runs from the table
	where string // selects the rows of the index that is scanned
	id    string // of the run
	at    string // its scheduled instant
	state string // a condition, where runs have a state of their own
	order string // of rows with the same id
}

const whereState = ` AND (@state = '' OR x.state = @state) `

var (
	liveRuns    = runTable{table: `runs x`, query: sqlstore.SelectLive, where: `true`, id: `x.id`, at: `x.scheduled_at`, state: whereState}.scan()
	deadRuns    = runTable{table: `dead x`, query: sqlstore.SelectDead, where: `true`, id: `x.id`, at: `x.scheduled_at`}.scan()
	settledRuns = runTable{table: `history x`, query: sqlstore.SelectSettled, where: `x.namespace = @namespace`, id: `x.id`, at: `x.scheduled_at`, state: whereState, order: `, x.settled_at DESC`}.scan()
	pendingRuns = runTable{table: `triggers x`, query: sqlstore.SelectPending, where: `x.fired_at IS NULL`, id: `x.run_id`, at: `x.at`}.scan()
	runningRuns = runTable{query: sqlstore.LiveColumns + ` FROM runs x INDEXED BY runs_running` + sqlstore.JoinLastAttempt, where: `x.state = 'running'`, id: `x.id`, at: `x.scheduled_at`}.scan()
)

// scan is the index scan of a table. The plus keeps SQLite from an index by namespace
// that has another order. Without a table to scan, all rows are sorted: no more runs
// are running than workers have slots.
func (r runTable) scan() indexScan[belfry.Run] {
	s := indexScan[belfry.Run]{
		page: translate(r.query) + ` WHERE ` + r.where + ` AND +x.namespace = @namespace AND ` + r.id + ` < @after AND ` + r.id + ` >= @floor AND ` + r.at + ` >= @since AND ` + r.at + ` < @until` + r.state +
			` ORDER BY ` + r.id + ` DESC` + r.order + ` LIMIT @limit`,
		scan: func(_ *tx, rows *sql.Rows, run *belfry.Run) error { return scanRun(rows, run) },
	}
	if r.table != "" {
		s.floor = `SELECT ` + r.id + ` FROM ` + r.table + ` WHERE ` + r.where + ` AND ` + r.id + ` < @after ORDER BY ` + r.id + ` DESC LIMIT 1 OFFSET @skip`
	}
	return s
}

// runScans returns the scans that find all runs of a status, in the order in which
// they are searched for one.
func runScans(status belfry.RunStatus) []indexScan[belfry.Run] {
	switch status {
	case "":
		return []indexScan[belfry.Run]{liveRuns, deadRuns, settledRuns, pendingRuns}
	case belfry.RunReady:
		return []indexScan[belfry.Run]{liveRuns, pendingRuns}
	case belfry.RunRunning:
		return []indexScan[belfry.Run]{runningRuns}
	case belfry.RunDead:
		return []indexScan[belfry.Run]{deadRuns}
	case belfry.RunSucceeded, belfry.RunSkipped, belfry.RunCancelled, belfry.RunDiscarded:
		return []indexScan[belfry.Run]{settledRuns}
	default:
		return []indexScan[belfry.Run]{liveRuns}
	}
}

func (s *Store) ListRuns(ctx context.Context, namespace string, filter belfry.RunFilter, page store.Page) (store.RunList, error) {
	if page.Limit <= 0 {
		return store.RunList{Next: page.After.ID}, ctx.Err()
	}
	page.After.ID = store.ScanStart(filter.Until, page.After.ID)
	args := []any{sql.Named("namespace", namespace), sql.Named("state", string(filter.Status)), sql.Named("since", timeOr(filter.Since, beforeAll)), sql.Named("until", timeOr(filter.Until, afterAll))}
	return readValue(ctx, s, "list runs", func(t *tx) (out store.RunList, err error) {
		out.Runs, out.Next, err = scanPage(t, runScans(filter.Status), func(r belfry.Run) belfry.ID { return r.ID }, args, page, s.ScanLimit)
		if store.ScanEnded(filter.Since, out.Next) {
			out.Next = belfry.ID{}
		}
		return out, err
	})
}
