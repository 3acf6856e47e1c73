package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectFailures = `
WITH failed AS MATERIALIZED (
  SELECT a.run_id, a.attempt, a.finished_at, a.error FROM attempts a
   WHERE a.finished_at > ?1 AND a.outcome IN ('failed', 'timed_out', 'lost') ORDER BY a.finished_at DESC LIMIT ?2
), held AS (
  SELECT r.job_id, r.namespace, f.* FROM failed f CROSS JOIN runs r ON r.id = f.run_id
   UNION ALL SELECT d.job_id, d.namespace, f.* FROM failed f CROSS JOIN dead d ON d.id = f.run_id
), latest AS MATERIALIZED (
  SELECT job_id, namespace, run_id, attempt, max(finished_at) AS finished_at, error FROM held GROUP BY job_id
), judged AS MATERIALIZED (
  SELECT l.*, coalesce((SELECT h.settled_at FROM history h WHERE h.job_id = l.job_id AND h.state = 'succeeded' ORDER BY h.scheduled_at DESC LIMIT 1), 0) AS success FROM latest l
)
SELECT job_id, namespace, run_id,
       coalesce((SELECT min(died_at) FROM (SELECT died_at FROM dead WHERE job_id = j.job_id AND died_at > j.success ORDER BY scheduled_at DESC LIMIT 1000)), finished_at), finished_at,
       coalesce((SELECT sum(max(failures + lost, 1)) FROM (SELECT failures, lost FROM dead WHERE job_id = j.job_id AND died_at > j.success ORDER BY scheduled_at DESC LIMIT 1000)), 0)
         + coalesce((SELECT sum(failures + lost) FROM (SELECT failures, lost FROM runs WHERE job_id = j.job_id LIMIT 1000)), 0), error, attempt
  FROM judged j WHERE success < finished_at`
	insertFailing = `INSERT INTO failing (job_id, namespace, run_id, since, latest_at, failures, error) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	updateFailing = `UPDATE failing SET run_id = ?, latest_at = ?, failures = ?, error = ? WHERE job_id = ? AND latest_at < ?`
	selectFailing = `SELECT f.job_id, f.namespace, f.run_id, f.since, f.latest_at, f.failures, f.error,
  (SELECT h.settled_at FROM history h WHERE h.job_id = f.job_id AND h.state = 'succeeded' ORDER BY h.scheduled_at DESC LIMIT 1),
  NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = f.job_id AND j.state <> 'deleted') FROM failing f WHERE f.job_id > ? ORDER BY f.job_id LIMIT ?`
	deleteFailing = `DELETE FROM failing WHERE job_id = ? AND latest_at = ?`
	selectDeaths  = `SELECT r.job_id, r.namespace, r.fingerprint, g.n, r.died_at, r.id, r.attempt, r.scheduled_at, r.reason, coalesce(a.error, '')
FROM (SELECT id, count(*) AS n, max(died_at) FROM dead WHERE died_at > ? GROUP BY job_id, fingerprint) g CROSS JOIN dead r ON r.id = g.id
LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt ORDER BY r.died_at DESC LIMIT ?`
	selectDeadRuns = `SELECT r.job_id, r.namespace, r.fingerprint, r.died_at, r.id, r.attempt, r.scheduled_at, r.reason, coalesce(a.error, '') FROM dead r
LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt WHERE r.id >= ? AND r.id < ? AND r.kind = 'scheduled' ORDER BY r.id LIMIT ?`
	selectDeadLeft   = `SELECT EXISTS (SELECT 1 FROM dead WHERE job_id = ? AND fingerprint = ?)`
	selectExceptions = selectHistory + `WHERE (r.settled_at, r.id) > (?, ?) AND (r.state <> 'succeeded' OR r.settled_at - r.scheduled_at > 60000000) AND r.kind = 'scheduled' ORDER BY r.settled_at, r.id LIMIT ?`
	selectSkips      = `SELECT coalesce(sum(max(skipped_count, 1)), 0) FROM (SELECT skipped_count, min(skip) OVER (ORDER BY scheduled_at DESC, id DESC) AS skips
  FROM (SELECT * FROM (SELECT scheduled_at, id, skipped_count, ` + store.UnexpectedSkip + ` AS skip FROM history WHERE job_id = ?1 AND kind = 'scheduled' ORDER BY scheduled_at DESC LIMIT 100)
    UNION ALL SELECT * FROM (SELECT scheduled_at, id, 0, 0 FROM dead WHERE job_id = ?1 ORDER BY scheduled_at DESC LIMIT 1))) WHERE skips`
	selectLateRuns    = selectLive + `WHERE r.id > ? AND r.id < ? AND r.kind = 'scheduled' ORDER BY r.id LIMIT ?`
	selectLongRuns    = selectLive + `WHERE r.state = 'running' AND r.started_at < ? ORDER BY r.started_at LIMIT ?`
	selectLastSuccess = `SELECT j.id, (SELECT settled_at FROM history h WHERE h.job_id = j.id AND h.state = 'succeeded' ORDER BY h.scheduled_at DESC LIMIT 1) AS at
FROM (SELECT unhex(value, '-') AS id FROM json_each(?1)) j WHERE at > ?2`
	selectJobLabels = `SELECT id, namespace, coalesce(name, ''), tags, state = 'paused', false, CASE WHEN length(payload) <= ?2 THEN payload END, coalesce(length(payload) > ?2, 0) FROM jobs WHERE id IN (SELECT unhex(value, '-') FROM json_each(?1)) AND state <> 'deleted'
UNION ALL SELECT id, namespace, coalesce(name, ''), tags, false, true, CASE WHEN length(payload) <= ?2 THEN payload END, coalesce(length(payload) > ?2, 0) FROM ended WHERE id IN (SELECT unhex(value, '-') FROM json_each(?1)) AND status <> 'deleted'`
)

func failureFields(f *store.Failure) []any {
	return []any{bytesColumn{f.JobID[:]}, &f.Namespace, bytesColumn{f.RunID[:]}, timeColumn{&f.Since}, timeColumn{&f.LatestAt}, &f.Count, &f.Error}
}

func (s *Store) Failures(ctx context.Context, since time.Time, limit int) ([]store.Failure, error) {
	return readAll(ctx, s, "look for failures", scanInto(func(f *store.Failure) []any { return append(failureFields(f), &f.Attempt) }), selectFailures, micro(since), atMost(limit))
}

func (s *Store) SetFailing(ctx context.Context, failures []store.Failure) (began []store.Failure, err error) {
	if len(failures) == 0 {
		return nil, nil
	}
	return writeValue(ctx, s, "record failing jobs", func(t *tx) (began []store.Failure, err error) {
		for _, f := range failures {
			n, err := t.exec(insertFailing, f.JobID[:], f.Namespace, f.RunID[:], micro(f.Since), micro(f.LatestAt), f.Count, f.Error)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				began = append(began, f)
			} else if err := t.run(updateFailing, f.RunID[:], micro(f.LatestAt), f.Count, f.Error, f.JobID[:], micro(f.LatestAt)); err != nil {
				return nil, err
			}
		}
		return began, nil
	})
}

func (s *Store) Recovered(ctx context.Context, after belfry.ID, limit int) (recovered []store.Failure, next belfry.ID, err error) {
	type row struct {
		store.Failure
		gone bool
	}
	scan := scanInto(func(r *row) []any { return append(failureFields(&r.Failure), timeColumn{&r.SucceededAt}, &r.gone) })
	rows, err := readAll(ctx, s, "look for jobs that recovered", scan, selectFailing, after[:], atMost(limit))
	for _, r := range rows {
		if !r.SucceededAt.After(r.LatestAt) {
			r.SucceededAt = time.Time{}
		}
		if r.gone || !r.SucceededAt.IsZero() {
			recovered = append(recovered, r.Failure)
		}
	}
	if len(rows) == limit && limit > 0 {
		next = rows[limit-1].JobID
	}
	return recovered, next, err
}

func (s *Store) EndFailing(ctx context.Context, recovered []store.Failure) error {
	if len(recovered) == 0 {
		return nil
	}
	return s.write(ctx, "record jobs that recovered", func(t *tx) error {
		for _, f := range recovered {
			if err := t.run(deleteFailing, f.JobID[:], micro(f.LatestAt)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) Deaths(ctx context.Context, since time.Time, limit int) ([]store.Death, error) {
	return readAll(ctx, s, "look for deaths", scanInto(func(d *store.Death) []any {
		return []any{bytesColumn{d.JobID[:]}, &d.Namespace, &d.Fingerprint, &d.Count, timeColumn{&d.LatestAt}, bytesColumn{d.RunID[:]}, &d.Attempt, timeColumn{&d.ScheduledAt}, &d.Reason, &d.Error}
	}), selectDeaths, micro(since), atMost(limit))
}

func (s *Store) DeadRuns(ctx context.Context, from, to time.Time, limit int) ([]store.Death, error) {
	first, end := store.FirstID(from), store.FirstID(to)
	return readAll(ctx, s, "look for dead runs", scanInto(func(d *store.Death) []any {
		return []any{bytesColumn{d.JobID[:]}, &d.Namespace, &d.Fingerprint, timeColumn{&d.LatestAt}, bytesColumn{d.RunID[:]}, &d.Attempt, timeColumn{&d.ScheduledAt}, &d.Reason, &d.Error}
	}), selectDeadRuns, first[:], end[:], atMost(limit))
}

func (s *Store) DeadLeft(ctx context.Context, causes []store.DeathCause) (map[store.DeathCause]bool, error) {
	return readValue(ctx, s, "look for dead letters", func(t *tx) (map[store.DeathCause]bool, error) {
		left := map[store.DeathCause]bool{}
		for _, c := range causes {
			var exists bool
			if err := t.get([]any{&exists}, selectDeadLeft, c.JobID[:], c.Fingerprint); err != nil {
				return nil, err
			}
			if exists {
				left[c] = true
			}
		}
		return left, nil
	})
}

func (s *Store) Exceptions(ctx context.Context, after store.Position, limit int) ([]belfry.Run, error) {
	return readAll(ctx, s, "look for exceptions", scanRun, selectExceptions, micro(after.At), after.ID[:], atMost(limit))
}

func (s *Store) SkipsInARow(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]int64, error) {
	return readValue(ctx, s, "count skips", func(t *tx) (map[belfry.ID]int64, error) {
		skips := make(map[belfry.ID]int64, len(jobs))
		for _, job := range jobs {
			var n int64
			if err := t.get([]any{&n}, selectSkips, job[:]); err != nil {
				return nil, err
			}
			skips[job] = n
		}
		return skips, nil
	})
}

func (s *Store) LateRuns(ctx context.Context, after belfry.ID, before time.Time, limit int) ([]belfry.Run, error) {
	first := store.FirstID(before)
	return readAll(ctx, s, "look for late runs", scanRun, selectLateRuns, after[:], first[:], atMost(limit))
}

func (s *Store) LongRuns(ctx context.Context, before time.Time, limit int) ([]belfry.Run, error) {
	return readAll(ctx, s, "look for long runs", scanRun, selectLongRuns, micro(before), atMost(limit))
}

func (s *Store) LastSuccess(ctx context.Context, jobs []belfry.ID, since time.Time) (map[belfry.ID]time.Time, error) {
	type row struct {
		job belfry.ID
		at  time.Time
	}
	rows, err := readAll(ctx, s, "look up successes", scanInto(func(r *row) []any { return []any{bytesColumn{r.job[:]}, timeColumn{&r.at}} }), selectLastSuccess, idsJSON(jobs), micro(since))
	successes := make(map[belfry.ID]time.Time, len(rows))
	for _, r := range rows {
		successes[r.job] = r.at
	}
	return successes, err
}

func (s *Store) JobLabels(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]store.JobLabels, error) {
	labels := make(map[belfry.ID]store.JobLabels, len(jobs))
	_, err := readAll(ctx, s, "look up jobs", func(rows *sql.Rows, job *belfry.ID) error {
		var l store.JobLabels
		err := rows.Scan(bytesColumn{job[:]}, &l.Namespace, &l.Name, stringsColumn{&l.Tags}, &l.Paused, &l.Ended, jsonColumn{&l.Payload}, &l.LargePayload)
		labels[*job] = l
		return err
	}, selectJobLabels, idsJSON(jobs), store.MaxLabelPayload)
	return labels, err
}
