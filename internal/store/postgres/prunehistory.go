package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// forgetLook is how many rows of a partition one statement looks at.
const forgetLook = 20_000

// forgetEvidence deletes the attempts of runs that went from history. One that
// succeeded at once has none.
const forgetEvidence = `evidence AS (DELETE FROM belfry.attempts a USING gone
	WHERE a.run_id = gone.id AND (gone.attempt > 1 OR gone.attempt = 1 AND gone.state <> 'succeeded'))`

// pruneHistory forgets what was settled before the cutoff and has no retention of
// its own, and what has one that is over, each with its attempts. It says how many
// rows went.
func (s *Store) pruneHistory(ctx context.Context, cutoff, now time.Time) (pruned int, err error) {
	names, err := partitionNames(ctx, s.work)
	if err != nil {
		return 0, err
	}
	for name := range names {
		n, err := s.deleteInBatches(ctx, `
WITH gone AS (DELETE FROM belfry.`+name+` WHERE ctid = ANY(ARRAY(SELECT ctid FROM belfry.`+name+` WHERE keep_until <= $1 LIMIT $2)) RETURNING id, state, attempt),
`+forgetEvidence+`
SELECT count(*) FROM gone`, now, pruneAtATime)
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
	err = s.work.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM belfry.`+name+` WHERE keep_until > $1), EXISTS (SELECT 1 FROM belfry.`+name+` WHERE keep_until IS NULL AND settled_at < $2)`,
		now, cutoff).Scan(&kept, &old)
	if err != nil {
		return 0, err
	}
	drop := dated && !kept && !day.AddDate(0, 0, 1).After(cutoff)
	if old {
		if pruned, err = s.forgetRows(ctx, name, cutoff, drop); err != nil {
			return pruned, err
		}
	}
	if drop {
		_, err = s.work.Exec(ctx, `DROP TABLE IF EXISTS belfry.`+name)
	}
	return pruned, err
}

// forgetRows walks over a partition in the order of its ids and deletes what is old
// in it, or only the attempts if the partition is about to be dropped.
func (s *Store) forgetRows(ctx context.Context, name string, cutoff time.Time, drop bool) (forgotten int, err error) {
	sql := `
WITH look AS MATERIALIZED (SELECT ctid AS row, id FROM belfry.` + name + ` WHERE id > $1 ORDER BY id LIMIT $3),
gone AS (DELETE FROM belfry.` + name + ` h USING look WHERE h.ctid = look.row AND h.keep_until IS NULL AND h.settled_at < $2 RETURNING h.id, h.state, h.attempt),
` + forgetEvidence + `
SELECT (SELECT count(*) FROM gone), (SELECT id FROM look ORDER BY id DESC LIMIT 1)`
	if drop {
		sql = `
WITH gone AS MATERIALIZED (SELECT id, state, attempt FROM belfry.` + name + ` WHERE id > $1 AND settled_at < $2 ORDER BY id LIMIT $3),
` + forgetEvidence + `
SELECT (SELECT count(*) FROM gone), (SELECT id FROM gone ORDER BY id DESC LIMIT 1)`
	}
	for last := (pgtype.UUID{Valid: true}); ; {
		call, cancel, err := detach(ctx, callTimeout)
		if err != nil {
			return forgotten, err
		}
		var n int
		var next pgtype.UUID
		err = s.work.QueryRow(call, sql, last, cutoff, forgetLook).Scan(&n, &next)
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

// collectIDs reads a column of ids.
func collectIDs(rows pgx.Rows, err error) ([]pgtype.UUID, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
}
