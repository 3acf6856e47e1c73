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
)

// runLook is how many runs of each place are looked at, time after time, for a
// page.
const runScanLimit = 4000

// place is a table of runs that is walked in descending order of their ids.
type runTable struct {
	columns string
	table   string
	id      string // column
	where   string // of the walk, which an index has too
	join    string
	state   string // expression; a constant if all have the same
}

var (
	liveTable    = runTable{selectLive, "belfry.runs", "id", "true", "", "x.state"}
	deadTable    = runTable{selectDead, "belfry.dead", "id", "true", joinLastAttempt, "'dead'"}
	settledTable = runTable{selectSettled, "belfry.history", "id", "true", "", "x.state"}
	pendingTable = runTable{selectPending, "belfry.triggers", "run_id", "fired_at IS NULL", joinLiveJob, "'ready'"}
)

// placesOf gives the places where runs of a state are.
func runTablesFor(state belfry.RunStatus) []runTable {
	switch state {
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

// ListRuns gives the runs and skips of a namespace, latest first. It looks at a
// bounded number in each place, more if there is time.
func (s *Store) ListRuns(ctx context.Context, namespace string, filter belfry.RunFilter, page store.Page) (list store.RunList, err error) {
	if page.Limit < 1 {
		return list, nil
	}
	started := time.Now()
	err = pgx.BeginTxFunc(ctx, s.pool, snapshotOptions, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, restrictPlanner); err != nil {
			return err
		}
		from := startAfter(page.After.ID)
		for {
			runs, floor, err := scanRunTables(ctx, tx, namespace, filter, from, page.Limit+1-len(list.Runs))
			if err != nil {
				return err
			}
			list.Runs = append(list.Runs, runs...)
			if len(list.Runs) > page.Limit {
				list.Runs = list.Runs[:page.Limit]
				list.Next = list.Runs[page.Limit-1].ID
				return nil
			}
			if !floor.Valid {
				return nil
			}
			if from = floor; time.Since(started) > searchTime {
				list.Next = floor.Bytes
				return nil
			}
		}
	})
	if err != nil {
		return store.RunList{}, wrapError("list runs", err)
	}
	return list, nil
}

// lookAtRuns looks at the next runs of each place. It gives those that pass
// the filter down to a floor, below which there may be others; a null one is the
// end of all places.
func scanRunTables(ctx context.Context, tx pgx.Tx, namespace string, filter belfry.RunFilter, from pgtype.UUID, want int) (all []belfry.Run, floor pgtype.UUID, err error) {
	for _, p := range runTablesFor(filter.Status) {
		runs, bottom, err := p.scan(ctx, tx, namespace, filter.Status, from, want)
		if err != nil {
			return nil, floor, err
		}
		all = append(all, runs...)
		if bottom.Valid && (!floor.Valid || belfry.ID(bottom.Bytes).Compare(floor.Bytes) > 0) {
			floor = bottom
		}
	}
	slices.SortFunc(all, func(a, b belfry.Run) int { return b.ID.Compare(a.ID) })
	if floor.Valid {
		all = slices.DeleteFunc(all, func(r belfry.Run) bool { return r.ID.Compare(floor.Bytes) < 0 })
	}
	return all, floor, nil
}

// look walks over the next runs of a place and says how far it came; null if it
// came to the end.
func (p runTable) scan(ctx context.Context, tx pgx.Tx, namespace string, state belfry.RunStatus, from pgtype.UUID, want int) (runs []belfry.Run, bottom pgtype.UUID, err error) {
	walk := fmt.Sprintf(`FROM %s WHERE %s < $1 AND %s ORDER BY %s DESC`, p.table, p.id, p.where, p.id)
	rows, err := tx.Query(ctx, fmt.Sprintf(`%s (SELECT * %s LIMIT $2) x%s WHERE x.namespace = $3 AND ($4 = '' OR %s = $4) ORDER BY x.%s DESC LIMIT $5`,
		p.columns, walk, p.join, p.state, p.id), from, runScanLimit, namespace, string(state), want)
	if err != nil {
		return nil, bottom, err
	}
	if runs, err = pgx.CollectRows(rows, scanRun); err != nil {
		return nil, bottom, err
	}
	if len(runs) == want {
		return runs, uuid(runs[want-1].ID), nil
	}
	rows, err = tx.Query(ctx, fmt.Sprintf(`SELECT %s %s OFFSET $2 - 1 LIMIT 1`, p.id, walk), from, runScanLimit)
	if err != nil {
		return nil, bottom, err
	}
	last, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if len(last) > 0 {
		bottom = last[0]
	}
	return runs, bottom, err
}
