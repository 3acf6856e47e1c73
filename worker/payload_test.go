package worker

import (
	"context"
	"encoding/json"
	"strings"
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

func TestHandleJSON(t *testing.T) {
	for _, tt := range []struct{ name, payload, want string }{
		{"a payload that fits", `{"customer":"ACME","lines":[{"price":3}]}`, `succeeded ""`},
		{"one that does not", `{"customer":"ACME","lines":[{"price":3},{"price":"x"}]}`,
			`failed "the payload is not what the handler reads: payload.lines[1].price: is a string, want a whole number that fits in int"`},
		{"one that is no object", `7`, `failed "the payload is not what the handler reads: payload: is a number, want an object"`},
		{"none", ``, `failed "the payload is not what the handler reads: payload: is missing"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				mux := NewMux()
				calls := 0
				HandleJSON(mux, "work", func(_ context.Context, run *belfry.Run, in order) error {
					if calls++; in.Customer != "ACME" || in.Lines[0].Price != 3 || run.Attempt != 1 {
						t.Errorf("got %+v", in)
					}
					return nil
				})
				b := startPool(newFakeSource(), nil, mux.Dispatch)
				id := b.add(1, func(r *belfry.Run) { r.Payload = json.RawMessage(tt.payload) })[0]
				sleepAndWait(time.Second)
				if got := describe(b.outcome(t, id)); got != tt.want {
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

type invoice struct {
	Customer string    `json:"customer"`
	Amount   float64   `json:"amount"`
	Count    int64     `json:"count,string"`
	Due      time.Time `json:"due"`
	Lines    []struct {
		Text  string
		Price *int `json:"price"`
	} `json:"lines"`
	Rates map[string]float32 `json:"rates"`
	address
}

type address struct {
	City string `json:"city"`
	Zip  int    `json:"zip"`
}

func TestPayloadErrorNamesTheField(t *testing.T) {
	for _, tt := range []struct {
		name, payload, want string
	}{
		{"all of it", `{"customer":"ACME","amount":12.5,"count":"7","due":"2030-01-01T00:00:00Z","lines":[{"text":"a","price":1}],"rates":{"x":1},"city":"Bonn","zip":1}`, ""},
		{"an unknown member is left out", `{"customer":"ACME","else":[1]}`, ""},
		{"another case of letters", `{"CUSTOMER":"ACME"}`, ""},
		{"a text for a number", `{"amount":"secret"}`, "payload.amount: is a string, want a number"},
		{"a fraction for a whole number", `{"zip":12.5}`, "payload.zip: is a number, want a whole number that fits in int"},
		{"a member of an item", `{"lines":[{"price":1},{"price":2},{"price":"3"}]}`, "payload.lines[2].price: is a string, want a whole number that fits in int"},
		{"an item", `{"lines":[{},7]}`, "payload.lines[1]: is a number, want an object"},
		{"an item by another case", `{"lines":[{"TEXT":7}]}`, "payload.lines[0].TEXT: is a number, want a string"},
		{"a value of a map", `{"rates":{"a":1,"b":true}}`, "payload.rates.b: is a bool, want a number"},
		{"a time", `{"customer":"x","due":"tomorrow"}`, "payload.due: parsing time"},
		{"a number as text that is none", `{"count":"x","amount":1}`, "payload.count: "},
		{"the first of two", `{"zip":"x","amount":"x"}`, "payload.amount: "},
		{"another kind of thing", `[1]`, "payload: is an array, want an object"},
		{"nothing", ``, "payload: is missing"},
		{"null", ` null `, "payload: is missing"},
		{"no JSON", `{"amount":`, "payload: is not JSON"},
	} {
		got, err := Payload[invoice](&belfry.Run{Payload: json.RawMessage(tt.payload)})
		switch {
		case tt.want == "":
			if err != nil || got.Customer != "ACME" {
				t.Errorf("%s: got %+v and %v", tt.name, got, err)
			}
		case err == nil || !strings.Contains(err.Error(), tt.want) || belfry.CodeOf(err) != belfry.Invalid:
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		case got.Customer != "" || strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: got %+v and %v", tt.name, got, err)
		}
	}
}

func TestPayloadMayBeMissing(t *testing.T) {
	none := &belfry.Run{}
	if p, err := Payload[*invoice](none); p != nil || err != nil {
		t.Errorf("a pointer: got %v and %v", p, err)
	}
	if p, err := Payload[map[string]any](none); p != nil || err != nil {
		t.Errorf("a map: got %v and %v", p, err)
	}
	if p, err := Payload[any](&belfry.Run{Payload: json.RawMessage(`3`)}); p != 3.0 || err != nil {
		t.Errorf("anything: got %v and %v", p, err)
	}
	if p, err := Payload[json.RawMessage](&belfry.Run{Payload: json.RawMessage(`{"a": 1}`)}); string(p) != `{"a": 1}` || err != nil {
		t.Errorf("raw: got %s and %v", p, err)
	}
}

type chain struct {
	Next *chain `json:"next"`
	N    int    `json:"n"`
}

func TestPayloadErrorDepthIsLimited(t *testing.T) {
	deep := strings.Repeat(`{"next":`, 200) + `{"n":"x"}` + strings.Repeat("}", 200)
	_, err := Payload[chain](&belfry.Run{Payload: json.RawMessage(deep)})
	if err == nil || strings.Count(err.Error(), ".next") != maxFieldDepth {
		t.Errorf("got %v", err)
	}
}

// Whatever the payload is, it is read just when json.Unmarshal reads it, and
// the fault names a member of it.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{`{"lines":[{"price":"x"}],"rates":{"a":[]}}`, `{"due":1,"count":2}`, `null`, `[{}]`, `{"":{"":1}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want invoice
		plain := json.Unmarshal(raw, &want)
		_, err := Payload[invoice](&belfry.Run{Payload: raw})
		missing := err != nil && strings.HasSuffix(err.Error(), "payload: is missing")
		if (plain == nil) != (err == nil) && !missing {
			t.Fatalf("%q: got %v, json.Unmarshal says %v", raw, err, plain)
		}
		if err != nil && !strings.HasPrefix(err.(*belfry.Error).Fields[0].Field, "payload") {
			t.Fatalf("%q: %v", raw, err)
		}
	})
}
