package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The same pool on the real clock leaves no goroutine behind.
func TestPoolOnTheRealClockLeaksNoGoroutines(t *testing.T) {
	const runs = 5000
	src := newCountedSource(runs)
	mux := NewMux()
	mux.HandleFunc("work", noop)
	pool := New(src, mux, Log(slog.New(slog.DiscardHandler)))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- pool.Run(ctx) }()
	<-src.empty
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := src.finished.Load(); n != runs {
		t.Errorf("%d of %d runs finished", n, runs)
	}
}

// countedSource is a Source with a fixed number of runs.
type countedSource struct {
	mu       sync.Mutex
	left     int
	spec     belfry.Spec
	finished atomic.Int64
	total    int64
	empty    chan struct{}
	delay    time.Duration // of Claim and Finish
}

func newCountedSource(n int) *countedSource {
	spec := belfry.DefaultSpec()
	spec.Type = "work"
	return &countedSource{left: n, total: int64(n), spec: spec, empty: make(chan struct{})}
}

func (h *countedSource) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	if h.delay > 0 {
		time.Sleep(h.delay)
	}
	h.mu.Lock()
	n := min(c.Limit, h.left)
	h.left -= n
	first := h.left
	h.mu.Unlock()
	if n == 0 {
		<-ctx.Done()
		return nil, nil
	}
	made := make([]belfry.Run, n)
	runs := make([]*belfry.Run, n)
	for i := range made {
		id := first + i
		made[i] = belfry.Run{Attempt: 1, Spec: h.spec}
		made[i].ID = belfry.ID{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)}
		runs[i] = &made[i]
	}
	return runs, nil
}

func (h *countedSource) Heartbeat(context.Context, belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	return belfry.HeartbeatReply{}, nil
}

func (h *countedSource) Finish(_ context.Context, rs []belfry.Result) ([]belfry.Verdict, error) {
	if h.delay > 0 {
		time.Sleep(h.delay)
	}
	verdicts := make([]belfry.Verdict, len(rs))
	for i := range verdicts {
		verdicts[i] = belfry.VerdictAccepted
	}
	if h.finished.Add(int64(len(rs))) == h.total {
		close(h.empty)
	}
	return verdicts, nil
}

// BenchmarkPool measures no-op runs from claim to accepted result, 20,000 at a
// time, with a source that answers at once and with one that takes two
// milliseconds a call.
func BenchmarkPool(b *testing.B) {
	for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
		for _, slots := range []int{100, 1000} {
			b.Run(fmt.Sprintf("slots=%d/call=%s", slots, delay), func(b *testing.B) {
				b.ReportAllocs()
				src := newCountedSource(20000 * b.N)
				src.delay = delay
				mux := NewMux()
				mux.HandleFunc("work", noop)
				pool := New(src, mux, Concurrency(slots), Log(slog.New(slog.DiscardHandler)))
				ctx, stop := context.WithCancel(b.Context())
				done := make(chan error)
				go func() { done <- pool.Run(ctx) }()
				<-src.empty
				b.ReportMetric(float64(src.total)/b.Elapsed().Seconds(), "runs/s")
				stop()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func TestOptionDefaults(t *testing.T) {
	p := New(nil, NewMux(), with(Concurrency(-1), Queues(), Node(""), Log(nil), DrainTimeout(-time.Second))...)
	host, _ := os.Hostname()
	want := []any{host, []string{"default"}, 100, minDrain, slog.Default()}
	got := []any{p.node, p.queues, p.concurrency, p.drainTimeout, p.log}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(slog.Logger{})); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if d := New(nil, NewMux()).drainTimeout; d != 30*time.Second {
		t.Errorf("the drain takes %s", d)
	}
}
