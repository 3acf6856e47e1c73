package postgres

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// BenchmarkFinishOneOffs settles 1,000 runs at a time of one-offs, which are archived
// with them, and of other jobs.
func BenchmarkFinishOneOffs(b *testing.B) {
	const batch = 1000
	s := open(b, Options{URL: pgtest.Durable(b).URL()})
	times := map[bool][]time.Duration{}
	for b.Loop() { // in turn, so that both are measured on the same machine
		for _, oneOff := range []bool{true, false} {
			results := startRuns(b, s, batch, oneOff)
			start := time.Now()
			if _, err := s.Finish(b.Context(), results); err != nil {
				b.Fatal(err)
			}
			times[oneOff] = append(times[oneOff], time.Since(start))
		}
	}
	median := func(oneOff bool) float64 {
		slices.Sort(times[oneOff])
		return times[oneOff][len(times[oneOff])/2].Seconds()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(batch/median(true), "one-offs/s")
	b.ReportMetric(batch/median(false), "others/s")
	b.ReportMetric(median(true)/median(false), "one-off/other")
}

// startRuns creates jobs, fires and claims a run of each, and returns their results.
func startRuns(b *testing.B, s *Store, n int, oneOff bool) (results []belfry.Result) {
	b.Helper()
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule, spec.Timezone = belfry.TypeHTTP, "* * * * *", "UTC"
	if oneOff {
		spec.Schedule = s.Now().Add(-time.Second).Format(time.RFC3339Nano)
	}
	policy, err := plan.Compile(spec)
	if err != nil {
		b.Fatal(err)
	}
	now := s.Now()
	jobs, steps := make([]store.NewJob, n), make([]plan.Step, n)
	for i := range jobs {
		id := belfry.NewID(now)
		p := plan.First(id, belfry.ShardOf(id, s.Shards()), policy, now)
		if !oneOff {
			p.NominalAt = now.Truncate(time.Minute)
			p.NextAt = p.NominalAt
		}
		jobs[i] = store.NewJob{Job: belfry.Job{ID: id, Namespace: "default", Revision: 1, State: belfry.JobActive, Manifest: belfry.Manifest{Spec: spec}, CreatedAt: now}, Plan: p}
		steps[i] = plan.Decide(plan.Subject{Namespace: "default", Revision: 1, Policy: policy}, p, time.Time{}, now)
	}
	createJobs(b, s, jobs...)
	fired, err := s.Fire(b.Context(), belfry.NewID(now), steps, store.FreeSlots{Worker: belfry.NewID(now), Lanes: []string{spec.Lane("default")}, Free: n})
	if err != nil || len(fired.Claimed) != n {
		b.Fatalf("%d runs were claimed: %v", len(fired.Claimed), err)
	}
	for _, run := range fired.Claimed {
		results = append(results, resultOf(run, belfry.OutcomeSucceeded))
	}
	return results
}

// BenchmarkHistory finishes runs, and lists the runs of jobs that have many,
// without a history and with BELFRY_TEST_BENCH_JOBS rows, or ten million, of a month.
func BenchmarkHistory(b *testing.B) {
	const jobs, batch, lists = 1000, 1000, 500
	s := open(b, Options{URL: pgtest.Durable(b).URL()})
	jobID := func(n any) string {
		return fmt.Sprintf(`(lpad(to_hex(%v), 8, '0') || '-0000-7000-8000-000000000000')::uuid`, n)
	}
	for _, rows := range []int{0, benchJobs(b, 10_000_000)} {
		if rows > 0 {
			for day := range 31 {
				from := s.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -day-1)
				execSlow(b, s, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS belfry.%s PARTITION OF belfry.history FOR VALUES FROM ('%s') TO ('%s')`,
					from.Format(partitionName), from.Format(time.RFC3339), from.AddDate(0, 0, 1).Format(time.RFC3339)))
			}
			execSlow(b, s, fmt.Sprintf(`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
					attempt, settled_at, http_status, error, output, skipped_count)
				SELECT gen_random_uuid(), 0, 'default', %s, 1, 'scheduled', 'succeeded', '', at, at, at, gen_random_uuid(), 1, 1, at, 200, '', 'ok', 0
				  FROM generate_series(1, %d) i CROSS JOIN LATERAL (SELECT now() - i * interval '30 days' / %[2]d AS at) x`, jobID(fmt.Sprintf("i %% %d", jobs)), rows), `VACUUM ANALYZE belfry.history`, `CHECKPOINT`) // Writing so many rows goes on for a while.
		}
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			var finish time.Duration
			var waits []time.Duration
			for b.Loop() {
				runs := startRuns(b, s, batch, false)
				started := time.Now()
				if _, err := s.Finish(b.Context(), runs); err != nil {
					b.Fatal(err)
				}
				finish += time.Since(started)
				for n := range lists {
					var job belfry.ID
					binary.BigEndian.PutUint32(job[:], uint32(n))
					job[6], job[8] = 0x70, 0x80
					started := time.Now()
					list, _, err := s.JobRuns(b.Context(), "default", job, belfry.JobRunFilter{}, store.Page{Limit: 51})
					waits = append(waits, time.Since(started))
					if err != nil || rows > 0 && len(list) != 51 {
						b.Fatalf("%d runs: %v", len(list), err)
					}
				}
			}
			slices.Sort(waits)
			b.ReportMetric(float64(b.N*batch)/finish.Seconds(), "finished/s")
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "list-p50-ms")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "list-p99-ms")
		})
	}
}

// BenchmarkListEnded reads a page of fifty of a million ended jobs, one in a thousand of
// which failed.
func BenchmarkListEnded(b *testing.B) {
	s := open(b, Options{URL: pgtest.Durable(b).URL()})
	execSlow(b, s,
		`INSERT INTO belfry.ended (id, shard, namespace, name, revision, status, spec, queue, type, created_at, updated_at, ended_at)
			SELECT (lpad(to_hex(i), 8, '0') || '-0000-7000-8000-000000000000')::uuid, 0, 'default', 'job ' || i, 1, CASE WHEN i % 1000 = 7 THEN 'failed' ELSE 'completed' END, '{}',
			       CASE WHEN i % 100000 = 5 THEN 'rare' ELSE 'default' END, 'http', at, at, at
			  FROM generate_series(1, 1000000) i CROSS JOIN LATERAL (SELECT clock_timestamp() - i * interval '5 seconds' AS at) x`,
		`VACUUM ANALYZE belfry.ended`)
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

// BenchmarkDeadLetters reads a page of fifty, and fifty groups, of 100,000.
func BenchmarkDeadLetters(b *testing.B) {
	s := openEmpty(b)
	insertDeadLetters(b, s, 100_000)
	for _, tt := range deadFilters {
		b.Run("list/"+strings.ReplaceAll(tt.name, " ", "-"), func(b *testing.B) {
			n := 0
			for b.Loop() {
				letters, err := s.ListDeadLetters(b.Context(), "default", tt.filter, store.Page{Limit: 50})
				if err != nil {
					b.Fatal(err)
				}
				n = len(letters)
			}
			b.ReportMetric(float64(n), "letters")
		})
		b.Run("groups/"+strings.ReplaceAll(tt.name, " ", "-"), func(b *testing.B) {
			n := 0
			for b.Loop() {
				groups, err := s.GroupDeadLetters(b.Context(), "default", tt.filter, 50)
				if err != nil {
					b.Fatal(err)
				}
				n = len(groups)
			}
			b.ReportMetric(float64(n), "groups")
		})
	}
}
