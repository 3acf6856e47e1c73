package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// cancelSQL cancels live runs: those that a worker holds are marked, and the others
// become history. It returns the follow-ups.
func cancelSQL(where string) string {
	return `/* cancel */
WITH locked AS MATERIALIZED (
  SELECT r.*, clock_timestamp() AS now FROM belfry.runs r WHERE r.namespace = $1 AND ` + where + ` ORDER BY r.id FOR UPDATE
), marked AS (
  UPDATE belfry.runs r SET cancel_requested_at = locked.now FROM locked WHERE r.id = locked.id AND locked.state = 'running' AND locked.cancel_requested_at IS NULL
), deleted AS (
  DELETE FROM belfry.runs r USING locked WHERE r.id = locked.id AND locked.state <> 'running'
), settled AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, settled_at, http_status, error, output, skipped_count, key, retain_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'cancelled', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, now, 0, '', '', 0, key, now + retention_days * interval '24 hours'
    FROM locked WHERE state <> 'running'
)
SELECT r.job_id, r.state <> 'running', r.one_off, ` + hasWaitingRun + ` FROM locked r`
}

// Cancel ends a run in whichever table it is. It may move from one to the next between
// two lookups, so that a run that was not found is looked up again.
func (s *Store) Cancel(ctx context.Context, namespace string, run belfry.ID) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	for range 3 {
		for _, cancel := range []func(context.Context, string, belfry.ID) (bool, error){s.cancelLive, s.cancelTrigger, s.cancelSettled} {
			if found, err := cancel(ctx, namespace, run); found || err != nil {
				return wrapError("cancel", err)
			}
		}
	}
	return store.NoSuch("run", run)
}

func (s *Store) cancelLive(ctx context.Context, namespace string, run belfry.ID) (found bool, err error) {
	var next followUps
	err = s.change(ctx, func(tx pgx.Tx) error {
		next = followUps{}
		if found, err = next.cancelled(ctx, tx, `r.id = $2`, namespace, run); found {
			store.AuditOf(ctx).Done(run)
		}
		return err
	})
	if err == nil {
		s.runFollowUps(ctx, next)
	}
	return found, err
}

func (f *followUps) cancelled(ctx context.Context, q querier, where, namespace string, id belfry.ID) (found bool, err error) {
	var job belfry.ID
	var settled, oneOff, hasWaiting bool
	err = forEach(ctx, q, []any{idColumn(&job), &settled, &oneOff, &hasWaiting}, func() error {
		found = true
		if settled {
			f.add(job, oneOff, hasWaiting)
		}
		return nil
	}, cancelSQL(where), namespace, uuid(id))
	return found, err
}

// cancelTrigger cancels the run that a pending trigger would become. It locks the plan
// first, as firing the trigger does.
func (s *Store) cancelTrigger(ctx context.Context, namespace string, run belfry.ID) (found bool, err error) {
	err = s.change(ctx, func(tx pgx.Tx) error {
		var job belfry.ID
		var spec string
		err := tx.QueryRow(ctx, `/* cancel */
SELECT j.id, j.spec FROM belfry.triggers t JOIN belfry.plans p ON p.job_id = t.job_id JOIN belfry.jobs j ON j.id = t.job_id
 WHERE t.namespace = $1 AND t.run_id = $2 AND t.fired_at IS NULL AND j.state <> 'deleted' FOR UPDATE OF p`, namespace, uuid(run)).Scan(idColumn(&job), &spec)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := cancelTriggers(ctx, tx, job, run, s.specs.OrZero(spec).RetentionDays)
		if found = n > 0; found {
			store.AuditOf(ctx).Done(run)
		}
		return err
	})
	return found, err
}

// cancelTriggers moves pending triggers of a job whose plan is locked to history: all,
// or the one of a run.
func cancelTriggers(ctx context.Context, tx pgx.Tx, job, run belfry.ID, retentionDays int) (int, error) {
	tag, err := tx.Exec(ctx, `/* cancel */
WITH consumed AS (
  UPDATE belfry.triggers t SET fired_at = clock_timestamp() FROM belfry.jobs j
   WHERE j.id = $1 AND t.shard = j.shard AND t.job_id = j.id AND t.fired_at IS NULL AND ($2::uuid IS NULL OR t.run_id = $2)
  RETURNING t.*, j.revision
), counted AS (
  UPDATE belfry.plans p SET runs_triggered = p.runs_triggered + n.n FROM (SELECT count(*) AS n FROM consumed) n WHERE p.job_id = $1 AND n.n > 0
)
INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                            attempt, settled_at, http_status, error, output, skipped_count, retain_until)
SELECT run_id, shard, namespace, job_id, revision, kind, 'cancelled', '', at, greatest(at, created_at), fired_at, $4, 0,
       0, fired_at, 0, '', '', 0, fired_at + nullif($3, 0) * interval '24 hours'
  FROM consumed`, uuid(job), uuid(run), retentionDays, notNull(belfry.ID{}))
	return int(tag.RowsAffected()), err
}

// cancelSettled finds a run that is settled. Cancelling it again is no error.
func (s *Store) cancelSettled(ctx context.Context, namespace string, run belfry.ID) (found bool, err error) {
	var state belfry.RunStatus
	err = s.pool.QueryRow(ctx, `/* cancel */ SELECT 'dead' FROM belfry.dead WHERE namespace = $1 AND id = $2
		UNION ALL (SELECT state FROM belfry.history WHERE namespace = $1 AND id = $2 ORDER BY settled_at DESC LIMIT 1) LIMIT 1`, namespace, uuid(run)).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return true, err
	}
	return true, store.CancelSettled(run, state)
}

// cancelAll cancels the live runs and pending triggers of a job whose plan is locked. No
// waiting run is left to promote.
func cancelAll(ctx context.Context, tx pgx.Tx, job *belfry.Job, next *followUps) error {
	var all followUps
	if _, err := all.cancelled(ctx, tx, `r.job_id = $2`, job.Namespace, job.ID); err != nil {
		return err
	}
	next.oneOffs = []belfry.ID{job.ID}
	_, err := cancelTriggers(ctx, tx, job.ID, belfry.ID{}, job.RetentionDays)
	return err
}
