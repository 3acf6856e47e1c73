package sqlite

import (
	"context"

	"github.com/belfry-sh/belfry"
)

const (
	selectPurgedJobs = `SELECT id FROM jobs WHERE state = 'deleted' AND purge AND id > ? AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id) ORDER BY id LIMIT ?`

	// The attempts are deleted with their runs.
	purgeAttempts = `DELETE FROM attempts WHERE run_id IN (SELECT id FROM history WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`
	purgeHistory  = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`

	purgeDeadAttempts = `DELETE FROM attempts WHERE run_id IN (SELECT id FROM dead WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`
	purgeDead         = `DELETE FROM dead WHERE rowid IN (SELECT rowid FROM dead WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`
)

// purge deletes the history of jobs that were deleted with their history, once no run
// of theirs is alive. It says how many settled runs and skips it deleted.
func (s *Store) purge(ctx context.Context) (purged int, err error) {
	var last belfry.ID
	for n := pruneBatch; n == pruneBatch; {
		jobs, err := readValue(ctx, s, "prune", func(t *tx) ([]belfry.ID, error) { return all(t, scanID, selectPurgedJobs, last[:], pruneBatch) })
		if err != nil {
			return purged, err
		}
		for _, job := range jobs {
			n, err := s.purgeJob(ctx, job, purgeAttempts, purgeHistory)
			purged += n
			if err == nil {
				_, err = s.purgeJob(ctx, job, purgeDeadAttempts, purgeDead)
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

// purgeJob runs two statements for a job in batches, until the second deletes nothing
// more or a dead letter of the job was redriven.
func (s *Store) purgeJob(ctx context.Context, job belfry.ID, attempts, runs string) (int, error) {
	return s.inBatches(ctx, func(t *tx) (int, error) {
		if live, err := t.exists(jobHasLiveRun, job[:]); err != nil || live {
			return 0, err
		}
		if _, err := t.exec(attempts, job[:], pruneBatch); err != nil {
			return 0, err
		}
		return t.exec(runs, job[:], pruneBatch)
	})
}
