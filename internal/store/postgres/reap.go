package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Reap gives up silent workers and settles attempts that nobody will finish.
// Any running run whose worker is not registered counts, not only those that a
// worker had when it was given up: a claim may commit after that.
func (s *Store) Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (int, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return 0, err
	}
	defer cancel()
	if silence > 0 {
		_, err := s.priorityPool.Exec(ctx, `DELETE FROM belfry.workers WHERE last_seen < clock_timestamp() - $1 * interval '1 millisecond'`, silence.Milliseconds())
		if err != nil {
			return 0, wrapError("give up workers", err)
		}
	}
	results, err := s.abandonedAttempts(ctx, shards, limit)
	if err != nil {
		return 0, wrapError("reap", err)
	}
	settled, err := s.settle(ctx, results)
	reaped := 0
	for _, ours := range settled {
		if ours {
			reaped++
		}
	}
	return reaped, wrapError("reap", err)
}

// abandoned says of attempts that nobody will finish how they ended.
func (s *Store) abandonedAttempts(ctx context.Context, shards []int, limit int) ([]belfry.Result, error) {
	rows, err := s.pool.Query(ctx, `
SELECT r.id, r.namespace, r.attempt, r.token, w.id IS NULL, r.deadline_at < clock_timestamp()
  FROM belfry.runs r LEFT JOIN belfry.workers w ON w.id = r.worker
 WHERE r.state = 'running' AND r.shard = ANY($1)
   AND (w.id IS NULL OR r.deadline_at < clock_timestamp() OR r.cancel_at < clock_timestamp() - $3 * interval '1 millisecond')
 ORDER BY r.id LIMIT $2`, int32s(shards), limit, store.CancelGrace.Milliseconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (belfry.Result, error) {
		var (
			r         belfry.Result
			id, token pgtype.UUID
			lost      bool
			late      bool
		)
		err := row.Scan(&id, &r.Namespace, &r.Attempt, &token, &lost, &late)
		r.RunID, r.Token = id.Bytes, token.Bytes
		switch {
		case lost:
			r.Outcome, r.Error = belfry.OutcomeLost, "its worker fell silent"
		case late:
			r.Outcome, r.Error = belfry.OutcomeTimedOut, "no result came by the deadline"
		default:
			r.Outcome, r.Error = belfry.OutcomeCancelled, "it was cancelled, and its worker did not let go of it"
		}
		return r, err
	})
}
