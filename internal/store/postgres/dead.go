package postgres

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

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
	letters, err := collect(ctx, s.readPool, scanInto(func(l *belfry.DeadLetter) []any { return sharedColumns(sqlstore.DeadLetterFields(l)) }),
		fmt.Sprintf(`%s FROM (SELECT x.* FROM belfry.dead x%s WHERE %s ORDER BY x.died_at DESC, x.id DESC LIMIT $%d) x%s%s ORDER BY x.died_at DESC, x.id DESC`,
			sqlstore.DeadLetterColumns, joinFilteredError(filter), where, len(args), sqlstore.JoinLastAttempt, sqlstore.JoinJobName), append([]any{pgx.QueryExecModeExec}, args...)...)
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
 ORDER BY g.n DESC, g.last DESC, g.fingerprint`, joinFilteredError(filter), where, len(args), sqlstore.JoinLastAttempt), append([]any{pgx.QueryExecModeExec}, args...)...)
	return groups, wrapError("group dead letters", err)
}

func deadGroupFields(g *belfry.DeadGroup) []any {
	return []any{&g.Fingerprint, &g.Count, &g.Jobs, timeColumn{&g.FirstAt}, timeColumn{&g.LastAt}, idColumn(&g.LatestRunID), &g.Error, &g.HTTPStatus}
}
