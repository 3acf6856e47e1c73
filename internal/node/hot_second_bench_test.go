package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/worker"
)

// BenchmarkHotSecond has 100,000 jobs due at one instant on SQLite, whose handler does
// nothing in the node. It reports how many a second are in the history, and with clients
// that read jobs over HTTP all the time, how long those wait.
//
//	go test -run '^$' -bench HotSecond -benchtime 1x ./internal/node
func BenchmarkHotSecond(b *testing.B) {
	for _, kind := range []string{"recurring", "one-off"} {
		for _, clients := range []int{0, 4} {
			for _, concurrency := range []int{Defaults().Concurrency, 2000} {
				b.Run(fmt.Sprintf("sqlite/%s/clients=%d/concurrency=%d", kind, clients, concurrency), func(b *testing.B) {
					for range b.N {
						benchmarkHotSecond(b, kind == "one-off", clients, concurrency)
					}
				})
			}
		}
	}
}

func benchmarkHotSecond(b *testing.B, oneOff bool, clients, concurrency int) {
	const total = 100_000
	executed, all := atomic.Int64{}, make(chan struct{})
	c := Defaults()
	c.Listen, c.Data, c.RateLimit, c.Concurrency = "127.0.0.1:0", b.TempDir(), 0, concurrency
	c.Handlers = map[string]worker.Handler{"nothing": worker.HandlerFunc(func(context.Context, *belfry.Run) error {
		if executed.Add(1) == total {
			close(all)
		}
		return nil
	})}
	n, stop := runNode(b, c)
	defer stop()
	at := n.store.Now().Add(25 * time.Second).Truncate(time.Second)
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule = "nothing", fmt.Sprintf("%d %d %d %d %d *", at.Second(), at.Minute(), at.Hour(), at.Day(), at.Month())
	if oneOff {
		spec.Schedule = at.Format(time.RFC3339Nano)
	}
	jobs := createSpecs(b, n.store, total, "http://example.com/", func(int) belfry.Spec { return spec })
	if left := time.Until(at); left < 5*time.Second {
		b.Fatalf("only %s are left to load the plans", left)
	}
	time.Sleep(time.Until(at))
	ctx, cancel := context.WithCancel(b.Context())
	readers := readJobs(ctx, b, "http://"+n.Addr().String(), jobs, clients)
	<-all
	awaitNoRunning(b, n.store)
	drained := time.Since(at)
	cancel()
	b.ReportMetric(total/drained.Seconds(), "runs/s")
	b.ReportMetric(0, "ns/op")
	if waits := readers(); len(waits) > 0 {
		b.ReportMetric(float64(len(waits))/drained.Seconds(), "gets/s")
		b.ReportMetric(milliseconds(waits[len(waits)/2]), "p50-ms")
		b.ReportMetric(milliseconds(waits[len(waits)*99/100]), "p99-ms")
		b.ReportMetric(milliseconds(waits[len(waits)-1]), "max-ms")
	}
}

// awaitNoRunning waits until the results of all runs are stored.
func awaitNoRunning(b *testing.B, s store.Store) {
	for {
		list, err := s.ListRuns(b.Context(), "default", belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: belfry.RunRunning}}, store.Page{Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		if len(list.Runs) == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// readJobs has clients read jobs, one after another, until ctx ends. The function that it
// returns waits for them, and says how long each answer took, shortest first.
func readJobs(ctx context.Context, b *testing.B, base string, jobs []belfry.ID, clients int) func() []time.Duration {
	waits := make([][]time.Duration, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for j := i; ctx.Err() == nil; j += 7919 {
				start := time.Now()
				resp, err := http.Get(base + "/api/v1/jobs/" + jobs[j%len(jobs)].String())
				if err != nil {
					b.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					b.Errorf("a job was answered with %s", resp.Status)
				}
				waits[i] = append(waits[i], time.Since(start))
			}
		})
	}
	return func() []time.Duration {
		group.Wait()
		return slices.Sorted(slices.Values(slices.Concat(waits...)))
	}
}
