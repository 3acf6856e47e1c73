package sqlstore

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// runTable is a table of runs that is scanned in descending order of their ids.
type runTable struct {
	columns string
	table   string
	id, at  string // columns of the id and of the scheduled instant
	where   string // of the scan, which an index has too
	join    string
	state   string // expression; a constant if all rows have the same
}

var (
	liveTable    = runTable{LiveColumns, "runs", "id", "scheduled_at", "true", JoinLastAttempt, "x.state"}
	deadTable    = runTable{DeadColumns, "dead", "id", "scheduled_at", "true", JoinLastAttempt, "'dead'"}
	settledTable = runTable{SettledColumns, "history", "id", "scheduled_at", "true", "", "x.state"}
	pendingTable = runTable{PendingColumns, "triggers", "run_id", "at", "fired_at IS NULL", JoinLiveJob, "'ready'"}
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

// ListRuns scans a bounded number of rows in each table, more if there is time. The page ends
// where the first scan ended.
func (s Store) ListRuns(ctx context.Context, namespace string, filter belfry.RunFilter, page store.Page) (found store.RunList, err error) {
	if page.Limit < 1 {
		return found, ctx.Err()
	}
	started := time.Now()
	err = s.DB.Do(ctx, Scan, "list runs", func(t Tx) error {
		page.After.ID = store.ScanStart(filter.Until, page.After.ID)
		for after := startAfter(page); ; after = found.Next {
			end, limit := belfry.ID{}, page.Limit+1-len(found.Runs) // one more shows whether there are more
			for _, table := range runTablesFor(filter.Status) {
				runs, tableEnd, err := s.scanRuns(t, table, namespace, filter, after, limit)
				if err != nil {
					return err
				}
				found.Runs = append(found.Runs, runs...)
				if tableEnd.Compare(end) > 0 {
					end = tableEnd
				}
			}
			found.Runs, found.Next = store.MergePage(found.Runs, func(r belfry.Run) belfry.ID { return r.ID }, end, page.Limit)
			if store.ScanEnded(filter.Since, found.Next) {
				found.Next = belfry.ID{}
			}
			if found.Next.IsZero() || len(found.Runs) == page.Limit || time.Since(started) > s.SearchTime {
				return nil
			}
		}
	})
	return found, err
}

// scanRuns reads the next runs of a table and returns where it ended; zero at the end of the
// table.
func (s Store) scanRuns(t Tx, table runTable, namespace string, f belfry.RunFilter, after belfry.ID, limit int) (runs []belfry.Run, end belfry.ID, err error) {
	scan := ` FROM ` + s.DB.RunScan(table.table, f.Status) + ` AND ` + table.where + ` AND ` + table.id + ` < $1 AND $3::text IS NOT NULL ORDER BY ` + table.id + ` DESC`
	until := f.Until
	if until.IsZero() {
		until = maxTime
	}
	runs, err = all(t, RunFields, `/* list runs */ `+table.columns+` FROM (SELECT *`+scan+` LIMIT $2) x`+table.join+`
 WHERE x.namespace = $3 AND ($4 = '' OR `+table.state+` = $4) AND x.`+table.at+` >= $6 AND x.`+table.at+` < $7 ORDER BY x.`+table.id+` DESC LIMIT $5`,
		after, s.ScanLimit, namespace, string(f.Status), limit, f.Since, until)
	if err != nil {
		return nil, end, err
	}
	if len(runs) == limit {
		return runs, runs[limit-1].ID, nil
	}
	err = t.Query([]any{&end}, func() {}, `/* list runs */ SELECT `+table.id+scan+` LIMIT 1 OFFSET $2`, after, s.ScanLimit-1, namespace)
	return runs, end, err
}
