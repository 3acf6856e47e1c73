package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// outdatedLook is how many plans one call looks at.
const outdatedLook = 8000

// Outdated gives plans that were made with an older release of the zone
// database. No index keeps them together: that would cost every firing something,
// for what happens a few times a year. One snapshot makes what was looked at and
// where that ended belong together.
func (s *Store) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []store.Due, next belfry.ID, err error) {
	if limit < 1 {
		return nil, after, nil
	}
	err = pgx.BeginTxFunc(ctx, s.work, snapshot, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, holdPlanner); err != nil {
			return err
		}
		due, next, err = outdated(ctx, tx, int32s(shards), release, pgtype.UUID{Bytes: after, Valid: true}, limit)
		return err
	})
	if err != nil {
		return nil, belfry.ID{}, failed("read outdated plans", err)
	}
	return due, next, nil
}

func outdated(ctx context.Context, tx pgx.Tx, shards []int32, release string, after pgtype.UUID, limit int) (due []store.Due, next belfry.ID, err error) {
	const walk = ` FROM belfry.plans WHERE job_id > $1 ORDER BY job_id`
	rows, err := tx.Query(ctx, `SELECT `+dueColumns+`
  FROM (SELECT *`+walk+` LIMIT $2) p JOIN belfry.jobs j ON j.id = p.job_id
 WHERE p.zone_version COLLATE "C" < $3 AND p.nominal_at IS NOT NULL AND p.shard = ANY($4) AND j.state <> 'deleted'
 ORDER BY p.job_id LIMIT $5`, after, outdatedLook, release, shards, limit)
	if err != nil {
		return nil, next, err
	}
	if due, err = pgx.CollectRows(rows, scanDue); err != nil {
		return nil, next, err
	}
	if len(due) == limit {
		return due, due[limit-1].Plan.JobID, nil
	}
	if rows, err = tx.Query(ctx, `SELECT job_id`+walk+` OFFSET $2 - 1 LIMIT 1`, after, outdatedLook); err != nil {
		return nil, next, err
	}
	last, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if len(last) > 0 {
		next = last[0].Bytes
	}
	return due, next, err
}
