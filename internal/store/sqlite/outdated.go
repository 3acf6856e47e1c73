package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	// The last plan that a call may look at, if there are so many.
	selectOutdatedFloor = `SELECT job_id FROM plans WHERE job_id > ? ORDER BY job_id LIMIT 1 OFFSET ?`

	selectOutdated = selectDue + `WHERE p.job_id > ? AND p.job_id <= ? AND p.zone_version < ? AND p.nominal_at IS NOT NULL AND p.` + inShards +
		`AND j.state <> 'deleted' ORDER BY p.job_id LIMIT ?`
)

// Outdated gives plans that were made with an older release of the zone database.
func (s *Store) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []store.Due, next belfry.ID, err error) {
	if limit < 1 {
		return nil, after, ctx.Err()
	}
	err = s.read(ctx, "read outdated plans", func(t *tx) error {
		err := t.get([]any{key{next[:]}}, selectOutdatedFloor, after[:], int64(s.look-1))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		last := firstID(next) // above all ids if there are fewer
		due, err = all(t, t.scanDue, selectOutdated, after[:], last[:], release, list(shards), atMost(limit))
		return err
	})
	if err != nil {
		return nil, belfry.ID{}, err
	}
	if len(due) == limit {
		next = due[limit-1].Plan.JobID
	}
	return due, next, nil
}
