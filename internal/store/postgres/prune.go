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
	pruneBatch     = 5000 // rows deleted at a time
	pruneBlocks    = 1000 // blocks of a table scanned at a time
	daysAhead      = 14   // whose partitions are made beforehand: a lock may not be available for days
	partitionName  = "history_2006_01_02"
	maxRowsCounted = 1_000_000
)

// pruneScan is where the scans of tables that Prune goes through block by block
// continue.
type pruneScan struct {
	next map[string]int64 // block
	done map[string]bool  // partitions of which only rows with a retention of their own are left
}

// Prune deletes whole days of history by dropping their partition, so that rows are kept
// for up to a day longer. Rows are deleted one by one where that is not possible: in the
// default partition, beside rows that are kept longer, and if the retention is shorter
// than a day.
func (s *Store) Prune(ctx context.Context, keep time.Duration) (pruned int, err error) {
	now := s.Now()
	cutoff := now.Add(-keep)
	if err := makePartitions(ctx, s.pool, now); err != nil {
		return 0, wrapError("make partitions", err)
	}
	steps := []func() (int, error){
		func() (int, error) { return s.purgeDeleted(ctx) },
		func() (int, error) { return s.pruneHistory(ctx, cutoff, now) },
		func() (int, error) { return 0, s.archiveDeleted(ctx, now.Add(-store.DeletedJobRetention)) },
	}
	for _, rows := range []struct {
		sql    string
		before time.Time
	}{
		{deleteOld("events", `at < $1`), cutoff},
		{deleteOld("alerts", `status = 'resolved' AND latest_at < $1`), cutoff},
		{fmt.Sprintf(pruneEnded, `retain_until IS NULL AND ended_at < $1`), cutoff},
		{fmt.Sprintf(pruneEnded, `retain_until <= $1`), now},
		{deleteOld("triggers", `fired_at < $1`), now.Add(-store.TriggerRetention)},
		{deleteOld("requests", `created_at < $1`), now.Add(-store.RequestRetention)},
		{deleteOld("keys k", pruneKeys), now.Add(-store.KeyRetention)},
		{deleteOld("outages", `ended_at < $1`), now.Add(-store.OutageRetention)},
		{deleteOld("trace_links", `created_at < $1`), now.Add(-store.TraceLinkRetention)},
		{deleteOld("leases", `starts_with(name, 'node') AND expires_at < $1`), now.Add(-24 * time.Hour)},
		{deleteOld("nodes", `seen_at < $1`), now.Add(-store.NodeRetention)},
		{deleteOld("activity", `minute < $1`), now.Add(-store.ActivityRetention)},
		{deleteOld("sessions", `seen_at < $1`), now.Add(-store.SessionTimeout)},
	} {
		steps = append(steps, func() (int, error) {
			_, err := s.deleteInBatches(ctx, rows.sql, rows.before, pruneBatch)
			return 0, err
		})
	}
	for _, step := range steps {
		n, err := step()
		if pruned += n; err != nil {
			return pruned, wrapError("prune", err)
		}
	}
	return pruned, nil
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
)

// deleteInBatches repeats a DELETE that returns how many rows it deleted, until that is
// less than a batch, or ctx ends between two batches.
func (s *Store) deleteInBatches(ctx context.Context, sql string, arg any, batch int) (total int, err error) {
	for {
		var n int
		err := s.pruneStep(ctx, func(call context.Context) error {
			return s.pool.QueryRow(call, sql, arg, batch).Scan(&n)
		})
		if err != nil {
			return total, err
		}
		if total += n; n < batch {
			return total, nil
		}
	}
}

// pruneStep runs one statement of Prune, which goes on if ctx ends meanwhile.
func (s *Store) pruneStep(ctx context.Context, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	call, cancel := detach(ctx, callTimeout)
	defer cancel()
	return f(call)
}

// deleteAttempts deletes the attempts and logs of runs that were deleted from history. A
// run that succeeded at once has no attempt here.
const deleteAttempts = `deleted_logs AS (DELETE FROM belfry.attempt_logs l USING deleted WHERE l.run_id = deleted.id AND deleted.attempt > 0),
	deleted_attempts AS (DELETE FROM belfry.attempts a USING deleted
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
	for _, name := range names { // the oldest first
		n, err := s.prunePartition(ctx, name, cutoff, now)
		if pruned += n; err != nil && s.partitionExists(ctx, name) {
			return pruned, fmt.Errorf("partition %s: %w", name, err)
		}
	}
	return pruned, nil
}

// prunePartition deletes what is not retained any longer from a partition, or drops it.
func (s *Store) prunePartition(ctx context.Context, name string, cutoff, now time.Time) (pruned int, err error) {
	pruned, err = s.deleteInBatches(ctx, deleteFromPartition(name, `retain_until <= $1`), now, pruneBatch)
	if err != nil {
		return pruned, err
	}
	n, err := s.dropOrPruneRows(ctx, name, cutoff, now)
	return pruned + n, err
}

// dropOrPruneRows drops a partition whose day is over, unless something in it is kept
// longer. Where rows must be deleted one by one, it does that.
func (s *Store) dropOrPruneRows(ctx context.Context, name string, cutoff, now time.Time) (pruned int, err error) {
	day, err := time.Parse(partitionName, name)
	if err != nil { // the default partition
		return s.pruneRows(ctx, name, cutoff)
	}
	end := day.AddDate(0, 0, 1)
	if end.After(cutoff) {
		if day.Before(cutoff) && now.Sub(cutoff) < 24*time.Hour {
			return s.pruneRows(ctx, name, cutoff)
		}
		return 0, nil
	}
	var retained bool
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM belfry.`+name+` WHERE retain_until > $1)`, now).Scan(&retained)
	switch {
	case err != nil:
		return 0, err
	case !retained:
		return s.dropPartition(ctx, name, end)
	case s.pruneScan.done[name]:
		return 0, nil
	}
	pruned, err = s.pruneRows(ctx, name, cutoff)
	s.pruneScan.done[name] = err == nil
	return pruned, err
}

// pruneRows deletes old rows of a partition, and their attempts.
func (s *Store) pruneRows(ctx context.Context, name string, cutoff time.Time) (pruned int, err error) {
	return s.scanBlocks(ctx, name, name, `
WITH deleted AS (DELETE FROM belfry.`+name+` WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND retain_until IS NULL AND settled_at < $3 RETURNING id, state, attempt),
`+deleteAttempts+`
SELECT count(*) FROM deleted`, cutoff)
}

// dropPartition drops a partition after the attempts and logs of its runs, and returns how many
// rows it had.
func (s *Store) dropPartition(ctx context.Context, name string, end time.Time) (rows int, err error) {
	for table, column := range map[string]string{"attempts": "finished_at", "attempt_logs": "updated_at"} {
		_, err = s.scanBlocks(ctx, table, table+" of "+name, `
WITH old AS MATERIALIZED (SELECT ctid AS row, run_id FROM belfry.`+table+` WHERE ctid >= $1::text::tid AND ctid < $2::text::tid AND `+column+` < $3),
deleted AS (DELETE FROM belfry.`+table+` WHERE ctid = ANY(ARRAY(
  SELECT old.row FROM old CROSS JOIN LATERAL (SELECT 1 FROM belfry.`+name+` h WHERE h.id = old.run_id LIMIT 1) h)) RETURNING 1)
SELECT count(*) FROM deleted`, end)
		if err != nil {
			return 0, err
		}
	}
	err = s.pool.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM belfry.`+name+` LIMIT $1) r`, maxRowsCounted).Scan(&rows)
	if err != nil {
		return 0, err
	}
	err = withLockTimeout(ctx, s.pool, fmt.Sprintf(`SELECT belfry.drop_history_partition('%s')`, end.AddDate(0, 0, -1).Format(time.DateOnly)))
	if sqlState(err) == lockNotAvailable {
		s.log.Debug("a partition of the history is in use; it is dropped later", "partition", name)
		return 0, nil
	}
	return rows, err
}

// scanBlocks runs a statement for consecutive ranges of the blocks of a table, and
// returns the sum of the numbers that it returns. If ctx ends it is continued there by
// the next call with that name.
func (s *Store) scanBlocks(ctx context.Context, table, scan, sql string, arg any) (total int, err error) {
	var blocks int64
	err = s.pool.QueryRow(ctx, `SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint`, "belfry."+table).Scan(&blocks)
	if err != nil {
		return 0, err
	}
	for from := s.pruneScan.next[scan]; from <= blocks; from += pruneBlocks {
		s.pruneScan.next[scan] = from
		var n int
		err := s.pruneStep(ctx, func(call context.Context) error {
			return s.pool.QueryRow(call, sql, fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", from+pruneBlocks), arg).Scan(&n)
		})
		if total += n; err != nil {
			return total, err
		}
	}
	delete(s.pruneScan.next, scan)
	return total, nil
}

// withLockTimeout runs a statement that needs a lock that few others can share. It gives
// up soon: while it waits, all others wait behind it.
func withLockTimeout(ctx context.Context, q querier, sql string) error {
	return pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', '200ms', true)`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql)
		return err
	})
}

// makePartitions makes the missing partitions of the days around now. A day with rows
// in the default partition already keeps them there, and one whose locks are not
// available waits for the next call.
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
		err := withLockTimeout(ctx, q, fmt.Sprintf(`SELECT belfry.make_history_partition('%s')`, from.Format(time.DateOnly)))
		switch sqlState(err) {
		case lockNotAvailable:
			return nil
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
	return collect(ctx, q, pgx.RowTo[string], `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'belfry.history'::regclass AND starts_with(c.relname, 'history_') ORDER BY c.relname`)
}

// partitionExists says after an error whether the partition is still there. If another
// node dropped it, the SQLSTATE depends on the moment.
func (s *Store) partitionExists(ctx context.Context, name string) bool {
	names, err := partitionNames(ctx, s.pool)
	return err != nil || slices.Contains(names, name)
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
deleted_attempts AS (DELETE FROM belfry.attempts a USING deleted WHERE a.run_id = deleted.id),
deleted_logs AS (DELETE FROM belfry.attempt_logs l USING deleted WHERE l.run_id = deleted.id)
SELECT count(*) FROM deleted`, jobs, pruneBatch); err != nil {
		return 0, err
	}
	names, err := partitionNames(ctx, s.pool)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := s.deleteInBatches(ctx, deleteFromPartition(name, `job_id = ANY($1)`), jobs, pruneBatch)
		if purged += n; err != nil && s.partitionExists(ctx, name) {
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
