package node

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// BenchmarkLag runs one-off jobs with real HTTP callbacks at a steady rate and
// reports how long after its instant each callback arrived.
//
//	go test -run '^$' -bench Lag -benchtime 1x ./internal/node
func BenchmarkLag(b *testing.B) {
	for _, rate := range []int{500, 2800} {
		b.Run(fmt.Sprintf("sqlite/%d", rate), func(b *testing.B) { benchmarkLag(b, "", rate) })
		b.Run(fmt.Sprintf("postgres/%d", rate), func(b *testing.B) { benchmarkLag(b, pgtest.Durable(b).URL(), rate) })
	}
}

func benchmarkLag(b *testing.B, url string, rate int) {
	const lasts = 10 * time.Second
	for range b.N {
		n, stop := running(b, url)
		sink := newSink(b)
		start := n.store.Now().Add(3 * time.Second).Truncate(time.Second)
		total := int(lasts.Seconds()) * rate
		create(b, n.store, total, sink.URL, func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / time.Duration(rate)) })
		lags := sink.wait(b, total)
		stop()
		if lags[0] < 0 {
			b.Errorf("a callback came %s early", -lags[0])
		}
		b.ReportMetric(ms(lags[len(lags)/2]), "p50-ms")
		b.ReportMetric(ms(lags[len(lags)*99/100]), "p99-ms")
		b.ReportMetric(ms(lags[len(lags)-1]), "max-ms")
	}
}

// BenchmarkBurst has many jobs due at one instant and reports how many real HTTP
// callbacks a second it drains them with.
func BenchmarkBurst(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkBurst(b, "") })
	b.Run("postgres", func(b *testing.B) { benchmarkBurst(b, pgtest.Durable(b).URL()) })
}

func benchmarkBurst(b *testing.B, url string) {
	const total = 50_000
	for range b.N {
		n, stop := running(b, url)
		sink := newSink(b)
		at := n.store.Now().Add(10 * time.Second).Truncate(time.Second)
		create(b, n.store, total, sink.URL, func(int) time.Time { return at })
		lags := sink.wait(b, total)
		stop()
		b.ReportMetric(float64(total)/lags[len(lags)-1].Seconds(), "runs/s")
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// running starts a whole node.
func running(b *testing.B, url string) (*Node, func()) {
	c := Defaults()
	c.Listen, c.Data, c.DatabaseURL = "127.0.0.1:0", b.TempDir(), url
	c.AllowTargets = []string{"127.0.0.1"}
	n, err := New(b.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

func create(b *testing.B, s store.Store, total int, url string, at func(i int) time.Time) {
	now := s.Now()
	var jobs iter.Seq2[store.NewJob, error] = func(yield func(store.NewJob, error) bool) {
		for i := range total {
			spec := belfry.DefaultSpec()
			spec.Type, spec.Schedule = belfry.TypeHTTP, at(i).Format(time.RFC3339Nano)
			policy, err := plan.Compile(spec)
			id := belfry.NewID(now)
			job := store.NewJob{Job: belfry.Job{ID: id, Namespace: "default", Revision: 1, State: belfry.JobActive, CreatedAt: now,
				Manifest: belfry.Manifest{Spec: spec, Payload: []byte(`{"url":"` + url + `"}`)}}}
			if err == nil {
				job.Plan = plan.First(id, belfry.ShardOf(id, s.Shards()), policy, now)
			}
			if !yield(job, err) {
				return
			}
		}
	}
	if err := s.CreateJobs(b.Context(), jobs, nil); err != nil {
		b.Fatal(err)
	}
}

// sink receives callbacks and records how late each one is.
type sink struct {
	*httptest.Server
	mu   sync.Mutex
	lags []time.Duration
	more chan struct{}
}

func newSink(b *testing.B) *sink {
	s := &sink{more: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at, err := time.Parse(time.RFC3339Nano, r.Header.Get("Belfry-Scheduled-At"))
		if err != nil {
			b.Error(err)
		}
		lag := time.Since(at)
		s.mu.Lock()
		s.lags = append(s.lags, lag)
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
	}))
	b.Cleanup(s.Close)
	return s
}

// wait gives the lags of so many callbacks, smallest first.
func (s *sink) wait(b *testing.B, total int) []time.Duration {
	deadline := time.After(5 * time.Minute)
	for {
		s.mu.Lock()
		lags := slices.Clone(s.lags)
		s.mu.Unlock()
		if len(lags) >= total {
			slices.Sort(lags)
			return lags
		}
		select {
		case <-s.more:
			time.Sleep(10 * time.Millisecond)
		case <-deadline:
			b.Fatalf("%d of %d callbacks came", len(lags), total)
		}
	}
}
