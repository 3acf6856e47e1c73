package tracing_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
	"github.com/belfry-sh/belfry/internal/tracing"
)

// An attempt whose worker is lost is a span of whoever reaps it, and so is the run that
// dies of it.
func TestLostAttemptsAreSpans(t *testing.T) {
	c := startCollector(t)
	inner, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Shards: len(controltest.Shards)})
	if err != nil {
		t.Fatal(err)
	}
	s := tracing.New(t.Context(), belfry.NewID(time.Now()), "1", slog.New(slog.DiscardHandler)).Store(inner)
	ctl := control.New(s, plan.Defaults{})
	job := controltest.Create(t, ctl, controltest.WorkerInput("invoice"))
	triggered, err := ctl.Trigger(t.Context(), belfry.DefaultNamespace, job.ID.String(), belfry.Trigger{}, control.Key{})
	if err != nil {
		t.Fatal(err)
	}
	controltest.Fire(t, s)
	for range belfry.PoisonLimit {
		id := belfry.NewID(time.Now())
		lanes := []string{belfry.NamespaceLane(belfry.DefaultNamespace, belfry.Lane(belfry.DefaultQueue, "invoice"))}
		if _, err := s.Heartbeat(t.Context(), belfry.Heartbeat{WorkerID: id, Lanes: lanes, Register: true}); err != nil {
			t.Fatal(err)
		}
		runs, err := s.Claim(t.Context(), belfry.Claim{WorkerID: id, Lanes: lanes, Limit: 1})
		if err != nil || len(runs) != 1 || runs[0].Trace == nil {
			t.Fatalf("claimed %v: %v", runs, err)
		}
		if reaped, err := s.Reap(t.Context(), time.Nanosecond, 10); err != nil || len(reaped) != 1 {
			t.Fatalf("reaped %v: %v", reaped, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	id := belfry.RunTraceID(triggered.RunID).String()
	attempts := c.of(id, "attempt")
	if len(attempts) != belfry.PoisonLimit {
		t.Fatalf("the trace has the spans %q", names(c.of(id, "")))
	}
	for i, a := range attempts {
		if a.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || a.Status.Message != "lost" {
			t.Errorf("attempt %d is %v", i+1, a)
		}
	}
	if root := c.one(id, "run"); root.Status.Message != "poison" {
		t.Errorf("the root span is %v", root)
	}
}

func TestACancelledRunEndsItsTrace(t *testing.T) {
	c := startCollector(t)
	s := startServer(t)
	g := startTarget(t, http.StatusServiceUnavailable)
	m := calls(g.URL)
	m.RetryDelays = "3600"
	job := s.create(t, t.Context(), m)
	id, err := s.TriggerJob(t.Context(), job.ID.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for run := (belfry.Run{}); run.Status != belfry.RunRetry; time.Sleep(10 * time.Millisecond) {
		if run, err = s.Run(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.CancelRun(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	s.stop()
	trace := belfry.RunTraceID(id).String()
	if root := c.one(trace, "run"); attributesOf(root.Attributes)["belfry.run.status"] != "cancelled" || len(c.of(trace, "attempt")) != 1 {
		t.Errorf("the root span is %v, of the spans %q", root, names(c.of(trace, "")))
	}
}

func TestNoSecretIsInASpan(t *testing.T) {
	c := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20otlp-canary")
	s := startServer(t)
	g := startTarget(t, http.StatusTeapot)
	m := calls("")
	m.Payload = []byte(`{"url": "` + g.URL + `/path-canary?token=query-canary", "headers": {"Authorization": "Bearer header-canary", "X-Api-Key": "name-canary"}, "body": {"card": "body-canary"}}`)
	m.RetryDelays = "0.01"
	run := s.runNow(t, t.Context(), s.create(t, t.Context(), m))
	unreachable := calls("http://127.0.0.1:1/path-canary?token=query-canary")
	unreachable.MaxRetries = belfry.Some(0)
	failed := s.runNow(t, t.Context(), s.create(t, t.Context(), unreachable))
	s.stop()
	if call := c.one(failed.TraceID, "POST"); call.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the call without an answer is %v", call)
	}
	if len(c.of(run.TraceID, "POST")) != 2 || c.header.Get("Authorization") != "Bearer otlp-canary" {
		t.Errorf("the spans are %q, sent with %v", names(c.of(run.TraceID, "")), c.header)
	}
	contains(t, "a span", c.text.String(), "canary")
	contains(t, "the log", s.log.String(), "otlp-canary", "header-canary", "body-canary", "query-canary")
}

// A collector that refuses everything delays nothing and is logged once, without what it
// repeats of the request.
func TestACollectorThatFails(t *testing.T) {
	c := startCollector(t)
	c.status, c.answer = http.StatusUnauthorized, "unknown key otlp-canary"
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20otlp-canary")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2") // several exports
	s := startServer(t)
	g := startTarget(t, http.StatusOK)
	if run := s.runNow(t, t.Context(), s.create(t, t.Context(), calls(g.URL))); run.Status != belfry.RunSucceeded {
		t.Errorf("the run is %+v", run)
	}
	s.stop()
	if n := strings.Count(s.log.String(), "traces could not be exported"); n != 1 || len(c.spans) < 6 {
		t.Errorf("%d failures of the export of %d spans were logged:\n%s", n, len(c.spans), s.log)
	}
	contains(t, "the log", s.log.String(), "otlp-canary")
}

// A collector that does not answer delays the end of a node by the time for its last
// spans at most.
func TestASilentCollectorDoesNotHoldUpTheEnd(t *testing.T) {
	c := startCollector(t)
	c.silent = make(chan struct{})
	defer close(c.silent)
	s := startServer(t)
	g := startTarget(t, http.StatusOK)
	if run := s.runNow(t, t.Context(), s.create(t, t.Context(), calls(g.URL))); run.Status != belfry.RunSucceeded {
		t.Errorf("the run is %+v", run)
	}
	s.stop() // or the test does not end
	if !strings.Contains(s.log.String(), "traces could not be exported") {
		t.Errorf("the log is\n%s", s.log)
	}
}
