package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// The tables that a run may be in, read as the same columns. A pending trigger is read
// as the ready run that it becomes. Each is followed by its table, or a part of it,
// under the name x.
const (
	selectLive = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, x.state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
		NULL::timestamptz AS finished_at, x.worker, coalesce(a.http_status, 0) AS http_status, coalesce(a.error, '') AS error, coalesce(a.output, '') AS output, '' AS reason, NULL::timestamptz AS skipped_to,
		0::bigint AS skipped_count, x.cancel_requested_at, coalesce(x.key, '') AS key FROM `
	selectDead = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, 'dead' AS state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
		x.died_at, a.worker, coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), x.reason, NULL::timestamptz,
		0::bigint, NULL::timestamptz, coalesce(x.key, '') FROM `
	selectPending = `SELECT x.run_id AS id, x.job_id, x.namespace, j.revision, x.kind, 'ready' AS state, x.at AS scheduled_at, greatest(x.at, x.created_at) AS ready_at, NULL::timestamptz, 0, NULL::timestamptz,
		NULL::timestamptz, NULL::uuid, 0, '', '', '', NULL::timestamptz,
		0::bigint, NULL::timestamptz, '' FROM `
	selectSettled = `SELECT x.id, x.job_id, x.namespace, x.revision, x.kind, x.state, x.scheduled_at, x.ready_at, x.fired_at, x.attempt, x.started_at,
		x.settled_at, x.worker, x.http_status, x.error, x.output, x.reason, x.skipped_to,
		x.skipped_count, NULL::timestamptz, coalesce(x.key, '') FROM `

	joinLastAttempt = ` LEFT JOIN belfry.attempts a ON a.run_id = x.id AND a.attempt = x.attempt` // of a dead letter, or of a live run that did not succeed yet
	joinLiveJob     = ` JOIN belfry.jobs j ON j.id = x.job_id AND j.state <> 'deleted'`           // of a trigger
)

func runFields(r *belfry.Run) []any {
	return []any{idColumn(&r.ID), idColumn(&r.JobID), &r.Namespace, &r.Revision, &r.Kind, &r.Status, timeColumn{&r.ScheduledAt}, timeColumn{&r.ReadyAt},
		timeColumn{&r.FiredAt}, &r.Attempt, nullTimeColumn{&r.StartedAt}, nullTimeColumn{&r.FinishedAt}, idColumn(&r.WorkerID), &r.HTTPStatus, &r.Error, &r.Output,
		&r.Reason, nullTimeColumn{&r.SkippedTo}, &r.SkippedCount, nullTimeColumn{&r.CancelRequestedAt}, &r.TemplateKey}
}

var scanRun = scanInto(runFields)

func (s *Store) Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	const where = ` WHERE x.namespace = $1 AND x.id = $2`
	run, err := collectOne(ctx, s.readPool, scanRun, func() error { return store.NoSuch("run", id) }, selectLive+`belfry.runs x`+joinLastAttempt+where+`
		UNION ALL `+selectDead+`belfry.dead x`+joinLastAttempt+where+`
		UNION ALL (`+selectSettled+`belfry.history x`+where+` ORDER BY x.settled_at DESC)
		UNION ALL `+selectPending+`belfry.triggers x`+joinLiveJob+` WHERE x.namespace = $1 AND x.run_id = $2 AND x.fired_at IS NULL
		LIMIT 1`, namespace, uuid(id))
	if err == nil {
		run.Attempts, err = s.attempts(ctx, id)
	}
	return run, wrapError("look up a run", err)
}

func (s *Store) attempts(ctx context.Context, run belfry.ID) ([]belfry.Attempt, error) {
	return collect(ctx, s.readPool, scanInto(attemptFields), `SELECT attempt, outcome, worker, started_at, finished_at, http_status, error, output, coalesce(late_outcome, ''), late_at
		FROM belfry.attempts WHERE run_id = $1 ORDER BY attempt`, uuid(run))
}

func attemptFields(a *belfry.Attempt) []any {
	return []any{&a.Number, &a.Outcome, idColumn(&a.WorkerID), timeColumn{&a.StartedAt}, timeColumn{&a.FinishedAt}, &a.HTTPStatus, &a.Error, &a.Output,
		&a.LateOutcome, nullTimeColumn{&a.LateAt}}
}

const (
	whereJobRuns = ` WHERE x.namespace = $1 AND x.job_id = $2 AND ($3::timestamptz IS NULL OR (x.scheduled_at, x.id) < ($3, $4)) AND ($5::timestamptz IS NULL OR (x.scheduled_at, x.id) >= ($5, $6))`
	orderJobRuns = ` ORDER BY x.scheduled_at DESC, x.id DESC`
)

// JobRuns cuts each table to a page before they are merged. With a status it reads
// history down to a floor, because runs with that status may be rare.
func (s *Store) JobRuns(ctx context.Context, namespace string, job belfry.ID, f belfry.JobRunFilter, page store.Page) (runs []belfry.Run, floor store.Position, err error) {
	after := store.ListStart(f.Until, page.After)
	args := func(end store.Position, more ...any) []any {
		return append([]any{namespace, uuid(job), timestamptz(after.At), notNull(after.ID), timestamptz(end.At), notNull(end.ID)}, more...)
	}
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		end := store.Position{At: f.Since}
		if store.SettledOnly(f.Status) {
			err := tx.QueryRow(ctx, `SELECT x.scheduled_at, x.id FROM belfry.history x`+whereJobRuns+orderJobRuns+` LIMIT 1 OFFSET $7`, args(end, runScanLimit)...).
				Scan(timeColumn{&floor.At}, idColumn(&floor.ID))
			switch {
			case err == nil:
				end = floor
			case !errors.Is(err, pgx.ErrNoRows):
				return err
			}
		}
		runs, err = collect(ctx, tx, scanRun, jobRunsSQL, args(end, string(f.Status), page.Limit)...)
		return err
	})
	return runs, floor, wrapError("list runs", err)
}

var jobRunsSQL = func() string {
	var tables []string
	for _, t := range []runTable{liveTable, deadTable, settledTable} {
		tables = append(tables, `(`+t.columns+t.table+` x`+t.join+whereJobRuns+` AND ($7 = '' OR `+t.state+` = $7)`+orderJobRuns+` LIMIT $8)`)
	}
	return strings.Join(tables, ` UNION ALL `) + ` ORDER BY scheduled_at DESC, id DESC LIMIT $8`
}()

func (s *Store) RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error) {
	const where = ` WHERE x.namespace = $1 AND x.job_id = $2 AND x.scheduled_at = $3`
	runs, err := collect(ctx, s.readPool, scanRun, selectLive+`belfry.runs x`+joinLastAttempt+where+`
		UNION ALL `+selectDead+`belfry.dead x`+joinLastAttempt+where+`
		UNION ALL `+selectSettled+`belfry.history x`+where+`
		UNION ALL `+selectSettled+`belfry.history x WHERE x.namespace = $1 AND x.job_id = $2 AND x.scheduled_at < $3 AND x.skipped_to >= $3 AND x.skipped_count > 1`,
		namespace, uuid(job), at)
	return runs, wrapError("look up the runs of an instant", err)
}

// maxRunsBefore limits store.RunWait.Before.
const maxRunsBefore = 10

func (s *Store) RunWait(ctx context.Context, namespace string, run belfry.ID) (store.RunWait, error) {
	var w store.RunWait
	var before []pgtype.UUID
	err := s.readPool.QueryRow(ctx, `
SELECT r.state, r.ready_at, r.lane, r.cancel_requested_at IS NOT NULL,
       CASE WHEN r.state = 'ready' THEN (SELECT count(*) FROM belfry.runs x WHERE x.state = 'ready' AND x.lane = r.lane AND x.rank < r.rank) ELSE 0 END,
       (SELECT count(*) FROM belfry.runs x WHERE x.state = 'running' AND x.lane = r.lane),
       CASE WHEN r.state = 'waiting' THEN ARRAY(
         SELECT x.id FROM belfry.runs x
          WHERE x.job_id = r.job_id AND (x.state <> 'waiting' OR (x.kind = 'backfill', x.scheduled_at, x.id) < (r.kind = 'backfill', r.scheduled_at, r.id))
          ORDER BY x.state = 'waiting', x.kind = 'backfill', x.scheduled_at, x.id LIMIT $3) END
  FROM belfry.runs r WHERE r.namespace = $1 AND r.id = $2`, namespace, uuid(run), maxRunsBefore).
		Scan(&w.State, timeColumn{&w.ReadyAt}, &w.Lane, &w.Cancel, &w.Ahead, &w.Running, &before)
	if errors.Is(err, pgx.ErrNoRows) {
		return w, store.NoSuch("live run", run)
	}
	if err != nil {
		return w, wrapError("look up what a run waits for", err)
	}
	for _, id := range before {
		w.Before = append(w.Before, id.Bytes)
	}
	return w, nil
}

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
	liveTable    = runTable{selectLive, "belfry.runs", "id", "true", joinLastAttempt, "x.state", "scheduled_at"}
	deadTable    = runTable{selectDead, "belfry.dead", "id", "true", joinLastAttempt, "'dead'", "scheduled_at"}
	settledTable = runTable{selectSettled, "belfry.history", "id", "true", "", "x.state", "scheduled_at"}
	pendingTable = runTable{selectPending, "belfry.triggers", "run_id", "fired_at IS NULL", joinLiveJob, "'ready'", "at"}
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
	runs, err = collect(ctx, tx, scanRun, fmt.Sprintf(`%s (SELECT *%s LIMIT $2) x%s WHERE x.namespace = $3 AND ($4 = '' OR %s = $4)
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
