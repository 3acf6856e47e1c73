package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A plan that is cached while there are few runs is used when there are many: it must not
// read them all.
func TestCachedPlansReadNoTableAsAWhole(t *testing.T) {
	s := openEmpty(t)
	execSlow(t, s, `VACUUM ANALYZE`)
	for name, tt := range map[string]struct {
		sql    string
		params int
	}{
		"fire simple steps": {fireSimpleSQL, 23},
		"fire":              {fireSQL[fireVariant{}], 44},
		"fire with keys":    {fireSQL[fireVariant{keys: true}], 44},
		"claim":             {claimSQL, 6},
		"succeed":           {succeedSQL, 8},
		"fail":              {failSQL, 15},
	} {
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			statement, err := tx.Prepare(t.Context(), name, tt.sql)
			if err != nil {
				return err
			}
			if len(statement.ParamOIDs) != tt.params {
				return fmt.Errorf("it has %d parameters", len(statement.ParamOIDs))
			}
			nulls := strings.TrimSuffix(strings.Repeat("NULL, ", tt.params), ", ")
			if _, err := tx.Exec(t.Context(), `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
				return err
			}
			rows, err := tx.Query(t.Context(), `EXPLAIN (COSTS OFF) EXECUTE "`+name+`" (`+nulls+`)`, pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if text := strings.Join(lines, "\n"); strings.Contains(text, "Seq Scan") {
				t.Errorf("%s:\n%s", name, text)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
