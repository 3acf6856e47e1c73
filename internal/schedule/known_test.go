package schedule

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// The cases are facts from the tests of other implementations.
func TestKnownExpressions(t *testing.T) {
	for _, c := range []struct {
		file string
		rows int
	}{{"testdata/known_cron.jsonl", 878}, {"testdata/known_dst.jsonl", 236}} {
		file, err := os.Open(c.file)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		rows := 0
		for lines := bufio.NewScanner(file); lines.Scan(); rows++ {
			var row struct {
				Expr, TZ, Policy, Source string
				After                    time.Time
				Next                     []time.Time
			}
			if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
				t.Fatal(err)
			}
			rule, err := Parse(row.Expr, Options{Timezone: row.TZ, SkipGap: row.Policy == "SKIP"})
			if err != nil {
				t.Errorf("%s (%s): %v", row.Expr, row.Source, err)
				continue
			}
			asked := row.After
			for _, want := range row.Next {
				got := rule.Next(asked)
				if !got.Equal(want) {
					t.Errorf("%s in %s (%s): after %v comes %v, want %v", row.Expr, row.TZ, row.Source, asked, got, want)
					break
				}
				asked = got
			}
		}
		if rows != c.rows {
			t.Errorf("%s has %d rows, want %d", c.file, rows, c.rows)
		}
	}
}
