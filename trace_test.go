package belfry_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// Ids of traces must not change with a release: the spans of one run may be sent by nodes
// of two.
func TestTheTraceOfARunIsComputed(t *testing.T) {
	run, err := belfry.ParseID("01a22f39-15c0-8d3b-a6c4-90e15f7b2d08")
	if err != nil {
		t.Fatal(err)
	}
	if got := belfry.RunTraceID(run).String(); got != "d49fad4eff312d584ac616f94e78c643" {
		t.Errorf("the trace is %s", got)
	}
	if n := testing.AllocsPerRun(100, func() { belfry.RunTraceID(run) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAClaimedRunTravelsWithItsTrace(t *testing.T) {
	run := belfry.Run{ID: belfry.NewID(time.Now())}
	if got := run.Claimed().Run(belfry.ID{}); got.Trace != nil {
		t.Errorf("a run without a trace arrives with %+v", got.Trace)
	}
	run.Trace = &belfry.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "vendor=1"}
	if got := run.Claimed().Run(belfry.ID{}); got.Trace == nil || *got.Trace != *run.Trace {
		t.Errorf("%+v arrives as %+v", run.Trace, got.Trace)
	}
}
