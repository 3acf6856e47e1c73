package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
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
		_, err := s.vital.Exec(ctx, `DELETE FROM belfry.workers WHERE last_seen < clock_timestamp() - $1 * interval '1 millisecond'`, silence.Milliseconds())
		if err != nil {
			return 0, failed("give up workers", err)
		}
	}
	rows, err := s.work.Query(ctx, `
SELECT r.id, r.namespace, r.attempt, r.token, w.id IS NULL
  FROM belfry.runs r LEFT JOIN belfry.workers w ON w.id = r.worker
 WHERE r.state = 'running' AND r.shard = ANY($1) AND (w.id IS NULL OR r.deadline_at < clock_timestamp())
 ORDER BY r.id LIMIT $2`, int32s(shards), limit)
	if err != nil {
		return 0, failed("reap", err)
	}
	results, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (belfry.Result, error) {
		var (
			r         belfry.Result
			id, token pgtype.UUID
			lost      bool
		)
		err := row.Scan(&id, &r.Namespace, &r.Attempt, &token, &lost)
		r.RunID, r.Token = id.Bytes, token.Bytes
		r.Outcome, r.Error = belfry.OutcomeTimedOut, "no result came by the deadline"
		if lost {
			r.Outcome, r.Error = belfry.OutcomeLost, "its worker fell silent"
		}
		return r, err
	})
	if err != nil {
		return 0, failed("reap", err)
	}
	settled, err := s.settle(ctx, results)
	reaped := 0
	for _, ours := range settled {
		if ours {
			reaped++
		}
	}
	return reaped, failed("reap", err)
}
