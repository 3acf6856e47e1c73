package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// cancelSQL cancels the live runs of a job, or one run alone: one that a worker
// holds is marked, and the others become history. It tells what comes after them.
func cancelSQL(where string) string {
	return `/* cancel */
WITH held AS MATERIALIZED (
  SELECT r.*, clock_timestamp() AS now FROM belfry.runs r WHERE r.namespace = $1 AND ` + where + ` ORDER BY r.id FOR UPDATE
), told AS (
  UPDATE belfry.runs r SET cancel_at = held.now FROM held WHERE r.id = held.id AND held.state = 'running' AND held.cancel_at IS NULL
), gone AS (
  DELETE FROM belfry.runs r USING held WHERE r.id = held.id AND held.state <> 'running'
), kept AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, settled_at, http_status, error, output, skipped_count, key, keep_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'cancelled', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, now, 0, '', '', 0, key, now + keep_days * interval '24 hours'
    FROM held WHERE state <> 'running'
)
SELECT r.job_id, r.state <> 'running', r.once, ` + hasWaitingRun + ` FROM held r`
}

// Cancel ends a run wherever it is. Between two looks it may have gone from one
// place to the next, so that one that is nowhere is looked for again.
func (s *Store) Cancel(ctx context.Context, namespace string, run belfry.ID) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	for range 3 {
		for _, try := range []func(context.Context, string, belfry.ID) (bool, error){s.cancelLive, s.cancelTrigger, s.cancelSettled} {
			if found, err := try(ctx, namespace, run); found || err != nil {
				return wrapError("cancel", err)
			}
		}
	}
	return belfry.Errorf(belfry.NotFound, "there is no run %s", run)
}

func (s *Store) cancelLive(ctx context.Context, namespace string, run belfry.ID) (found bool, err error) {
	rows, err := s.pool.Query(ctx, cancelSQL(`r.id = $2`), namespace, uuid(run))
	if err != nil {
		return false, err
	}
	var rest followUps
	if found, err = rest.collectCancelled(rows); err == nil {
		s.runFollowUps(ctx, rest)
	}
	return found, err
}

// cancelled reads what cancelSQL tells.
func (a *followUps) collectCancelled(rows pgx.Rows) (found bool, err error) {
	var job pgtype.UUID
	var gone, once, waits bool
	_, err = pgx.ForEachRow(rows, []any{&job, &gone, &once, &waits}, func() error {
		found = true
		if gone {
			a.add(job.Bytes, once, waits)
		}
		return nil
	})
	return found, err
}

// cancelWish cancels the run that a trigger would become. The plan is locked first,
// as whoever fires the trigger does.
func (s *Store) cancelTrigger(ctx context.Context, namespace string, run belfry.ID) (found bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var job pgtype.UUID
		var spec string
		err := tx.QueryRow(ctx, `/* cancel */
SELECT j.id, j.spec FROM belfry.triggers t JOIN belfry.plans p ON p.job_id = t.job_id JOIN belfry.jobs j ON j.id = t.job_id
 WHERE t.namespace = $1 AND t.run_id = $2 AND t.fired_at IS NULL AND j.state <> 'deleted' FOR UPDATE OF p`, namespace, uuid(run)).Scan(&job, &spec)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := cancelTriggers(ctx, tx, job.Bytes, run, s.specs.OrZero(spec).RetentionDays)
		found = n > 0
		return err
	})
	return found, err
}

// cancelWishes has triggers of a job whose plan is locked become history instead of
// runs: all, or the one of a run.
func cancelTriggers(ctx context.Context, tx pgx.Tx, job, run belfry.ID, keepDays int) (int, error) {
	tag, err := tx.Exec(ctx, `/* cancel */
WITH gone AS (
  UPDATE belfry.triggers t SET fired_at = clock_timestamp() FROM belfry.jobs j
   WHERE j.id = $1 AND t.shard = j.shard AND t.job_id = j.id AND t.fired_at IS NULL AND ($2::uuid IS NULL OR t.run_id = $2)
  RETURNING t.*, j.revision
), counted AS (
  UPDATE belfry.plans p SET runs_asked = p.runs_asked + n.n FROM (SELECT count(*) AS n FROM gone) n WHERE p.job_id = $1 AND n.n > 0
)
INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                            attempt, settled_at, http_status, error, output, skipped_count, keep_until)
SELECT run_id, shard, namespace, job_id, revision, kind, 'cancelled', '', at, greatest(at, created_at), fired_at, $4, 0,
       0, fired_at, 0, '', '', 0, fired_at + nullif($3, 0) * interval '24 hours'
  FROM gone`, uuid(job), uuid(run), keepDays, pgtype.UUID{Valid: true})
	return int(tag.RowsAffected()), err
}

// cancelSettled finds a run that is over. Cancelling it again is no fault.
func (s *Store) cancelSettled(ctx context.Context, namespace string, run belfry.ID) (found bool, err error) {
	var state belfry.RunStatus
	err = s.pool.QueryRow(ctx, `/* cancel */ SELECT 'dead' FROM belfry.dead WHERE namespace = $1 AND id = $2
		UNION ALL (SELECT state FROM belfry.history WHERE namespace = $1 AND id = $2 ORDER BY settled_at DESC LIMIT 1) LIMIT 1`, namespace, uuid(run)).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil || state == belfry.RunCancelled:
		return true, err
	case state == belfry.RunDead:
		return true, belfry.Errorf(belfry.Conflict, "run %s is a dead letter, which can be discarded but not cancelled", run)
	}
	return true, belfry.Errorf(belfry.Conflict, "run %s is over and cannot be cancelled: it is %s", run, state)
}

// cancelAll cancels whatever a job has that is alive or asked for. Its plan is
// locked. No run is left that could go ahead.
func cancelAll(ctx context.Context, tx pgx.Tx, job *belfry.Job, rest *followUps) error {
	rows, err := tx.Query(ctx, cancelSQL(`r.job_id = $2`), job.Namespace, uuid(job.ID))
	if err != nil {
		return err
	}
	var each followUps
	if _, err := each.collectCancelled(rows); err != nil {
		return err
	}
	rest.oneOffs = each.oneOffs
	_, err = cancelTriggers(ctx, tx, job.ID, belfry.ID{}, job.RetentionDays)
	return err
}
