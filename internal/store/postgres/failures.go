package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func failureFields(f *store.Failure) []any {
	return []any{idColumn(&f.JobID), &f.Namespace, idColumn(&f.RunID), timeColumn{&f.Since}, timeColumn{&f.LatestAt}, &f.Count, &f.Error}
}

// Failures looks for the last success among what was settled in the last week, which is in
// few partitions, and in all of them only if there are failures from before. A job that
// succeeded after its latest failure is left out.
func (s *Store) Failures(ctx context.Context, since time.Time, limit int) ([]store.Failure, error) {
	failures, err := collect(ctx, s.readPool, scanInto(func(f *store.Failure) []any { return append(failureFields(f), &f.Attempt) }), `/* failures */
WITH failed AS MATERIALIZED (
  SELECT a.run_id, a.attempt, a.finished_at, a.error FROM belfry.attempts a
   WHERE a.finished_at > $1 AND a.outcome IN ('failed', 'timed_out', 'lost') ORDER BY a.finished_at DESC LIMIT $2
), latest AS MATERIALIZED (
  SELECT DISTINCT ON (r.job_id) r.job_id, r.namespace, f.run_id, f.attempt, f.finished_at, f.error
    FROM failed f
   CROSS JOIN LATERAL (SELECT job_id, namespace FROM belfry.runs WHERE id = f.run_id UNION ALL SELECT job_id, namespace FROM belfry.dead WHERE id = f.run_id LIMIT 1) r
   ORDER BY r.job_id, f.finished_at DESC
), judged AS MATERIALIZED (
  SELECT l.*, coalesce((SELECT h.settled_at FROM belfry.history h WHERE h.job_id = l.job_id AND h.state = 'succeeded' AND h.settled_at > clock_timestamp() - interval '7 days'
                         ORDER BY h.scheduled_at DESC LIMIT 1),
                       CASE WHEN EXISTS (SELECT 1 FROM belfry.dead d WHERE d.job_id = l.job_id AND d.died_at < clock_timestamp() - interval '7 days')
                            THEN (SELECT h.settled_at FROM belfry.history h WHERE h.job_id = l.job_id AND h.state = 'succeeded' ORDER BY h.scheduled_at DESC LIMIT 1) END) AS success FROM latest l
)
SELECT j.job_id, j.namespace, j.run_id, coalesce(d.first, j.finished_at), j.finished_at, coalesce(d.n, 0) + coalesce(r.n, 0), j.error, j.attempt
  FROM judged j
 CROSS JOIN LATERAL (SELECT sum(greatest(failures + lost, 1)) AS n, min(died_at) AS first
                       FROM (SELECT failures, lost, died_at FROM belfry.dead WHERE job_id = j.job_id AND died_at > coalesce(j.success, '-infinity') ORDER BY scheduled_at DESC LIMIT 1000) x) d
 CROSS JOIN LATERAL (SELECT sum(failures + lost) AS n FROM (SELECT failures, lost FROM belfry.runs WHERE job_id = j.job_id LIMIT 1000) x) r
 WHERE j.success IS NULL OR j.success < j.finished_at`, since, limit)
	return failures, wrapError("look for failures", err)
}

func (s *Store) SetFailing(ctx context.Context, failures []store.Failure) ([]store.Failure, error) {
	if len(failures) == 0 {
		return nil, nil
	}
	var began []store.Failure
	var n int64
	err := forEach(ctx, s.pool, []any{&n}, func() error {
		began = append(began, failures[n-1])
		return nil
	}, `/* set failing */
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::text[])
    WITH ORDINALITY AS f (job_id, namespace, run_id, since, latest_at, failures, error, n)
), saved AS (
  INSERT INTO belfry.failing AS f (job_id, namespace, run_id, since, latest_at, failures, error)
  SELECT job_id, namespace, run_id, since, latest_at, failures, error FROM given ORDER BY job_id
  ON CONFLICT (job_id) DO UPDATE SET run_id = excluded.run_id, latest_at = excluded.latest_at, failures = excluded.failures, error = excluded.error
   WHERE f.latest_at < excluded.latest_at
  RETURNING f.job_id, f.xmax = 0 AS new
)
SELECT given.n FROM given JOIN saved USING (job_id) WHERE saved.new`,
		column(failures, func(f *store.Failure) pgtype.UUID { return uuid(f.JobID) }),
		column(failures, func(f *store.Failure) string { return f.Namespace }),
		column(failures, func(f *store.Failure) pgtype.UUID { return uuid(f.RunID) }),
		column(failures, func(f *store.Failure) time.Time { return f.Since }),
		column(failures, func(f *store.Failure) time.Time { return f.LatestAt }),
		column(failures, func(f *store.Failure) int64 { return f.Count }),
		column(failures, func(f *store.Failure) string { return storable(f.Error) }))
	return began, wrapError("record failing jobs", err)
}

// lastSuccess is when the latest occurrence of a job that succeeded was settled, if that is
// not long before an instant. It reads history backwards to the first success.
func lastSuccess(job, since string) string {
	return fmt.Sprintf(`(SELECT h.settled_at FROM belfry.history h WHERE h.job_id = %s AND h.state = 'succeeded' AND h.settled_at > %s - interval '1 day' ORDER BY h.scheduled_at DESC LIMIT 1)`, job, since)
}

var (
	recoveredSQL = `/* recovered */
SELECT f.job_id, f.namespace, f.run_id, f.since, f.latest_at, f.failures, f.error, ` + lastSuccess("f.job_id", "f.latest_at") + `,
       (SELECT 1 FROM belfry.jobs j WHERE j.id = f.job_id AND j.state <> 'deleted') IS NULL
  FROM belfry.failing f WHERE f.job_id > $1 ORDER BY f.job_id LIMIT $2`
	lastSuccessSQL = `/* last success */ SELECT j.id, ` + lastSuccess("j.id", "$2::timestamptz") + ` FROM unnest($1::uuid[]) AS j (id)`
)

func (s *Store) Recovered(ctx context.Context, after belfry.ID, limit int) (recovered []store.Failure, next belfry.ID, err error) {
	var f store.Failure
	var gone bool
	seen := 0
	err = forEach(ctx, s.readPool, append(failureFields(&f), timeColumn{&f.SucceededAt}, &gone), func() error {
		seen++
		next = f.JobID
		if !f.SucceededAt.After(f.LatestAt) {
			f.SucceededAt = time.Time{}
		}
		if gone || !f.SucceededAt.IsZero() {
			recovered = append(recovered, f)
		}
		return nil
	}, recoveredSQL, notNull(after), limit)
	if seen < limit {
		next = belfry.ID{}
	}
	return recovered, next, wrapError("look for jobs that recovered", err)
}

func (s *Store) EndFailing(ctx context.Context, recovered []store.Failure) error {
	if len(recovered) == 0 {
		return nil
	}
	_, err := s.pool.Exec(ctx, `/* end failing */ DELETE FROM belfry.failing f USING unnest($1::uuid[], $2::timestamptz[]) AS r (job_id, latest_at)
 WHERE f.job_id = r.job_id AND f.latest_at = r.latest_at`,
		column(recovered, func(f *store.Failure) pgtype.UUID { return uuid(f.JobID) }), column(recovered, func(f *store.Failure) time.Time { return f.LatestAt }))
	return wrapError("record jobs that recovered", err)
}

func (s *Store) Deaths(ctx context.Context, since time.Time, limit int) ([]store.Death, error) {
	deaths, err := collect(ctx, s.readPool, scanInto(func(d *store.Death) []any {
		return []any{idColumn(&d.JobID), &d.Namespace, &d.Fingerprint, &d.Count, timeColumn{&d.LatestAt}, idColumn(&d.RunID), &d.Attempt, timeColumn{&d.ScheduledAt}, &d.Reason, &d.Error}
	}), `/* deaths */
SELECT x.job_id, x.namespace, x.fingerprint, g.n, x.died_at, x.id, x.attempt, x.scheduled_at, x.reason, coalesce(a.error, '')
  FROM (SELECT DISTINCT ON (job_id, fingerprint) job_id, fingerprint, id, count(*) OVER (PARTITION BY job_id, fingerprint) AS n
          FROM belfry.dead WHERE died_at > $1 ORDER BY job_id, fingerprint, died_at DESC) g
  JOIN belfry.dead x ON x.id = g.id`+joinLastAttempt+`
 ORDER BY x.died_at DESC LIMIT $2`, since, limit)
	return deaths, wrapError("look for deaths", err)
}

func (s *Store) DeadRuns(ctx context.Context, from, to time.Time, limit int) ([]store.Death, error) {
	deaths, err := collect(ctx, s.readPool, scanInto(func(d *store.Death) []any {
		return []any{idColumn(&d.JobID), &d.Namespace, &d.Fingerprint, timeColumn{&d.LatestAt}, idColumn(&d.RunID), &d.Attempt, timeColumn{&d.ScheduledAt}, &d.Reason, &d.Error}
	}), `/* dead runs */
SELECT x.job_id, x.namespace, x.fingerprint, x.died_at, x.id, x.attempt, x.scheduled_at, x.reason, coalesce(a.error, '') FROM belfry.dead x`+joinLastAttempt+`
 WHERE x.id >= $1 AND x.id < $2 AND x.kind = 'scheduled' ORDER BY x.id LIMIT $3`, notNull(store.FirstID(from)), notNull(store.FirstID(to)), limit)
	return deaths, wrapError("look for dead runs", err)
}

func (s *Store) DeadLeft(ctx context.Context, causes []store.DeathCause) (map[store.DeathCause]bool, error) {
	left := map[store.DeathCause]bool{}
	var c store.DeathCause
	err := forEach(ctx, s.readPool, []any{idColumn(&c.JobID), &c.Fingerprint}, func() error {
		left[c] = true
		return nil
	}, `/* dead left */ SELECT job_id, fingerprint FROM unnest($1::uuid[], $2::text[]) AS c (job_id, fingerprint)
 WHERE EXISTS (SELECT 1 FROM belfry.dead d WHERE d.job_id = c.job_id AND d.fingerprint = c.fingerprint)`,
		column(causes, func(c *store.DeathCause) pgtype.UUID { return uuid(c.JobID) }), column(causes, func(c *store.DeathCause) string { return c.Fingerprint }))
	return left, wrapError("look for dead letters", err)
}

func (s *Store) Exceptions(ctx context.Context, after store.Position, limit int) ([]belfry.Run, error) {
	runs, err := collect(ctx, s.readPool, scanRun, `/* exceptions */ `+selectSettled+`belfry.history x
 WHERE x.settled_at >= $1 AND (x.settled_at, x.id) > ($1, $2) AND (x.state <> 'succeeded' OR x.settled_at - x.scheduled_at > interval '1 minute') AND x.kind = 'scheduled'
 ORDER BY x.settled_at, x.id LIMIT $3`, after.At, notNull(after.ID), limit)
	return runs, wrapError("look for exceptions", err)
}

func (s *Store) SkipsInARow(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]int64, error) {
	skips := make(map[belfry.ID]int64, len(jobs))
	var job belfry.ID
	var n int64
	err := forEach(ctx, s.readPool, []any{idColumn(&job), &n}, func() error {
		skips[job] = n
		return nil
	}, `/* skips */
SELECT j.id, sum(greatest(h.skipped_count, 1))::bigint FROM unnest($1::uuid[]) AS j (id)
 CROSS JOIN LATERAL (SELECT skipped_count, bool_and(skip) OVER (ORDER BY scheduled_at DESC, id DESC) AS skips
    FROM (SELECT * FROM (SELECT scheduled_at, id, skipped_count, `+store.UnexpectedSkip+` AS skip FROM belfry.history
                          WHERE job_id = j.id AND kind = 'scheduled' AND settled_at > clock_timestamp() - interval '7 days' ORDER BY scheduled_at DESC LIMIT 100) s
           UNION ALL SELECT * FROM (SELECT scheduled_at, id, 0::bigint, false FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d) x) h
 WHERE h.skips GROUP BY j.id`, uuids(jobs))
	return skips, wrapError("count skips", err)
}

func (s *Store) LateRuns(ctx context.Context, after belfry.ID, before time.Time, limit int) ([]belfry.Run, error) {
	runs, err := collect(ctx, s.readPool, scanRun, `/* late runs */ `+selectLive+`belfry.runs x`+joinLastAttempt+`
 WHERE x.id > $1 AND x.id < $2 AND x.kind = 'scheduled' ORDER BY x.id LIMIT $3`, notNull(after), notNull(store.FirstID(before)), limit)
	return runs, wrapError("look for late runs", err)
}

func (s *Store) LongRuns(ctx context.Context, before time.Time, limit int) ([]belfry.Run, error) {
	runs, err := collect(ctx, s.readPool, scanRun, `/* long runs */ `+selectLive+`belfry.runs x`+joinLastAttempt+` WHERE x.state = 'running' AND x.started_at < $1 ORDER BY x.started_at LIMIT $2`, before, limit)
	return runs, wrapError("look for long runs", err)
}

func (s *Store) LastSuccess(ctx context.Context, jobs []belfry.ID, since time.Time) (map[belfry.ID]time.Time, error) {
	successes := map[belfry.ID]time.Time{}
	var job belfry.ID
	var at time.Time
	err := forEach(ctx, s.readPool, []any{idColumn(&job), timeColumn{&at}}, func() error {
		if at.After(since) {
			successes[job] = at
		}
		return nil
	}, lastSuccessSQL, uuids(jobs), since)
	return successes, wrapError("look up successes", err)
}

func (s *Store) JobLabels(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]store.JobLabels, error) {
	labels := make(map[belfry.ID]store.JobLabels, len(jobs))
	var job belfry.ID
	var l store.JobLabels
	err := forEach(ctx, s.readPool, []any{idColumn(&job), &l.Namespace, textColumn{&l.Name}, &l.Tags, &l.Paused, &l.Ended, jsonColumn{&l.Payload}, &l.LargePayload}, func() error {
		labels[job] = l
		l.Tags, l.Payload = nil, nil
		return nil
	}, `/* job labels */
SELECT id, namespace, name, tags, state = 'paused', false, CASE WHEN length(payload) <= $2 THEN payload END, coalesce(length(payload) > $2, false) FROM belfry.jobs WHERE id = ANY($1) AND state <> 'deleted'
 UNION ALL
SELECT id, namespace, name, tags, false, true, CASE WHEN length(payload) <= $2 THEN payload END, coalesce(length(payload) > $2, false)
  FROM belfry.ended WHERE id = ANY($1) AND status <> 'deleted'`, uuids(jobs), store.MaxLabelPayload)
	return labels, wrapError("look up jobs", err)
}
