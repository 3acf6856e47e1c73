package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"
)

// purge forgets the history and the dead letters of deleted jobs that asked for it,
// once no run of them is alive. The jobs themselves go later, as others do.
func (s *Store) purgeDeleted(ctx context.Context) (purged int, err error) {
	for {
		rows, err := s.pool.Query(ctx, `SELECT id FROM belfry.jobs j WHERE state = 'deleted' AND purge
			AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) LIMIT $1`, pruneBatch)
		jobs, err := collectIDs(rows, err)
		if err != nil || len(jobs) == 0 {
			return purged, err
		}
		n, err := s.purgeJobs(ctx, jobs)
		if purged += n; err != nil {
			return purged, err
		}
	}
}

// purgeJobs marks the jobs as purged last: until then all of it is done again.
func (s *Store) purgeJobs(ctx context.Context, jobs []pgtype.UUID) (purged int, err error) {
	if _, err := s.deleteInBatches(ctx, `
WITH gone AS (DELETE FROM belfry.dead WHERE id = ANY(ARRAY(SELECT id FROM belfry.dead WHERE job_id = ANY($1) LIMIT $2)) RETURNING id),
evidence AS (DELETE FROM belfry.attempts a USING gone WHERE a.run_id = gone.id)
SELECT count(*) FROM gone`, jobs, pruneBatch); err != nil {
		return 0, err
	}
	names, err := partitionNames(ctx, s.pool)
	if err != nil {
		return 0, err
	}
	for name := range names {
		n, err := s.deleteInBatches(ctx, `
WITH gone AS (DELETE FROM belfry.`+name+` WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.`+name+` WHERE job_id = ANY($1) LIMIT $2)) RETURNING id, state, attempt),
`+deleteAttempts+`
SELECT count(*) FROM gone`, jobs, pruneBatch)
		if purged += n; err != nil {
			return purged, err
		}
	}
	call, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return purged, err
	}
	defer cancel()
	_, err = s.pool.Exec(call, `
WITH keys AS (DELETE FROM belfry.keys WHERE job_id = ANY($1))
UPDATE belfry.jobs j SET purge = false WHERE id = ANY($1) AND state = 'deleted' AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id)`, jobs)
	return purged, err
}
