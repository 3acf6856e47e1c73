// Package tracing makes OpenTelemetry traces of runs and of the requests that cause them,
// and sends them by OTLP over HTTP. The standard environment variables configure it.
//
// A run is a trace of its own, which links to the requests that created its job and
// triggered it. The ids of the trace and of its spans are computed from the id of the run
// and the number of the attempt, so that nodes and workers need not share anything to
// make spans of one trace:
//
//	run                 from the scheduled instant until it is settled; sent then
//	  fire              until the run was created
//	  claim             until a worker has taken it, once for each attempt
//	  attempt           until its result was accepted
//	    POST            the call of an HTTP target, or what a handler makes of it
//
// Nothing waits for a trace. What happens is queued by Store, and one goroutine makes
// spans of it; what does not fit into the queue is dropped. A node that is killed loses
// the spans that it has not sent.
package tracing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// closeTimeout is how long the end of a process waits for the last spans.
const closeTimeout = 5 * time.Second

// Tracing makes spans.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	failures *failureLog
}

// New starts what the environment configures. It returns nil if that is nothing, or not
// valid, which is logged: a node runs without traces rather than not at all.
func New(ctx context.Context, node belfry.ID, version string, log *slog.Logger) *Tracing {
	on, err := configured()
	if err != nil {
		log.Warn("no traces are exported: a variable of OpenTelemetry is not valid", "error", err)
	}
	if !on || err != nil {
		return nil
	}
	failures := &failureLog{log: log, secrets: headerValues()}
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		failures.log.Warn("no traces are exported", "error", failures.text(err))
		return nil
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "belfry"), attribute.String("service.version", version), attribute.String("service.instance.id", node.String()),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil { // what could be read is used
		log.Warn("not all resource attributes of traces could be read", "error", failures.text(err))
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(&exporter{client, failures}), sdk.WithResource(about), sdk.WithIDGenerator(idGenerator{}))
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/belfry-sh/belfry"), failures: failures}
}

func (t *Tracing) close(ctx context.Context) {
	if err := t.provider.Shutdown(ctx); err != nil {
		t.failures.report(0, err)
	}
}

// spanIDs are the ids that a span must have.
type spanIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

type idsKey struct{}

// idGenerator gives a span the ids in its context, or random ones.
type idGenerator struct{}

func (g idGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if ids, ok := ctx.Value(idsKey{}).(spanIDs); ok {
		return ids.trace, ids.span
	}
	made := trace.TraceID(belfry.NewToken())
	return made, g.NewSpanID(ctx, made)
}

func (idGenerator) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if ids, ok := ctx.Value(idsKey{}).(spanIDs); ok {
		return ids.span
	}
	token := belfry.NewToken()
	return trace.SpanID(token[:8])
}

// The spans of a run.
const (
	spanRun     = "run"
	spanFire    = "fire"
	spanClaim   = "claim"
	spanAttempt = "attempt"
)

// idsOf are the ids of a span of a run: of an attempt, or of the whole run if that is zero.
func idsOf(run belfry.ID, name string, attempt int) spanIDs {
	text := append(append(make([]byte, 0, 64), name...), ':')
	text = binary.BigEndian.AppendUint32(append(text, run[:]...), uint32(attempt))
	hash := sha256.Sum256(text)
	return spanIDs{trace: trace.TraceID(belfry.RunTraceID(run)), span: trace.SpanID(hash[:8])}
}

// rootContext is the context of the root span of a run, with the decision of the sampler.
// That depends on the id of the trace alone, so that all nodes with the same sampler
// agree. The span that is started for it is never ended, and so never sent.
func (t *Tracing) rootContext(run belfry.ID) trace.SpanContext {
	ctx := context.WithValue(context.Background(), idsKey{}, idsOf(run, spanRun, 0))
	_, root := t.tracer.Start(ctx, spanRun)
	return root.SpanContext()
}

// attemptContext is the context that a worker continues.
func attemptContext(root trace.SpanContext, run belfry.ID, attempt int) *belfry.TraceContext {
	carrier := propagation.MapCarrier{}
	span := root.WithSpanID(idsOf(run, spanAttempt, attempt).span)
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return &belfry.TraceContext{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}

// traceparent is the position of a context in a trace, if that is recorded.
func traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

func parseTraceparent(text string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
	return trace.SpanContextFromContext(ctx)
}

// ServerSpan starts the span of a request, which continues the trace of its header
// traceparent. The route is a pattern: a path may have names of people's jobs.
func (t *Tracing) ServerSpan(r *http.Request, route string) (ctx context.Context, end func(status int)) {
	ctx = propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("http.route", route)))
	return ctx, func(status int) {
		endHTTP(span, status, status >= http.StatusInternalServerError)
	}
}

// ClientSpan starts the span of a call to a target, if its context is that of an attempt,
// and puts the header traceparent into it. A traceparent that the job sets itself stays:
// it is part of the request that the user asked for. Neither path nor query are recorded,
// since they may have secrets.
func (t *Tracing) ClientSpan(r *http.Request) (end func(status int, err error)) {
	if !trace.SpanContextFromContext(r.Context()).IsValid() {
		return func(int, error) {}
	}
	attributes := []attribute.KeyValue{attribute.String("http.request.method", r.Method), attribute.String("url.scheme", r.URL.Scheme),
		attribute.String("server.address", r.URL.Hostname())}
	if port, err := strconv.Atoi(r.URL.Port()); err == nil {
		attributes = append(attributes, attribute.Int("server.port", port))
	}
	ctx, span := t.tracer.Start(r.Context(), r.Method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	if r.Header.Get("Traceparent") == "" {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	}
	return func(status int, err error) {
		if err != nil && status == 0 { // its text may have secrets
			span.SetAttributes(attribute.String("error.type", fmt.Sprintf("%T", err)))
			span.SetStatus(codes.Error, "no response")
		}
		endHTTP(span, status, status >= http.StatusBadRequest)
	}
}

func endHTTP(span trace.Span, status int, failed bool) {
	if status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if failed {
		span.SetAttributes(attribute.String("error.type", strconv.Itoa(status)))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// configured reports whether traces are to be exported: if an endpoint is set and nothing
// turns them off. It checks what the libraries ignore or print, with secrets; an error
// names the variable and never its value.
func configured() (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") || env("OTEL_TRACES_EXPORTER") == "none" {
		return false, nil
	}
	name, endpoint := forTraces("ENDPOINT")
	if endpoint == "" {
		return false, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return false, fmt.Errorf("%s must be a URL such as http://localhost:4318", name)
	}
	if exporter := env("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER must be otlp or none")
	}
	if name, protocol := forTraces("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("%s must be http/protobuf; the port of a collector for it is usually 4318", name)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"} { // both are read
		if headers := env(name); headers != "" {
			for i, header := range strings.Split(headers, ",") {
				key, value, ok := strings.Cut(header, "=")
				if _, err := url.PathUnescape(value); !ok || err != nil || !headerName.MatchString(strings.TrimSpace(key)) {
					return false, fmt.Errorf("%s must be a list such as name=value,name=value; item %d is not", name, i+1)
				}
			}
		}
	}
	return true, checkSampler()
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}

func checkSampler() error {
	name := strings.ToLower(env("OTEL_TRACES_SAMPLER"))
	if name != "" && !slices.Contains(samplers, name) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER must be one of %s", strings.Join(samplers, ", "))
	}
	if arg := env("OTEL_TRACES_SAMPLER_ARG"); arg != "" && strings.HasSuffix(name, "traceidratio") {
		if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1")
		}
	}
	return nil
}

func env(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// forTraces is a variable of the exporter: that for traces, or that for everything.
func forTraces(what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_TRACES_" + what
	if value = env(name); value == "" {
		name = "OTEL_EXPORTER_OTLP_" + what
		value = env(name)
	}
	return name, value
}

// headerValues are the values of the headers that are sent with spans: credentials.
func headerValues() (values []string) {
	_, headers := forTraces("HEADERS")
	for header := range strings.SplitSeq(headers, ",") {
		_, value, _ := strings.Cut(header, "=")
		decoded, _ := url.PathUnescape(value)
		for _, secret := range append(strings.Fields(decoded), strings.TrimSpace(value), strings.TrimSpace(decoded)) {
			if len(secret) >= 8 {
				values = append(values, secret)
			}
		}
	}
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // the longest is replaced first
	return values
}

// exporter logs the failures of another one. The SDK would print each of them.
type exporter struct {
	sdk.SpanExporter
	failures *failureLog
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.failures.report(len(spans), err)
	}
	return nil
}

const (
	reportInterval = time.Minute
	maxFailure     = 300 // bytes
)

// failureLog logs that spans were lost, once a minute at most.
type failureLog struct {
	log     *slog.Logger
	secrets []string

	mu     sync.Mutex
	lost   int // since the last line
	nextAt time.Time
}

func (f *failureLog) report(spans int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost += spans
	if now := time.Now(); !now.Before(f.nextAt) {
		f.log.Warn("traces could not be exported", "spans", f.lost, "error", f.text(err))
		f.lost, f.nextAt = 0, now.Add(reportInterval)
	}
}

// text is an error without credentials, which the answer of a server may repeat.
func (f *failureLog) text(err error) string {
	text := err.Error()
	for _, secret := range f.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return sanitize.Text(text, maxFailure)
}
