package postgres

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// What metrics count costs no more in a large database: plans that are not due, more due
// plans and dead letters than are counted, and jobs are not read.
func TestStatsReadABoundedNumber(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Shards: 4})
	for _, table := range []string{"plans", "jobs", "dead", "runs"} {
		execSQL(t, s, `ALTER TABLE belfry.`+table+` SET (autovacuum_enabled = off)`)
	}
	now := s.Now()
	insertPlans(t, s, "i % 4", 4000, "now() - i * interval '1 millisecond'")
	execSQL(t, s, `INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, queue, type, created_at, updated_at)
		SELECT job_id, shard, 'default', 1, 'active', '{}', 'default', 'http', now(), now() FROM belfry.plans`)
	due := func(sql string, limit int) func() int {
		return func() int { return buffersRead(t, s, sql, s.shards, now, limit) }
	}
	t.Run("count due", func(t *testing.T) {
		wantSameBuffers(t, s, 500, due(countDueSQL, 500), func() {
			insertPlans(t, s, "i % 4", 50_000, "now() + i * interval '1 second'")
			insertPlans(t, s, "i % 4", 50_000, "now() - interval '1 microsecond'")
		})
	})
	t.Run("sample due", func(t *testing.T) {
		// So few that the index of ids does not get another level: each of the 400 jobs is
		// looked up in it.
		wantSameBuffers(t, s, 2000, due(sampleDueSQL, 100), func() {
			execSQL(t, s, `INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, queue, type, created_at, updated_at)
				SELECT gen_random_uuid(), 1, 'default', 1, 'active', '{}', 'default', 'http', now(), now() FROM generate_series(1, 20000)`)
		})
	})
	t.Run("count dead", func(t *testing.T) {
		insertDead := func(n int) {
			execSQL(t, s, `INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost, died_at, fingerprint)
				SELECT gen_random_uuid(), 0, 'default', gen_random_uuid(), 1, 'scheduled', 'default/http', 'out_of_retries', now(), now(), now(), gen_random_uuid(), 1, 1000, 1, 1, 0, now(), 'x' FROM generate_series(1, $1)`, n)
		}
		insertDead(2000)
		wantSameBuffers(t, s, 500, func() int { return buffersRead(t, s, countDeadSQL, 1000) }, func() { insertDead(20_000) })
	})
	t.Run("count running", func(t *testing.T) {
		fillRuns(t, s, "gen_random_uuid()", "waiting", "NULL::uuid", 10_000)
		fillRuns(t, s, "gen_random_uuid()", "running", "gen_random_uuid()", 100)
		wantSameBuffers(t, s, 500, func() int { return buffersRead(t, s, sqlstore.CountRunning, store.MaxRunningCounted) }, func() {
			fillRuns(t, s, "gen_random_uuid()", "waiting", "NULL::uuid", 30_000)
		})
	})
}

func TestStatementsHaveNames(t *testing.T) {
	for sql, want := range map[string]string{claimSQL: "claim", succeedSQL: "finish", failSQL: "finish", upcomingSQL: "plans", reapSQL: "reap", countDueSQL: "stats", "SELECT 1": "other", "/* x": "other", "": "other"} {
		if got := statementName(sql); got != want {
			t.Errorf("%.40s is measured as %s, want %s", sql, got, want)
		}
	}
}

func TestConflictsAreNoFailures(t *testing.T) {
	for state, want := range map[string]bool{"23505": false, "40P01": false, "55P03": false, "22012": false, "57014": true, "53300": true, "42P01": true} {
		if got := isFailure(&pgconn.PgError{Code: state}); got != want {
			t.Errorf("%s counts as a failure: %v", state, got)
		}
	}
	for err, want := range map[error]bool{nil: false, context.Canceled: false, context.DeadlineExceeded: true, errors.New("connection reset"): true} {
		if got := isFailure(err); got != want {
			t.Errorf("%v counts as a failure: %v", err, got)
		}
	}
}

func TestFailedStatementsAreCounted(t *testing.T) {
	m := metrics.New()
	s := open(t, Options{URL: pgtest.Database(t, Migrate), Metrics: m})
	if _, err := s.pool.Exec(t.Context(), `/* claim */ SELECT nonsense`); err == nil {
		t.Fatal("nonsense was accepted")
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if want := "\nbelfry_database_errors_total{statement=\"claim\"} 1\n"; !strings.Contains(w.Body.String(), want) {
		t.Errorf("the metrics do not have %s", want)
	}
}
