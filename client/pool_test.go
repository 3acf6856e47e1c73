package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/worker"
)

// lines is a log that can be looked at while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// pooled runs a pool until stop is called, which wants it to end cleanly.
func pooled(t *testing.T, c *client.Client, mux *worker.Mux, options ...worker.Option) (log *lines, stop func()) {
	t.Helper()
	log = new(lines)
	options = append([]worker.Option{worker.Log(slog.New(slog.NewTextHandler(log, nil)))}, options...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.New(c, mux, options...).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the drain was not clean: %v", err)
		}
	})
	t.Cleanup(stop)
	return log, stop
}

func TestWorkerRunsJobs(t *testing.T) {
	c, _ := live(t, client.WithNamespace("billing"))
	ctx := t.Context()
	mux := worker.NewMux()
	keys := make(chan string, 10)
	worker.HandleJSON(mux, "send-invoice", func(_ context.Context, run *belfry.Run, in struct {
		Customer string `json:"customer"`
	}) error {
		if run.JobName != "monthly" || run.Namespace != "billing" || run.Kind != belfry.KindManual {
			t.Errorf("the run is %+v", run)
		}
		keys <- run.Key()
		run.Report.Output = []byte("sent to " + in.Customer)
		if in.Customer == "nobody" {
			return errors.New("there is nobody")
		}
		return nil
	})
	spec := belfry.Spec{Handler: "send-invoice", Schedule: "@monthly", MaxRetries: belfry.Some(0), Overlap: belfry.OverlapParallel, IdempotencyKeyTemplate: "invoice-{{month}}"}
	must[belfry.Job](t)(c.CreateJob(ctx, belfry.Manifest{Name: "monthly", Spec: spec, Payload: json.RawMessage(`{"customer":"ACME"}`)}))
	pooled(t, c, mux)
	for _, tt := range []struct {
		payload any
		state   belfry.RunStatus
		output  string
		err     string
	}{
		{nil, belfry.RunSucceeded, "sent to ACME", ""},
		{map[string]string{"customer": "Müller"}, belfry.RunSucceeded, "sent to Müller", ""},
		{map[string]string{"customer": "nobody"}, belfry.RunDead, "sent to nobody", "there is nobody"},
		{map[string]int{"customer": 7}, belfry.RunDead, "", "the payload is not what the handler reads: payload.customer: is a number, want a string"},
	} {
		id := must[belfry.ID](t)(c.TriggerJob(ctx, "monthly", tt.payload))
		run := settled(t, c, id)
		if run.Status != tt.state || run.Output != tt.output || run.Error != tt.err {
			t.Errorf("%v: got %s %q %q", tt.payload, run.Status, run.Output, run.Error)
		}
		if tt.output != "" {
			if key := <-keys; key != run.IdempotencyKey || !strings.HasPrefix(key, "invoice-20") {
				t.Errorf("the handler had key %s, the run shows %s", key, run.IdempotencyKey)
			}
		}
	}
	if n := len(all(t, c.JobRuns(ctx, "monthly", belfry.JobRunFilter{}))); n != 4 {
		t.Errorf("the job has %d runs", n)
	}
	if dead := all(t, c.Runs(ctx, belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: belfry.RunDead, PageSize: 1}})); len(dead) != 2 {
		t.Errorf("there are %d dead runs", len(dead))
	}
}

func TestWorkerDrainReturnsInterruptedRuns(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	must[belfry.Job](t)(c.CreateJob(ctx, belfry.Manifest{Name: "slow", Spec: belfry.Spec{Schedule: "@monthly", MaxRetries: belfry.Some(0)}}))
	started := make(chan int, 10)
	mux := worker.NewMux()
	mux.HandleFunc("slow", func(ctx context.Context, run *belfry.Run) error {
		started <- run.Attempt
		if run.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	_, stop := pooled(t, c, mux, worker.DrainTimeout(0))
	id := must[belfry.ID](t)(c.TriggerJob(ctx, "slow", nil))
	<-started
	stop()
	run := must[belfry.Run](t)(c.Run(ctx, id))
	if run.Status != belfry.RunReady || len(run.Attempts) != 1 || run.Attempts[0].Outcome != belfry.OutcomeInterrupted {
		t.Errorf("handed back it is %+v", run)
	}
	pooled(t, c, mux)
	if run := settled(t, c, id); run.Status != belfry.RunSucceeded || run.Attempt != 2 {
		t.Errorf("it ended %s in attempt %d", run.Status, run.Attempt)
	}
}

// The connections of a worker break, and nobody answers for a moment.
func TestWorkerReconnects(t *testing.T) {
	direct, s := live(t)
	ctx := t.Context()
	target, _ := url.Parse(s.url)
	p := newProxy(t, target.Host)
	must[belfry.Job](t)(direct.CreateJob(ctx, belfry.Manifest{Name: "work", Spec: belfry.Spec{Schedule: "@monthly", Overlap: belfry.OverlapParallel}}))
	var attempts atomic.Int32
	mux := worker.NewMux()
	mux.HandleFunc("work", func(context.Context, *belfry.Run) error { attempts.Add(1); return nil })
	log, stop := pooled(t, connect(t, "http://"+p.addr()), mux)
	settled(t, direct, must[belfry.ID](t)(direct.TriggerJob(ctx, "work", nil)))
	for range 3 {
		p.cut()
		await(t, func() bool { return log.count("the source fails") > log.count("the source answers again") })
		ids := []belfry.ID{must[belfry.ID](t)(direct.TriggerJob(ctx, "work", nil)), must[belfry.ID](t)(direct.TriggerJob(ctx, "work", nil))}
		p.mend()
		for _, id := range ids {
			if run := settled(t, direct, id); run.Status != belfry.RunSucceeded {
				t.Errorf("the run is %s: %s", run.Status, run.Error)
			}
		}
	}
	stop()
	if n := attempts.Load(); n != 7 {
		t.Errorf("%d attempts of 7 runs", n)
	}
}

// A server is restarted under a worker that holds runs and results: nothing is
// lost, and no run is settled twice.
func TestWorkerSurvivesAServerRestart(t *testing.T) {
	dir := t.TempDir()
	first, err := serve(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, first.url)
	ctx := t.Context()
	must[belfry.Job](t)(c.CreateJob(ctx, belfry.Manifest{Name: "work", Spec: belfry.Spec{Schedule: "@monthly", Overlap: belfry.OverlapParallel, MaxRetries: belfry.Some(0)}}))
	release := make(chan struct{})
	var started atomic.Int32
	mux := worker.NewMux()
	mux.HandleFunc("work", func(ctx context.Context, _ *belfry.Run) error {
		started.Add(1)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	log, stop := pooled(t, c, mux)
	var ids []belfry.ID
	for i := range 20 {
		ids = append(ids, must[belfry.ID](t)(c.TriggerJob(ctx, "work", nil, client.IdempotencyKey(fmt.Sprint(i)))))
	}
	await(t, func() bool { return started.Load() == 20 })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	close(release) // results are made while nobody takes them
	await(t, func() bool { return log.count("the source fails") == 1 })
	address, _ := url.Parse(first.url)
	second, err := serve(dir, address.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer second.stop()
	for _, id := range ids {
		if run := settled(t, c, id); run.Status != belfry.RunSucceeded {
			t.Errorf("run %s is %s: %s", id, run.Status, run.Error)
		}
	}
	if n := len(all(t, c.JobRuns(ctx, "work", belfry.JobRunFilter{}))); n != 20 {
		t.Errorf("there are %d runs of 20 triggers", n)
	}
	stop()
}

// await waits until something holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}
