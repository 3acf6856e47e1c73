package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

// BenchmarkListEnded measures a page of fifty of a million jobs that have ended, one
// in a thousand of which failed.
func BenchmarkListEnded(b *testing.B) {
	s, err := Open(b.Context(), Options{URL: pgtest.Durable(b).URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	config := s.pool.Config().ConnConfig.Copy()
	delete(config.RuntimeParams, "statement_timeout") // this is no everyday statement
	conn, err := pgx.ConnectConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		`INSERT INTO belfry.ended (id, shard, namespace, name, revision, status, spec, queue, type, created_at, updated_at, ended_at)
			SELECT (lpad(to_hex(i), 8, '0') || '-0000-7000-8000-000000000000')::uuid, 0, 'default', 'job ' || i, 1, CASE WHEN i % 1000 = 7 THEN 'failed' ELSE 'completed' END, '{}',
			       CASE WHEN i % 100000 = 5 THEN 'rare' ELSE 'default' END, 'http', at, at, at
			  FROM generate_series(1, 1000000) i CROSS JOIN LATERAL (SELECT clock_timestamp() - i * interval '5 seconds' AS at) x`,
		`VACUUM ANALYZE belfry.ended`,
	} {
		if _, err := conn.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		filter belfry.JobFilter
	}{
		{"completed", belfry.JobFilter{Status: belfry.StatusCompleted}},
		{"failed", belfry.JobFilter{Status: belfry.StatusFailed}},
		{"cancelled", belfry.JobFilter{Status: belfry.StatusCancelled}},
		{"completed-in-a-rare-queue", belfry.JobFilter{Status: belfry.StatusCompleted, Queue: "rare"}},
		{"completed-and-not-found", belfry.JobFilter{Status: belfry.StatusCompleted, Search: "nothing like it"}},
		{"all", belfry.JobFilter{}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				list, err := s.ListJobs(b.Context(), "default", tt.filter, store.Page{Limit: 50})
				if err != nil {
					b.Fatal(err)
				}
				n = len(list.Jobs)
			}
			b.ReportMetric(float64(n), "jobs")
		})
	}
}
