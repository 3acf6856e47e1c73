package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
)

// lookups are statements on the path of a run, which must look up what they need.
var lookups = map[string]struct {
	sql    string
	params int
}{
	"fire simple steps": {fireSimpleSQL, 25},
	"claim":             {claimSQL, 6},
	"succeed":           {succeedSQL, 8},
	"archive":           {archiveSucceededSQL, 3},
	"fail":              {failSQL, 15},
	"fire":              {fireSQL[fireVariant{}], 44},
	"fire with keys":    {fireSQL[fireVariant{keys: true}], 44},
}

// A plan that was made while there were few rows is used when there are many, and what
// PostgreSQL believes of a table may be wrong: if an import is analysed before it is
// committed, the table seems to be empty. No plan may read a table as a whole.
func TestPlansReadNoTableAsAWhole(t *testing.T) {
	s := openEmpty(t)
	explain := func(t *testing.T, state string) {
		for name, tt := range lookups {
			for _, text := range []string{genericPlan(t, s, name, tt.sql, tt.params), customPlan(t, s, name, tt.sql, tt.params)} {
				lines := strings.Split("\n"+text+"\n", "\n")
				for i, line := range lines[1 : len(lines)-1] {
					parent, detail := lines[i], lines[i+2]
					anyRow := strings.Contains(parent, "Limit") && !strings.Contains(detail, "Filter")
					if strings.Contains(line, "Seq Scan") || strings.Contains(line, " using ") && !anyRow && !strings.Contains(detail, "Index Cond") {
						t.Errorf("%s, %s:\n%s", name, state, text)
						break
					}
				}
			}
		}
	}
	explain(t, "new")
	execSlow(t, s, `VACUUM ANALYZE`)
	explain(t, "empty")
	if err := s.CreateJobs(t.Context(), fleet(t, s, 2000, false), nil); err != nil {
		t.Fatal(err)
	}
	execSlow(t, s, `UPDATE pg_class SET reltuples = 0, relpages = 1000 WHERE relnamespace = 'belfry'::regnamespace AND relkind = 'r'`)
	explain(t, "analysed before the commit")
	execSlow(t, s, `ANALYZE`)
	explain(t, "analysed")
}

// genericPlan is how PostgreSQL would execute a prepared statement whatever its arguments
// are.
func genericPlan(t *testing.T, s *Store, name, sql string, params int) string {
	t.Helper()
	return explainPrepared(t, s, name, sql, params, "force_generic_plan", `SELECT 'NULL' FROM unnest($1::oid[])`)
}

// customPlan is how PostgreSQL executes it the first times: for lists of 1,000.
func customPlan(t *testing.T, s *Store, name, sql string, params int) string {
	t.Helper()
	return explainPrepared(t, s, name, sql, params, "force_custom_plan",
		`SELECT CASE WHEN typelem = 0 THEN 'NULL' ELSE format('array_fill(NULL::%s, ARRAY[1000])', format_type(typelem, NULL)) END
		   FROM unnest($1::oid[]) WITH ORDINALITY AS p (oid, n) JOIN pg_type USING (oid) ORDER BY n`)
}

// explainPrepared explains a prepared statement in a mode. A query says which arguments
// it is given, each for the type of its parameter.
func explainPrepared(t *testing.T, s *Store, name, sql string, params int, mode, arguments string) string {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	statement, err := tx.Prepare(t.Context(), name, sql)
	if err == nil && len(statement.ParamOIDs) != params {
		err = fmt.Errorf("it has %d parameters", len(statement.ParamOIDs))
	}
	var args, lines []string
	if err == nil {
		args, err = collect(t.Context(), tx, pgx.RowTo[string], arguments, statement.ParamOIDs)
	}
	if err == nil {
		_, err = tx.Exec(t.Context(), `SELECT set_config('plan_cache_mode', $1, true)`, mode)
	}
	if err == nil {
		lines, err = collect(t.Context(), tx, pgx.RowTo[string], `EXPLAIN (COSTS OFF) EXECUTE "`+name+`" (`+strings.Join(args, ", ")+`)`, pgx.QueryExecModeSimpleProtocol)
	}
	if err == nil {
		err = tx.Conn().Deallocate(t.Context(), name)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return strings.Join(lines, "\n")
}

// The first executions in a connection would be planned for their arguments otherwise.
func TestFireAndFinishUseGenericPlans(t *testing.T) {
	s := openEmpty(t)
	for name, pool := range map[string]*pool{"fire": s.firePool, "finish": s.finishPool} {
		var custom int
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err = conn.QueryRow(t.Context(), `SELECT count(*) FROM belfry.runs WHERE id = $1`, uuid(belfry.NewID(s.Now()))).Scan(new(int)); err == nil {
			err = conn.QueryRow(t.Context(), `SELECT sum(custom_plans) FROM pg_prepared_statements`).Scan(&custom)
		}
		conn.Release()
		if err != nil || custom != 0 {
			t.Errorf("%s: %d custom plans: %v", name, custom, err)
		}
	}
}
