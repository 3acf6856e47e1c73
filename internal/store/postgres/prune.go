package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry/internal/store"
)

// Bounds of pruning.
const (
	pruneAtATime   = 5000
	keepTriggers   = 24 * time.Hour // fired ones, so that repeating a wish does nothing
	keepTombstones = time.Hour      // deleted jobs
)

// Prune forgets what is older than keep, or than its own retention: whole days of
// history at a time where it can, by dropping their partition.
func (s *Store) Prune(ctx context.Context, keep time.Duration) (int, error) {
	now := s.Now()
	if err := makePartitions(ctx, s.work, now); err != nil {
		return 0, failed("prune", err)
	}
	purged, err := s.purge(ctx)
	if err != nil {
		return purged, failed("purge deleted jobs", err)
	}
	pruned, err := s.pruneHistory(ctx, now.Add(-keep), now)
	if err != nil {
		return purged + pruned, failed("prune", err)
	}
	for _, sweep := range []struct {
		sql    string
		before time.Time
	}{
		{pruneEvents, now.Add(-keep)},
		{pruneEnded + `keep_until IS NULL AND ended_at < $1` + forgetEnded, now.Add(-keep)},
		{pruneEnded + `keep_until <= $1` + forgetEnded, now},
		{pruneTriggers, now.Add(-keepTriggers)},
		{pruneRequests, now.Add(-store.RequestRetention)},
		{pruneKeys, now.Add(-store.KeyRetention)},
		{pruneDeleted, now.Add(-keepTombstones)},
	} {
		if _, err := s.deleteInBatches(ctx, sweep.sql, sweep.before, pruneAtATime); err != nil {
			return purged + pruned, failed("prune", err)
		}
	}
	return purged + pruned, nil
}

// The sweeps of what is old. Each deletes a batch and says how large it was. A key is
// needed while its run may still be alive, and a dead letter may be again.
const (
	pruneEvents   = `WITH gone AS (DELETE FROM belfry.events WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.events WHERE at < $1 LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone`
	pruneTriggers = `WITH gone AS (DELETE FROM belfry.triggers WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.triggers WHERE fired_at < $1 LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone`
	pruneRequests = `WITH gone AS (DELETE FROM belfry.requests WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.requests WHERE created_at < $1 LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone`
	pruneKeys     = `WITH gone AS (DELETE FROM belfry.keys WHERE ctid = ANY(ARRAY(
		SELECT k.ctid FROM belfry.keys k WHERE k.made_at < $1 AND (k.succeeded_at IS NULL OR k.succeeded_at < $1)
		   AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE id = k.run_id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE id = k.run_id) LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone`

	// Jobs that ended, between these two a condition.
	pruneEnded  = `WITH gone AS (DELETE FROM belfry.ended WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.ended WHERE `
	forgetEnded = ` LIMIT $2)) RETURNING id), old AS (DELETE FROM belfry.revisions v USING gone WHERE v.job_id = gone.id) SELECT count(*) FROM gone`

	pruneDeleted = `WITH gone AS (DELETE FROM belfry.jobs WHERE ctid = ANY(ARRAY(
		SELECT j.ctid FROM belfry.jobs j WHERE j.state = 'deleted' AND NOT j.purge AND j.updated_at < $1
		   AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE job_id = j.id) LIMIT $2)) RETURNING id),
		old AS (DELETE FROM belfry.revisions v USING gone WHERE v.job_id = gone.id),
		wishes AS (DELETE FROM belfry.triggers t USING gone WHERE t.job_id = gone.id),
		keys AS (DELETE FROM belfry.keys k USING gone WHERE k.job_id = gone.id),
		plans AS (DELETE FROM belfry.plans p USING gone WHERE p.job_id = gone.id)
		SELECT count(*) FROM gone`
)

// purge forgets the history and the dead letters of deleted jobs that asked for it,
// once no run of them is alive. The jobs themselves go later, as others do.
func (s *Store) purge(ctx context.Context) (purged int, err error) {
	for {
		rows, err := s.work.Query(ctx, `SELECT id FROM belfry.jobs j WHERE state = 'deleted' AND purge
			AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) LIMIT $1`, pruneAtATime)
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
SELECT count(*) FROM gone`, jobs, pruneAtATime); err != nil {
		return 0, err
	}
	names, err := partitionNames(ctx, s.work)
	if err != nil {
		return 0, err
	}
	for name := range names {
		n, err := s.deleteInBatches(ctx, `
WITH gone AS (DELETE FROM belfry.`+name+` WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.`+name+` WHERE job_id = ANY($1) LIMIT $2)) RETURNING id, state, attempt),
`+forgetEvidence+`
SELECT count(*) FROM gone`, jobs, pruneAtATime)
		if purged += n; err != nil {
			return purged, err
		}
	}
	call, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return purged, err
	}
	defer cancel()
	_, err = s.work.Exec(call, `
WITH keys AS (DELETE FROM belfry.keys WHERE job_id = ANY($1))
UPDATE belfry.jobs j SET purge = false WHERE id = ANY($1) AND state = 'deleted' AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id)`, jobs)
	return purged, err
}

// deleteInBatches repeats a DELETE, which says how many rows it took, until it finds
// less than a batch.
func (s *Store) deleteInBatches(ctx context.Context, sql string, what any, batch int) (total int, err error) {
	for {
		call, cancel, err := detach(ctx, callTimeout)
		if err != nil {
			return total, err
		}
		var n int
		err = s.work.QueryRow(call, sql, what, batch).Scan(&n)
		cancel()
		if err != nil {
			return total, err
		}
		if total += n; n < batch {
			return total, nil
		}
	}
}
