package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func compact(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The document has the minimum and maximum of every number, the longest text and the
// values of every enumeration. The API must accept what is at a limit and refuse what is
// beyond it.
func TestManifestLimitsAreThoseOfTheDocument(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	_, input := c.resolve("/components/schemas/Manifest")
	count := 0
	try := func(member, value string, fits bool) {
		t.Helper()
		count++
		job := map[string]json.RawMessage{
			"schedule": json.RawMessage(`"@daily"`), "payload": json.RawMessage(`{"url": "https://example.com"}`), "retry_base_seconds": json.RawMessage("0"),
		}
		if member == "type" && value == `"worker"` {
			job["handler"] = json.RawMessage(`"send-invoice"`)
		}
		if value == `"command"` {
			job["payload"] = json.RawMessage(`{"command": "backup"}`)
		}
		if member == "retry_backoff" && value == `"list"` {
			job["retry_delays"] = json.RawMessage("[1, 60]")
		}
		job[member] = json.RawMessage(value)
		a := s.send("POST", "/api/v1/jobs", compact(t, job))
		switch {
		case fits && a.status != 201:
			t.Errorf("%s may be %.60s, but is answered with %d: %s", member, value, a.status, a.body)
		case !fits && a.status != 422:
			t.Errorf("%s may not be %.60s, but is answered with %d", member, value, a.status)
		case !fits && !slices.Contains(a.problem(t).fields(), member):
			t.Errorf("%s may not be %.60s, but the errors are about %v", member, value, a.problem(t).fields())
		}
	}
	for member := range input["properties"].(map[string]any) {
		_, of := c.resolve("/components/schemas/Manifest/properties/" + member)
		if low, ok := of["minimum"].(json.Number); ok {
			try(member, low.String(), true)
			try(member, "-1", false)
		}
		if high, ok := of["maximum"].(json.Number); ok {
			try(member, high.String(), true)
			n, _ := high.Float64()
			try(member, fmt.Sprint(int64(n)+1), false)
		}
		if most, ok := of["maxLength"].(json.Number); ok {
			n, _ := most.Int64()
			try(member, `"`+strings.Repeat("x", int(n))+`"`, true)
			try(member, `"`+strings.Repeat("x", int(n)+1)+`"`, false)
		}
		if values, ok := of["enum"].([]any); ok {
			for _, value := range values {
				try(member, compact(t, value), true)
			}
			try(member, `"unheard-of"`, false)
		}
		if _, ok := of["pattern"]; ok {
			try(member, `"`+strings.Repeat("x", 100)+`"`, true)
			try(member, `"`+strings.Repeat("x", 101)+`"`, false)
			try(member, `"a b"`, false)
		}
	}
	if count < 30 {
		t.Errorf("only %d values were tried: the test looks in the wrong place", count)
	}
}

func TestRequestLimitsAreThoseOfTheDocument(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	const worker = "/api/v1/workers/0190b0f2-0000-7000-8000-000000000002/finish"
	for _, tt := range []struct{ member, path, body, field string }{
		{"Redrive/properties/rate", "/api/v1/dead-letters/redrive", `{"all": true, "dry_run": true, "rate": %v}`, "rate"},
		{"Result/properties/retry_after_seconds", worker,
			`{"results": [{"run_id": "` + unknownID + `", "attempt": 1, "token": "x", "outcome": "snoozed", "retry_after_seconds": %v}]}`, "results[0].retry_after_seconds"},
	} {
		_, of := c.resolve("/components/schemas/" + tt.member)
		low, err := of["minimum"].(json.Number).Float64()
		if err != nil {
			t.Fatal(err)
		}
		high, err := of["maximum"].(json.Number).Float64()
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []struct {
			value   float64
			refused bool
		}{{low, false}, {high, false}, {low - 0.0001, true}, {high + 1, true}} {
			a := s.send("POST", tt.path, fmt.Sprintf(tt.body, at.value))
			if refused := a.status == 422 && slices.Contains(a.problem(t).fields(), tt.field); refused != at.refused {
				t.Errorf("%s of %v is answered with %d: %s", tt.member, at.value, a.status, a.body)
			}
		}
	}
}
