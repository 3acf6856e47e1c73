package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// deadColumns reads dead letters x, with their last attempts a and their jobs j.
var deadColumns = strings.TrimSuffix(selectDead, " FROM ") + `, x.fingerprint, coalesce(j.name, ''), CASE WHEN j.state <> 'deleted' THEN j.revision ELSE 0 END, x.payload IS NOT NULL`

const joinJobName = ` LEFT JOIN belfry.jobs j ON j.id = x.job_id`

func (s *Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (belfry.DeadLetter, error) {
	letter, err := collectOne(ctx, s.readPool, func(row pgx.CollectableRow) (belfry.DeadLetter, error) {
		var letter belfry.DeadLetter
		var spec string
		err := row.Scan(append(deadLetterFields(&letter), &spec, jsonColumn{&letter.Payload})...)
		letter.Spec = s.specs.OrZero(spec)
		return letter, err
	}, func() error { return store.NoSuch("dead letter", run) },
		deadColumns+`, coalesce(v.spec, j.spec, ''), coalesce(x.payload, CASE WHEN v.job_id IS NULL THEN j.payload ELSE v.payload END)
		FROM belfry.dead x`+joinLastAttempt+joinJobName+`
		LEFT JOIN belfry.revisions v ON v.job_id = x.job_id AND v.revision = x.revision AND x.revision <> j.revision
		WHERE x.namespace = $1 AND x.id = $2`, namespace, uuid(run))
	if err == nil {
		letter.Attempts, err = s.attempts(ctx, run)
	}
	return letter, wrapError("look up a dead letter", err)
}

func deadLetterFields(l *belfry.DeadLetter) []any {
	return append(runFields(&l.Run), &l.Fingerprint, &l.JobName, &l.JobRevision, &l.HasPayload)
}

// deadCondition is the filter on a dead letter x of a namespace and its last attempt a
// in SQL, with its arguments.
func deadCondition(namespace string, f belfry.DeadFilter) (sql string, args []any) {
	var b strings.Builder
	args = []any{namespace}
	and := func(format string, value any) {
		args = append(args, value)
		fmt.Fprintf(&b, " AND "+format, len(args))
	}
	b.WriteString("x.namespace = $1")
	if !f.JobID.IsZero() {
		and("x.job_id = $%d", uuid(f.JobID))
	}
	if !f.Since.IsZero() {
		and("x.died_at >= $%d", f.Since)
	}
	if !f.Until.IsZero() {
		and("x.died_at < $%d", f.Until)
	}
	if f.Fingerprint != "" {
		and("x.fingerprint = $%d", storable(f.Fingerprint))
	}
	if f.Reason != "" {
		and("x.reason = $%d", storable(string(f.Reason)))
	}
	if f.Error != "" {
		part := storable(f.Error)
		// ASCII is searched for first, which is by far the fastest.
		and(`CASE WHEN strpos(lower(a.error COLLATE "C"), $%d) = 0 THEN false`, strings.ToLower(longestASCII(part)))
		if _, pattern := containsPattern(part); longestASCII(part) != part {
			args = append(args, pattern)
			fmt.Fprintf(&b, " WHEN NOT a.error ILIKE $%d THEN false", len(args))
		}
		b.WriteString(" ELSE a.error IS NOT NULL END")
	}
	return b.String(), args
}

// longestASCII is the longest part of a text that is ASCII.
func longestASCII(text string) (longest string) {
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r > unicode.MaxASCII }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// joinFilteredError joins the last attempt of each dead letter if the filter has an
// error. The OFFSET forces a lookup for each: there are far more attempts.
func joinFilteredError(f belfry.DeadFilter) string {
	if f.Error == "" {
		return ""
	}
	return ` LEFT JOIN LATERAL (SELECT error FROM belfry.attempts WHERE run_id = x.id AND attempt = x.attempt OFFSET 0) a ON true`
}

// ListDeadLetters joins attempts and jobs to the dead letters of the page only.
func (s *Store) ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page store.Page) ([]belfry.DeadLetter, error) {
	where, args := deadCondition(namespace, filter)
	if !page.After.At.IsZero() {
		args = append(args, page.After.At, notNull(page.After.ID))
		where += fmt.Sprintf(" AND (x.died_at, x.id) < ($%d, $%d)", len(args)-1, len(args))
	}
	args = append(args, max(page.Limit, 0))
	letters, err := collect(ctx, s.readPool, scanInto(deadLetterFields),
		fmt.Sprintf(`%s FROM (SELECT x.* FROM belfry.dead x%s WHERE %s ORDER BY x.died_at DESC, x.id DESC LIMIT $%d) x%s%s ORDER BY x.died_at DESC, x.id DESC`,
			deadColumns, joinFilteredError(filter), where, len(args), joinLastAttempt, joinJobName), append([]any{pgx.QueryExecModeExec}, args...)...)
	return letters, wrapError("list dead letters", err)
}

func (s *Store) GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error) {
	where, args := deadCondition(namespace, filter)
	args = append(args, max(limit, 0))
	groups, err := collect(ctx, s.readPool, scanInto(deadGroupFields), fmt.Sprintf(`
WITH per_job AS (SELECT x.fingerprint, count(*) AS n, min(x.died_at) AS first, max(x.died_at) AS last FROM belfry.dead x%[1]s WHERE %[2]s GROUP BY x.fingerprint, x.job_id),
grouped AS MATERIALIZED (SELECT fingerprint, sum(n)::bigint AS n, count(*) AS jobs, min(first) AS first, max(last) AS last FROM per_job
                          GROUP BY fingerprint ORDER BY sum(n) DESC, max(last) DESC, fingerprint LIMIT $%[3]d)
SELECT g.fingerprint, g.n, g.jobs, g.first, g.last, x.id, coalesce(a.error, ''), coalesce(a.http_status, 0)
  FROM grouped g
 CROSS JOIN LATERAL (SELECT x.id, x.attempt FROM belfry.dead x%[1]s WHERE %[2]s AND x.died_at = g.last AND x.fingerprint = g.fingerprint ORDER BY x.id DESC LIMIT 1) x
%[4]s
 ORDER BY g.n DESC, g.last DESC, g.fingerprint`, joinFilteredError(filter), where, len(args), joinLastAttempt), append([]any{pgx.QueryExecModeExec}, args...)...)
	return groups, wrapError("group dead letters", err)
}

func (s *Store) CountDead(ctx context.Context, namespace string, limit int) (n int, err error) {
	err = s.readPool.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM belfry.dead WHERE namespace = $1 LIMIT $2) d`, namespace, limit).Scan(&n)
	return n, wrapError("count dead letters", err)
}

func deadGroupFields(g *belfry.DeadGroup) []any {
	return []any{&g.Fingerprint, &g.Count, &g.Jobs, timeColumn{&g.FirstAt}, timeColumn{&g.LastAt}, idColumn(&g.LatestRunID), &g.Error, &g.HTTPStatus}
}

// Redrive makes runs of dead letters again. It locks the plans of their jobs and raises
// their versions first, so that a step that was decided before is not applied: it did
// not count the run.
func (s *Store) Redrive(ctx context.Context, namespace string, list []store.Redrive) (int, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var states []belfry.RunStatus
	jobs := map[belfry.ID]bool{}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		clear(jobs)
		serial, err := s.lockRedrivePlans(ctx, tx, namespace, list, jobs)
		if err == nil && len(serial) > 0 {
			states, err = redriveRuns(ctx, tx, namespace, list, serial)
		}
		return err
	})
	if err != nil {
		return 0, wrapError("redrive", err)
	}
	if len(jobs) > 0 {
		s.notifier.notifyPlans(len(jobs) > maxInsertJobs, slices.Collect(maps.Keys(jobs))...)
	}
	if slices.Contains(states, belfry.RunReady) {
		s.notifier.notifyReady()
	}
	return len(states), nil
}

// lockRedrivePlans locks the plans of the jobs whose dead letters are in the list, in
// the order of their ids, and collects the jobs. It reports for each existing dead
// letter whether its run is serial.
func (s *Store) lockRedrivePlans(ctx context.Context, tx pgx.Tx, namespace string, list []store.Redrive, jobs map[belfry.ID]bool) (map[belfry.ID]bool, error) {
	ids := column(list, func(r *store.Redrive) pgtype.UUID { return uuid(r.Run) })
	current := map[belfry.ID]*belfry.Job{}
	for _, r := range list {
		current[r.Run] = r.Job
	}
	var (
		serial  = map[belfry.ID]bool{}
		locked  []pgtype.UUID
		id, job belfry.ID
		spec    string
	)
	err := forEach(ctx, tx, []any{idColumn(&id), idColumn(&job), &spec}, func() error {
		if serial[id] = s.specs.OrZero(spec).Serial(); current[id] != nil {
			serial[id] = current[id].Serial()
		}
		if !jobs[job] {
			jobs[job], locked = true, append(locked, uuid(job))
		}
		return nil
	}, `/* redrive */ SELECT r.id, r.job_id, coalesce(v.spec, j.spec) FROM belfry.dead r`+joinRevision+` WHERE r.namespace = $1 AND r.id = ANY($2)`, namespace, ids)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	_, err = tx.Exec(ctx, `/* redrive */
WITH locked AS MATERIALIZED (SELECT job_id FROM belfry.plans WHERE job_id = ANY($1) ORDER BY job_id FOR UPDATE)
UPDATE belfry.plans p SET version = p.version + 1 FROM locked WHERE p.job_id = locked.job_id`, locked)
	return serial, err
}

// redriveSQL moves dead letters to the live runs. Of several of one job the earliest
// comes first, and a serial run waits for all that are live.
const redriveSQL = `/* redrive */
WITH request AS MATERIALIZED (
  SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::boolean[], $6::integer[], $7::text[], $8::bigint[], $9::bigint[], $10::integer[])
      AS q (run_id, delay, new_payload, serial, new_revision, new_lane, new_timeout_ms, new_weight, new_retention_days)
), locked AS MATERIALIZED (
  SELECT id FROM belfry.dead WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR UPDATE
), deleted AS (
  DELETE FROM belfry.dead d USING locked JOIN request ON request.run_id = locked.id WHERE d.id = locked.id
  RETURNING d.*, request.*
), queued AS MATERIALIZED (
  SELECT *, CASE WHEN new_revision IS NULL THEN weight ELSE new_weight END AS run_weight, clock_timestamp() + delay * interval '1 microsecond' AS retry_at,
         serial AND (row_number() OVER (PARTITION BY job_id ORDER BY scheduled_at, id) > 1 OR EXISTS (SELECT 1 FROM belfry.runs x WHERE x.job_id = deleted.job_id)) AS waits
    FROM deleted
)
INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                         timeout_ms, attempt, failures, lost, payload, key, weight, one_off, retention_days)
SELECT id, shard, namespace, job_id, coalesce(new_revision, revision), kind, coalesce(new_lane, lane), CASE WHEN waits THEN 'waiting' WHEN delay > 0 THEN 'retry' ELSE 'ready' END,
       (extract(epoch FROM retry_at) * 1000000)::bigint + run_weight, scheduled_at, retry_at, fired_at, fired_by, epoch,
       coalesce(new_timeout_ms, timeout_ms), attempt, 0, 0, coalesce(new_payload, payload), key, run_weight, one_off,
       CASE WHEN new_revision IS NULL THEN retention_days ELSE new_retention_days END
  FROM queued
RETURNING state`

// redriveRuns returns the states of the new runs.
func redriveRuns(ctx context.Context, tx pgx.Tx, namespace string, list []store.Redrive, serial map[belfry.ID]bool) ([]belfry.RunStatus, error) {
	var found []store.Redrive
	var serials []bool
	for _, r := range list {
		if isSerial, ok := serial[r.Run]; ok {
			delete(serial, r.Run) // a repetition in the list does nothing
			found, serials = append(found, r), append(serials, isSerial)
		}
	}
	return collect(ctx, tx, pgx.RowTo[belfry.RunStatus], redriveSQL, namespace,
		column(found, func(r *store.Redrive) pgtype.UUID { return uuid(r.Run) }),
		column(found, func(r *store.Redrive) int64 { return max(r.After.Microseconds(), 0) }),
		column(found, func(r *store.Redrive) pgtype.Text { return text(string(r.Payload)) }), serials,
		columnOf(found, func(j *belfry.Job) int { return j.Revision }),
		columnOf(found, func(j *belfry.Job) string { return storable(j.Lane(namespace)) }),
		columnOf(found, func(j *belfry.Job) int64 { return j.Timeout().Milliseconds() }),
		column(found, func(r *store.Redrive) int64 { return r.Weight }),
		column(found, func(r *store.Redrive) pgtype.Int4 {
			if r.Job == nil {
				return pgtype.Int4{}
			}
			return retentionDays(r.Job.RetentionDays)
		}))
}

// columnOf is a value of the current job of each dead letter, null where it has none.
func columnOf[T any](list []store.Redrive, value func(*belfry.Job) T) []*T {
	return column(list, func(r *store.Redrive) *T {
		if r.Job == nil {
			return nil
		}
		v := value(r.Job)
		return &v
	})
}

func (s *Store) Discard(ctx context.Context, namespace string, runs []belfry.ID) (int, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	discarded := 0
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var (
			job     belfry.ID
			oneOff  bool
			oneOffs []belfry.ID
		)
		discarded = 0
		err := forEach(ctx, tx, []any{idColumn(&job), &oneOff}, func() error {
			discarded++
			if oneOff {
				oneOffs = append(oneOffs, job)
			}
			return nil
		}, `/* discard */
WITH locked AS MATERIALIZED (
  SELECT id FROM belfry.dead WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR UPDATE
), deleted AS (
  DELETE FROM belfry.dead d USING locked WHERE d.id = locked.id RETURNING d.*
), settled AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
  SELECT x.id, x.shard, x.namespace, x.job_id, x.revision, x.kind, 'discarded', x.reason, x.scheduled_at, x.ready_at, x.fired_at, x.fired_by, x.epoch,
         x.attempt, a.worker, a.token, x.started_at, clock_timestamp(), coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), 0, x.key,
         clock_timestamp() + x.retention_days * interval '24 hours'
    FROM deleted x`+joinLastAttempt+`
)
SELECT job_id, one_off FROM deleted`, namespace, uuids(runs))
		if err != nil {
			return err
		}
		return s.archive(ctx, tx, oneOffs)
	})
	return discarded, wrapError("discard", err)
}
