package postgres

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

// fillRuns inserts live runs of a job in a state, with a worker if they are running.
func fillRuns(t testing.TB, s *Store, job, state, worker string, n int) {
	t.Helper()
	execSlow(t, s, `INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms,
		attempt, failures, lost, worker, token, started_at, deadline_at)
		SELECT gen_random_uuid(), i % 64, 'default', `+job+`, 1, 'scheduled', 'default/http', '`+state+`', i, now(), now(), now(), gen_random_uuid(), 0, 3600000,
		       1, 0, 0, `+worker+`, CASE WHEN `+worker+` IS NULL THEN NULL ELSE gen_random_uuid() END, now(), CASE WHEN `+worker+` IS NULL THEN NULL ELSE now() + interval '1 hour' END
		  FROM generate_series(1, `+strconv.Itoa(n)+`) i`, `ANALYZE belfry.runs`)
}

// Reaping and heartbeats read the running runs, however many others are live and whatever
// PostgreSQL believes of their number. They do so by an index scan, which marks the entries of
// finished runs, so that the next one skips them.
func TestReapReadsRunningRunsAlone(t *testing.T) {
	s := openEmpty(t)
	worker := belfry.NewID(s.Now())
	explain := func(state string) {
		for name, tt := range map[string]struct {
			sql  string
			args []any
		}{
			"reap":      {reapSQL, []any{1000, store.CancelGrace.Milliseconds(), true, s.Now()}},
			"heartbeat": {heldSQL, []any{uuid(worker), store.ConfirmAfter.Milliseconds()}},
		} {
			lines, err := collect(t.Context(), s.priorityPool, pgx.RowTo[string], `EXPLAIN `+tt.sql, tt.args...)
			if text := strings.Join(lines, "\n"); err != nil || !strings.Contains(text, "Index Scan using runs_running") {
				t.Errorf("%s, %s: %v\n%s", name, state, err, text)
			}
		}
	}
	explain("new")
	execSlow(t, s, `VACUUM ANALYZE`)
	explain("empty")
	fillRuns(t, s, "gen_random_uuid()", "waiting", "NULL::uuid", 20_000)
	fillRuns(t, s, "gen_random_uuid()", "running", "gen_random_uuid()", 10)
	explain("few are running")
	fillRuns(t, s, "gen_random_uuid()", "running", "'"+worker.String()+"'::uuid", 20_000)
	explain("many are running")
}

// BenchmarkReap settles 10,000 attempts of a lost worker beside 200,000 runs that wait.
//
//	go test -run '^$' -bench Reap -benchtime 1x ./internal/store/postgres
func BenchmarkReap(b *testing.B) {
	s := open(b, Options{URL: pgtest.Durable(b).URL()})
	job := newJob(b, s)
	createJobs(b, s, job)
	fillRuns(b, s, "gen_random_uuid()", "waiting", "NULL::uuid", 200_000)
	for b.Loop() {
		fillRuns(b, s, "'"+job.Job.ID.String()+"'", "running", "'"+belfry.NewID(s.Now()).String()+"'::uuid", 10_000)
		started, reaped := time.Now(), 0
		for {
			results, err := s.Reap(b.Context(), 0, 1000)
			if err != nil {
				b.Fatal(err)
			}
			if reaped += len(results); len(results) < 1000 {
				break
			}
		}
		if reaped != 10_000 {
			b.Errorf("%d attempts were reaped", reaped)
		}
		b.ReportMetric(time.Since(started).Seconds(), "s/10000")
		execSlow(b, s, `DELETE FROM belfry.runs WHERE state <> 'waiting'`)
	}
}

// BenchmarkIdleDuties measures what a scheduler asks for again and again: with 100,000
// jobs that have waiting runs, and with twenty queues that nobody serves.
//
//	go test -run '^$' -bench IdleDuties ./internal/store/postgres
func BenchmarkIdleDuties(b *testing.B) {
	s := open(b, Options{URL: pgtest.Durable(b).URL()})
	fillRuns(b, s, "gen_random_uuid()", "waiting", "NULL::uuid", 100_000)
	execSlow(b, s, `INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost)
		SELECT gen_random_uuid(), i % 64, 'default', gen_random_uuid(), 1, 'scheduled', 'unserved' || i % 20 || '/http', 'ready', i, now(), now(), now(), gen_random_uuid(), 0, 1000, 0, 0, 0
		  FROM generate_series(1, 20000) i`, `VACUUM ANALYZE belfry.runs`)
	b.Run("promote", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := s.Promote(b.Context(), []int{1000}, 1000); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("count ready", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.CountReady(b.Context(), 4000); err != nil {
				b.Fatal(err)
			}
		}
	})
}
