package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

// crowd is an object of so many unknown members.
func crowd(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":%d`, i, i)
	}
	return "{" + b.String()[1:] + "}"
}

func TestWhatIsNotJSONIsToldByItsPlace(t *testing.T) {
	for _, tt := range []struct{ name, body, says string }{
		{"nothing", "", "empty"},
		{"blanks", " \n\t", "empty"},
		{"half an object", `{"name": "a"`, "line 1, column 13: the JSON ends too early"},
		{"a comma too much", "{\n  \"name\": \"é\",\n}", "line 3, column 1"},
		{"a comma too much after wide letters", `{"name": "éé",}`, "line 1, column 15"},
		{"an unquoted value", "{\n\"name\": report}", "line 2, column 9"},
		{"something behind it", `{} {}`, "line 1, column 4"},
		{"a raw line break in a string", "{\"name\": \"a\nb\"}", "line 1, column 12"},
		{"Latin-1", "{\"name\": \"caf\xe9\"}", "line 1, column 14: not valid UTF-8"},
		{"an array", `[1]`, "not an array"},
		{"null", `null`, "not null"},
		{"a string", `"job"`, "not a string"},
		{"a crowd", crowd(201), "more than 200 members"},
		{"a pit", strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33), "line 1, column 161: nested deeper than 32"},
		{"a pit without a floor", strings.Repeat(`[`, 1000), "nested deeper than 32"},
	} {
		_, _, err := readDraft([]byte(tt.body))
		var e *refusal
		if !errors.As(err, &e) || e.status != http.StatusBadRequest || !strings.Contains(e.detail, tt.says) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.says)
		}
	}
}

func TestWhatIsWrongWithMembersIsToldByTheirName(t *testing.T) {
	for _, tt := range []struct{ name, body, field, says string }{
		{"a number for a string", `{"schedule": 5}`, "schedule", "must be a string, not a number"},
		{"an object for a string", `{"name": {}}`, "name", "not an object"},
		{"a string for a whole number", `{"max_retries": "3"}`, "max_retries", "must be a whole number, not a string"},
		{"a fraction", `{"timeout_seconds": 1.5}`, "timeout_seconds", "whole number"},
		{"an exponent", `{"timeout_seconds": 1e2}`, "timeout_seconds", "whole number"},
		{"a huge whole number", `{"max_retries": 99999999999999999999}`, "max_retries", "sensible size"},
		{"a huge number", `{"retry_cap_seconds": 1e999}`, "retry_cap_seconds", "sensible size"},
		{"a truth value", `{"retry_jitter": true}`, "retry_jitter", "not a truth value"},
		{"a typing error", `{"shedule": "@daily"}`, "shedule", `did you mean "schedule"?`},
		{"another case", `{"Schedule": "@daily"}`, "Schedule", `did you mean "schedule"?`},
		{"another style", `{"maxRetries": 3}`, "maxRetries", `did you mean "max_retries"?`},
		{"half a name", `{"timeout": 3}`, "timeout", `did you mean "timeout_seconds"?`},
		{"an address outside", `{"url": "https://example.com"}`, "url", "belongs into payload"},
		{"something else", `{"colour": "red"}`, "colour", "known are name, type, schedule"},
		{"a member twice", `{"name": "a", "name": "b"}`, "name", "twice"},
		{"a member twice in disguise", `{"name": "a", "na\u006de": "b"}`, "name", "twice"},
		{"a member twice further down", `{"payload": {"a": [{}, {"b": {"c": 1, "c": 2}}]}}`, "payload.a[1].b.c", "twice"},
		{"a member twice among strings", `{"payload": {"a": "{\"b\":1,", "b": ["c", "c"], "c": "\\", "a": 1}}`, "payload.a", "twice"},
		{"a member twice in the second object", `{"payload": [{"a": 1}, {"a": 1}, {"a": 1, "a": 2}]}`, "payload[2].a", "twice"},
		{"a very long name", `{"` + strings.Repeat("x", 1000) + `": 1}`, strings.Repeat("x", 64) + "...", "not known"},
	} {
		_, faults, err := readDraft([]byte(tt.body))
		if err != nil || len(faults) != 1 || faults[0].Field != tt.field || !strings.Contains(faults[0].Message, tt.says) {
			t.Errorf("%s: got %v and error %v, want %q about %s", tt.name, faults, err, tt.says, tt.field)
		}
	}
}

func TestNullAndNothingAreLeftOut(t *testing.T) {
	bare, faults, err := readDraft([]byte(`{}`))
	if err != nil || len(faults) > 0 {
		t.Fatal(faults, err)
	}
	members := make(map[string]any)
	for _, name := range draftFields {
		members[name] = nil
	}
	body, _ := json.Marshal(members)
	given, faults, err := readDraft(body)
	if err != nil || len(faults) > 0 || given.Name != bare.Name || given.Spec != bare.Spec || given.Payload != nil {
		t.Errorf("got %+v, faults %v, error %v", given, faults, err)
	}
	given, faults, err = readDraft([]byte(`{"queue": "", "timezone": ""}`))
	if err != nil || len(faults) > 0 || given.Spec != bare.Spec {
		t.Errorf("got %+v, faults %v, error %v", given, faults, err)
	}
}

func TestEveryMemberOfASpecCanBeGiven(t *testing.T) {
	text, _ := json.Marshal(belfry.Spec{})
	var members map[string]any
	json.Unmarshal(text, &members)
	for name := range members {
		if !slices.Contains(draftFields, name) {
			t.Errorf("%s cannot be given", name)
		}
	}
	body := `{"name":"n","type":"t","schedule":"s","timezone":"z","payload":{"a":1},"queue":"q","overlap":"o","timeout_seconds":1,
		"max_retries":2,"retry_backoff":"b","retry_base_seconds":0.5,"retry_cap_seconds":4,"retry_jitter":1e-1}`
	d, faults, err := readDraft([]byte(body))
	want := belfry.Spec{Type: "t", Schedule: "s", Timezone: "z", Queue: "q", Overlap: "o", TimeoutSeconds: 1,
		MaxRetries: 2, RetryBackoff: "b", RetryBaseSeconds: 0.5, RetryCapSeconds: 4, RetryJitter: 0.1}
	if err != nil || len(faults) > 0 || d.Spec != want || d.Name != "n" || string(d.Payload) != `{"a":1}` {
		t.Errorf("got %+v, faults %v, error %v", d, faults, err)
	}
}

func TestManyFaultsAreNotAllListed(t *testing.T) {
	for _, body := range []string{`{"a":1` + strings.Repeat(`,"a":1`, 1000) + `}`, crowd(200)} {
		if _, faults, err := readDraft([]byte(body)); err != nil || len(faults) != maxFaults {
			t.Errorf("got %d faults, error %v", len(faults), err)
		}
	}
}

func TestStatusesOfAChange(t *testing.T) {
	for _, tt := range []struct {
		body  string
		pause bool
		field string // at fault
	}{
		{`{"status": "paused"}`, true, ""},
		{`{"status": "PAUSED"}`, true, ""},
		{`{"status": "Scheduled"}`, false, ""},
		{`{"status": "active"}`, false, ""},
		{`{"status": "RESUMED"}`, false, ""},
		{`{"status": "running"}`, false, "status"},
		{`{"status": 1}`, false, "status"},
		{`{}`, false, "status"},
		{`{"schedule": "@daily"}`, false, "schedule"},
		{`{"status": "paused", "max_retries": 5}`, false, "max_retries"},
		{`{"state": "paused"}`, false, "state"},
	} {
		pause, err := readStatus([]byte(tt.body))
		if tt.field == "" {
			if err != nil || pause != tt.pause {
				t.Errorf("%s: got %v, error %v", tt.body, pause, err)
			}
			continue
		}
		var e *belfry.Error
		if !errors.As(err, &e) || e.Faults[0].Field != tt.field {
			t.Errorf("%s: got error %v, want a fault of %s", tt.body, err, tt.field)
		}
	}
}

// FuzzReadDraft holds that whatever is read as a job was one JSON object of known
// members, each at most once, and that a refusal can be told to its sender.
func FuzzReadDraft(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"name":"a","schedule":"@daily","payload":{"url":"https://example.com"}}`, `{"a":{"a":[1,{"b":2,"b":3}]}}`,
		`{"timeout_seconds":1e2,"retry_jitter":-0}`, `{"name":"\ud800\u0000"}`, "{\"n\xff\":1}", `[[[[`, `{"payload":"\"{}"}`, `{"status":"PAUSED"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		readStatus(body)
		d, faults, err := readDraft(body)
		if err != nil {
			var e *refusal
			if !errors.As(err, &e) || e.status != http.StatusBadRequest || e.detail == "" {
				t.Fatalf("%q is refused with %v", body, err)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("%q was read, but %v", body, err)
		}
		for _, f := range faults {
			if f.Message == "" {
				t.Errorf("%q has a fault without a message: %+v", body, f)
			}
		}
		if len(faults) > 0 {
			return
		}
		for name := range members {
			if !slices.Contains(draftFields, name) {
				t.Errorf("%q has the unknown member %q", body, name)
			}
		}
		if d.Payload != nil && !json.Valid(d.Payload) {
			t.Errorf("%q has the payload %q", body, d.Payload)
		}
	})
}
