package sqlstore

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func failureFields(f *store.Failure) []any {
	return []any{&f.JobID, &f.Namespace, &f.RunID, &f.Since, &f.LatestAt, &f.Count, &f.Error}
}

// Failures looks for the last success among what was settled in the last week, which is in
// few partitions, and in all of them only if there are failures from before. A job that
// succeeded after its latest failure is left out.
func (s Store) Failures(ctx context.Context, since time.Time, limit int) ([]store.Failure, error) {
	return list(ctx, s, Read, "look for failures", func(f *store.Failure) []any { return append(failureFields(f), &f.Attempt) }, `/* failures */
WITH failed AS MATERIALIZED (
  SELECT a.run_id, a.attempt, a.namespace, a.finished_at, a.error FROM belfry.attempts a
   WHERE a.finished_at > $1 AND a.outcome IN ('failed', 'timed_out', 'lost') ORDER BY a.finished_at DESC LIMIT $2
), held AS MATERIALIZED (
  SELECT f.*, coalesce((SELECT job_id FROM belfry.runs WHERE id = f.run_id), (SELECT job_id FROM belfry.dead WHERE id = f.run_id)) AS job_id FROM failed f
), latest AS MATERIALIZED (
  SELECT * FROM (SELECT h.*, row_number() OVER (PARTITION BY job_id ORDER BY finished_at DESC) AS n FROM held h WHERE job_id IS NOT NULL) x WHERE n = 1
), judged AS MATERIALIZED (
  SELECT l.*, coalesce((SELECT h.settled_at FROM belfry.history h WHERE h.job_id = l.job_id AND h.state = 'succeeded' AND h.settled_at > clock_timestamp() - interval '7 days'
                         ORDER BY h.scheduled_at DESC LIMIT 1),
                       CASE WHEN EXISTS (SELECT 1 FROM belfry.dead d WHERE d.job_id = l.job_id AND d.died_at < clock_timestamp() - interval '7 days')
                            THEN (SELECT h.settled_at FROM belfry.history h WHERE h.job_id = l.job_id AND h.state = 'succeeded' ORDER BY h.scheduled_at DESC LIMIT 1) END) AS success FROM latest l
)
SELECT job_id, namespace, run_id,
       coalesce((SELECT min(died_at) FROM (SELECT died_at FROM belfry.dead WHERE job_id = j.job_id AND (j.success IS NULL OR died_at > j.success) ORDER BY scheduled_at DESC LIMIT 1000) x), finished_at), finished_at,
       coalesce((SELECT sum(greatest(failures + lost, 1)) FROM (SELECT failures, lost FROM belfry.dead WHERE job_id = j.job_id AND (j.success IS NULL OR died_at > j.success) ORDER BY scheduled_at DESC LIMIT 1000) x), 0)
         + coalesce((SELECT sum(failures + lost) FROM (SELECT failures, lost FROM belfry.runs WHERE job_id = j.job_id LIMIT 1000) x), 0), error, attempt
  FROM judged j WHERE success IS NULL OR success < finished_at`, since, limit)
}

func (s Store) SetFailing(ctx context.Context, failures []store.Failure) (began []store.Failure, err error) {
	err = s.DB.Do(ctx, Change, "record failing jobs", func(t Tx) error {
		inserted, err := t.ExecEach(`/* set failing */
INSERT INTO belfry.failing (job_id, namespace, run_id, since, latest_at, failures, error) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`, argsOf(failures, func(f *store.Failure) []any {
			return []any{f.JobID, f.Namespace, f.RunID, f.Since, f.LatestAt, f.Count, f.Error}
		}))
		if err != nil {
			return err
		}
		var known [][]any
		for i, f := range failures {
			if inserted[i] > 0 {
				began = append(began, f)
			} else {
				known = append(known, []any{f.JobID, f.RunID, f.LatestAt, f.Count, f.Error})
			}
		}
		_, err = t.ExecEach(`/* set failing */ UPDATE belfry.failing SET run_id = $2, latest_at = $3, failures = $4, error = $5 WHERE job_id = $1 AND latest_at < $3`, known)
		return err
	})
	return began, err
}

// lastSuccess is when the latest occurrence of a job that succeeded was settled, if that is
// not long before an instant. It reads history backwards to the first success.
func lastSuccess(job, since string) string {
	return `(SELECT h.settled_at FROM belfry.history h WHERE h.job_id = ` + job + ` AND h.state = 'succeeded' AND h.settled_at > ` + since + ` - interval '1 day' ORDER BY h.scheduled_at DESC LIMIT 1)`
}

// Statements that read history backwards.
var (
	ListFailing = `/* recovered */
SELECT f.job_id, f.namespace, f.run_id, f.since, f.latest_at, f.failures, f.error, ` + lastSuccess("f.job_id", "f.latest_at") + `,
       NOT EXISTS (SELECT 1 FROM belfry.jobs j WHERE j.id = f.job_id AND j.state <> 'deleted')
  FROM belfry.failing f WHERE f.job_id > $1 ORDER BY f.job_id LIMIT $2`
	ListSuccesses = `/* last success */ SELECT id, at FROM (SELECT j.id, ` + lastSuccess("j.id", "$2::timestamptz") + ` AS at FROM unnest($1::uuid[]) AS j (id)) x WHERE at > $2`
)

func (s Store) Recovered(ctx context.Context, after belfry.ID, limit int) (recovered []store.Failure, next belfry.ID, err error) {
	type row struct {
		store.Failure
		gone bool
	}
	rows, err := list(ctx, s, Read, "look for jobs that recovered", func(r *row) []any { return append(failureFields(&r.Failure), &r.SucceededAt, &r.gone) }, ListFailing, after, limit)
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

func (s Store) EndFailing(ctx context.Context, recovered []store.Failure) error {
	return runEach(ctx, s, "record jobs that recovered", recovered, func(f *store.Failure) []any { return []any{f.JobID, f.LatestAt} },
		`/* end failing */ DELETE FROM belfry.failing WHERE job_id = $1 AND latest_at = $2`)
}

func deathFields(d *store.Death) []any {
	return []any{&d.JobID, &d.Namespace, &d.Fingerprint, &d.Count, &d.LatestAt, &d.RunID, &d.Attempt, &d.ScheduledAt, &d.Reason, &d.Error}
}

func (s Store) Deaths(ctx context.Context, since time.Time, limit int) ([]store.Death, error) {
	return list(ctx, s, Read, "look for deaths", deathFields, `/* deaths */
SELECT x.job_id, x.namespace, x.fingerprint, g.n, x.died_at, x.id, x.attempt, x.scheduled_at, x.reason, coalesce(a.error, '')
  FROM (SELECT id, count(*) OVER (PARTITION BY job_id, fingerprint) AS n, row_number() OVER (PARTITION BY job_id, fingerprint ORDER BY died_at DESC) AS nth
          FROM belfry.dead WHERE died_at > $1) g
  JOIN belfry.dead x ON x.id = g.id`+JoinLastAttempt+` WHERE g.nth = 1 ORDER BY x.died_at DESC LIMIT $2`, since, limit)
}

func (s Store) DeadRuns(ctx context.Context, from, to time.Time, limit int) ([]store.Death, error) {
	return list(ctx, s, Read, "look for dead runs", deathFields, `/* dead runs */
SELECT x.job_id, x.namespace, x.fingerprint, 0, x.died_at, x.id, x.attempt, x.scheduled_at, x.reason, coalesce(a.error, '')
  FROM belfry.dead x`+JoinLastAttempt+` WHERE x.id >= $1 AND x.id < $2 AND x.kind = 'scheduled' ORDER BY x.id LIMIT $3`, store.FirstID(from), store.FirstID(to), limit)
}

func (s Store) DeadLeft(ctx context.Context, causes []store.DeathCause) (map[store.DeathCause]bool, error) {
	jobs, fingerprints := make([]belfry.ID, len(causes)), make([]string, len(causes))
	for i, c := range causes {
		jobs[i], fingerprints[i] = c.JobID, c.Fingerprint
	}
	found, err := list(ctx, s, Read, "look for dead letters", func(c *store.DeathCause) []any { return []any{&c.JobID, &c.Fingerprint} },
		`/* dead left */ SELECT job_id, fingerprint FROM unnest($1::uuid[], $2::text[]) AS c (job_id, fingerprint)
 WHERE EXISTS (SELECT 1 FROM belfry.dead d WHERE d.job_id = c.job_id AND d.fingerprint = c.fingerprint)`, jobs, fingerprints)
	left := map[store.DeathCause]bool{}
	for _, c := range found {
		left[c] = true
	}
	return left, err
}

func (s Store) Exceptions(ctx context.Context, after store.Position, limit int) ([]belfry.Run, error) {
	return list(ctx, s, Read, "look for exceptions", RunFields, `/* exceptions */ `+SelectSettled+`
 WHERE x.settled_at >= $1 AND (x.settled_at, x.id) > ($1, $2) AND (x.state <> 'succeeded' OR x.settled_at - x.scheduled_at > interval '1 minute') AND x.kind = 'scheduled'
 ORDER BY x.settled_at, x.id LIMIT $3`, after.At, after.ID, limit)
}

func (s Store) SkipsInARow(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]int64, error) {
	return toMap(list(ctx, s, Read, "count skips", pairFields[belfry.ID, int64], `/* skips */
SELECT j.id, (SELECT coalesce(sum(greatest(h.skipped_count, 1)), 0)::bigint
    FROM (SELECT skipped_count, max(other) OVER (ORDER BY scheduled_at DESC, id DESC) AS others
            FROM (SELECT * FROM (SELECT scheduled_at, id, skipped_count, CASE WHEN `+store.UnexpectedSkip+` THEN 0 ELSE 1 END AS other FROM belfry.history
                                  WHERE job_id = j.id AND kind = 'scheduled' AND settled_at > clock_timestamp() - interval '7 days' ORDER BY scheduled_at DESC LIMIT 100) s
                   UNION ALL SELECT * FROM (SELECT scheduled_at, id, 0::bigint, 1 FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d) x) h
   WHERE h.others = 0)
  FROM unnest($1::uuid[]) AS j (id)`, jobs))
}

func (s Store) LateRuns(ctx context.Context, after belfry.ID, before time.Time, limit int) ([]belfry.Run, error) {
	return list(ctx, s, Read, "look for late runs", RunFields, `/* late runs */ `+SelectLive+` WHERE x.id > $1 AND x.id < $2 AND x.kind = 'scheduled' ORDER BY x.id LIMIT $3`,
		after, store.FirstID(before), limit)
}

func (s Store) LongRuns(ctx context.Context, before time.Time, limit int) ([]belfry.Run, error) {
	return list(ctx, s, Read, "look for long runs", RunFields, `/* long runs */ `+SelectLive+` WHERE x.state = 'running' AND x.started_at < $1 ORDER BY x.started_at LIMIT $2`, before, limit)
}

func (s Store) LastSuccess(ctx context.Context, jobs []belfry.ID, since time.Time) (map[belfry.ID]time.Time, error) {
	return toMap(list(ctx, s, Read, "look up successes", pairFields[belfry.ID, time.Time], ListSuccesses, jobs, since))
}

func (s Store) JobLabels(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]store.JobLabels, error) {
	const payload = `CASE WHEN length(payload) <= $2 THEN payload END, coalesce(length(payload) > $2, false)`
	return toMap(list(ctx, s, Read, "look up jobs", func(p *pair[belfry.ID, store.JobLabels]) []any {
		l := &p.value
		return []any{&p.key, &l.Namespace, &l.Name, &l.Tags, &l.Paused, &l.Ended, &l.Payload, &l.LargePayload}
	}, `/* job labels */
SELECT id, namespace, coalesce(name, ''), tags, state = 'paused', false, `+payload+` FROM belfry.jobs WHERE id = ANY($1::uuid[]) AND state <> 'deleted'
 UNION ALL
SELECT id, namespace, coalesce(name, ''), tags, false, true, `+payload+` FROM belfry.ended WHERE id = ANY($1::uuid[]) AND status <> 'deleted'`, jobs, store.MaxLabelPayload))
}
