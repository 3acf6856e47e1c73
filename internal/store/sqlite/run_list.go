package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// runTable is a table that has runs, scanned in descending order of their ids.
type runTable struct {
	table string // with the alias r
	query string // reads runs from the table
	where string // selects the rows of the index that is scanned
	id    string // of the run
	state string // a condition, where runs have a state of their own
	order string // of rows with the same id
}

const whereState = ` AND (@state = '' OR r.state = @state)`

var (
	liveRuns    = runTable{table: `runs r`, query: selectLive, where: `true`, id: `r.id`, state: whereState}.scan()
	deadRuns    = runTable{table: `dead r`, query: selectDead, where: `true`, id: `r.id`}.scan()
	settledRuns = runTable{table: `history r`, query: selectHistory, where: `r.namespace = @namespace`, id: `r.id`, state: whereState, order: `, r.settled_at DESC`}.scan()
	pendingRuns = runTable{table: `triggers r`, query: selectTriggers, where: `r.fired_at IS NULL`, id: `r.run_id`}.scan()
	runningRuns = runTable{query: selectLive + `INDEXED BY runs_running `, where: `r.state = 'running'`, id: `r.id`}.scan()
)

// scan is the index scan of a table. The plus keeps SQLite from an index by namespace
// that has another order. Without a table to scan, all rows are sorted: no more runs
// are running than workers have slots.
func (r runTable) scan() indexScan[belfry.Run] {
	s := indexScan[belfry.Run]{
		page: r.query + `WHERE ` + r.where + ` AND +r.namespace = @namespace AND ` + r.id + ` < @after AND ` + r.id + ` >= @floor` + r.state +
			` ORDER BY ` + r.id + ` DESC` + r.order + ` LIMIT @limit`,
		scan: func(_ *tx, rows *sql.Rows, run *belfry.Run) error { return scanRun(rows, run) },
	}
	if r.table != "" {
		s.floor = `SELECT ` + r.id + ` FROM ` + r.table + ` WHERE ` + r.where + ` AND ` + r.id + ` < @after ORDER BY ` + r.id + ` DESC LIMIT 1 OFFSET @skip`
	}
	return s
}

// runScans returns the scans that find all runs of a status, in the order in which
// findRun searches.
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
	args := []any{sql.Named("namespace", namespace), sql.Named("state", string(filter.Status))}
	return readValue(ctx, s, "list runs", func(t *tx) (out store.RunList, err error) {
		out.Runs, out.Next, err = scanPage(t, runScans(filter.Status), func(r belfry.Run) belfry.ID { return r.ID }, args, page, s.scanLimit)
		return out, err
	})
}
