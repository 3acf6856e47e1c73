package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	deadLetterColumns = deadColumns + `, r.fingerprint, coalesce(j.name, ''), CASE WHEN j.state <> 'deleted' THEN j.revision ELSE 0 END, r.payload IS NOT NULL`
	deadLetterTables  = deadTables + `LEFT JOIN jobs j ON j.id = r.job_id `

	selectDeadLetter = deadLetterColumns + `, CASE WHEN r.payload IS NOT NULL THEN r.payload WHEN j.revision = r.revision THEN j.payload ELSE v.payload END,
  coalesce(CASE WHEN j.revision = r.revision THEN j.spec ELSE v.spec END, '')` + deadLetterTables + `
LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision ` + whereRun

	whereDeadFilter = `WHERE r.namespace = @namespace AND r.died_at >= @since AND r.died_at < @until AND (@job IS NULL OR r.job_id = @job)
  AND (@fingerprint = '' OR r.fingerprint = @fingerprint) AND (@reason = '' OR r.reason = @reason)
  AND (@error = '' OR belfry_contains(coalesce(a.error, ''), @error)) `

	selectDeadLetters = deadLetterColumns + deadLetterTables + whereDeadFilter + `AND (r.died_at, r.id) < (@before, @id) ORDER BY r.died_at DESC, r.id DESC LIMIT @limit`

	selectDeadGroups = `
SELECT fingerprint, count(*), count(DISTINCT job_id), min(died_at), max(died_at),
  max(CASE WHEN n = 1 THEN error END), max(CASE WHEN n = 1 THEN http_status END), max(CASE WHEN n = 1 THEN id END)
FROM (
  SELECT r.fingerprint, r.job_id, r.died_at, r.id, coalesce(a.error, '') AS error, coalesce(a.http_status, 0) AS http_status,
    row_number() OVER (PARTITION BY r.fingerprint ORDER BY r.died_at DESC, r.id DESC) AS n` + deadLetterTables + whereDeadFilter + `
) GROUP BY fingerprint ORDER BY 2 DESC, fingerprint LIMIT @limit`
)

func deadLetterFields(l *belfry.DeadLetter) []any {
	return append(runFields(&l.Run), &l.Fingerprint, &l.JobName, &l.JobRevision, &l.HasPayload)
}

func (s *Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (belfry.DeadLetter, error) {
	return readValue(ctx, s, "look up a dead letter", func(t *tx) (belfry.DeadLetter, error) {
		letter, err := one(t, func(rows *sql.Rows, l *belfry.DeadLetter) error {
			var spec string
			err := rows.Scan(append(deadLetterFields(l), jsonColumn{&l.Payload}, &spec)...)
			l.Spec = t.specs.OrZero(spec)
			return err
		}, store.NoSuch("dead letter", run), selectDeadLetter, run[:], namespace)
		if err == nil {
			letter.Attempts, err = t.attempts(run)
		}
		return letter, err
	})
}

func (s *Store) ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page store.Page) ([]belfry.DeadLetter, error) {
	args := append(deadFilterArgs(namespace, filter, page.Limit), sql.Named("before", timeOr(page.After.At, afterAll)), sql.Named("id", page.After.ID[:]))
	return readAll(ctx, s, "list dead letters", scanInto(deadLetterFields), selectDeadLetters, args...)
}

func (s *Store) GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error) {
	fields := func(g *belfry.DeadGroup) []any {
		return []any{&g.Fingerprint, &g.Count, &g.Jobs, timeColumn{&g.FirstAt}, timeColumn{&g.LastAt}, &g.Error, &g.HTTPStatus, bytesColumn{g.LatestRunID[:]}}
	}
	return readAll(ctx, s, "group dead letters", scanInto(fields), selectDeadGroups, deadFilterArgs(namespace, filter, limit)...)
}

// deadFilterArgs are the parameters of whereDeadFilter, and a limit.
func deadFilterArgs(namespace string, f belfry.DeadFilter, limit int) []any {
	return []any{
		sql.Named("namespace", namespace), sql.Named("since", timeOr(f.Since, beforeAll)), sql.Named("until", timeOr(f.Until, afterAll)),
		sql.Named("job", nullID(f.JobID)), sql.Named("fingerprint", f.Fingerprint), sql.Named("reason", string(f.Reason)),
		sql.Named("error", strings.ToLower(f.Error)), sql.Named("limit", atMost(limit)),
	}
}

const (
	selectRedrive = `SELECT r.job_id, r.revision, r.lane, r.timeout_ms, r.weight, r.retention_days, coalesce(CASE WHEN j.revision = r.revision THEN j.spec ELSE v.spec END, ''),
  EXISTS (SELECT 1 FROM runs o WHERE o.job_id = r.job_id)
FROM dead r LEFT JOIN jobs j ON j.id = r.job_id LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision ` + whereRun

	insertRedriven = `INSERT INTO runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, failures, lost, payload, key, weight, one_off, retention_days)
SELECT id, shard, namespace, job_id, ?, kind, ?, ?, ?, scheduled_at, ?, fired_at, fired_by,
  epoch, ?, attempt, 0, 0, coalesce(?, payload), key, ?, one_off, ? FROM dead WHERE id = ? ON CONFLICT (id) DO NOTHING`

	deleteDead = `DELETE FROM dead WHERE id = ? AND namespace = ? RETURNING job_id, one_off`

	// A fire that has not seen the redriven run must decide again.
	bumpPlanVersion = `UPDATE plans SET version = version + 1 WHERE job_id = ?`

	discardDead = insertHistory + `SELECT r.id, r.shard, r.namespace, r.job_id, r.revision, r.kind, 'discarded', r.reason, r.scheduled_at, r.ready_at, r.fired_at, r.fired_by,
  r.epoch, r.attempt, a.worker, a.token, r.started_at, ?, coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), 0, r.key,
  ? + r.retention_days * 86400000000` + deadTables + whereRun
)

// Redrive takes the dead letters in the order of their ids, which is that of their
// scheduled instants: the earliest of a job comes first.
func (s *Store) Redrive(ctx context.Context, namespace string, list []store.Redrive) (int, error) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b store.Redrive) int { return a.Run.Compare(b.Run) })
	return writeValue(ctx, s, "redrive dead letters", func(t *tx) (redriven int, err error) {
		for i := range list {
			done, err := t.redrive(namespace, &list[i])
			if err != nil {
				return 0, err
			}
			if done {
				redriven++
			}
		}
		return redriven, nil
	})
}

func (t *tx) redrive(namespace string, r *store.Redrive) (done bool, err error) {
	var (
		job               belfry.ID
		revision          int
		lane, text        string
		timeoutMS, weight int64
		retention         any
		live              bool
	)
	found, err := t.find([]any{bytesColumn{job[:]}, &revision, &lane, &timeoutMS, &weight, &retention, &text, &live}, selectRedrive, r.Run[:], namespace)
	if err != nil || !found {
		return false, err
	}
	spec := t.specs.OrZero(text)
	if r.Job != nil {
		spec = r.Job.Spec
		revision, lane, timeoutMS, weight = r.Job.Revision, spec.Lane(namespace), spec.Timeout().Milliseconds(), r.Weight
		retention = nullDays(spec.RetentionDays)
	}
	at, state := t.now.Add(max(r.After, 0)).Truncate(time.Microsecond), belfry.RunReady
	switch {
	case live && spec.Serial():
		state = belfry.RunWaiting
	case at.After(t.now):
		state = belfry.RunRetry
	}
	n, err := t.exec(insertRedriven, revision, lane, string(state), plan.Rank(at, weight), micro(at), timeoutMS, nullText(r.Payload), weight, retention, r.Run[:])
	if err != nil || n == 0 {
		return false, err
	}
	if _, _, err := t.deleteDead(namespace, r.Run); err != nil {
		return false, err
	}
	if err := t.run(redriveKey, micro(t.now), r.Run[:]); err != nil {
		return false, err
	}
	if err := t.run(bumpPlanVersion, job[:]); err != nil {
		return false, err
	}
	t.changes.planWritten(job)
	t.changes.ready = t.changes.ready || state == belfry.RunReady
	return true, nil
}

// deleteDead deletes a dead letter, which must exist.
func (t *tx) deleteDead(namespace string, run belfry.ID) (job belfry.ID, oneOff bool, err error) {
	err = t.get([]any{bytesColumn{job[:]}, &oneOff}, deleteDead, run[:], namespace)
	return job, oneOff, err
}

func (s *Store) Discard(ctx context.Context, namespace string, runs []belfry.ID) (int, error) {
	return writeValue(ctx, s, "discard dead letters", func(t *tx) (discarded int, err error) {
		for _, run := range runs {
			n, err := t.exec(discardDead, micro(t.now), micro(t.now), run[:], namespace)
			if err != nil {
				return 0, err
			}
			if n == 0 {
				continue
			}
			discarded++
			job, oneOff, err := t.deleteDead(namespace, run)
			if err == nil && oneOff {
				_, err = t.archive(job)
			}
			if err != nil {
				return 0, err
			}
		}
		return discarded, nil
	})
}

func (s *Store) CountDead(ctx context.Context, namespace string, limit int) (int, error) {
	return readValue(ctx, s, "count dead letters", func(t *tx) (n int, err error) {
		err = t.get([]any{&n}, `SELECT count(*) FROM (SELECT 1 FROM dead WHERE namespace = ? LIMIT ?)`, namespace, atMost(limit))
		return n, err
	})
}
