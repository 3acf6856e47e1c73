package node

import (
	"bufio"
	"fmt"
	"io"
	"iter"
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
		n, stop := startBenchNode(b, url)
		sink := newLagReceiver(b)
		start := n.store.Now().Add(3 * time.Second).Truncate(time.Second)
		total := int(lasts.Seconds()) * rate
		createJobs(b, n.store, total, sink.URL, belfry.TypeHTTP, func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / time.Duration(rate)) })
		lags := sink.wait(b, total)
		stop()
		reportLags(b, lags)
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
		n, stop := startBenchNode(b, url)
		sink := newLagReceiver(b)
		at := n.store.Now().Add(10 * time.Second).Truncate(time.Second)
		createJobs(b, n.store, total, sink.URL, belfry.TypeHTTP, func(int) time.Time { return at })
		lags := sink.wait(b, total)
		stop()
		b.ReportMetric(float64(total)/lags[len(lags)-1].Seconds(), "runs/s")
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// startBenchNode starts a node, with all roles if none is given.
func startBenchNode(b *testing.B, url string, roles ...string) (*Node, func()) {
	c := Defaults()
	c.Listen, c.Data, c.DatabaseURL = "127.0.0.1:0", b.TempDir(), url
	c.AllowTargets, c.RateLimit = []string{"127.0.0.1"}, 0
	if len(roles) > 0 {
		c.Roles = roles
	}
	return runNode(b, c)
}

// reportLags reports percentiles of lags, smallest first.
func reportLags(b *testing.B, lags []time.Duration) {
	if lags[0] < 0 {
		b.Errorf("a callback came %s early", -lags[0])
	}
	b.ReportMetric(milliseconds(lags[len(lags)/2]), "p50-ms")
	b.ReportMetric(milliseconds(lags[len(lags)*99/100]), "p99-ms")
	b.ReportMetric(milliseconds(lags[len(lags)-1]), "max-ms")
}

// createJobs creates one-offs.
func createJobs(b *testing.B, s store.Store, total int, url, kind string, at func(i int) time.Time) {
	createSpecs(b, s, total, url, func(i int) belfry.Spec {
		spec := belfry.DefaultSpec()
		spec.Type, spec.Schedule = kind, at(i).Format(time.RFC3339Nano)
		if kind == belfry.TypeWorker {
			spec.Handler = "lag"
		}
		return spec
	})
}

func createSpecs(b *testing.B, s store.Store, total int, url string, spec func(i int) belfry.Spec) (ids []belfry.ID) {
	now := s.Now()
	var jobs iter.Seq2[store.NewJob, error] = func(yield func(store.NewJob, error) bool) {
		for i := range total {
			spec := spec(i)
			policy, err := plan.Compile(spec)
			id := belfry.NewID(now)
			ids = append(ids, id)
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
	return ids
}

// lagReceiver receives callbacks and records how late each one is.
type lagReceiver struct {
	*httptest.Server
	mu   sync.Mutex
	lags []time.Duration
	more chan struct{}
}

func newLagReceiver(b *testing.B) *lagReceiver {
	s := &lagReceiver{more: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at, err := time.Parse(time.RFC3339Nano, r.Header.Get("Belfry-Scheduled-At"))
		if err != nil {
			b.Error(err)
		}
		s.note(time.Since(at))
	}))
	b.Cleanup(s.Close)
	return s
}

func (s *lagReceiver) note(lag time.Duration) {
	s.mu.Lock()
	s.lags = append(s.lags, lag)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// wait returns the lags of that many callbacks, smallest first.
func (s *lagReceiver) wait(b *testing.B, total int) []time.Duration {
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

// BenchmarkImport is how many jobs per second a whole node accepts over HTTP, in
// requests of 50,000 named and tagged jobs. Half of it is the database.
func BenchmarkImport(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkImport(b, "") })
	b.Run("postgres", func(b *testing.B) { benchmarkImport(b, pgtest.Durable(b).URL()) })
}

func benchmarkImport(b *testing.B, url string) {
	const jobs = 50_000
	n, stop := startBenchNode(b, url)
	defer stop()
	for i := 0; b.Loop(); i++ {
		body, out := io.Pipe()
		go func() {
			lines := bufio.NewWriterSize(out, 64<<10)
			for j := range jobs {
				fmt.Fprintf(lines, `{"name": "tenant-%d-report-%d", "schedule": "%d %d * * *", "timezone": "Europe/Paris", "tags": ["reports"], `+
					`"payload": {"url": "https://example.com/hooks/report", "headers": {"Accept": "application/json"}, "body": {"customer": %d}}}`+"\n",
					i, j, j%60, j/60%24, j)
			}
			lines.Flush()
			out.Close()
		}()
		resp, err := http.Post("http://"+n.Addr().String()+"/api/v1/jobs/bulk", "application/x-ndjson", body)
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusCreated {
			b.Fatalf("got %d %.300s (%v)", resp.StatusCode, text, err)
		}
	}
	b.ReportMetric(float64(b.N)*jobs/b.Elapsed().Seconds(), "jobs/s")
}
