package sqlstore

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// The columns of the tables x that a run may be in, as RunFields has them, and the tables. A
// pending trigger is read as the ready run that it becomes, with its job j.
const (
	LiveColumns = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, x.state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
	NULL::timestamptz AS finished_at, x.worker, coalesce(a.http_status, 0) AS http_status, coalesce(a.error, '') AS error, coalesce(a.output, '') AS output, '' AS reason, NULL::timestamptz AS skipped_to,
	0::bigint AS skipped_count, x.cancel_requested_at, coalesce(x.key, '') AS key`
	DeadColumns = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, 'dead' AS state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
	x.died_at, a.worker, coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), x.reason, NULL::timestamptz,
	0::bigint, NULL::timestamptz, coalesce(x.key, '')`
	PendingColumns = `SELECT x.run_id AS id, x.job_id, x.namespace, j.revision, x.kind, 'ready' AS state, x.at AS scheduled_at, greatest(x.at, x.created_at) AS ready_at, NULL::timestamptz, 0, NULL::timestamptz,
	NULL::timestamptz, NULL::uuid, 0, '', '', '', NULL::timestamptz,
	0::bigint, NULL::timestamptz, ''`
	SettledColumns = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, x.state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
	x.settled_at, x.worker, x.http_status, x.error, x.output, x.reason, x.skipped_to,
	x.skipped_count, NULL::timestamptz, coalesce(x.key, '')`

	JoinLastAttempt = ` LEFT JOIN belfry.attempts a ON a.run_id = x.id AND a.attempt = x.attempt` // of a dead letter, or of a live run that did not succeed yet
	JoinLiveJob     = ` JOIN belfry.jobs j ON j.id = x.job_id AND j.state <> 'deleted'`           // of a trigger

	SelectLive    = LiveColumns + ` FROM belfry.runs x` + JoinLastAttempt
	SelectDead    = DeadColumns + ` FROM belfry.dead x` + JoinLastAttempt
	SelectPending = PendingColumns + ` FROM belfry.triggers x` + JoinLiveJob
	SelectSettled = SettledColumns + ` FROM belfry.history x`
)

// RunFields is where the columns of a run belong.
func RunFields(r *belfry.Run) []any {
	return []any{&r.ID, &r.JobID, &r.Namespace, &r.Revision, &r.Kind, &r.Status, &r.ScheduledAt, &r.ReadyAt, &r.FiredAt, &r.Attempt, &r.StartedAt, &r.FinishedAt,
		&r.WorkerID, &r.HTTPStatus, &r.Error, &r.Output, &r.Reason, &r.SkippedTo, &r.SkippedCount, &r.CancelRequestedAt, &r.TemplateKey}
}

// Statements about the runs of a job, and one run.
const (
	whereRun = ` WHERE x.namespace = $1 AND x.id = $2`
	FindRun  = SelectLive + whereRun + `
 UNION ALL ` + SelectDead + whereRun + `
 UNION ALL SELECT * FROM (` + SelectSettled + whereRun + ` ORDER BY x.settled_at DESC LIMIT 1) found
 UNION ALL ` + SelectPending + ` WHERE x.namespace = $1 AND x.run_id = $2 AND x.fired_at IS NULL LIMIT 1`

	whereInstant = ` WHERE x.namespace = $1 AND x.job_id = $2 AND x.scheduled_at = $3`
	FindRunsAt   = SelectLive + whereInstant + ` UNION ALL ` + SelectDead + whereInstant + ` UNION ALL ` + SelectSettled + whereInstant + `
 UNION ALL ` + SelectSettled + ` WHERE x.namespace = $1 AND x.job_id = $2 AND x.scheduled_at < $3 AND x.skipped_to >= $3 AND x.skipped_count > 1`

	whereJobRuns = ` WHERE x.namespace = $1 AND x.job_id = $2 AND (x.scheduled_at, x.id) < ($3, $4) AND (x.scheduled_at, x.id) >= ($5, $6)`
	orderJobRuns = ` ORDER BY x.scheduled_at DESC, x.id DESC `
	FindJobFloor = `SELECT x.scheduled_at, x.id FROM belfry.history x` + whereJobRuns + orderJobRuns + `LIMIT 1 OFFSET $7`
	ListJobRuns  = `SELECT * FROM (` + SelectLive + whereJobRuns + ` AND ($7 = '' OR x.state = $7)` + orderJobRuns + `LIMIT $8) found
 UNION ALL SELECT * FROM (` + SelectDead + whereJobRuns + ` AND ($7 = '' OR $7 = 'dead')` + orderJobRuns + `LIMIT $8) found
 UNION ALL SELECT * FROM (` + SelectSettled + whereJobRuns + ` AND ($7 = '' OR x.state = $7)` + orderJobRuns + `LIMIT $8) found
 ORDER BY scheduled_at DESC, id DESC LIMIT $8`

	ListAttempts = `SELECT attempt, outcome, worker, started_at, finished_at, http_status, error, output, coalesce(late_outcome, ''), late_at FROM belfry.attempts WHERE run_id = $1 ORDER BY attempt`
)

func attempts(t Tx, run belfry.ID) ([]belfry.Attempt, error) {
	return all(t, func(a *belfry.Attempt) []any {
		return []any{&a.Number, &a.Outcome, &a.WorkerID, &a.StartedAt, &a.FinishedAt, &a.HTTPStatus, &a.Error, &a.Output, &a.LateOutcome, &a.LateAt}
	}, ListAttempts, run)
}

// RunOf returns a run without its attempts.
func RunOf(t Tx, namespace string, id belfry.ID) (belfry.Run, error) {
	runs, err := all(t, RunFields, FindRun, namespace, id)
	return first(runs, err, store.NoSuch("run", id))
}

func (s Store) Run(ctx context.Context, namespace string, id belfry.ID) (run belfry.Run, err error) {
	err = s.DB.Do(ctx, Read, "look up a run", func(t Tx) error {
		if run, err = RunOf(t, namespace, id); err == nil {
			run.Attempts, err = attempts(t, id)
		}
		return err
	})
	return run, err
}

func (s Store) RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error) {
	return list(ctx, s, Read, "look up the runs of an instant", RunFields, FindRunsAt, namespace, job, at)
}

// JobRuns cuts each table to a page before they are merged. With a status it reads history
// down to a floor, because runs with that status may be rare.
func (s Store) JobRuns(ctx context.Context, namespace string, job belfry.ID, f belfry.JobRunFilter, page store.Page) (runs []belfry.Run, floor store.Position, err error) {
	after, end := store.ListStart(f.Until, page.After), store.Position{At: f.Since}
	if after.At.IsZero() {
		after.At = maxTime
	}
	err = s.DB.Do(ctx, Scan, "list the runs of a job", func(t Tx) error {
		if store.SettledOnly(f.Status) {
			floors, err := all(t, func(p *store.Position) []any { return []any{&p.At, &p.ID} }, FindJobFloor, namespace, job, after.At, after.ID, end.At, end.ID, s.ScanLimit)
			if err != nil {
				return err
			}
			if len(floors) > 0 {
				floor, end = floors[0], floors[0]
			}
		}
		runs, err = all(t, RunFields, ListJobRuns, namespace, job, after.At, after.ID, end.At, end.ID, string(f.Status), page.Limit)
		return err
	})
	return runs, floor, err
}

// maxRunsBefore limits store.RunWait.Before.
const maxRunsBefore = 10

// Statements about what a run waits for.
const (
	FindWait = `SELECT state, ready_at, lane, job_id, rank, scheduled_at, kind = 'backfill', cancel_requested_at IS NOT NULL,
       (SELECT count(*) FROM belfry.runs x WHERE x.state = 'running' AND x.lane = r.lane)
  FROM belfry.runs r WHERE r.namespace = $1 AND r.id = $2`
	CountAhead = `SELECT count(*) FROM belfry.runs WHERE state = 'ready' AND lane = $1 AND rank < $2`

	// Runs that do not wait come first, and then those that have waited longer.
	ListBefore = `SELECT id FROM belfry.runs WHERE job_id = $1 AND id <> $2 AND (state <> 'waiting' OR (kind = 'backfill', scheduled_at, id) < ($3, $4, $2))
 ORDER BY state = 'waiting', kind = 'backfill', scheduled_at, id LIMIT $5`
)

func (s Store) RunWait(ctx context.Context, namespace string, run belfry.ID) (w store.RunWait, err error) {
	err = s.DB.Do(ctx, Read, "look up what a run waits for", func(t Tx) (err error) {
		var (
			job             belfry.ID
			rank            int64
			at              time.Time
			found, backfill bool
		)
		err = t.Query([]any{&w.State, &w.ReadyAt, &w.Lane, &job, &rank, &at, &backfill, &w.Cancel, &w.Running}, func() { found = true }, FindWait, namespace, run)
		switch {
		case err != nil:
		case !found:
			err = store.NoSuch("live run", run)
		case w.State == belfry.RunReady:
			err = t.Query([]any{&w.Ahead}, func() {}, CountAhead, w.Lane, rank)
		case w.State == belfry.RunWaiting:
			w.Before, err = all(t, idField, ListBefore, job, run, backfill, at, maxRunsBefore)
		}
		return err
	})
	return w, err
}

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
