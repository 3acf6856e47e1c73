package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

const ns = belfry.DefaultNamespace

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
		_, _, f := readDraft([]byte(tt.body), ns, false)
		if f == nil || !strings.Contains(f.what, tt.says) {
			t.Errorf("%s: got %v, want %q", tt.name, f, tt.says)
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
		{"another style", `{"MaxRetries": 3}`, "MaxRetries", `did you mean "max_retries"?`},
		{"another style with a wrong type", `{"maxRetries": "3"}`, "maxRetries", `must be a whole number, not a string`},
		{"two styles", `{"maxRetries": 3, "max_retries": 3}`, "maxRetries", "means the same as max_retries, which is there too"},
		{"two policies", `{"retryPolicy": {}, "retry_policy": {}}`, "retryPolicy", "means the same as retry_policy"},
		{"a policy and a member", `{"retryPolicy": {"maxRetries": 3}, "max_retries": 4}`, "retryPolicy.maxRetries", "means the same as max_retries"},
		{"a policy with two names", `{"retryPolicy": {"backoff": "exponential", "strategy": "exponential"}}`, "retryPolicy.strategy", "means the same as retryPolicy.backoff"},
		{"a typing error in a policy", `{"retryPolicy": {"maxRetrys": 3}}`, "retryPolicy.maxRetrys", `did you mean "max_retries"?`},
		{"something else in a policy", `{"retry_policy": {"colour": 3}}`, "retry_policy.colour", "known are max_retries, backoff_ms"},
		{"a wrong type in a policy", `{"retryPolicy": {"maxRetries": []}}`, "retryPolicy.maxRetries", "must be a whole number, not an array"},
		{"milliseconds in words", `{"retryPolicy": {"backoffMs": "5s"}}`, "retryPolicy.backoffMs", "must be a number, not a string"},
		{"endless milliseconds", `{"retryPolicy": {"backoffMs": 1e999}}`, "retryPolicy.backoffMs", "sensible size"},
		{"a policy that is none", `{"retryPolicy": 3}`, "retryPolicy", "must be an object, not a number"},
		{"a member of a policy twice", `{"retryPolicy": {"maxRetries": 3, "maxRetries": 4}}`, "retryPolicy.maxRetries", "twice"},
		{"tags that are none", `{"tags": "a"}`, "tags", "must be an array of strings, not a string"},
		{"a tag that is none", `{"tags": ["a", 7]}`, "tags[1]", "must be a string, not a number"},
		{"another namespace", `{"namespace": "other"}`, "namespace", `"default"`},
		{"an unknown status", `{"status": "running"}`, "status", `must be "paused"`},
		{"a key that belongs elsewhere", `{"idempotency_key": "x"}`, "idempotency_key", "header"},
		{"half a name", `{"timeout": 3}`, "timeout", `did you mean "timeout_seconds"?`},
		{"an address outside", `{"url": "https://example.com"}`, "url", "belongs into payload"},
		{"something else", `{"colour": "red"}`, "colour", "known are name, tags, type"},
		{"a member twice", `{"name": "a", "name": "b"}`, "name", "twice"},
		{"a member twice in disguise", `{"name": "a", "na\u006de": "b"}`, "name", "twice"},
		{"a member twice further down", `{"payload": {"a": [{}, {"b": {"c": 1, "c": 2}}]}}`, "payload.a[1].b.c", "twice"},
		{"a member twice among strings", `{"payload": {"a": "{\"b\":1,", "b": ["c", "c"], "c": "\\", "a": 1}}`, "payload.a", "twice"},
		{"a member twice in the second object", `{"payload": [{"a": 1}, {"a": 1}, {"a": 1, "a": 2}]}`, "payload[2].a", "twice"},
		{"a very long name", `{"` + strings.Repeat("x", 1000) + `": 1}`, strings.Repeat("x", 64) + "...", "not known"},
	} {
		_, faults, f := readDraft([]byte(tt.body), ns, false)
		if f != nil || len(faults) != 1 || faults[0].Field != tt.field || !strings.Contains(faults[0].Message, tt.says) {
			t.Errorf("%s: got %v and %v, want %q about %s", tt.name, faults, f, tt.says, tt.field)
		}
	}
}

func TestManyFaultsAreNotAllListed(t *testing.T) {
	for _, body := range []string{`{"a":1` + strings.Repeat(`,"a":1`, 1000) + `}`, crowd(200)} {
		if _, faults, f := readDraft([]byte(body), ns, false); f != nil || len(faults) != maxFaults {
			t.Errorf("got %d faults, %v", len(faults), f)
		}
	}
}

func TestManyMembersAreComparedQuickly(t *testing.T) {
	many := crowd(50_000)
	body := `{"payload": ` + many[:len(many)-1] + `,"x7":1}}`
	_, faults, f := readDraft([]byte(body), ns, false)
	if f != nil || len(faults) != 1 || faults[0].Field != "payload.x7" {
		t.Errorf("got %v, %v", faults, f)
	}
}
