package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Reap removes silent workers and settles attempts that nobody will finish. Every
// running run whose worker is not registered counts, not only those that a worker had
// when it was removed: a claim may commit after that.
func (s *Store) Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (int, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	if silence > 0 {
		_, err := s.priorityPool.Exec(ctx, `DELETE FROM belfry.workers WHERE last_seen < clock_timestamp() - $1 * interval '1 millisecond'`, silence.Milliseconds())
		if err != nil {
			return 0, wrapError("remove silent workers", err)
		}
	}
	results, err := collect(ctx, s.pool, scanAbandoned, `
SELECT r.id, r.namespace, r.attempt, r.token, w.id IS NULL, r.deadline_at < clock_timestamp()
  FROM belfry.runs r LEFT JOIN belfry.workers w ON w.id = r.worker
 WHERE r.state = 'running' AND r.shard = ANY($1)
   AND (w.id IS NULL OR r.deadline_at < clock_timestamp() OR r.cancel_requested_at < clock_timestamp() - $3 * interval '1 millisecond')
 ORDER BY r.id LIMIT $2`, int32s(shards), limit, store.CancelGrace.Milliseconds())
	if err != nil {
		return 0, wrapError("reap", err)
	}
	settled, err := s.settle(ctx, results)
	reaped := 0
	for _, ok := range settled {
		if ok {
			reaped++
		}
	}
	return reaped, wrapError("reap", err)
}

// scanAbandoned reads the result of an attempt that nobody will finish.
func scanAbandoned(row pgx.CollectableRow) (r belfry.Result, err error) {
	var id, token pgtype.UUID
	var workerLost, timedOut bool
	err = row.Scan(&id, &r.Namespace, &r.Attempt, &token, &workerLost, &timedOut)
	r.RunID, r.Token = id.Bytes, token.Bytes
	switch {
	case workerLost:
		r.Outcome, r.Error = belfry.OutcomeLost, "its worker fell silent"
	case timedOut:
		r.Outcome, r.Error = belfry.OutcomeTimedOut, "no result came by the deadline"
	default:
		r.Outcome, r.Error = belfry.OutcomeCancelled, "it was cancelled, and its worker did not stop it"
	}
	return r, err
}
