package sqlite

import (
	"context"
	dbsql "database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// dialect is what PostgreSQL's words are in SQLite, in the order in which they are replaced.
var dialect = []struct {
	words *regexp.Regexp
	by    string
}{
	{regexp.MustCompile(`\bbelfry\.`), ``},
	{regexp.MustCompile(` = ANY\((\$\d)::uuid\[\]\)`), ` IN (SELECT unhex(value, '-') FROM json_each($1))`},
	{regexp.MustCompile(` = ANY\((\$\d)::(?:integer|text)\[\]\)`), ` IN (SELECT value FROM json_each($1))`},
	{regexp.MustCompile(`\bunnest\((\$\d)::uuid\[\]\) AS (\w+) \(id\)`), `(SELECT unhex(value, '-') AS id FROM json_each($1)) $2`},
	{regexp.MustCompile(`\bunnest\((\$\d)::uuid\[\], (\$\d)::text\[\]\) AS (\w+) \((\w+), (\w+)\)`), `(SELECT unhex(value, '-') AS $4, $2 ->> key AS $5 FROM json_each($1)) $3`},
	{regexp.MustCompile(`::\w+`), ``}, // types
	{regexp.MustCompile(`\$(\d)`), `?$1`},
	{regexp.MustCompile(`\bclock_timestamp\(\)`), `?15`}, // see nowArg
	{regexp.MustCompile(`\bgreatest\(`), `max(`},
	{regexp.MustCompile(`\bstrpos\(`), `instr(`},
	{regexp.MustCompile(` FOR UPDATE( OF \w| SKIP LOCKED)?| COLLATE "C"`), ``},
	{regexp.MustCompile(`\binterval '1 minute'`), `60000000`},
	{regexp.MustCompile(`\binterval '24 hours'`), `86400000000`},
	{regexp.MustCompile(`\binterval '(\d) seconds'`), `${1}*1000000`},
	{regexp.MustCompile(`\binterval '(\d) days?'`), `${1}*86400000000`},
}

// nowArg is the number of the argument that is the time of the transaction. No statement has
// so many others.
const nowArg = 15

var translations sync.Map // by statement

func translate(sql string) string {
	if translated, ok := translations.Load(sql); ok {
		return translated.(string)
	}
	translated := sql
	for _, d := range dialect {
		translated = d.words.ReplaceAllString(translated, d.by)
	}
	translations.Store(sql, translated)
	return translated
}

// Do executes statements of the part that all stores in SQL share.
func (s *Store) Do(ctx context.Context, access sqlstore.Access, doing string, f func(sqlstore.Tx) error) error {
	run := s.read
	if access >= sqlstore.Write {
		run = s.write
	}
	return run(ctx, doing, func(t *tx) error { return f(sharedTx{t}) })
}

// RunScan leaves the few running runs to be sorted.
func (s *Store) RunScan(table string, status belfry.RunStatus) string {
	switch {
	case table == "history":
		return `history WHERE namespace = $3`
	case status == belfry.RunRunning:
		return `runs INDEXED BY runs_running WHERE state = 'running'`
	}
	return table + ` WHERE true`
}

func (s *Store) Contains(text, part string, add func(any) string) string {
	return `belfry_contains(` + text + `, ` + add(strings.ToLower(part)) + `)`
}

func (s *Store) ArchiveFinished(t sqlstore.Tx, jobs []belfry.ID) error {
	_, err := t.(sharedTx).archive(jobs...)
	return err
}

func (s *Store) NotifyWritten(jobs []belfry.ID, ready bool) {
	s.notify(&changes{plans: len(jobs) > 0, jobs: jobs, ready: ready})
}

type sharedTx struct{ *tx }

func (t sharedTx) Exec(sql string, args ...any) (int, error) {
	n, err := t.exec(translate(sql), t.sharedArgs(sql, args)...)
	if errorCode(err) == codes.SQLITE_CONSTRAINT_UNIQUE {
		err = fmt.Errorf("%w: %w", sqlstore.ErrTaken, err)
	}
	return n, err
}

func (t sharedTx) ExecEach(sql string, args [][]any) (changed []int, err error) {
	for _, args := range args {
		n, err := t.Exec(sql, args...)
		if err != nil {
			return nil, err
		}
		changed = append(changed, n)
	}
	return changed, nil
}

func (t sharedTx) Query(columns []any, next func(), sql string, args ...any) error {
	columns = sharedColumns(columns)
	_, err := all(t.tx, func(rows *dbsql.Rows, _ *struct{}) error {
		err := rows.Scan(columns...)
		if err == nil {
			next()
		}
		return err
	}, translate(sql), t.sharedArgs(sql, args)...)
	return err
}

func sharedColumns(columns []any) []any {
	for i, to := range columns {
		switch to := to.(type) {
		case *belfry.ID:
			columns[i] = bytesColumn{to[:]}
		case *belfry.Token:
			columns[i] = bytesColumn{to[:]}
		case *store.Digest:
			columns[i] = bytesColumn{to[:]}
		case *time.Time:
			columns[i] = timeColumn{to}
		case **time.Time:
			columns[i] = nullTimeColumn{to}
		case *json.RawMessage:
			columns[i] = jsonColumn{to}
		case *[]string:
			columns[i] = stringsColumn{to}
		}
	}
	return columns
}

func (t sharedTx) sharedArgs(sql string, args []any) []any {
	out := make([]any, len(args), nowArg)
	for i, arg := range args {
		switch v := arg.(type) {
		case belfry.ID:
			out[i] = v[:]
		case belfry.Token:
			out[i] = v[:]
		case time.Time:
			out[i] = micro(v)
		case *time.Time:
			if v != nil {
				out[i] = micro(*v)
			}
		case time.Duration:
			out[i] = v.Microseconds()
		case []belfry.ID:
			out[i] = idsJSON(v)
		case []int:
			out[i] = shardsJSON(v)
		case []string:
			out[i] = string(belfry.MustJSON(append([]string{}, v...)))
		default:
			out[i] = arg
		}
	}
	if strings.Contains(sql, "clock_timestamp()") {
		out = out[:nowArg]
		out[nowArg-1] = micro(t.now)
	}
	return out
}
