package postgres

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry/internal/store"
)

// buffersRead is how many pages a statement reads, with the planner restricted as in a scan.
func buffersRead(t *testing.T, s *Store, sql string, args ...any) int {
	t.Helper()
	var explained []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	err := s.scanSnapshot(t.Context(), func(tx pgx.Tx) error {
		var text string
		if err := tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `+sql, args...).Scan(&text); err != nil {
			return err
		}
		return json.Unmarshal([]byte(text), &explained)
	})
	if err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan.Hit + explained[0].Plan.Read
}

// wantSameBuffers expects a statement to read at most so many pages, and as many after
// grow has made the tables much larger. Nobody has analysed them.
func wantSameBuffers(t *testing.T, s *Store, most int, read func() int, grow func()) {
	t.Helper()
	few := read()
	grow()
	many := read()
	t.Logf("%d pages, %d after growth", few, many)
	if few > most || many > few+few/10+10 { // trees become a little higher
		t.Errorf("it reads %d pages, %d after growth, wants at most %d", few, many, most)
	}
}

func insertPlans(t *testing.T, s *Store, shard string, n int, at string) {
	t.Helper()
	execSQL(t, s, fmt.Sprintf(`INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, runs_made, zone_version)
		SELECT gen_random_uuid(), %s, 1, %s, %s, 0, '2026a' FROM generate_series(1, %d) i`, shard, at, at, n))
}

// A shard's due scan costs what it returns, however many plans are due in other shards,
// at the same instant, before the position or later.
func TestUpcomingReadsOnlyWhatItReturns(t *testing.T) {
	s := openEmpty(t)
	execSQL(t, s, `ALTER TABLE belfry.plans SET (autovacuum_enabled = off)`)
	now := s.Now()
	insertPlans(t, s, "7", 1000, "now() - i * interval '1 millisecond'")
	for _, tt := range []struct {
		name  string
		after store.Position
		grow  func()
	}{
		{"other shards", store.Position{}, func() { insertPlans(t, s, "i % 7", 50_000, "now() - i * interval '1 millisecond'") }},
		{"one instant", store.Position{}, func() { insertPlans(t, s, "7", 20_000, "now() - interval '3 milliseconds'") }},
		{"later", store.Position{}, func() { insertPlans(t, s, "7", 20_000, "now() + i * interval '1 second'") }},
		{"before", store.Position{At: now.Add(-time.Minute)}, func() { insertPlans(t, s, "7", 20_000, "now() - i * interval '1 hour'") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := store.Window{After: map[int]store.Position{7: tt.after}, Until: now, Limit: 500}
			wantSameBuffers(t, s, 520, func() int { return buffersRead(t, s, upcomingSQL, upcomingArgs(w)...) }, tt.grow)
		})
	}
}
