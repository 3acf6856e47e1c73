package worker

import (
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/belfry-sh/belfry"
)

func TestTraceContextOfAHandler(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := traceContext(t.Context(), &belfry.TraceContext{Traceparent: parent, Tracestate: "vendor=1"})
	sc := trace.SpanFromContext(ctx).SpanContext()
	if sc.TraceID().String() != parent[3:35] || sc.SpanID().String() != parent[36:52] || !sc.IsSampled() || sc.TraceState().String() != "vendor=1" {
		t.Errorf("the handler has %+v", sc)
	}
	if sc := trace.SpanContextFromContext(traceContext(t.Context(), &belfry.TraceContext{Traceparent: "spoiled"})); sc.IsValid() {
		t.Errorf("the handler has %+v", sc)
	}
}

// Without traces a run costs what it cost without this package.
func TestNoTraceCostsNothing(t *testing.T) {
	ctx := t.Context()
	if traceContext(ctx, nil) != ctx {
		t.Error("the handler has another context")
	}
	if n := testing.AllocsPerRun(100, func() { traceContext(ctx, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
