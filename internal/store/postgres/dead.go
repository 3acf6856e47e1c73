package postgres

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// deadColumns reads dead letters x, with their last attempts a and their jobs j.
var deadColumns = strings.TrimSuffix(selectDead, " FROM ") + `, x.fingerprint, coalesce(j.name, '')`

const joinJobName = ` LEFT JOIN belfry.jobs j ON j.id = x.job_id`

// DeadLetter finds a dead letter with its spec, payload and attempts.
func (s *Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (belfry.DeadLetter, error) {
	letter, err := collectOne(ctx, s.pool, func(row pgx.CollectableRow) (belfry.DeadLetter, error) {
		var spec string
		var payload pgtype.Text
		letter, err := scanDeadLetterAnd(row, &spec, &payload)
		letter.Spec, letter.Payload = s.specs.OrZero(spec), rawJSON(payload)
		return letter, err
	}, func() error { return store.NoSuchDeadLetter(run) },
		deadColumns+`, coalesce(v.spec, j.spec, ''), coalesce(x.payload, CASE WHEN v.job_id IS NULL THEN j.payload ELSE v.payload END)
		FROM belfry.dead x`+joinLastAttempt+joinJobName+`
		LEFT JOIN belfry.revisions v ON v.job_id = x.job_id AND v.revision = x.revision AND x.revision <> j.revision
		WHERE x.namespace = $1 AND x.id = $2`, namespace, uuid(run))
	if err == nil {
		letter.Attempts, err = s.attempts(ctx, run)
	}
	return letter, wrapError("look up a dead letter", err)
}

func scanDeadLetter(row pgx.CollectableRow) (belfry.DeadLetter, error) { return scanDeadLetterAnd(row) }

// scanDeadLetterAnd reads deadColumns, and more.
func scanDeadLetterAnd(row pgx.CollectableRow, more ...any) (letter belfry.DeadLetter, err error) {
	var scan runScan
	err = row.Scan(append(append(scan.fields(), &letter.Fingerprint, &letter.JobName), more...)...)
	letter.Run = scan.result()
	return letter, err
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

// ListDeadLetters returns the dead letters that pass the filter, the latest death
// first. Attempts and jobs are joined to those of the page only.
func (s *Store) ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page store.Page) ([]belfry.DeadLetter, error) {
	if page.Limit < 1 {
		return nil, nil
	}
	where, args := deadCondition(namespace, filter)
	if !page.After.At.IsZero() {
		args = append(args, page.After.At, notNull(page.After.ID))
		where += fmt.Sprintf(" AND (x.died_at, x.id) < ($%d, $%d)", len(args)-1, len(args))
	}
	args = append(args, page.Limit)
	letters, err := collect(ctx, s.pool, scanDeadLetter,
		fmt.Sprintf(`%s FROM (SELECT x.* FROM belfry.dead x%s WHERE %s ORDER BY x.died_at DESC, x.id DESC LIMIT $%d) x%s%s ORDER BY x.died_at DESC, x.id DESC`,
			deadColumns, joinFilteredError(filter), where, len(args), joinLastAttempt, joinJobName), append([]any{pgx.QueryExecModeExec}, args...)...)
	return letters, wrapError("list dead letters", err)
}

// GroupDeadLetters counts the dead letters that pass the filter by fingerprint, the
// largest group first.
func (s *Store) GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error) {
	if limit < 1 {
		return nil, nil
	}
	where, args := deadCondition(namespace, filter)
	args = append(args, limit)
	groups, err := collect(ctx, s.pool, scanDeadGroup, fmt.Sprintf(`
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

func scanDeadGroup(row pgx.CollectableRow) (g belfry.DeadGroup, err error) {
	var latest pgtype.UUID
	err = row.Scan(&g.Fingerprint, &g.Count, &g.Jobs, &g.FirstAt, &g.LastAt, &latest, &g.Error, &g.HTTPStatus)
	g.LatestRunID, g.FirstAt, g.LastAt = latest.Bytes, g.FirstAt.UTC(), g.LastAt.UTC()
	return g, err
}
