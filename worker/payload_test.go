package worker

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

type order struct {
	Customer string `json:"customer"`
	Lines    []struct {
		Price int `json:"price"`
	} `json:"lines"`
}

func TestHandlersGetTheirPayload(t *testing.T) {
	for _, tt := range []struct{ name, payload, want string }{
		{"a payload that fits", `{"customer":"ACME","lines":[{"price":3}]}`, `succeeded ""`},
		{"one that does not", `{"customer":"ACME","lines":[{"price":3},{"price":"x"}]}`,
			`failed "the payload is not what the handler reads: payload.lines[1].price: is a string, want a whole number that fits in int"`},
		{"one that is no object", `7`, `failed "the payload is not what the handler reads: payload: is a number, want an object"`},
		{"none", ``, `failed "the payload is not what the handler reads: payload: is missing"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				mux := NewMux()
				calls := 0
				HandleJSON(mux, "work", func(_ context.Context, run *belfry.Run, in order) error {
					if calls++; in.Customer != "ACME" || in.Lines[0].Price != 3 || run.Attempt != 1 {
						t.Errorf("got %+v", in)
					}
					return nil
				})
				b := start(newFake(), nil, mux.Dispatch)
				id := b.add(1, func(r *belfry.Run) { r.Payload = json.RawMessage(tt.payload) })[0]
				after(time.Second)
				if got := short(b.outcome(t, id)); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				if ok := tt.want == `succeeded ""`; (calls == 1) != ok {
					t.Errorf("the handler was called %d times", calls)
				}
				b.end(t)
			})
		})
	}
}

func TestDefaultsOfOptions(t *testing.T) {
	o := newOptions(with(Concurrency(-1), Queues(), Node(""), Log(nil), DrainTimeout(-time.Second)))
	if o.concurrency != 100 || len(o.queues) != 1 || o.queues[0] != "default" || o.node == "" || o.log == nil || o.drainTimeout != 0 {
		t.Errorf("got %+v", o)
	}
	if d := newOptions(nil).drainTimeout; d != 30*time.Second {
		t.Errorf("the drain takes %s", d)
	}
}
