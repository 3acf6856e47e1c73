package sqlite

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	selectPurged = `SELECT id FROM jobs WHERE state = 'deleted' AND purge AND id > ? AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id) ORDER BY id LIMIT ?`

	// The attempts go with the runs that they are of.
	purgeAttempts = `DELETE FROM attempts WHERE run_id IN (SELECT id FROM history WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`
	purgeHistory  = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`

	purgeDeadAttempts = `DELETE FROM attempts WHERE run_id IN (SELECT id FROM dead WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`
	purgeDead         = `DELETE FROM dead WHERE rowid IN (SELECT rowid FROM dead WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`

	selectEndedBefore = `SELECT id FROM ended WHERE ended_at < ? AND retain_until IS NULL LIMIT ?`
	selectEndedKept   = `SELECT id FROM ended WHERE retain_until < ? LIMIT ?`
)

// purge forgets what happened to deleted jobs whose history was to go as well, once
// no run of theirs is alive. It says how many settled runs and skips went.
func (s *Store) purge(ctx context.Context) (purged int, err error) {
	var last belfry.ID
	for n := pruneBatch; n == pruneBatch; {
		var jobs []belfry.ID
		err := s.read(ctx, "prune", func(t *tx) (err error) {
			jobs, err = all(t, scanID, selectPurged, last[:], pruneBatch)
			return err
		})
		if err != nil {
			return purged, err
		}
		for _, job := range jobs {
			done, err := s.purgeOf(ctx, job, purgeAttempts, purgeHistory)
			purged += done
			if err == nil {
				_, err = s.purgeOf(ctx, job, purgeDeadAttempts, purgeDead)
			}
			if err != nil {
				return purged, err
			}
			last = job
		}
		n = len(jobs)
	}
	return purged, nil
}

// purgeOf runs two statements for a job, in batches until the second has nothing
// left to do, unless a dead letter of it was given another life.
func (s *Store) purgeOf(ctx context.Context, job belfry.ID, first, second string) (purged int, err error) {
	for n := pruneBatch; n == pruneBatch; purged += n {
		err := s.write(ctx, "prune", func(t *tx) error {
			var live bool
			n = 0
			if err := t.get([]any{&live}, `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ?)`, job[:]); err != nil || live {
				return err
			}
			if _, err := t.exec(first, job[:], pruneBatch); err != nil {
				return err
			}
			n, err = t.exec(second, job[:], pruneBatch)
			return err
		})
		if err != nil {
			return purged, err
		}
	}
	return purged, nil
}

// pruneEnded forgets jobs that ended long ago, with their earlier revisions.
func (s *Store) pruneEnded(ctx context.Context, now time.Time, keep time.Duration) error {
	for query, before := range map[string]time.Time{selectEndedBefore: now.Add(-keep), selectEndedKept: now} {
		for n := pruneBatch; n == pruneBatch; {
			err := s.write(ctx, "prune", func(t *tx) error {
				jobs, err := all(t, scanID, query, micro(before), pruneBatch)
				if err != nil {
					return err
				}
				n = len(jobs)
				for _, job := range jobs {
					if err := t.forget(job); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tx) forget(ended belfry.ID) error {
	for _, query := range []string{`DELETE FROM ended WHERE id = ?`, `DELETE FROM revisions WHERE job_id = ?`} {
		if _, err := t.exec(query, ended[:]); err != nil {
			return err
		}
	}
	return nil
}
