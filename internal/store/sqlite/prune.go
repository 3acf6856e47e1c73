package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// pruneBatch bounds the transactions in which old rows are deleted, so that other
// writers wait for milliseconds only.
const pruneBatch = 2000

const (
	pruneHistory  = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE settled_at < ? AND retain_until IS NULL ORDER BY settled_at LIMIT ?)`
	pruneTriggers = `DELETE FROM triggers WHERE rowid IN (SELECT rowid FROM triggers WHERE fired_at < ? LIMIT ?)`
	pruneRequests = `DELETE FROM requests WHERE rowid IN (SELECT rowid FROM requests WHERE created_at < ? LIMIT ?)`
	pruneOutages  = `DELETE FROM outages WHERE rowid IN (SELECT rowid FROM outages WHERE ended_at < ? LIMIT ?)`
	pruneLinks    = `DELETE FROM trace_links WHERE rowid IN (SELECT rowid FROM trace_links WHERE created_at < ? LIMIT ?)`
	pruneAlerts   = `DELETE FROM alerts WHERE rowid IN (SELECT rowid FROM alerts WHERE latest_at < ? AND status = 'resolved' LIMIT ?)`
	pruneEvents   = `DELETE FROM events WHERE rowid IN (SELECT rowid FROM events WHERE at < ? LIMIT ?)`
	pruneNodes    = `DELETE FROM nodes WHERE id IN (SELECT id FROM nodes WHERE seen_at < ? LIMIT ?)`
	pruneActivity = `DELETE FROM activity WHERE rowid IN (SELECT rowid FROM activity WHERE minute < ? LIMIT ?)`
	pruneSessions = `DELETE FROM sessions WHERE rowid IN (SELECT rowid FROM sessions WHERE seen_at < ? LIMIT ?)`

	pruneKeys = `DELETE FROM keys WHERE rowid IN (SELECT rowid FROM keys WHERE created_at < ?1 AND (succeeded_at IS NULL OR succeeded_at < ?1)
AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = keys.job_id AND r.key = keys.key) LIMIT ?2)`

	// The attempts and logs of runs with a retention of their own are deleted with them:
	// they may be younger than the general retention.
	selectRetained        = `SELECT id FROM history WHERE retain_until < ?1 ORDER BY retain_until, rowid LIMIT ?2`
	pruneRetained         = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE retain_until < ?1 ORDER BY retain_until, rowid LIMIT ?2)`
	pruneRetainedAttempts = `DELETE FROM attempts AS a WHERE run_id IN (` + selectRetained + `) AND` + attemptUnused
	pruneRetainedLogs     = `DELETE FROM attempt_logs AS a WHERE run_id IN (` + selectRetained + `) AND` + attemptUnused

	attemptUnused   = ` NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = a.run_id) AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.id = a.run_id) `
	attemptOrphaned = attemptUnused + `AND NOT EXISTS (SELECT 1 FROM history h WHERE h.namespace = a.namespace AND h.id = a.run_id)`

	selectOldAttempts = `SELECT run_id, attempt, finished_at FROM attempts
WHERE finished_at < ? AND (finished_at, run_id, attempt) > (?, ?, ?) ORDER BY finished_at, run_id, attempt LIMIT ?`
	selectOldLogs = `SELECT run_id, attempt, updated_at FROM attempt_logs
WHERE updated_at < ? AND (updated_at, run_id, attempt) > (?, ?, ?) ORDER BY updated_at, run_id, attempt LIMIT ?`
	pruneAttempt = `DELETE FROM attempts AS a WHERE run_id = ? AND attempt = ? AND` + attemptOrphaned
	pruneLog     = `DELETE FROM attempt_logs AS a WHERE run_id = ? AND attempt = ? AND` + attemptOrphaned

	selectDeletedJobs = `SELECT id, 0, updated_at FROM jobs
WHERE state = 'deleted' AND updated_at < ? AND (updated_at, id) > (?, ?) ORDER BY updated_at, id LIMIT ?`
	selectDeletedSpec = `SELECT spec, EXISTS (SELECT 1 FROM history WHERE job_id = jobs.id) FROM jobs WHERE id = ? AND state = 'deleted'
AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id) AND NOT EXISTS (SELECT 1 FROM dead WHERE job_id = jobs.id)`

	selectEndedBefore   = `SELECT id FROM ended WHERE ended_at < ? AND retain_until IS NULL LIMIT ?`
	selectEndedRetained = `SELECT id FROM ended WHERE retain_until < ? LIMIT ?`
)

func (s *Store) Prune(ctx context.Context, keep time.Duration) (pruned int, err error) {
	now := s.Now()
	count := func(n int, err error) error {
		pruned += n
		return err
	}
	if err := count(s.purge(ctx)); err != nil {
		return pruned, err
	}
	if err := count(s.pruneRows(ctx, now.Add(-keep), pruneHistory)); err != nil {
		return pruned, err
	}
	if err := count(s.pruneRows(ctx, now, pruneRetainedAttempts, pruneRetainedLogs, pruneRetained)); err != nil {
		return pruned, err
	}
	return pruned, s.pruneOthers(ctx, now, keep)
}

// pruneOthers deletes old rows that are neither settled runs nor skips.
func (s *Store) pruneOthers(ctx context.Context, now time.Time, keep time.Duration) error {
	for _, old := range []struct {
		query string
		keep  time.Duration
	}{
		{pruneTriggers, store.TriggerRetention}, {pruneRequests, store.RequestRetention}, {pruneKeys, store.KeyRetention}, {pruneEvents, keep}, {pruneAlerts, keep}, {pruneOutages, store.OutageRetention},
		{pruneLinks, store.TraceLinkRetention}, {pruneNodes, store.NodeRetention}, {pruneActivity, store.ActivityRetention}, {pruneSessions, store.SessionTimeout},
	} {
		if _, err := s.pruneRows(ctx, now.Add(-old.keep), old.query); err != nil {
			return err
		}
	}
	if err := s.pruneEnded(ctx, selectEndedBefore, now.Add(-keep)); err != nil {
		return err
	}
	if err := s.pruneEnded(ctx, selectEndedRetained, now); err != nil {
		return err
	}
	if err := s.pruneAttempts(ctx, now.Add(-keep), selectOldAttempts, pruneAttempt); err != nil {
		return err
	}
	if err := s.pruneAttempts(ctx, now.Add(-keep), selectOldLogs, pruneLog); err != nil {
		return err
	}
	return s.pruneJobs(ctx, now.Add(-store.DeletedJobRetention))
}

// inBatches calls f in transactions until it processes less than a batch. It returns
// the total.
func (s *Store) inBatches(ctx context.Context, f func(*tx) (int, error)) (total int, err error) {
	for n := pruneBatch; n == pruneBatch; total += n {
		if n, err = writeValue(ctx, s, "prune", f); err != nil {
			return total, err
		}
	}
	return total, nil
}

// pruneRows runs statements that each take an instant and a limit. It returns how many
// rows the last of them deleted.
func (s *Store) pruneRows(ctx context.Context, before time.Time, queries ...string) (int, error) {
	return s.inBatches(ctx, func(t *tx) (n int, err error) {
		for _, query := range queries {
			if n, err = t.exec(query, micro(before), pruneBatch); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}

func (s *Store) pruneEnded(ctx context.Context, query string, before time.Time) error {
	_, err := s.inBatches(ctx, func(t *tx) (int, error) {
		jobs, err := all(t, scanID, query, micro(before), pruneBatch)
		if err != nil {
			return 0, err
		}
		for _, job := range jobs {
			if err := t.runEach([]any{job[:]}, `DELETE FROM ended WHERE id = ?`, `DELETE FROM revisions WHERE job_id = ?`); err != nil {
				return 0, err
			}
		}
		return len(jobs), nil
	})
	return err
}

// oldRow is a row that may be deleted, which is decided when it is deleted. The rows
// are read by age, so that those that stay are read once.
type oldRow struct {
	id      belfry.ID
	attempt int64
	age     int64
}

func scanOld(rows *sql.Rows, o *oldRow) error {
	return rows.Scan(bytesColumn{o.id[:]}, &o.attempt, &o.age)
}

// pruneOld calls remove for every row of the pages.
func (s *Store) pruneOld(ctx context.Context, page func(t *tx, after oldRow) ([]oldRow, error), remove func(*tx, oldRow) error) error {
	for last, n := (oldRow{age: beforeAll}), pruneBatch; n == pruneBatch; {
		rows, err := readValue(ctx, s, "prune", func(t *tx) ([]oldRow, error) { return page(t, last) })
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

// pruneAttempts deletes old attempts, or their logs, whose runs are deleted.
func (s *Store) pruneAttempts(ctx context.Context, before time.Time, find, remove string) error {
	return s.pruneOld(ctx,
		func(t *tx, after oldRow) ([]oldRow, error) {
			return all(t, scanOld, find, micro(before), after.age, after.id[:], after.attempt, pruneBatch)
		},
		func(t *tx, o oldRow) error {
			return t.run(remove, o.id[:], o.attempt)
		})
}

// pruneJobs archives deleted jobs that have no live or dead runs; without history they
// leave nothing.
func (s *Store) pruneJobs(ctx context.Context, before time.Time) error {
	return s.pruneOld(ctx,
		func(t *tx, after oldRow) ([]oldRow, error) {
			return all(t, scanOld, selectDeletedJobs, micro(before), after.age, after.id[:], pruneBatch)
		},
		func(t *tx, o oldRow) error {
			var spec string
			var hasHistory bool
			found, err := t.find([]any{&spec, &hasHistory}, selectDeletedSpec, o.id[:])
			if err != nil || !found {
				return err
			}
			if hasHistory {
				err = t.run(archiveDeleted, micro(t.now), o.id[:])
			} else {
				err = t.run(`DELETE FROM revisions WHERE job_id = ?`, o.id[:])
			}
			if err != nil {
				return err
			}
			return t.runEach([]any{o.id[:]},
				`DELETE FROM jobs WHERE id = ?`,
				`DELETE FROM plans WHERE job_id = ?`,
				`DELETE FROM triggers WHERE job_id = ? AND fired_at IS NULL`,
				`DELETE FROM keys WHERE job_id = ?`)
		})
}

const (
	selectPurgedJobs = `SELECT id FROM jobs WHERE state = 'deleted' AND purge AND id > ? AND NOT EXISTS (SELECT 1 FROM runs WHERE job_id = jobs.id) ORDER BY id LIMIT ?`

	// The attempts and logs are deleted with their runs.
	ofHistory     = `(SELECT id FROM history WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`
	purgeAttempts = `DELETE FROM attempts WHERE run_id IN ` + ofHistory
	purgeLogs     = `DELETE FROM attempt_logs WHERE run_id IN ` + ofHistory
	purgeHistory  = `DELETE FROM history WHERE rowid IN (SELECT rowid FROM history WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`

	ofDead            = `(SELECT id FROM dead WHERE job_id = ?1 ORDER BY rowid LIMIT ?2)`
	purgeDeadAttempts = `DELETE FROM attempts WHERE run_id IN ` + ofDead
	purgeDeadLogs     = `DELETE FROM attempt_logs WHERE run_id IN ` + ofDead
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
			n, err := s.purgeJob(ctx, job, purgeAttempts, purgeLogs, purgeHistory)
			purged += n
			if err == nil {
				_, err = s.purgeJob(ctx, job, purgeDeadAttempts, purgeDeadLogs, purgeDead)
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

// purgeJob runs statements for a job in batches, until the last of them deletes nothing
// more or a dead letter of the job was redriven.
func (s *Store) purgeJob(ctx context.Context, job belfry.ID, queries ...string) (int, error) {
	return s.inBatches(ctx, func(t *tx) (n int, err error) {
		if live, err := t.exists(jobHasLiveRun, job[:]); err != nil || live {
			return 0, err
		}
		for _, query := range queries {
			if n, err = t.exec(query, job[:], pruneBatch); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}
