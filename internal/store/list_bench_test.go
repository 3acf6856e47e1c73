package store_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

// fleetSize is how many jobs the benchmark of lists has: BELFRY_TEST_BENCH_JOBS,
// or a million.
func fleetSize(b *testing.B) int {
	text := os.Getenv("BELFRY_TEST_BENCH_JOBS")
	if text == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("BELFRY_TEST_BENCH_JOBS is %q, wants a number", text)
	}
	return n
}

// listFilters are lists that users may request, from the common to the absurd.
// What is rare has some ten jobs in a million.
var listFilters = []struct {
	name   string
	filter belfry.JobFilter
	depth  float64 // share of the list that comes before the page
}{
	{name: "all"},
	{name: "all, halfway", depth: 0.5},
	{name: "all, near the end", depth: 0.9999},
	{name: "queue, common", filter: belfry.JobFilter{Queue: "queue-7"}},
	{name: "queue, common, halfway", filter: belfry.JobFilter{Queue: "queue-7"}, depth: 0.5},
	{name: "queue, early only", filter: belfry.JobFilter{Queue: "early"}},
	{name: "queue, rare", filter: belfry.JobFilter{Queue: "rare"}},
	{name: "queue, none", filter: belfry.JobFilter{Queue: "none"}},
	{name: "type http", filter: belfry.JobFilter{Type: belfry.TypeHTTP}},
	{name: "type worker", filter: belfry.JobFilter{Type: belfry.TypeWorker}},
	{name: "type, none", filter: belfry.JobFilter{Type: "message"}},
	{name: "handler, common", filter: belfry.JobFilter{Handler: "handler-21"}},
	{name: "handler, rare", filter: belfry.JobFilter{Handler: "rare"}},
	{name: "tag, common", filter: belfry.JobFilter{Tags: []string{"team-3"}}},
	{name: "tags, common", filter: belfry.JobFilter{Tags: []string{"prod", "team-3"}}},
	{name: "tag, rare", filter: belfry.JobFilter{Tags: []string{"rare"}}},
	{name: "tag, none", filter: belfry.JobFilter{Tags: []string{"none"}}},
	{name: "scheduled", filter: belfry.JobFilter{Status: belfry.StatusScheduled}},
	{name: "paused", filter: belfry.JobFilter{Status: belfry.StatusPaused}},
	{name: "running", filter: belfry.JobFilter{Status: belfry.StatusRunning}},
	{name: "queued", filter: belfry.JobFilter{Status: belfry.StatusQueued}},
	{name: "completed", filter: belfry.JobFilter{Status: belfry.StatusCompleted}},
	{name: "completed, halfway", filter: belfry.JobFilter{Status: belfry.StatusCompleted}, depth: 0.5},
	{name: "failed", filter: belfry.JobFilter{Status: belfry.StatusFailed}},
	{name: "cancelled", filter: belfry.JobFilter{Status: belfry.StatusCancelled}},
	{name: "search, common", filter: belfry.JobFilter{Search: "Invoice"}},
	{name: "search, a tenant", filter: belfry.JobFilter{Search: "tenant-123-"}},
	{name: "search, rare", filter: belfry.JobFilter{Search: "invoice-4321"}},
	{name: "search, one", filter: belfry.JobFilter{Search: "-invoice-004321"}},
	{name: "search, none", filter: belfry.JobFilter{Search: "nothing like it"}},
	{name: "search, none but alike", filter: belfry.JobFilter{Search: "tenant-invoice"}},
	{name: "search, short and none", filter: belfry.JobFilter{Search: "zq"}},
	{name: "search in a queue, none", filter: belfry.JobFilter{Search: "tenant-123-", Queue: "rare"}},
	{name: "search of paused, none", filter: belfry.JobFilter{Search: "nothing like it", Status: belfry.StatusPaused}},
	{name: "search of completed", filter: belfry.JobFilter{Search: "tenant-123-", Status: belfry.StatusCompleted}},
	{name: "http with a handler", filter: belfry.JobFilter{Type: belfry.TypeHTTP, Handler: "handler-21"}},
	{name: "queue without its handler", filter: belfry.JobFilter{Queue: "queue-7", Handler: "rare"}},
	{name: "tags that exclude each other", filter: belfry.JobFilter{Tags: []string{"team-3", "team-6"}}},
	{name: "paused in a queue, with a tag", filter: belfry.JobFilter{Status: belfry.StatusPaused, Queue: "queue-7", Tags: []string{"rare"}}},
	{name: "failed in a rare queue", filter: belfry.JobFilter{Status: belfry.StatusFailed, Queue: "rare"}},
	{name: "cancelled with a rare tag", filter: belfry.JobFilter{Status: belfry.StatusCancelled, Tags: []string{"rare"}}},
}

// BenchmarkListJobs1M measures what a page of fifty jobs takes.
func BenchmarkListJobs1M(b *testing.B) {
	address := pgtest.Durable(b).URL()
	f := openPostgres(b, address, address)
	n := fleetSize(b)
	oldest := f.createBigFleet(b, n)
	youngest := idCounter.Load()
	for _, tt := range listFilters {
		b.Run(tt.name, func(b *testing.B) {
			var after belfry.ID
			if tt.depth > 0 {
				after = idDrawn(oldest + int64(float64(youngest-oldest)*(1-tt.depth)))
			}
			var took []time.Duration
			var list store.JobList
			for b.Loop() {
				start := time.Now()
				var err error
				if list, err = f.ListJobs(ctx, belfry.DefaultNamespace, tt.filter, store.Page{After: store.Position{ID: after}, Limit: 50}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(len(list.Jobs)), "jobs")
			b.ReportMetric(float64(unfinished(list)), "cut") // 1: the page is short and still not the last
		})
	}
}

func unfinished(list store.JobList) int {
	if len(list.Jobs) < 50 && !list.Next.IsZero() {
		return 1
	}
	return 0
}

// idDrawn is an id near the one that was drawn as the given one.
func idDrawn(n int64) belfry.ID {
	return belfry.NewID(time.Now().Add(time.Duration(n) * time.Millisecond))
}

// createBigFleet makes n jobs of all kinds, and says with which id they begin.
func (f *fixture) createBigFleet(b *testing.B, n int) (oldest int64) {
	oldest = idCounter.Load()
	start := time.Now()
	err := f.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
		for i := range n {
			if !yield(f.fleetJob(i, n), nil) {
				return
			}
		}
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("created %d jobs, %.0f a second", n, float64(n)/time.Since(start).Seconds())
	f.fillHistory(b)
	return oldest
}

// fleetJob is the i-th of n jobs: a tenth in a queue that later ones do not use,
// half of them for workers, a third with tags, a twentieth paused, a tenth at
// their end.
func (f *fixture) fleetJob(i, n int) store.NewJob {
	at := f.minutesAgo(-60)
	ended := i%10 == 7
	if ended {
		at = f.minutesAgo(i % (80 * 24 * 60))
	}
	job := f.job(at, withName(fmt.Sprintf("tenant-%d-invoice-%06d", i*7919%1000, i)), func(j *belfry.Job) {
		j.Queue = fmt.Sprint("queue-", i%18)
		if i < n/10 {
			j.Queue = "early"
		}
		if i%2 == 0 {
			j.Type, j.Handler = belfry.TypeWorker, fmt.Sprint("handler-", i/2%50)
		}
		if i%3 == 0 {
			j.Tags = []string{"prod", fmt.Sprint("team-", i%30)}
		}
		switch i % 100_000 {
		case 51_000:
			j.Queue = "rare"
		case 52_000:
			j.Type, j.Handler = belfry.TypeWorker, "rare"
		case 53_000:
			j.Tags = []string{"rare"}
		}
		if i%20 == 3 {
			j.State = belfry.JobPaused
		}
	})
	switch {
	case ended:
		job.Plan.NextAt, job.Plan.NominalAt, job.Plan.FiredFor, job.Plan.RunsMade = time.Time{}, time.Time{}, at, 1
	case job.Job.State == belfry.JobPaused:
		job.Plan.NextAt = time.Time{}
	}
	return job
}

// fillHistory writes what became of the jobs that ended, over ninety partitions, and some
// live runs. One in a thousand of those that ended failed; of one in ten thousand
// nothing is known.
func (f *fixture) fillHistory(b *testing.B) {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for d := -90; d < -1; d++ {
		day := today.AddDate(0, 0, d)
		f.exec(b, fmt.Sprintf(`CREATE TABLE %s PARTITION OF history FOR VALUES FROM ('%s') TO ('%s')`,
			day.Format("history_2006_01_02"), day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)))
	}
	f.exec(b, `CREATE TABLE fates AS SELECT p.job_id, p.shard, p.fired_for AS at, row_number() OVER (ORDER BY p.job_id) AS n FROM plans p WHERE next_at IS NULL AND fired_for IS NOT NULL`)
	f.exec(b, `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
			attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count)
		SELECT gen_random_uuid(), shard, 'default', job_id, 1, 'scheduled', 'succeeded', '', at, at, at, job_id, 1,
			1, job_id, job_id, at, at + interval '2 seconds', 200, '', 'ok', 0 FROM fates WHERE n % 1000 > 0 AND n % 10000 <> 77`)
	f.exec(b, `INSERT INTO dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
			timeout_ms, attempt, failures, lost, died_at, fingerprint)
		SELECT gen_random_uuid(), shard, 'default', job_id, 1, 'scheduled', 'default/http', 'out_of_retries', at, at, at, job_id, 1,
			60000, 4, 4, 0, at + interval '5 minutes', 'x' FROM fates WHERE n % 1000 = 0`)
	f.exec(b, `INSERT INTO runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
			timeout_ms, attempt, failures, lost, worker, token, started_at, deadline_at)
		SELECT gen_random_uuid(), shard, 'default', job_id, 1, 'scheduled', 'default/http', CASE WHEN n % 3 = 0 THEN 'running' ELSE 'ready' END, 1, at, at, at, job_id, 1,
			60000, 1, 0, 0, CASE WHEN n % 3 = 0 THEN job_id END, CASE WHEN n % 3 = 0 THEN job_id END, at, CASE WHEN n % 3 = 0 THEN at END
		FROM (SELECT job_id, shard, next_at AS at, row_number() OVER () AS n FROM plans WHERE next_at IS NOT NULL AND random() < 0.001) p`)
	f.exec(b, `DROP TABLE fates`)
	for _, table := range []string{"jobs", "plans", "history", "dead", "runs"} {
		f.exec(b, `VACUUM ANALYZE `+table)
	}
}
