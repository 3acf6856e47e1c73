package worker

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/belfry-sh/belfry"
)

// traceContext is the context of a handler: with the span of its attempt, which the server
// sends, as remote span. What the handler records and sends becomes part of its trace.
func traceContext(ctx context.Context, c *belfry.TraceContext) context.Context {
	if c == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": c.Traceparent, "tracestate": c.Tracestate})
}
