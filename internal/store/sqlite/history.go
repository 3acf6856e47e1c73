package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// The tables that a run may be in, read as the same columns. A pending trigger is
// read as a ready run.
const (
	liveColumns = `SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, r.state, r.scheduled_at, r.ready_at, r.fired_at, r.attempt,
  r.started_at, NULL, r.worker, coalesce(a.http_status, 0), coalesce(a.output, ''), coalesce(a.error, ''), '', NULL, 0, r.cancel_requested_at, coalesce(r.key, '')
FROM runs r `
	selectLive = liveColumns + joinLastAttempt

	// Of a dead letter, or of a live run that did not succeed yet.
	joinLastAttempt = `LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt `

	deadColumns = `SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, 'dead', r.scheduled_at, r.ready_at, r.fired_at, r.attempt,
  r.started_at, r.died_at, a.worker, coalesce(a.http_status, 0), coalesce(a.output, ''), coalesce(a.error, ''), r.reason, NULL, 0,
  NULL, coalesce(r.key, '')`
	deadTables = `
FROM dead r ` + joinLastAttempt
	selectDead = deadColumns + deadTables

	selectHistory = `SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, r.state, r.scheduled_at, r.ready_at, r.fired_at, r.attempt,
  r.started_at, r.settled_at, r.worker, r.http_status, r.output, r.error, r.reason, r.skipped_to, r.skipped_count, NULL, coalesce(r.key, '')
FROM history r `

	selectTriggers = `SELECT r.run_id, r.job_id, r.namespace, j.revision, r.kind, 'ready', r.at, max(r.at, r.created_at), NULL, 0,
  NULL, NULL, NULL, 0, '', '', '', NULL, 0, NULL, '' FROM triggers r CROSS JOIN jobs j ON j.id = r.job_id AND j.state <> 'deleted' `
)

const (
	whereRun     = `WHERE r.id = ? AND r.namespace = ? `
	whereTrigger = `WHERE r.run_id = ? AND r.namespace = ? AND r.fired_at IS NULL`

	// A restored database may run the same run again.
	selectSettledRun = selectHistory + whereRun + `ORDER BY r.settled_at DESC LIMIT 1`

	whereJobRuns  = `WHERE r.job_id = @job AND r.namespace = @namespace AND (r.scheduled_at, r.id) < (@before, @after) AND (r.scheduled_at, r.id) >= (@since, @floor) `
	orderJobRuns  = `ORDER BY r.scheduled_at DESC, r.id DESC `
	selectJobRuns = `SELECT * FROM (` + selectLive + whereJobRuns + whereState + orderJobRuns + `LIMIT @limit) UNION ALL SELECT * FROM (` +
		selectDead + whereJobRuns + `AND @state IN ('', 'dead') ` + orderJobRuns + `LIMIT @limit) UNION ALL SELECT * FROM (` +
		selectHistory + whereJobRuns + whereState + orderJobRuns + `LIMIT @limit) ORDER BY 7 DESC, 1 DESC LIMIT @limit`
	selectJobFloor = `SELECT r.scheduled_at, r.id FROM history r ` + whereJobRuns + orderJobRuns + `LIMIT 1 OFFSET @skip`

	whereInstant = `WHERE r.job_id = @job AND r.namespace = @namespace AND r.scheduled_at = @at `
	selectRunsAt = selectLive + whereInstant + `UNION ALL ` + selectDead + whereInstant + `UNION ALL ` + selectHistory + whereInstant + `UNION ALL ` + selectHistory +
		`WHERE r.job_id = @job AND r.namespace = @namespace AND r.skipped_count > 1 AND r.scheduled_at < @at AND r.skipped_to >= @at`

	selectAttempts = `SELECT attempt, outcome, worker, started_at, finished_at, http_status, error, output, coalesce(late_outcome, ''), late_at
FROM attempts WHERE run_id = ? ORDER BY attempt`

	selectWait = `SELECT state, ready_at, lane, job_id, rank, scheduled_at, kind = 'backfill', cancel_requested_at IS NOT NULL,
  (SELECT count(*) FROM runs o WHERE o.state = 'running' AND o.lane = r.lane)
FROM runs r WHERE r.id = ? AND r.namespace = ?`

	countAhead = `SELECT count(*) FROM runs WHERE state = 'ready' AND lane = ? AND (rank, id) < (?, ?)`

	// Runs that do not wait come first, and then those that have waited longer.
	selectBefore = `SELECT id FROM runs WHERE job_id = @job AND id <> @id AND (state <> 'waiting' OR (kind = 'backfill', scheduled_at, id) < (@backfill, @at, @id))
ORDER BY state = 'waiting', kind = 'backfill', scheduled_at, id LIMIT 10`
)

func runFields(r *belfry.Run) []any {
	return []any{bytesColumn{r.ID[:]}, bytesColumn{r.JobID[:]}, &r.Namespace, &r.Revision, &r.Kind, &r.Status, timeColumn{&r.ScheduledAt},
		timeColumn{&r.ReadyAt}, timeColumn{&r.FiredAt}, &r.Attempt, nullTimeColumn{&r.StartedAt}, nullTimeColumn{&r.FinishedAt}, bytesColumn{r.WorkerID[:]},
		&r.HTTPStatus, &r.Output, &r.Error, &r.Reason, nullTimeColumn{&r.SkippedTo}, &r.SkippedCount, nullTimeColumn{&r.CancelRequestedAt}, &r.TemplateKey}
}

var scanRun = scanInto(runFields)

func (s *Store) Run(ctx context.Context, namespace string, id belfry.ID) (belfry.Run, error) {
	return readValue(ctx, s, "look up a run", func(t *tx) (run belfry.Run, err error) {
		if err := t.findRun(&run, namespace, id); err != nil {
			return run, err
		}
		run.Attempts, err = t.attempts(id)
		return run, err
	})
}

func (t *tx) findRun(run *belfry.Run, namespace string, id belfry.ID) error {
	for _, query := range []string{selectLive + whereRun, selectDead + whereRun, selectSettledRun, selectTriggers + whereTrigger} {
		if found, err := t.find(runFields(run), query, id[:], namespace); err != nil || found {
			return err
		}
	}
	return store.NoSuch("run", id)
}

// attempts returns the attempts of a run that did not succeed, in order.
func (t *tx) attempts(run belfry.ID) ([]belfry.Attempt, error) {
	return all(t, func(rows *sql.Rows, a *belfry.Attempt) error {
		return rows.Scan(&a.Number, &a.Outcome, bytesColumn{a.WorkerID[:]}, timeColumn{&a.StartedAt}, timeColumn{&a.FinishedAt}, &a.HTTPStatus,
			&a.Error, &a.Output, &a.LateOutcome, nullTimeColumn{&a.LateAt})
	}, selectAttempts, run[:])
}

// JobRuns reads history down to a floor if only runs with a status are wanted, which
// may be rare.
func (s *Store) JobRuns(ctx context.Context, namespace string, job belfry.ID, f belfry.JobRunFilter, page store.Page) (runs []belfry.Run, floor store.Position, err error) {
	after := store.ListStart(f.Until, page.After)
	args := func(end store.Position, more ...any) []any {
		return append([]any{sql.Named("job", job[:]), sql.Named("namespace", namespace), sql.Named("before", timeOr(after.At, afterAll)), sql.Named("after", after.ID[:]),
			sql.Named("since", timeOr(end.At, beforeAll)), sql.Named("floor", end.ID[:])}, more...)
	}
	end := store.Position{At: f.Since}
	runs, err = readValue(ctx, s, "list the runs of a job", func(t *tx) ([]belfry.Run, error) {
		if store.SettledOnly(f.Status) {
			found, err := t.find([]any{timeColumn{&floor.At}, bytesColumn{floor.ID[:]}}, selectJobFloor, args(end, sql.Named("skip", int64(s.scanLimit)))...)
			if err != nil {
				return nil, err
			}
			if found {
				end = floor
			}
		}
		return all(t, scanRun, selectJobRuns, args(end, sql.Named("state", string(f.Status)), sql.Named("limit", atMost(page.Limit)))...)
	})
	return runs, floor, err
}

func (s *Store) RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error) {
	return readAll(ctx, s, "look up an instant", scanRun, selectRunsAt, sql.Named("job", job[:]), sql.Named("namespace", namespace), sql.Named("at", micro(at)))
}

func (s *Store) RunWait(ctx context.Context, namespace string, run belfry.ID) (store.RunWait, error) {
	return readValue(ctx, s, "look up what a run waits for", func(t *tx) (w store.RunWait, err error) {
		var job belfry.ID
		var rank, at int64
		var backfill bool
		found, err := t.find([]any{&w.State, timeColumn{&w.ReadyAt}, &w.Lane, bytesColumn{job[:]}, &rank, &at, &backfill, &w.Cancel, &w.Running}, selectWait, run[:], namespace)
		switch {
		case err != nil:
		case !found:
			err = store.NoSuch("run", run)
		case w.State == belfry.RunReady:
			err = t.get([]any{&w.Ahead}, countAhead, w.Lane, rank, run[:])
		case w.State == belfry.RunWaiting:
			w.Before, err = all(t, scanID, selectBefore, sql.Named("job", job[:]), sql.Named("id", run[:]), sql.Named("at", at), sql.Named("backfill", backfill))
		}
		return w, err
	})
}

// runTable is a table that has runs, scanned in descending order of their ids.
type runTable struct {
	table string // with the alias r
	query string // reads runs from the table
	where string // selects the rows of the index that is scanned
	id    string // of the run
	at    string // its scheduled instant
	state string // a condition, where runs have a state of their own
	order string // of rows with the same id
}

const whereState = ` AND (@state = '' OR r.state = @state) `

var (
	liveRuns    = runTable{table: `runs r`, query: selectLive, where: `true`, id: `r.id`, at: `r.scheduled_at`, state: whereState}.scan()
	deadRuns    = runTable{table: `dead r`, query: selectDead, where: `true`, id: `r.id`, at: `r.scheduled_at`}.scan()
	settledRuns = runTable{table: `history r`, query: selectHistory, where: `r.namespace = @namespace`, id: `r.id`, at: `r.scheduled_at`, state: whereState, order: `, r.settled_at DESC`}.scan()
	pendingRuns = runTable{table: `triggers r`, query: selectTriggers, where: `r.fired_at IS NULL`, id: `r.run_id`, at: `r.at`}.scan()
	runningRuns = runTable{query: liveColumns + `INDEXED BY runs_running ` + joinLastAttempt, where: `r.state = 'running'`, id: `r.id`, at: `r.scheduled_at`}.scan()
)

// scan is the index scan of a table. The plus keeps SQLite from an index by namespace
// that has another order. Without a table to scan, all rows are sorted: no more runs
// are running than workers have slots.
func (r runTable) scan() indexScan[belfry.Run] {
	s := indexScan[belfry.Run]{
		page: r.query + `WHERE ` + r.where + ` AND +r.namespace = @namespace AND ` + r.id + ` < @after AND ` + r.id + ` >= @floor AND ` + r.at + ` >= @since AND ` + r.at + ` < @until` + r.state +
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
	page.After.ID = store.ScanStart(filter.Until, page.After.ID)
	args := []any{sql.Named("namespace", namespace), sql.Named("state", string(filter.Status)), sql.Named("since", timeOr(filter.Since, beforeAll)), sql.Named("until", timeOr(filter.Until, afterAll))}
	return readValue(ctx, s, "list runs", func(t *tx) (out store.RunList, err error) {
		out.Runs, out.Next, err = scanPage(t, runScans(filter.Status), func(r belfry.Run) belfry.ID { return r.ID }, args, page, s.scanLimit)
		if store.ScanEnded(filter.Since, out.Next) {
			out.Next = belfry.ID{}
		}
		return out, err
	})
}
