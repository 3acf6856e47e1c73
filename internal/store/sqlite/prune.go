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
	pruneHistory  = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE settled_at < ? AND retain_until IS NULL ORDER BY settled_at LIMIT ?)`
	pruneTriggers = `DELETE FROM triggers WHERE rowid IN (SELECT rowid FROM triggers WHERE fired_at < ? LIMIT ?)`
	pruneRequests = `DELETE FROM requests WHERE rowid IN (SELECT rowid FROM requests WHERE created_at < ? LIMIT ?)`
	pruneEvents   = `DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE at < ? LIMIT ?)`

	pruneKeys = `DELETE FROM keys WHERE rowid IN (SELECT rowid FROM keys WHERE created_at < ?1 AND (succeeded_at IS NULL OR succeeded_at < ?1)
AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = keys.job_id AND r.key = keys.key) LIMIT ?2)`

	// What has a retention of its own takes its attempts along, which may be younger
	// than what is kept of others.
	selectKept          = `SELECT id FROM history WHERE retain_until < ?1 ORDER BY retain_until, rowid LIMIT ?2`
	pruneKept           = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE retain_until < ?1 ORDER BY retain_until, rowid LIMIT ?2)`
	pruneAttemptsOfKept = `DELETE FROM attempts WHERE run_id IN (` + selectKept + `) AND` + nobodyNeeds

	// An attempt goes with the run that it is of.
	nobodyNeeds = ` NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = attempts.run_id) AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.id = attempts.run_id) `

	selectOldAttempts = `SELECT run_id, attempt, finished_at FROM attempts
WHERE finished_at < ? AND (finished_at, run_id, attempt) > (?, ?, ?) ORDER BY finished_at, run_id, attempt LIMIT ?`
	pruneAttempt = `DELETE FROM attempts WHERE run_id = ? AND attempt = ? AND` + nobodyNeeds + `
AND NOT EXISTS (SELECT 1 FROM history h WHERE h.namespace = attempts.namespace AND h.id = attempts.run_id)`

	selectDeletedJobs = `SELECT id, 0, updated_at FROM jobs
WHERE state = 'deleted' AND updated_at < ? AND (updated_at, id) > (?, ?) ORDER BY updated_at, id LIMIT ?`
	pruneJob = `DELETE FROM jobs WHERE id = ? AND state = 'deleted' AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id)
AND NOT EXISTS (SELECT 1 FROM dead WHERE job_id = jobs.id)`
)

// Prune forgets what is older than keep, or than its own retention, and what nothing
// needs any more.
func (s *Store) Prune(ctx context.Context, keep time.Duration) (pruned int, err error) {
	now := s.Now()
	for _, step := range []func() (int, error){
		func() (int, error) { return s.purge(ctx) },
		func() (int, error) { return s.pruneBatches(ctx, now.Add(-keep), pruneHistory) },
		func() (int, error) { return s.pruneBatches(ctx, now, pruneAttemptsOfKept, pruneKept) },
		func() (int, error) { return 0, s.pruneRest(ctx, now, keep) },
	} {
		n, err := step()
		pruned += n
		if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

// pruneRest forgets what is neither a settled run nor a skip.
func (s *Store) pruneRest(ctx context.Context, now time.Time, keep time.Duration) error {
	for _, old := range []struct {
		query string
		keep  time.Duration
	}{
		{pruneTriggers, keepTriggers}, {pruneRequests, store.RequestRetention}, {pruneKeys, store.KeyRetention}, {pruneEvents, keep},
	} {
		if _, err := s.pruneBatches(ctx, now.Add(-old.keep), old.query); err != nil {
			return err
		}
	}
	if err := s.pruneEnded(ctx, now, keep); err != nil {
		return err
	}
	if err := s.pruneAttempts(ctx, now.Add(-keep)); err != nil {
		return err
	}
	return s.pruneJobs(ctx, now.Add(-keepDeleted))
}

// pruneBatches runs statements that each take an instant and a limit, in batches
// until the last of them has nothing left to do, and says how much that did.
func (s *Store) pruneBatches(ctx context.Context, before time.Time, queries ...string) (pruned int, err error) {
	for n := pruneBatch; n == pruneBatch; pruned += n {
		err := s.write(ctx, "prune", func(t *tx) error {
			for _, query := range queries {
				if n, err = t.exec(query, micro(before), pruneBatch); err != nil {
					return err
				}
			}
			return nil
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

// pruneAttempts forgets attempts of runs of which nothing else is left.
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
				`DELETE FROM keys WHERE job_id = ?`,
			} {
				if _, err := t.exec(query, o.id[:]); err != nil {
					return err
				}
			}
			return nil
		})
}
