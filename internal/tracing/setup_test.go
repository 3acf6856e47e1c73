package tracing_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/node"
)

// collector is a server of OTLP over HTTP that keeps the spans it receives.
type collector struct {
	t      *testing.T
	status int           // of its answers
	answer string        // its body
	silent chan struct{} // it does not answer until this is closed; nil: it does

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
	header   http.Header
	text     bytes.Buffer // all requests as they came
}

// startCollector starts a collector, and has the nodes of the test send to it.
func startCollector(t *testing.T) *collector {
	c := &collector{t: t, status: http.StatusOK, resource: map[string]string{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collectorpb.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &in) != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("%s %s is not an export of traces: %v", r.Method, r.URL, err)
	}
	if c.silent != nil {
		<-c.silent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = r.Header
	c.text.Write(body)
	for _, resource := range in.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	w.WriteHeader(c.status)
	io.WriteString(w, c.answer)
}

// of returns the spans of a trace with a name, by their start.
func (c *collector) of(id, name string) (found []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == id && (name == "" || s.Name == name) {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b *tracepb.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return found
}

// one returns the only span of a trace with a name.
func (c *collector) one(id, name string) *tracepb.Span {
	c.t.Helper()
	found := c.of(id, name)
	if len(found) != 1 {
		c.t.Fatalf("trace %s has %d spans %q, wants 1; it has %v", id, len(found), name, names(c.of(id, "")))
	}
	return found[0]
}

func names(spans []*tracepb.Span) (out []string) {
	for _, s := range spans {
		out = append(out, s.Name)
	}
	slices.Sort(out)
	return out
}

func attributesOf(list []*commonpb.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[a.Key] = v.IntValue
		default:
			out[a.Key] = v
		}
	}
	return out
}

// server is a node under test.
type server struct {
	*client.Client
	stop func() // ends the node, which sends what is left
	log  *logBuffer
}

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startServer starts a node with the environment of the test.
func startServer(t *testing.T, change ...func(*node.Config)) *server {
	t.Helper()
	config := node.Defaults()
	config.Listen, config.Data, config.Version = "127.0.0.1:0", t.TempDir(), "1.2.3"
	for _, f := range change {
		f(&config)
	}
	s := &server{log: &logBuffer{}}
	n, err := node.New(t.Context(), config, slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	if s.Client, err = client.New("http://" + n.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return s
}

// settled waits until a run is settled.
func (s *server) settled(t *testing.T, id belfry.ID) belfry.Run {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		run, err := s.Run(t.Context(), id)
		if err == nil && !run.Status.Live() {
			return run
		}
		if time.Now().After(deadline) {
			t.Fatalf("the run is not settled: %+v %v", run, err)
		}
	}
}

// create creates a job within a trace of the caller.
func (s *server) create(t *testing.T, ctx context.Context, m belfry.Manifest) belfry.Job {
	t.Helper()
	job, err := s.CreateJob(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// runNow triggers a job and waits until its run is settled.
func (s *server) runNow(t *testing.T, ctx context.Context, job belfry.Job) belfry.Run {
	t.Helper()
	id, err := s.TriggerJob(ctx, job.ID.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.settled(t, id)
}

// callerSpan is a context with a sampled span of somebody who calls the API.
func callerSpan(t *testing.T, trace1, span1 byte) (context.Context, trace.SpanContext) {
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(bytes.Repeat([]byte{trace1}, 16)), SpanID: trace.SpanID(bytes.Repeat([]byte{span1}, 8)), TraceFlags: trace.FlagsSampled,
	})
	return trace.ContextWithSpanContext(t.Context(), sc), sc
}

// target is an HTTP target that answers statuses in turn, the last one for ever.
type target struct {
	*httptest.Server
	mu       sync.Mutex
	statuses []int
	headers  []http.Header
}

func startTarget(t *testing.T, statuses ...int) *target {
	g := &target{statuses: statuses}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.headers = append(g.headers, r.Header)
		w.WriteHeader(g.statuses[0])
		io.WriteString(w, "answer-canary")
		if len(g.statuses) > 1 {
			g.statuses = g.statuses[1:]
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *target) traceparents() (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.headers {
		out = append(out, h.Get("Traceparent"))
	}
	return out
}

func calls(url string) belfry.Manifest {
	return belfry.Manifest{
		Spec:    belfry.Spec{Schedule: "@yearly", Overlap: belfry.OverlapParallel},
		Payload: []byte(`{"url": "` + url + `"}`),
	}
}

func contains(t *testing.T, what, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s has %q", what, secret)
		}
	}
}
