package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/web"
)

// scaleJobs is how many jobs the benchmark of pages has: BELFRY_TEST_BENCH_JOBS, or a
// million. There are ten times as many runs in the history.
func scaleJobs(b *testing.B) int {
	text := os.Getenv("BELFRY_TEST_BENCH_JOBS")
	if text == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		b.Fatalf("BELFRY_TEST_BENCH_JOBS is %q, wants a number of at least 1000", text)
	}
	return n
}

// fillHistory makes a partition for each of 90 days and fills them: a tenth of the rows is of
// the first job.
const fillHistory = `
DO $$ BEGIN FOR i IN 1..90 LOOP
  EXECUTE format('CREATE TABLE IF NOT EXISTS belfry.history_%s PARTITION OF belfry.history FOR VALUES FROM (%L) TO (%L)',
    to_char(date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') - i * interval '1 day', 'YYYY_MM_DD'),
    (date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') - i * interval '1 day')::text || '+00', (date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') - (i - 1) * interval '1 day')::text || '+00');
END LOOP; END $$;
CREATE TEMP TABLE numbered AS SELECT row_number() OVER (ORDER BY id) - 1 AS n, id, shard FROM belfry.jobs;
INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, attempt, started_at, settled_at, http_status, error, output, skipped_count)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(md5(g::text), 1, 19))::uuid, j.shard, 'default', j.id, 1, 'scheduled',
       CASE WHEN g % 20 = 0 THEN 'skipped' ELSE 'succeeded' END, CASE WHEN g % 20 = 0 THEN 'overlap' ELSE '' END, at, at, at, j.id, 1, 1, at, at + interval '1 second', 200, '', 'ok', 0
  FROM (SELECT g, clock_timestamp() - interval '89 days' + g * (interval '89 days' / $COUNT) AS at FROM generate_series(1, $COUNT) g) s
  JOIN numbered j ON j.n = CASE WHEN g % 10 = 0 THEN 0 ELSE g % $JOBS END;
ANALYZE belfry.history; ANALYZE belfry.jobs; ANALYZE belfry.plans;`

// BenchmarkPages1M measures what pages take on the server, with a million jobs and ten
// million runs.
func BenchmarkPages1M(b *testing.B) {
	ctx := context.Background()
	address, jobs := pgtest.Durable(b).URL(), scaleJobs(b)
	s, err := postgres.Open(ctx, postgres.Options{URL: address})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	spec := belfry.Spec{Type: belfry.TypeHTTP, Schedule: "*/5 * * * *", Timezone: "UTC"}.WithDefaults()
	now := s.Now().Truncate(time.Second)
	err = s.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
		for i := range jobs {
			id := belfry.NewID(now.Add(time.Duration(i) * time.Microsecond))
			at := now.Add(time.Duration(i%86400+60) * time.Second)
			job := belfry.Job{ID: id, Namespace: belfry.DefaultNamespace, Revision: 1, State: belfry.JobActive, CreatedAt: now, UpdatedAt: now,
				Manifest: belfry.Manifest{Name: fmt.Sprintf("tenant-%d-job-%d", i%1000, i), Tags: []string{fmt.Sprintf("team-%d", i%20)}, Spec: spec, Payload: []byte(`{"url":"https://example.com"}`)}}
			shard := belfry.ShardOf(id, s.Shards())
			if !yield(store.NewJob{Job: job, Plan: plan.Plan{JobID: id, Shard: shard, NextAt: at, NominalAt: at}}, nil) {
				return
			}
		}
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	connection, err := pgx.Connect(ctx, address)
	if err != nil {
		b.Fatal(err)
	}
	defer connection.Close(ctx)
	sql := strings.NewReplacer("$COUNT", strconv.Itoa(10*jobs), "$JOBS", strconv.Itoa(jobs)).Replace(fillHistory)
	if _, err := connection.Exec(ctx, sql); err != nil {
		b.Fatal(err)
	}
	var first string // the job with most runs
	if err := connection.QueryRow(ctx, `SELECT id::text FROM numbered WHERE n = 0`).Scan(&first); err != nil {
		b.Fatal(err)
	}
	handler := web.New(web.Options{Control: control.New(s, plan.Defaults{})})
	for _, page := range []struct{ name, path string }{
		{"overview", "/"}, {"jobs", "/jobs"}, {"jobs by next run", "/jobs?sort=next"}, {"jobs by last run", "/jobs?sort=last"}, {"jobs by name", "/jobs?sort=name"}, {"search", "/jobs?search=tenant-123-"}, {"failing", "/jobs?status=failing"},
		{"a job", "/jobs/tenant-5-job-5005"}, {"a job with a million runs", "/jobs/" + first}, {"runs", "/runs"}, {"dead letters", "/dead"}, {"events", "/events"}, {"forecast", "/forecast"},
	} {
		b.Run(page.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				started := time.Now()
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", page.path, nil))
				took = append(took, time.Since(started))
				if w.Code != http.StatusOK {
					b.Fatalf("%s: %d %s", page.path, w.Code, w.Body)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
		})
	}
}
