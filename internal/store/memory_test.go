package store_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

// This test is not parallel to others, whose memory it would count.
func TestBulkCreateKeepsMemoryFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 jobs take a few seconds")
	}
	const size, every, growth = 100_000, 10_000, 64 << 20
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			f := open(t, b)
			at := f.minutesAgo(-60)
			var first, most uint64
			start := time.Now()
			err := f.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) {
				for i := range size {
					if i%every == 0 {
						runtime.GC()
						var m runtime.MemStats
						runtime.ReadMemStats(&m)
						if i == 0 {
							first = m.HeapAlloc
						}
						most = max(most, m.HeapAlloc)
					}
					if !yield(f.job(at, named(fmt.Sprint("job ", i)), withPayload(fmt.Sprintf(`{"n": %d, "filler": "%0512d"}`, i, i))), nil) {
						return
					}
				}
			}, nil)
			if err != nil {
				t.Fatalf("create %d jobs: %v", size, err)
			}
			took := time.Since(start).Round(time.Millisecond)
			if n := f.count(t, `SELECT count(*) FROM jobs JOIN plans ON job_id = id`); n != size {
				t.Errorf("there are %d jobs with plans, wants %d", n, size)
			}
			if most > first+growth {
				t.Errorf("the heap grew from %d to %d MiB, wants at most %d more", first>>20, most>>20, growth>>20)
			}
			t.Logf("in %v the heap grew from %.1f to %.1f MiB", took, float64(first)/(1<<20), float64(most)/(1<<20))
		})
	}
}
