package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const (
	whereDeadFilter = `WHERE x.namespace = @namespace AND x.died_at >= @since AND x.died_at < @until AND (@job IS NULL OR x.job_id = @job)
  AND (@fingerprint = '' OR x.fingerprint = @fingerprint) AND (@reason = '' OR x.reason = @reason)
  AND (@error = '' OR belfry_contains(coalesce(a.error, ''), @error)) `
)

var (
	deadTables        = translate(` FROM belfry.dead x` + sqlstore.JoinLastAttempt + ` `)
	deadLetterTables  = deadTables + translate(sqlstore.JoinJobName+` `)
	selectDeadLetters = translate(sqlstore.DeadLetterColumns) + deadLetterTables + whereDeadFilter + `AND (x.died_at, x.id) < (@before, @id) ORDER BY x.died_at DESC, x.id DESC LIMIT @limit`

	selectDeadGroups = `
SELECT fingerprint, count(*), count(DISTINCT job_id), min(died_at), max(died_at),
  max(CASE WHEN n = 1 THEN error END), max(CASE WHEN n = 1 THEN http_status END), max(CASE WHEN n = 1 THEN id END)
FROM (
  SELECT x.fingerprint, x.job_id, x.died_at, x.id, coalesce(a.error, '') AS error, coalesce(a.http_status, 0) AS http_status,
    row_number() OVER (PARTITION BY x.fingerprint ORDER BY x.died_at DESC, x.id DESC) AS n` + deadLetterTables + whereDeadFilter + `
) GROUP BY fingerprint ORDER BY 2 DESC, fingerprint LIMIT @limit`
)

func (s *Store) ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page store.Page) ([]belfry.DeadLetter, error) {
	args := append(deadFilterArgs(namespace, filter, page.Limit), sql.Named("before", timeOr(page.After.At, afterAll)), sql.Named("id", page.After.ID[:]))
	return readAll(ctx, s, "list dead letters", scanInto(func(l *belfry.DeadLetter) []any { return sharedColumns(sqlstore.DeadLetterFields(l)) }), selectDeadLetters, args...)
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
