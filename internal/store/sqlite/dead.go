package sqlite

import (
	"context"
	"database/sql"
	"math"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	// selectDead reads a dead letter as fromDead does, and what is more about it.
	selectDead = `SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, 'dead', r.scheduled_at, r.ready_at, r.fired_at, r.attempt,
  r.started_at, r.died_at, a.worker, coalesce(a.http_status, 0), coalesce(a.output, ''), coalesce(a.error, ''), r.reason, NULL, 0,
  NULL, coalesce(r.key, ''), r.fingerprint, coalesce(j.name, '')`

	fromLetters = `
FROM dead r LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt LEFT JOIN jobs j ON j.id = r.job_id `

	selectDeadLetter = selectDead + `, CASE WHEN r.payload IS NOT NULL THEN r.payload WHEN j.revision = r.revision THEN j.payload ELSE v.payload END,
  coalesce(CASE WHEN j.revision = r.revision THEN j.spec ELSE v.spec END, '')` + fromLetters + `
LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision ` + whereRun

	passesDead = `WHERE r.namespace = @namespace AND r.died_at >= @since AND r.died_at < @until AND (@job IS NULL OR r.job_id = @job)
  AND (@fingerprint = '' OR r.fingerprint = @fingerprint) AND (@reason = '' OR r.reason = @reason)
  AND (@error = '' OR belfry_contains(coalesce(a.error, ''), @error)) `

	selectDeadLetters = selectDead + fromLetters + passesDead + `AND (r.died_at, r.id) < (@before, @id) ORDER BY r.died_at DESC, r.id DESC LIMIT @limit`

	selectDeadGroups = `
SELECT fingerprint, count(*), count(DISTINCT job_id), min(died_at), max(died_at),
  max(CASE WHEN n = 1 THEN error END), max(CASE WHEN n = 1 THEN http_status END), max(CASE WHEN n = 1 THEN id END)
FROM (
  SELECT r.fingerprint, r.job_id, r.died_at, r.id, coalesce(a.error, '') AS error, coalesce(a.http_status, 0) AS http_status,
    row_number() OVER (PARTITION BY r.fingerprint ORDER BY r.died_at DESC, r.id DESC) AS n` + fromLetters + passesDead + `
) GROUP BY fingerprint ORDER BY 2 DESC, fingerprint LIMIT @limit`
)

// DeadLetter finds a dead letter with its payload, its spec and its attempts.
func (s *Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (letter belfry.DeadLetter, err error) {
	err = s.read(ctx, "look up a dead letter", func(t *tx) error {
		letters, err := all(t, func(rows *sql.Rows, l *belfry.DeadLetter) error {
			var spec string
			err := rows.Scan(append(letterFields(l), payload{&l.Payload}, &spec)...)
			l.Spec = t.specs.OrZero(spec)
			return err
		}, selectDeadLetter, run[:], namespace)
		if err != nil {
			return err
		}
		if len(letters) == 0 {
			return belfry.Errorf(belfry.NotFound, "there is no dead letter %s", run)
		}
		letter = letters[0]
		letter.Attempts, err = t.attempts(run)
		return err
	})
	if err != nil {
		return belfry.DeadLetter{}, err
	}
	return letter, nil
}

func letterFields(l *belfry.DeadLetter) []any {
	return append(runFields(&l.Run), &l.Fingerprint, &l.JobName)
}

// DeadLetters gives the dead letters that pass the filter, the latest death first.
func (s *Store) ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page store.Page) (letters []belfry.DeadLetter, err error) {
	before := int64(math.MaxInt64)
	if !page.After.At.IsZero() {
		before = micro(page.After.At)
	}
	args := append(deadArgs(namespace, filter, page.Limit), sql.Named("before", before), sql.Named("id", page.After.ID[:]))
	err = s.read(ctx, "list dead letters", func(t *tx) error {
		letters, err = all(t, func(rows *sql.Rows, l *belfry.DeadLetter) error { return rows.Scan(letterFields(l)...) }, selectDeadLetters, args...)
		return err
	})
	return letters, err
}

// DeadGroups counts the dead letters that pass the filter by the kind of their
// failure, the largest group first.
func (s *Store) GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) (groups []belfry.DeadGroup, err error) {
	err = s.read(ctx, "group dead letters", func(t *tx) error {
		groups, err = all(t, func(rows *sql.Rows, g *belfry.DeadGroup) error {
			return rows.Scan(&g.Fingerprint, &g.Count, &g.Jobs, moment{&g.FirstAt}, moment{&g.LastAt}, &g.Error, &g.HTTPStatus, key{g.LatestRunID[:]})
		}, selectDeadGroups, deadArgs(namespace, filter, limit)...)
		return err
	})
	return groups, err
}

// deadArgs are the parameters of passesDead, and a limit.
func deadArgs(namespace string, f belfry.DeadFilter, limit int) []any {
	since, until := int64(math.MinInt64), int64(math.MaxInt64)
	if !f.Since.IsZero() {
		since = micro(f.Since)
	}
	if !f.Until.IsZero() {
		until = micro(f.Until)
	}
	var job any
	if !f.JobID.IsZero() {
		job = f.JobID[:]
	}
	return []any{
		sql.Named("namespace", namespace), sql.Named("since", since), sql.Named("until", until), sql.Named("job", job),
		sql.Named("fingerprint", f.Fingerprint), sql.Named("reason", string(f.Reason)), sql.Named("error", strings.ToLower(f.Error)),
		sql.Named("limit", atMost(limit)),
	}
}
