package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// pruneBatch bounds the transactions in which old rows go, so that whoever wants
// to write waits for milliseconds only.
const pruneBatch = 2000

// How long fired triggers and deleted jobs are kept.
const (
	keepTriggers = 24 * time.Hour
	keepDeleted  = time.Hour
)

const (
	pruneHistory  = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE settled_at < ? ORDER BY settled_at LIMIT ?)`
	pruneTriggers = `DELETE FROM triggers WHERE rowid IN (SELECT rowid FROM triggers WHERE fired_at < ? LIMIT ?)`

	pruneRequests = `DELETE FROM requests WHERE rowid IN (SELECT rowid FROM requests WHERE created_at < ? LIMIT ?)`

	selectOldAttempts = `SELECT run_id, attempt, finished_at FROM attempts
WHERE finished_at < ? AND (finished_at, run_id, attempt) > (?, ?, ?) ORDER BY finished_at, run_id, attempt LIMIT ?`
	pruneAttempt = `DELETE FROM attempts WHERE run_id = ? AND attempt = ?
AND NOT EXISTS (SELECT 1 FROM runs WHERE id = run_id) AND NOT EXISTS (SELECT 1 FROM dead WHERE id = run_id)`

	selectDeletedJobs = `SELECT id, 0, updated_at FROM jobs
WHERE state = 'deleted' AND updated_at < ? AND (updated_at, id) > (?, ?) ORDER BY updated_at, id LIMIT ?`
	pruneJob = `DELETE FROM jobs WHERE id = ? AND state = 'deleted' AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id)
AND NOT EXISTS (SELECT 1 FROM dead WHERE job_id = jobs.id)`
)

// Prune forgets what is older than keep, and what nothing needs any more.
func (s *Store) Prune(ctx context.Context, keep time.Duration) (pruned int, err error) {
	now := s.Now()
	if pruned, err = s.pruneBatches(ctx, pruneHistory, now.Add(-keep)); err != nil {
		return pruned, err
	}
	if _, err := s.pruneBatches(ctx, pruneTriggers, now.Add(-keepTriggers)); err != nil {
		return pruned, err
	}
	if _, err := s.pruneBatches(ctx, pruneRequests, now.Add(-store.KeepRequests)); err != nil {
		return pruned, err
	}
	if err := s.pruneAttempts(ctx, now.Add(-keep)); err != nil {
		return pruned, err
	}
	return pruned, s.pruneJobs(ctx, now.Add(-keepDeleted))
}

func (s *Store) pruneBatches(ctx context.Context, query string, before time.Time) (pruned int, err error) {
	for n := pruneBatch; n == pruneBatch; pruned += n {
		err := s.write(ctx, "prune", func(t *tx) error {
			n, err = t.exec(query, micro(before), pruneBatch)
			return err
		})
		if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

// old is a row that may go: whether it does is decided when it is deleted. The
// rows are walked by age, so that those that stay are seen once.
type old struct {
	id      belfry.ID
	attempt int64
	age     int64
}

func (s *Store) walk(ctx context.Context, page func(*tx, old) ([]old, error), remove func(*tx, old) error) error {
	for last, n := (old{age: -1 << 63}), pruneBatch; n == pruneBatch; {
		var rows []old
		err := s.read(ctx, "prune", func(t *tx) (err error) {
			rows, err = page(t, last)
			return err
		})
		if n = len(rows); err != nil || n == 0 {
			return err
		}
		last = rows[n-1]
		err = s.write(ctx, "prune", func(t *tx) error {
			for _, row := range rows {
				if err := remove(t, row); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func scanOld(rows *sql.Rows, o *old) error { return rows.Scan(key{o.id[:]}, &o.attempt, &o.age) }

// pruneAttempts forgets attempts of runs that are settled.
func (s *Store) pruneAttempts(ctx context.Context, before time.Time) error {
	return s.walk(ctx,
		func(t *tx, last old) ([]old, error) {
			return all(t, scanOld, selectOldAttempts, micro(before), last.age, last.id[:], last.attempt, pruneBatch)
		},
		func(t *tx, o old) error {
			_, err := t.exec(pruneAttempt, o.id[:], o.attempt)
			return err
		})
}

// pruneJobs forgets deleted jobs of which nothing is left but history and
// wishes that nobody fires any more.
func (s *Store) pruneJobs(ctx context.Context, before time.Time) error {
	return s.walk(ctx,
		func(t *tx, last old) ([]old, error) {
			return all(t, scanOld, selectDeletedJobs, micro(before), last.age, last.id[:], pruneBatch)
		},
		func(t *tx, o old) error {
			n, err := t.exec(pruneJob, o.id[:])
			if err != nil || n == 0 {
				return err
			}
			for _, query := range []string{
				`DELETE FROM plans WHERE job_id = ?`,
				`DELETE FROM revisions WHERE job_id = ?`,
				`DELETE FROM triggers WHERE job_id = ? AND fired_at IS NULL`,
			} {
				if _, err := t.exec(query, o.id[:]); err != nil {
					return err
				}
			}
			return nil
		})
}
