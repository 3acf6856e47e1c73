package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

const canary = "s3cr3t-canary-0123456789"

func TestWhatTheEnvironmentConfigures(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, tt := range []struct {
		name    string
		env     []string
		on      bool
		problem string // what the log names
	}{
		{name: "nothing"},
		{name: "without an endpoint", env: []string{"OTEL_SERVICE_NAME=x", "OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=always_on"}},
		{name: "an endpoint", env: []string{endpoint}, on: true},
		{name: "an endpoint for traces", env: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://example.com/otlp"}, on: true},
		{name: "everything", env: []string{endpoint, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20" + canary + ",x=y", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
			"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.25", "OTEL_SDK_DISABLED=false"}, on: true},
		{name: "disabled", env: []string{endpoint, "OTEL_SDK_DISABLED=TRUE"}},
		{name: "no exporter", env: []string{endpoint, "OTEL_TRACES_EXPORTER=none"}},
		{name: "another exporter", env: []string{endpoint, "OTEL_TRACES_EXPORTER=zipkin"}, problem: "OTEL_TRACES_EXPORTER must be otlp or none"},
		{name: "no URL", env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + canary + ":4318"}, problem: "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL"},
		{name: "gRPC", env: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, problem: "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"},
		{name: "header without a name", env: []string{endpoint, "OTEL_EXPORTER_OTLP_HEADERS=a=b,Bearer " + canary}, problem: "item 2 is not"},
		{name: "header with a colon", env: []string{endpoint, "OTEL_EXPORTER_OTLP_HEADERS=authorization: Bearer " + canary + "=="}, problem: "item 1 is not"},
		{name: "header that cannot be decoded", env: []string{endpoint, "OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=" + canary + "%zz"}, problem: "OTEL_EXPORTER_OTLP_TRACES_HEADERS"},
		{name: "header that is not used", env: []string{endpoint, "OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=b", "OTEL_EXPORTER_OTLP_HEADERS=" + canary}, problem: "OTEL_EXPORTER_OTLP_HEADERS"},
		{name: "unknown sampler", env: []string{endpoint, "OTEL_TRACES_SAMPLER=sometimes"}, problem: "OTEL_TRACES_SAMPLER must be one of always_on"},
		{name: "ratio above 1", env: []string{endpoint, "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=25"}, problem: "OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, variable := range tt.env {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			var log bytes.Buffer
			before := runtime.NumGoroutine()
			traces := New(context.Background(), belfry.NewID(time.Now()), "1", slog.New(slog.NewTextHandler(&log, nil)))
			if started := runtime.NumGoroutine() > before; traces != nil != tt.on || started && !tt.on {
				t.Errorf("traces are on: %v, with a goroutine: %v", traces != nil, started)
			}
			if traces != nil {
				traces.close(t.Context())
			}
			if text := log.String(); tt.problem == "" != (text == "") || !strings.Contains(text, tt.problem) || strings.Contains(text, canary) {
				t.Errorf("the log is %q, wants %q", text, tt.problem)
			}
		})
	}
}

func TestFailuresAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+canary)
		var log bytes.Buffer
		f := &failureLog{log: slog.New(slog.NewTextHandler(&log, nil)), secrets: headerValues()}
		for range 150 {
			f.report(2, errors.New("401: no such key "+canary+"\nBearer "+canary))
			time.Sleep(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], "spans=2 ") || !strings.Contains(lines[1], "spans=120 ") || strings.Contains(log.String(), canary) {
			t.Errorf("the log of 150 seconds is\n%s", log.String())
		}
	})
}

// The sampler decides by the id of the run alone, so that all nodes decide alike.
func TestAllNodesSampleTheSameRuns(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
	var nodes [2]*Tracing
	for i := range nodes {
		nodes[i] = New(t.Context(), belfry.NewID(time.Now()), "1", slog.New(slog.DiscardHandler))
		defer nodes[i].close(t.Context())
	}
	const runs = 4000
	sampled := 0
	for i := range runs {
		run := belfry.RunID(belfry.ID{1}, belfry.KindScheduled, time.Unix(int64(i), 0), belfry.ID{}) // the same in every test
		a, b := nodes[0].rootContext(run), nodes[1].rootContext(run)
		if !a.Equal(b) || a.TraceID().String() != belfry.RunTraceID(run).String() {
			t.Fatalf("the root spans of one run are %v and %v", a, b)
		}
		if a.IsSampled() {
			sampled++
		}
	}
	if sampled < runs/5 || sampled > runs*3/10 {
		t.Errorf("%d of %d runs were sampled, wants a quarter", sampled, runs)
	}
}
