package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry/internal/store"
)

// Bounds of pruning.
const (
	pruneBatch          = 5000
	triggerRetention    = 24 * time.Hour // fired ones, so that repeating a wish does nothing
	deletedJobRetention = time.Hour      // deleted jobs
)

// Prune forgets what is older than keep, or than its own retention: whole days of
// history at a time where it can, by dropping their partition.
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
	for _, sweep := range []struct {
		sql    string
		before time.Time
	}{
		{pruneEvents, now.Add(-keep)},
		{pruneEnded + `keep_until IS NULL AND ended_at < $1` + deleteEnded, now.Add(-keep)},
		{pruneEnded + `keep_until <= $1` + deleteEnded, now},
		{pruneTriggers, now.Add(-triggerRetention)},
		{pruneRequests, now.Add(-store.RequestRetention)},
		{pruneKeys, now.Add(-store.KeyRetention)},
		{pruneDeleted, now.Add(-deletedJobRetention)},
	} {
		if _, err := s.deleteInBatches(ctx, sweep.sql, sweep.before, pruneBatch); err != nil {
			return purged + pruned, wrapError("prune", err)
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
	deleteEnded = ` LIMIT $2)) RETURNING id), old AS (DELETE FROM belfry.revisions v USING gone WHERE v.job_id = gone.id) SELECT count(*) FROM gone`

	pruneDeleted = `WITH gone AS (DELETE FROM belfry.jobs WHERE ctid = ANY(ARRAY(
		SELECT j.ctid FROM belfry.jobs j WHERE j.state = 'deleted' AND NOT j.purge AND j.updated_at < $1
		   AND NOT EXISTS (SELECT 1 FROM belfry.runs WHERE job_id = j.id) AND NOT EXISTS (SELECT 1 FROM belfry.dead WHERE job_id = j.id) LIMIT $2)) RETURNING id),
		old AS (DELETE FROM belfry.revisions v USING gone WHERE v.job_id = gone.id),
		wishes AS (DELETE FROM belfry.triggers t USING gone WHERE t.job_id = gone.id),
		keys AS (DELETE FROM belfry.keys k USING gone WHERE k.job_id = gone.id),
		plans AS (DELETE FROM belfry.plans p USING gone WHERE p.job_id = gone.id)
		SELECT count(*) FROM gone`
)

// deleteInBatches repeats a DELETE, which says how many rows it took, until it finds
// less than a batch.
func (s *Store) deleteInBatches(ctx context.Context, sql string, what any, batch int) (total int, err error) {
	for {
		call, cancel, err := detach(ctx, callTimeout)
		if err != nil {
			return total, err
		}
		var n int
		err = s.pool.QueryRow(call, sql, what, batch).Scan(&n)
		cancel()
		if err != nil {
			return total, err
		}
		if total += n; n < batch {
			return total, nil
		}
	}
}

// forgetLook is how many rows of a partition one statement looks at.
const pruneScanLimit = 20_000

// forgetEvidence deletes the attempts of runs that went from history. One that
// succeeded at once has none.
const deleteAttempts = `evidence AS (DELETE FROM belfry.attempts a USING gone
	WHERE a.run_id = gone.id AND (gone.attempt > 1 OR gone.attempt = 1 AND gone.state <> 'succeeded'))`

// pruneHistory forgets what was settled before the cutoff and has no retention of
// its own, and what has one that is over, each with its attempts. It says how many
// rows went.
func (s *Store) pruneHistory(ctx context.Context, cutoff, now time.Time) (pruned int, err error) {
	names, err := partitionNames(ctx, s.pool)
	if err != nil {
		return 0, err
	}
	for name := range names {
		n, err := s.deleteInBatches(ctx, `
WITH gone AS (DELETE FROM belfry.`+name+` WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.`+name+` WHERE keep_until <= $1 LIMIT $2)) RETURNING id, state, attempt),
`+deleteAttempts+`
SELECT count(*) FROM gone`, now, pruneBatch)
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

// prunePartition forgets what is old in a partition: the whole of it at once if its
// day is over and nothing in it is to be kept longer.
func (s *Store) prunePartition(ctx context.Context, name string, cutoff, now time.Time) (pruned int, err error) {
	day, err := time.Parse(partitionName, name)
	dated := err == nil // the default partition is not
	if dated && !day.Before(cutoff) {
		return 0, nil
	}
	var kept, old bool
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM belfry.`+name+` WHERE keep_until > $1), EXISTS (SELECT 1 FROM belfry.`+name+` WHERE keep_until IS NULL AND settled_at < $2)`,
		now, cutoff).Scan(&kept, &old)
	if err != nil {
		return 0, err
	}
	drop := dated && !kept && !day.AddDate(0, 0, 1).After(cutoff)
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

// forgetRows walks over a partition in the order of its ids and deletes what is old
// in it, or only the attempts if the partition is about to be dropped.
func (s *Store) pruneRows(ctx context.Context, name string, cutoff time.Time, drop bool) (forgotten int, err error) {
	sql := `
WITH look AS MATERIALIZED (SELECT ctid AS row, id FROM belfry.` + name + ` WHERE id > $1 ORDER BY id LIMIT $3),
gone AS (DELETE FROM belfry.` + name + ` h USING look WHERE h.ctid = look.row AND h.keep_until IS NULL AND h.settled_at < $2 RETURNING h.id, h.state, h.attempt),
` + deleteAttempts + `
SELECT (SELECT count(*) FROM gone), (SELECT id FROM look ORDER BY id DESC LIMIT 1)`
	if drop {
		sql = `
WITH gone AS MATERIALIZED (SELECT id, state, attempt FROM belfry.` + name + ` WHERE id > $1 AND settled_at < $2 ORDER BY id LIMIT $3),
` + deleteAttempts + `
SELECT (SELECT count(*) FROM gone), (SELECT id FROM gone ORDER BY id DESC LIMIT 1)`
	}
	for last := (pgtype.UUID{Valid: true}); ; {
		call, cancel, err := detach(ctx, callTimeout)
		if err != nil {
			return forgotten, err
		}
		var n int
		var next pgtype.UUID
		err = s.pool.QueryRow(call, sql, last, cutoff, pruneScanLimit).Scan(&n, &next)
		cancel()
		if err != nil {
			return forgotten, err
		}
		if forgotten += n; !next.Valid {
			return forgotten, nil
		}
		last = next
	}
}

// daysAhead is how many days of history have their partition made beforehand.
const daysAhead = 3

const partitionName = "history_2006_01_02"

// makePartitions makes the partitions of the days around now that are missing.
// A day whose rows fell into the default partition already keeps them there.
func makePartitions(ctx context.Context, q querier, now time.Time) error {
	names, err := partitionNames(ctx, q)
	if err != nil {
		return err
	}
	today := now.UTC().Truncate(24 * time.Hour)
	for d := -1; d <= daysAhead; d++ {
		from := today.AddDate(0, 0, d)
		name := from.Format(partitionName)
		if names[name] {
			continue
		}
		_, err := q.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS belfry.%s PARTITION OF belfry.history FOR VALUES FROM ('%s') TO ('%s')`,
			name, from.Format(time.RFC3339), from.AddDate(0, 0, 1).Format(time.RFC3339)))
		switch sqlState(err) {
		case "23514": // rows of that day are in the default partition
		case "42P07", "23505": // another node was faster
		default:
			if err != nil {
				return fmt.Errorf("make partition %s: %w", name, err)
			}
		}
	}
	return nil
}

func partitionNames(ctx context.Context, q querier) (map[string]bool, error) {
	rows, err := q.Query(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'belfry.history'::regclass`)
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	names := make(map[string]bool, len(list))
	for _, name := range list {
		if strings.HasPrefix(name, "history_") {
			names[name] = true
		}
	}
	return names, nil
}
