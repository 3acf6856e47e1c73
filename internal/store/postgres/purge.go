package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"
)

// purgeDeleted purges deleted jobs: their history and their dead letters are deleted
// once they have no live run. The jobs themselves are pruned later, as others are.
func (s *Store) purgeDeleted(ctx context.Context) (purged int, err error) {
	for {
		jobs, err := collectIDs(ctx, s.pool, `SELECT id FROM belfry.jobs j WHERE state = 'deleted' AND purge
			AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) LIMIT $1`, pruneBatch)
		if err != nil || len(jobs) == 0 {
			return purged, err
		}
		n, err := s.purgeJobs(ctx, jobs)
		if purged += n; err != nil {
			return purged, err
		}
	}
}

// purgeJobs clears the purge flags last: until then all of it is repeated.
func (s *Store) purgeJobs(ctx context.Context, jobs []pgtype.UUID) (purged int, err error) {
	if _, err := s.deleteInBatches(ctx, `
WITH deleted AS (DELETE FROM belfry.dead WHERE id = ANY(ARRAY(SELECT id FROM belfry.dead WHERE job_id = ANY($1) LIMIT $2)) RETURNING id),
deleted_attempts AS (DELETE FROM belfry.attempts a USING deleted WHERE a.run_id = deleted.id)
SELECT count(*) FROM deleted`, jobs, pruneBatch); err != nil {
		return 0, err
	}
	names, err := partitionNames(ctx, s.pool)
	if err != nil {
		return 0, err
	}
	for name := range names {
		n, err := s.deleteInBatches(ctx, deleteFromPartition(name, `job_id = ANY($1)`), jobs, pruneBatch)
		if purged += n; err != nil {
			return purged, err
		}
	}
	call, cancel := detach(ctx, callTimeout)
	defer cancel()
	_, err = s.pool.Exec(call, `
WITH deleted_keys AS (DELETE FROM belfry.keys WHERE job_id = ANY($1))
UPDATE belfry.jobs j SET purge = false WHERE id = ANY($1) AND state = 'deleted' AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id)`, jobs)
	return purged, err
}
