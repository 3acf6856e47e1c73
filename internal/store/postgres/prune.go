package postgres

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// Bounds of pruning.
const (
	pruneAtATime   = 5000
	shortKeep      = 48 * time.Hour
	keepTriggers   = 24 * time.Hour // fired ones, so that repeating a wish does nothing
	keepTombstones = time.Hour      // deleted jobs
)

// Prune forgets what is older than keep, whole days at a time by dropping their
// partition. Only a short keep is worth looking at single rows.
func (s *Store) Prune(ctx context.Context, keep time.Duration) (int, error) {
	cutoff := s.Now().Add(-keep)
	if err := makePartitions(ctx, s.work, s.Now()); err != nil {
		return 0, failed("prune", err)
	}
	pruned, err := dropPartitions(ctx, s.work, cutoff)
	if err != nil {
		return pruned, failed("prune", err)
	}
	table := "belfry.history_default"
	if keep < shortKeep {
		table = "belfry.history"
	}
	rows, err := s.deleteInBatches(ctx, `DELETE FROM `+table+` WHERE (tableoid, ctid) IN (SELECT tableoid, ctid FROM `+table+` WHERE settled_at < $1 LIMIT $2)`, cutoff)
	pruned += rows
	if err != nil {
		return pruned, failed("prune", err)
	}
	for _, sweep := range []struct {
		sql    string
		cutoff time.Time
	}{
		{`DELETE FROM belfry.attempts WHERE ctid IN (SELECT a.ctid FROM belfry.attempts a WHERE a.finished_at < $1
			AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE id = a.run_id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE id = a.run_id) LIMIT $2)`, cutoff},
		{`DELETE FROM belfry.triggers WHERE ctid IN (SELECT ctid FROM belfry.triggers WHERE fired_at < $1 LIMIT $2)`, s.Now().Add(-keepTriggers)},
		{`DELETE FROM belfry.requests WHERE ctid IN (SELECT ctid FROM belfry.requests WHERE created_at < $1 LIMIT $2)`, s.Now().Add(-store.KeepRequests)},
		{`WITH gone AS (DELETE FROM belfry.jobs WHERE ctid IN (SELECT j.ctid FROM belfry.jobs j WHERE j.state = 'deleted' AND j.updated_at < $1
			AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE job_id = j.id) LIMIT $2) RETURNING id),
			old AS (DELETE FROM belfry.revisions v USING gone WHERE v.job_id = gone.id),
			wishes AS (DELETE FROM belfry.triggers t USING gone WHERE t.job_id = gone.id)
			DELETE FROM belfry.plans p USING gone WHERE p.job_id = gone.id`, s.Now().Add(-keepTombstones)},
	} {
		if _, err := s.deleteInBatches(ctx, sweep.sql, sweep.cutoff); err != nil {
			return pruned, failed("prune", err)
		}
	}
	return pruned, nil
}

// deleteInBatches repeats a DELETE until it finds less than a batch.
func (s *Store) deleteInBatches(ctx context.Context, sql string, cutoff time.Time) (int, error) {
	total := 0
	for {
		call, cancel, err := detach(ctx, callTimeout)
		if err != nil {
			return total, err
		}
		tag, err := s.work.Exec(call, sql, cutoff, pruneAtATime)
		cancel()
		if err != nil {
			return total, err
		}
		n := int(tag.RowsAffected())
		total += n
		if n < pruneAtATime {
			return total, nil
		}
	}
}
