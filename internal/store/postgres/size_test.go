package postgres

import (
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// fleet is n jobs with a payload of a hundred bytes, whose schedules differ in the minute
// of the day.
func fleet(tb testing.TB, s *Store, n int, named bool) iter.Seq2[store.NewJob, error] {
	tb.Helper()
	payload := []byte(`{"url":"https://example.org/hooks/belfry","body":"` + strings.Repeat("x", 48) + `"}`)
	if len(payload) != 100 {
		tb.Fatalf("the payload has %d bytes", len(payload))
	}
	var specs []belfry.Spec
	var policies []*plan.Policy
	for i := range 24 * 60 {
		spec := belfry.DefaultSpec()
		spec.Type, spec.Schedule = belfry.TypeHTTP, fmt.Sprintf("%d %d * * *", i%60, i/60)
		policy, err := plan.Compile(spec)
		if err != nil {
			tb.Fatal(err)
		}
		specs, policies = append(specs, spec), append(policies, policy)
	}
	return func(yield func(store.NewJob, error) bool) {
		now := s.Now()
		first := make([]plan.Plan, len(policies))
		for i, policy := range policies {
			first[i] = plan.First(belfry.ID{}, 0, policy, now)
		}
		for i := range n {
			kind := i * 7 % len(specs)
			p := first[kind]
			p.JobID = belfry.NewID(now.Add(time.Duration(i) * 10 * time.Microsecond)) // in order, as those of an import
			p.Shard = belfry.ShardOf(p.JobID, s.Shards())
			job := belfry.Job{ID: p.JobID, Namespace: belfry.DefaultNamespace, Revision: 1, State: belfry.JobActive, CreatedAt: now,
				Manifest: belfry.Manifest{Spec: specs[kind], Payload: payload}}
			if named {
				job.Name = fmt.Sprintf("report-%07d", i)
			}
			if !yield(store.NewJob{Job: job, Plan: p}, nil) {
				return
			}
		}
	}
}

// relationSizes is how many bytes for each of n jobs the tables and indexes take that have
// grown with them.
func relationSizes(tb testing.TB, s *Store, n int) (total float64, each string) {
	tb.Helper()
	var name string
	var size float64
	err := forEach(tb.Context(), s.pool, []any{&name, &size}, func() error {
		each += fmt.Sprintf(" %s %.1f", name, size)
		total += size
		return nil
	}, `SELECT relname, pg_relation_size(oid)::float8 / $1 FROM pg_class
		WHERE relnamespace = 'belfry'::regnamespace AND relkind IN ('r', 'i') AND pg_relation_size(oid) >= $1 ORDER BY 2 DESC`, n)
	if err != nil {
		tb.Fatal(err)
	}
	return total, each
}

// A registered job with a payload of a hundred bytes takes little more than 512 bytes with
// its plan. What is added to every row or index shows here.
func TestBytesOfAJob(t *testing.T) {
	s := openEmpty(t)
	const n = 20_000
	if err := s.CreateJobs(t.Context(), fleet(t, s, n, false), nil); err != nil {
		t.Fatal(err)
	}
	if total, each := relationSizes(t, s, n); total > 545 {
		t.Errorf("a job takes %.0f bytes:%s", total, each)
	} else {
		t.Logf("a job takes %.0f bytes:%s", total, each)
	}
}

// benchJobs is how many rows a benchmark has: BELFRY_TEST_BENCH_JOBS, or the usual number.
func benchJobs(b *testing.B, usual int) int {
	text := os.Getenv("BELFRY_TEST_BENCH_JOBS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkCreateFleet copies a fleet into an empty database: BELFRY_TEST_BENCH_JOBS jobs,
// or a million.
func BenchmarkCreateFleet(b *testing.B) {
	n := benchJobs(b, 1_000_000)
	for _, named := range []bool{false, true} {
		b.Run(map[bool]string{false: "without-names", true: "named"}[named], func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := open(b, Options{URL: pgtest.Durable(b).URL()})
				b.StartTimer()
				start := time.Now()
				if err := s.CreateJobs(b.Context(), fleet(b, s, n, named), nil); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(n)/time.Since(start).Seconds(), "jobs/s")
				total, each := relationSizes(b, s, n)
				b.ReportMetric(total, "B/job")
				b.Log(each)
			}
		})
	}
}
