package tracing_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/worker"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// eachDatabase runs a test with a node on either database.
func eachDatabase(t *testing.T, test func(t *testing.T, change func(*node.Config))) {
	t.Run("sqlite", func(t *testing.T) { test(t, func(*node.Config) {}) })
	t.Run("postgres", func(t *testing.T) {
		address := pgtest.Database(t, postgres.Migrate)
		test(t, func(c *node.Config) { c.DatabaseURL, c.AllowTargets = address, []string{"127.0.0.1"} })
	})
}

func TestARunIsATraceOfItsOwn(t *testing.T) {
	eachDatabase(t, func(t *testing.T, change func(*node.Config)) {
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
		c := startCollector(t)
		s := startServer(t, change)
		g := startTarget(t, http.StatusOK)
		creating, creator := callerSpan(t, 0xaa, 0xab)
		triggering, caller := callerSpan(t, 0xbb, 0xbc)
		m := calls(g.URL)
		m.Name = "nightly"
		job := s.create(t, creating, m)
		triggered := s.runNow(t, triggering, job)

		m.Name, m.Schedule = "once", time.Now().UTC().Format(time.RFC3339Nano)
		once := s.create(t, creating, m)
		scheduled := s.settled(t, belfry.RunID(once.ID, belfry.KindScheduled, mustTime(t, once.Schedule), belfry.ID{}))
		s.stop()

		for _, tt := range []struct {
			run   belfry.Run
			name  string
			links []string
		}{
			{triggered, "nightly", []string{"trigger " + spanOf(c, caller, "POST /api/v1/jobs/{job}/trigger"), "create " + spanOf(c, creator, "POST /api/v1/jobs")}},
			{scheduled, "once", []string{"create " + secondSpanOf(c, creator, "POST /api/v1/jobs")}},
		} {
			if tt.run.TraceID != belfry.RunTraceID(tt.run.ID).String() {
				t.Errorf("the run shows the trace %q", tt.run.TraceID)
			}
			root := c.one(tt.run.TraceID, "run")
			if len(root.ParentSpanId) != 0 || root.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
				t.Errorf("the root span is %v", root)
			}
			attributes := attributesOf(root.Attributes)
			for key, want := range map[string]any{"belfry.run.id": tt.run.ID.String(), "belfry.job.name": tt.name, "belfry.run.status": "succeeded", "belfry.run.attempts": int64(1)} {
				if attributes[key] != want {
					t.Errorf("%s is %v, wants %v", key, attributes[key], want)
				}
			}
			var links []string
			for _, l := range root.Links {
				links = append(links, fmt.Sprintf("%v %x-%x", attributesOf(l.Attributes)["belfry.link"], l.TraceId, l.SpanId))
			}
			if !slices.Equal(links, tt.links) {
				t.Errorf("the links are %q, want %q", links, tt.links)
			}
			for _, name := range []string{"fire", "claim", "attempt"} {
				if child := c.one(tt.run.TraceID, name); string(child.ParentSpanId) != string(root.SpanId) || child.StartTimeUnixNano < root.StartTimeUnixNano || child.EndTimeUnixNano > root.EndTimeUnixNano {
					t.Errorf("%s is %v, in the run %v", name, child, root)
				}
			}
			call, attempt := c.one(tt.run.TraceID, "POST"), c.one(tt.run.TraceID, "attempt")
			if string(call.ParentSpanId) != string(attempt.SpanId) || call.Kind != tracepb.Span_SPAN_KIND_CLIENT || attributesOf(call.Attributes)["http.response.status_code"] != int64(200) {
				t.Errorf("the call is %v in the attempt %v", call, attempt)
			}
			if want := fmt.Sprintf("00-%x-%x-01", call.TraceId, call.SpanId); !slices.Contains(g.traceparents(), want) {
				t.Errorf("the target received %q, wants %q", g.traceparents(), want)
			}
			if got := c.of(tt.run.TraceID, ""); len(got) != 5 {
				t.Errorf("the trace has the spans %q", names(got))
			}
		}
		if c.resource["service.name"] != "belfry" || c.resource["service.version"] != "1.2.3" || c.resource["deployment.environment.name"] != "test" {
			t.Errorf("the resource is %v", c.resource)
		}
	})
}

// spanOf is the span of the first request that continued a trace.
func spanOf(c *collector, caller trace.SpanContext, name string) string {
	return nthSpanOf(c, caller, name, 0)
}

func secondSpanOf(c *collector, caller trace.SpanContext, name string) string {
	return nthSpanOf(c, caller, name, 1)
}

func nthSpanOf(c *collector, caller trace.SpanContext, name string, n int) string {
	c.t.Helper()
	found := c.of(caller.TraceID().String(), name)
	if len(found) <= n || hex.EncodeToString(found[n].ParentSpanId) != caller.SpanID().String() || found[n].Kind != tracepb.Span_SPAN_KIND_SERVER {
		c.t.Fatalf("the requests %q of %s are %v", name, caller.SpanID(), found)
	}
	return fmt.Sprintf("%x-%x", found[n].TraceId, found[n].SpanId)
}

func mustTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestRetriesAreAttemptsOfOneTrace(t *testing.T) {
	eachDatabase(t, func(t *testing.T, change func(*node.Config)) {
		c := startCollector(t)
		s := startServer(t, change)
		g := startTarget(t, http.StatusServiceUnavailable)
		m := calls(g.URL)
		m.RetryDelays = "0.01,0.01"
		run := s.runNow(t, t.Context(), s.create(t, t.Context(), m))
		letter, err := s.DeadLetter(t.Context(), run.ID)
		if err != nil || letter.TraceID != belfry.RunTraceID(run.ID).String() {
			t.Errorf("the dead letter shows the trace %q: %v", letter.TraceID, err)
		}
		s.stop()
		root := c.one(run.TraceID, "run")
		if root.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || root.Status.Message != "out_of_retries" {
			t.Errorf("the root span is %v", root)
		}
		attempts, requests := c.of(run.TraceID, "attempt"), c.of(run.TraceID, "POST")
		if len(attempts) != 3 || len(requests) != 3 || len(c.of(run.TraceID, "claim")) != 3 || len(c.of(run.TraceID, "fire")) != 1 {
			t.Fatalf("the trace has the spans %q", names(c.of(run.TraceID, "")))
		}
		for i, a := range attempts {
			attributes := attributesOf(a.Attributes)
			if a.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || attributes["belfry.attempt"] != int64(i+1) || attributes["belfry.outcome"] != "failed" || attributes["http.response.status_code"] != int64(503) {
				t.Errorf("attempt %d is %v", i+1, a)
			}
			if string(a.ParentSpanId) != string(root.SpanId) || string(requests[i].ParentSpanId) != string(a.SpanId) || requests[i].Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
				t.Errorf("attempt %d is %v, with the request %v", i+1, a, requests[i])
			}
		}
	})
}

func TestARemoteWorkerContinuesTheTrace(t *testing.T) {
	c := startCollector(t)
	s := startServer(t)
	g := startTarget(t, http.StatusOK)
	contexts := make(chan trace.SpanContext, 10)
	mux := worker.NewMux()
	mux.HandleFunc("invoice", func(ctx context.Context, run *belfry.Run) error {
		contexts <- trace.SpanFromContext(ctx).SpanContext()
		req, err := http.NewRequestWithContext(ctx, "GET", g.URL, nil)
		if err != nil {
			return err
		}
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header)) // as otelhttp does
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if run.Attempt == 1 {
			return errors.New("again")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.New(s.Client, mux).Run(ctx) }()
	m := belfry.Manifest{Spec: belfry.Spec{Type: belfry.TypeWorker, Handler: "invoice", Schedule: "@yearly", RetryDelays: "0.01"}}
	run := s.runNow(t, t.Context(), s.create(t, t.Context(), m))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.stop()
	root, attempts := c.one(run.TraceID, "run"), c.of(run.TraceID, "attempt")
	if len(attempts) != 2 || run.Status != belfry.RunSucceeded {
		t.Fatalf("the run is %+v with the spans %q", run, names(c.of(run.TraceID, "")))
	}
	for i, a := range attempts {
		sc := <-contexts
		if sc.TraceID().String() != run.TraceID || sc.SpanID().String() != hex.EncodeToString(a.SpanId) || !sc.IsSampled() || !sc.IsRemote() {
			t.Errorf("the handler had the context %+v, the attempt is %v", sc, a)
		}
		if string(a.ParentSpanId) != string(root.SpanId) || attributesOf(a.Attributes)["belfry.handler"] != "invoice" {
			t.Errorf("attempt %d is %v", i+1, a)
		}
		if want := fmt.Sprintf("00-%s-%s-01", sc.TraceID(), sc.SpanID()); g.traceparents()[i] != want {
			t.Errorf("what the handler called received %q, wants %q", g.traceparents()[i], want)
		}
	}
}

// A node that is not told where to send traces shows their ids, and does nothing else.
func TestWithoutAnEndpointThereAreNoTraces(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "jobs")
	s := startServer(t)
	g := startTarget(t, http.StatusOK)
	caller, _ := callerSpan(t, 0xaa, 0xab)
	run := s.runNow(t, caller, s.create(t, caller, calls(g.URL)))
	if got := g.traceparents(); len(got) != 1 || got[0] != "" || run.TraceID == "" {
		t.Errorf("the target received %q in the run %+v", got, run)
	}
}

func TestATraceThatIsNotSampledIsPassedOn(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	c := startCollector(t)
	s := startServer(t)
	g := startTarget(t, http.StatusOK)
	run := s.runNow(t, t.Context(), s.create(t, t.Context(), calls(g.URL)))
	s.stop()
	got := g.traceparents()
	if len(got) != 1 || len(got[0]) != 55 || got[0][3:35] != run.TraceID || got[0][52:] != "-00" {
		t.Errorf("the target received %q", got)
	}
	if len(c.spans) != 0 {
		t.Errorf("the spans %q were sent", names(c.spans))
	}
}

func TestTheTraceparentOfAJobIsItsOwn(t *testing.T) {
	const own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := startCollector(t)
	s := startServer(t)
	g := startTarget(t, http.StatusOK)
	m := calls(g.URL)
	m.Payload = json.RawMessage(`{"url": "` + g.URL + `", "headers": {"traceparent": "` + own + `"}}`)
	run := s.runNow(t, t.Context(), s.create(t, t.Context(), m))
	s.stop()
	if got := g.traceparents(); len(got) != 1 || got[0] != own {
		t.Errorf("the target received %q", got)
	}
	c.one(run.TraceID, "POST")
}
