package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	deadLetterColumns = deadColumns + `, r.fingerprint, coalesce(j.name, '')`
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
	return append(runFields(&l.Run), &l.Fingerprint, &l.JobName)
}

func (s *Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (belfry.DeadLetter, error) {
	return readValue(ctx, s, "look up a dead letter", func(t *tx) (belfry.DeadLetter, error) {
		letter, err := one(t, func(rows *sql.Rows, l *belfry.DeadLetter) error {
			var spec string
			err := rows.Scan(append(deadLetterFields(l), jsonColumn{&l.Payload}, &spec)...)
			l.Spec = t.specs.OrZero(spec)
			return err
		}, store.NoSuchDeadLetter(run), selectDeadLetter, run[:], namespace)
		if err == nil {
			letter.Attempts, err = t.attempts(run)
		}
		return letter, err
	})
}

func (s *Store) ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page store.Page) ([]belfry.DeadLetter, error) {
	args := append(deadFilterArgs(namespace, filter, page.Limit), sql.Named("before", timeOr(page.After.At, afterAll)), sql.Named("id", page.After.ID[:]))
	return readValue(ctx, s, "list dead letters", func(t *tx) ([]belfry.DeadLetter, error) {
		return all(t, func(rows *sql.Rows, l *belfry.DeadLetter) error { return rows.Scan(deadLetterFields(l)...) }, selectDeadLetters, args...)
	})
}

func (s *Store) GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error) {
	return readValue(ctx, s, "group dead letters", func(t *tx) ([]belfry.DeadGroup, error) {
		return all(t, func(rows *sql.Rows, g *belfry.DeadGroup) error {
			return rows.Scan(&g.Fingerprint, &g.Count, &g.Jobs, timeColumn{&g.FirstAt}, timeColumn{&g.LastAt}, &g.Error, &g.HTTPStatus, bytesColumn{g.LatestRunID[:]})
		}, selectDeadGroups, deadFilterArgs(namespace, filter, limit)...)
	})
}

// deadFilterArgs are the parameters of whereDeadFilter, and a limit.
func deadFilterArgs(namespace string, f belfry.DeadFilter, limit int) []any {
	return []any{
		sql.Named("namespace", namespace), sql.Named("since", timeOr(f.Since, beforeAll)), sql.Named("until", timeOr(f.Until, afterAll)),
		sql.Named("job", nullID(f.JobID)), sql.Named("fingerprint", f.Fingerprint), sql.Named("reason", string(f.Reason)),
		sql.Named("error", strings.ToLower(f.Error)), sql.Named("limit", atMost(limit)),
	}
}
