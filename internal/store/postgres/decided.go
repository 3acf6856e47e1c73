package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Decided gives the runs and skips of a job for one instant, and the ranges of
// skips that it lies in.
func (s *Store) RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) ([]belfry.Run, error) {
	const then = ` WHERE x.namespace = $1 AND x.job_id = $2 AND x.scheduled_at = $3`
	rows, err := s.work.Query(ctx, liveRuns+`belfry.runs x`+then+`
		UNION ALL `+deadRuns+`belfry.dead x`+withAttempt+then+`
		UNION ALL `+settledRuns+`belfry.history x`+then+`
		UNION ALL `+settledRuns+`belfry.history x WHERE x.namespace = $1 AND x.job_id = $2 AND x.scheduled_at < $3 AND x.skipped_to >= $3 AND x.skipped_count > 1`,
		namespace, uuid(job), at)
	if err != nil {
		return nil, failed("look up what was decided", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	return runs, failed("look up what was decided", err)
}

// mostBefore bounds how many runs are named that another waits for.
const mostBefore = 10

// Wait tells what a live run waits for.
func (s *Store) RunWait(ctx context.Context, namespace string, run belfry.ID) (store.RunWait, error) {
	var w store.RunWait
	var before []pgtype.UUID
	err := s.work.QueryRow(ctx, `
SELECT r.state, r.ready_at, r.lane, r.cancel_at IS NOT NULL,
       CASE WHEN r.state = 'ready' THEN (SELECT count(*) FROM belfry.runs x WHERE x.state = 'ready' AND x.lane = r.lane AND x.rank < r.rank) ELSE 0 END,
       (SELECT count(*) FROM belfry.runs x WHERE x.state = 'running' AND x.lane = r.lane),
       CASE WHEN r.state = 'waiting' THEN ARRAY(
         SELECT x.id FROM belfry.runs x
          WHERE x.job_id = r.job_id AND (x.state <> 'waiting' OR (x.scheduled_at, x.id) < (r.scheduled_at, r.id))
          ORDER BY x.state = 'waiting', x.scheduled_at, x.id LIMIT $3) END
  FROM belfry.runs r WHERE r.namespace = $1 AND r.id = $2`, namespace, uuid(run), mostBefore).
		Scan(&w.State, &w.ReadyAt, &w.Lane, &w.Cancel, &w.Ahead, &w.Running, &before)
	if errors.Is(err, pgx.ErrNoRows) {
		return w, belfry.Errorf(belfry.NotFound, "there is no run %s that is alive", run)
	}
	if err != nil {
		return w, failed("look up what a run waits for", err)
	}
	w.ReadyAt = w.ReadyAt.UTC()
	for _, id := range before {
		w.Before = append(w.Before, id.Bytes)
	}
	return w, nil
}
