package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry/internal/store"
)

const (
	pruneBatch     = 5000   // rows deleted at a time
	pruneScanLimit = 20_000 // rows of a partition scanned at a time
	daysAhead      = 3      // whose partitions are made beforehand
	partitionName  = "history_2006_01_02"
)

// Prune deletes whole days of history where possible, by dropping their partition.
func (s *Store) Prune(ctx context.Context, keep time.Duration) (int, error) {
	now := s.Now()
	if err := makePartitions(ctx, s.pool, now); err != nil {
		return 0, wrapError("prune", err)
	}
	purged, err := s.purgeDeleted(ctx)
	if err != nil {
		return purged, wrapError("purge deleted jobs", err)
	}
	pruned, err := s.pruneHistory(ctx, now.Add(-keep), now)
	if err != nil {
		return purged + pruned, wrapError("prune", err)
	}
	for _, prune := range []struct {
		sql    string
		before time.Time
	}{
		{deleteOld("events", `at < $1`), now.Add(-keep)},
		{fmt.Sprintf(pruneEnded, `retain_until IS NULL AND ended_at < $1`), now.Add(-keep)},
		{fmt.Sprintf(pruneEnded, `retain_until <= $1`), now},
		{deleteOld("triggers", `fired_at < $1`), now.Add(-store.TriggerRetention)},
		{deleteOld("requests", `created_at < $1`), now.Add(-store.RequestRetention)},
		{deleteOld("keys k", pruneKeys), now.Add(-store.KeyRetention)},
		{pruneDeletedJobs, now.Add(-store.DeletedJobRetention)},
	} {
		if _, err := s.deleteInBatches(ctx, prune.sql, prune.before, pruneBatch); err != nil {
			return purged + pruned, wrapError("prune", err)
		}
	}
	return purged + pruned, nil
}

// deleteOld deletes a batch of the rows of a table that a condition selects, and
// returns how many.
func deleteOld(table, where string) string {
	name, _, _ := strings.Cut(table, " ")
	return fmt.Sprintf(`WITH deleted AS (DELETE FROM belfry.%s WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.%s WHERE %s LIMIT $2)) RETURNING 1) SELECT count(*) FROM deleted`, name, table, where)
}

const (
	// A key is needed while its run may still be live, and a dead letter may be again.
	pruneKeys = `k.created_at < $1 AND (k.succeeded_at IS NULL OR k.succeeded_at < $1)
		   AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE id = k.run_id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE id = k.run_id)`

	pruneEnded = `WITH deleted AS (DELETE FROM belfry.ended WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.ended WHERE %s LIMIT $2)) RETURNING id),
		deleted_revisions AS (DELETE FROM belfry.revisions v USING deleted WHERE v.job_id = deleted.id) SELECT count(*) FROM deleted`

	pruneDeletedJobs = `WITH deleted AS (DELETE FROM belfry.jobs WHERE ctid = ANY(ARRAY(
		SELECT j.ctid FROM belfry.jobs j WHERE j.state = 'deleted' AND NOT j.purge AND j.updated_at < $1
		   AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE job_id = j.id) LIMIT $2)) RETURNING id),
		deleted_revisions AS (DELETE FROM belfry.revisions v USING deleted WHERE v.job_id = deleted.id),
		deleted_triggers AS (DELETE FROM belfry.triggers t USING deleted WHERE t.job_id = deleted.id),
		deleted_keys AS (DELETE FROM belfry.keys k USING deleted WHERE k.job_id = deleted.id),
		deleted_plans AS (DELETE FROM belfry.plans p USING deleted WHERE p.job_id = deleted.id)
		SELECT count(*) FROM deleted`
)

// deleteInBatches repeats a DELETE that returns how many rows it deleted, until that is
// less than a batch.
func (s *Store) deleteInBatches(ctx context.Context, sql string, arg any, batch int) (total int, err error) {
	for {
		call, cancel := detach(ctx, callTimeout)
		var n int
		err = s.pool.QueryRow(call, sql, arg, batch).Scan(&n)
		cancel()
		if err != nil {
			return total, err
		}
		if total += n; n < batch {
			return total, nil
		}
	}
}

// deleteAttempts deletes the attempts of runs that were deleted from history. A run
// that succeeded at once has none.
const deleteAttempts = `deleted_attempts AS (DELETE FROM belfry.attempts a USING deleted
	WHERE a.run_id = deleted.id AND (deleted.attempt > 1 OR deleted.attempt = 1 AND deleted.state <> 'succeeded'))`

func deleteFromPartition(name, where string) string {
	return `
WITH deleted AS (DELETE FROM belfry.` + name + ` WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.` + name + ` WHERE ` + where + ` LIMIT $2)) RETURNING id, state, attempt),
` + deleteAttempts + `
SELECT count(*) FROM deleted`
}

// pruneHistory deletes what was settled before the cutoff and has no retention of its
// own, and what has one that is over, each with its attempts. It returns how many runs
// and skips it deleted.
func (s *Store) pruneHistory(ctx context.Context, cutoff, now time.Time) (pruned int, err error) {
	names, err := partitionNames(ctx, s.pool)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := s.deleteInBatches(ctx, deleteFromPartition(name, `retain_until <= $1`), now, pruneBatch)
		if pruned += n; err != nil {
			return pruned, err
		}
		if n, err = s.prunePartition(ctx, name, cutoff, now); err != nil {
			return pruned + n, fmt.Errorf("partition %s: %w", name, err)
		}
		pruned += n
	}
	return pruned, nil
}

// prunePartition deletes what is old in a partition. It drops the partition if its day
// is over and nothing in it is retained longer.
func (s *Store) prunePartition(ctx context.Context, name string, cutoff, now time.Time) (pruned int, err error) {
	day, err := time.Parse(partitionName, name)
	dated := err == nil // the default partition is not
	if dated && !day.Before(cutoff) {
		return 0, nil
	}
	var retained, old bool
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM belfry.`+name+` WHERE retain_until > $1), EXISTS (SELECT 1 FROM belfry.`+name+` WHERE retain_until IS NULL AND settled_at < $2)`,
		now, cutoff).Scan(&retained, &old)
	if err != nil {
		return 0, err
	}
	drop := dated && !retained && !day.AddDate(0, 0, 1).After(cutoff)
	if old {
		if pruned, err = s.pruneRows(ctx, name, cutoff, drop); err != nil {
			return pruned, err
		}
	}
	if drop {
		_, err = s.pool.Exec(ctx, `DROP TABLE IF EXISTS belfry.`+name)
	}
	return pruned, err
}

// pruneRows scans a partition in the order of its ids and deletes what is old, or only
// the attempts if the partition is about to be dropped.
func (s *Store) pruneRows(ctx context.Context, name string, cutoff time.Time, drop bool) (pruned int, err error) {
	sql := `
WITH scanned AS MATERIALIZED (SELECT ctid AS row, id FROM belfry.` + name + ` WHERE id > $1 ORDER BY id LIMIT $3),
deleted AS (DELETE FROM belfry.` + name + ` h USING scanned WHERE h.ctid = scanned.row AND h.retain_until IS NULL AND h.settled_at < $2 RETURNING h.id, h.state, h.attempt),
` + deleteAttempts + `
SELECT (SELECT count(*) FROM deleted), (SELECT id FROM scanned ORDER BY id DESC LIMIT 1)`
	if drop {
		sql = `
WITH deleted AS MATERIALIZED (SELECT id, state, attempt FROM belfry.` + name + ` WHERE id > $1 AND settled_at < $2 ORDER BY id LIMIT $3),
` + deleteAttempts + `
SELECT (SELECT count(*) FROM deleted), (SELECT id FROM deleted ORDER BY id DESC LIMIT 1)`
	}
	for last := (pgtype.UUID{Valid: true}); ; {
		call, cancel := detach(ctx, callTimeout)
		var n int
		var next pgtype.UUID
		err = s.pool.QueryRow(call, sql, last, cutoff, pruneScanLimit).Scan(&n, &next)
		cancel()
		if err != nil {
			return pruned, err
		}
		if pruned += n; !next.Valid {
			return pruned, nil
		}
		last = next
	}
}

// makePartitions makes the missing partitions of the days around now. A day with rows
// in the default partition already keeps them there.
func makePartitions(ctx context.Context, q querier, now time.Time) error {
	names, err := partitionNames(ctx, q)
	if err != nil {
		return err
	}
	today := now.UTC().Truncate(24 * time.Hour)
	for d := -1; d <= daysAhead; d++ {
		from := today.AddDate(0, 0, d)
		name := from.Format(partitionName)
		if slices.Contains(names, name) {
			continue
		}
		_, err := q.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS belfry.%s PARTITION OF belfry.history FOR VALUES FROM ('%s') TO ('%s')`,
			name, from.Format(time.RFC3339), from.AddDate(0, 0, 1).Format(time.RFC3339)))
		switch sqlState(err) {
		case checkViolation: // rows of that day are in the default partition
		case duplicateTable, uniqueViolation: // another node was faster
		default:
			if err != nil {
				return fmt.Errorf("make partition %s: %w", name, err)
			}
		}
	}
	return nil
}

func partitionNames(ctx context.Context, q querier) ([]string, error) {
	return collect(ctx, q, pgx.RowTo[string], `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'belfry.history'::regclass AND starts_with(c.relname, 'history_')`)
}

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
	for _, name := range names {
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
