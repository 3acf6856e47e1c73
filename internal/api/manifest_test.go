package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

var manifestOptions = cmp.Options{
	cmp.AllowUnexported(belfry.Optional[int]{}, belfry.Optional[float64]{}), cmpopts.IgnoreFields(belfry.Manifest{}, "_"), cmpopts.EquateEmpty(),
}

// mustDecode decodes a manifest that has no errors.
func mustDecode(t *testing.T, body string) belfry.Manifest {
	t.Helper()
	in, syntax := decodeManifest([]byte(body), belfry.DefaultNamespace, belfry.Manifest{})
	if syntax != nil || len(in.Errors) > 0 {
		t.Fatalf("%s: %v, %v", body, in.Errors, syntax)
	}
	return in.Manifest
}

const everyField = `{"name":"n","description":"d\nd","tags":["a","b"],"type":"worker","handler":"h","schedule":"s","timezone":"z","payload":{"a":1},"missed_window":"skip","queue":"q","overlap":"queue",
	"starts_at":"2030-01-01T00:00:00Z","ends_at":"2031-01-01T00:00:00Z","max_runs":7,"jitter_seconds":8,"dst_gap":"skip","dst_overlap":"both","max_missed":9,"catch_up_window_seconds":10,
	"priority":"low","max_queued":11,"retry_on":"server_errors","retry_delays":[1,2.5],"retention_days":12,
	"timeout_seconds":1,"max_retries":2,"retry_backoff":"list","retry_base_seconds":0.5,"retry_cap_seconds":4,"retry_jitter":1e-1,"idempotency_key_template":"k","status":"paused"}`

func TestDecodeManifestReadsEveryField(t *testing.T) {
	want := belfry.Manifest{
		Name: "n", Tags: []string{"a", "b"}, Payload: json.RawMessage(`{"a":1}`), Status: belfry.StatusPaused,
		Spec: belfry.Spec{
			Description: "d\nd", Type: "worker", Handler: "h", Schedule: "s", Timezone: "z", MissedWindow: belfry.MissedSkip, Queue: "q", Overlap: belfry.OverlapQueue,
			StartsAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), EndsAt: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), MaxRuns: 7, JitterSeconds: 8,
			DSTGap: belfry.GapSkip, DSTOverlap: belfry.DSTBoth, MaxMissed: 9, CatchUpSeconds: 10, Priority: belfry.PriorityLow, MaxQueued: 11,
			RetryOn: belfry.RetryOnServerErrors, RetryDelays: "1,2.5", RetentionDays: 12, TimeoutSeconds: 1, MaxRetries: belfry.Some(2), RetryBackoff: belfry.BackoffList,
			RetryBaseSeconds: belfry.Some(0.5), RetryCapSeconds: belfry.Some(4.0), RetryJitter: belfry.Some(0.1), IdempotencyKeyTemplate: "k",
		},
	}
	if diff := cmp.Diff(want, mustDecode(t, everyField), manifestOptions); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(everyField), &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range schema.For[belfry.Manifest]().Names() {
		if members[name] == nil {
			t.Errorf("the test does not set %s", name)
		}
	}
}

func TestDecodeManifestAcceptsAJobAsItIsShown(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	job := belfry.Job{
		ID: belfry.NewID(now), Namespace: belfry.DefaultNamespace, Manifest: mustDecode(t, everyField), Revision: 7, NextRunAt: &now, LastRunAt: &now,
		LastResult: &belfry.LastResult{Status: belfry.ResultDead, Failures: 1, RunID: belfry.NewID(now), At: now, Error: "x"}, Quarantined: "x", EndedAt: &now, CreatedAt: now, UpdatedAt: now,
	}
	job.Resolved = "resolved"
	want := job.Manifest
	want.Resolved = ""
	if diff := cmp.Diff(want, mustDecode(t, string(belfry.MustJSON(job))), manifestOptions); diff != "" {
		t.Errorf("difference (-want +got):\n%s", diff)
	}
}

func TestDecodeManifestNullIsTheDefault(t *testing.T) {
	members := make(map[string]any)
	for _, name := range schema.For[belfry.Manifest]().Names() {
		members[name] = nil
	}
	for _, text := range []string{string(belfry.MustJSON(members)), `{"queue": "", "timezone": "", "status": ""}`, `{"retryPolicy": null}`, `{"retry_policy": {}}`, `{"namespace": null}`} {
		if diff := cmp.Diff(belfry.Manifest{}, mustDecode(t, text), manifestOptions); diff != "" {
			t.Errorf("%s: difference (-want +got):\n%s", text, diff)
		}
	}
}

func TestDecodeManifestSpellings(t *testing.T) {
	want := mustDecode(t, `{"missed_window":"skip","timeout_seconds":7,"max_retries":2,"retry_backoff":"linear","retry_base_seconds":5,"idempotency_key_template":"k"}`)
	for _, other := range []string{
		`{"missedWindow":"skip","timeoutSeconds":7,"maxRetries":2,"retryBackoff":"linear","retryBaseSeconds":5,"idempotencyKeyTemplate":"k"}`,
		`{"missed_window":"skip","timeoutSeconds":7,"idempotencyKeyTemplate":"k","retryPolicy":{"maxRetries":2,"backoffMs":5000,"strategy":"linear"}}`,
		`{"missed_window":"skip","timeoutSeconds":7,"idempotencyKeyTemplate":"k","retry_policy":{"max_retries":2,"backoff_ms":5e3,"backoff":"linear"}}`,
		`{"missed_window":"skip","timeoutSeconds":7,"idempotencyKeyTemplate":"k","maxRetries":2,"retry_policy":{"backoffMs":5000.0},"retry_backoff":"linear"}`,
	} {
		if diff := cmp.Diff(want, mustDecode(t, other), manifestOptions); diff != "" {
			t.Errorf("%s: difference (-want +got):\n%s", other, diff)
		}
	}
}

func TestDecodeManifestRetryPolicy(t *testing.T) {
	for object, flat := range map[string]string{
		`{"retryPolicy": {"maxRetries": 2, "backoffMs": 500, "maxBackoffMs": 90000, "jitter": 0.1, "strategy": "linear"}}`: `{"max_retries": 2, "retry_base_seconds": 0.5, "retry_cap_seconds": 90, "retry_jitter": 0.1, "retry_backoff": "linear"}`,
		`{"retryPolicy": {"delaysMs": [500, 30000]}}`:                 `{"retry_delays": [0.5, 30]}`,
		`{"retryPolicy": {"maxRetries": 0, "jitter": null}}`:          `{"max_retries": 0, "retry_jitter": null}`,
		`{"retryPolicy": {"maxRetries": 1}, "retry_base_seconds": 9}`: `{"max_retries": 1, "retry_base_seconds": 9}`,
	} {
		if diff := cmp.Diff(mustDecode(t, flat), mustDecode(t, object), manifestOptions); diff != "" {
			t.Errorf("%s: difference (-want +got):\n%s", object, diff)
		}
	}
}

// What holds for fields of any type is proved in package schema.
func TestDecodeManifestErrors(t *testing.T) {
	for _, tt := range []struct{ name, body, field, message string }{
		{"two spellings", `{"maxRetries": 3, "max_retries": 3}`, "maxRetries", "means the same as max_retries, which is set too; remove one of them"},
		{"a capital letter", `{"Schedule": "@daily"}`, "Schedule", `is unknown; did you mean "schedule"?`},
		{"another style", `{"MaxRetries": 3}`, "MaxRetries", `is unknown; did you mean "max_retries"?`},
		{"part of a name", `{"timeout": 3}`, "timeout", `is unknown; did you mean "timeout_seconds"?`},
		{"two policies", `{"retryPolicy": {}, "retry_policy": {}}`, "retryPolicy", "means the same as retry_policy, which is set too; remove one of them"},
		{"a policy and its field", `{"retryPolicy": {"maxRetries": 3}, "max_retries": 4}`, "retryPolicy.maxRetries", "means the same as max_retries, which is set too; remove one of them"},
		{"a policy with two names", `{"retryPolicy": {"backoff": "linear", "strategy": "linear"}}`, "retryPolicy.strategy", "means the same as retryPolicy.backoff, which is set too; remove one of them"},
		{"a typing error in a policy", `{"retryPolicy": {"maxRetrys": 3}}`, "retryPolicy.maxRetrys", `is unknown; did you mean "max_retries"?`},
		{"an unknown field of a policy", `{"retry_policy": {"colour": 3}}`, "retry_policy.colour", "is unknown; known are max_retries, backoff_ms, max_backoff_ms, jitter, delays_ms, backoff, strategy"},
		{"a wrong type in a policy", `{"retryPolicy": {"maxRetries": []}}`, "retryPolicy.maxRetries", "must be a whole number, not an array"},
		{"text for milliseconds", `{"retryPolicy": {"backoffMs": "5s"}}`, "retryPolicy.backoffMs", "must be a number, not a string"},
		{"too many milliseconds", `{"retryPolicy": {"backoffMs": 1e999}}`, "retryPolicy.backoffMs", "must be a number, not 1e999"},
		{"a policy that is no object", `{"retryPolicy": 3}`, "retryPolicy", "must be an object, not a number"},
		{"a duplicate in a policy", `{"retryPolicy": {"maxRetries": 3, "maxRetries": 4}}`, "retryPolicy.maxRetries", "is duplicated"},
		{"delays that are no array", `{"retryPolicy": {"delaysMs": 5}}`, "retryPolicy.delaysMs", "must be an array of milliseconds, not a number"},
		{"delays that are no numbers", `{"retryPolicy": {"delaysMs": [1, "x"]}}`, "retryPolicy.delaysMs", "must be an array of milliseconds, for example [5000, 30000]"},
		{"a delay that is null", `{"retryPolicy": {"delays_ms": [1, null]}}`, "retryPolicy.delays_ms", "must be an array of milliseconds, for example [5000, 30000]"},
		{"a negative delay", `{"retryPolicy": {"delaysMs": [-1]}}`, "retryPolicy.delaysMs", "has -0.001, and a delay is from 0 to 604800 seconds"},
		{"a delay of null seconds", `{"retry_delays": [1, null]}`, "retry_delays[1]", "must not be null"},
		{"too long a delay", `{"retry_delays": [604801]}`, "retry_delays", "has 604801, and a delay is from 0 to 604800 seconds"},
		{"too many delays", `{"retry_delays": [` + strings.Repeat("1,", 100) + `1]}`, "retry_delays", "has 101 delays, the most is 100"},
		{"another namespace", `{"namespace": "other"}`, "namespace", `is not that of the request, "default"; the header Belfry-Namespace selects another`},
		{"a key of the request", `{"idempotency_key": "x"}`, "idempotency_key", "is a header of the request: Idempotency-Key; keys of runs come from idempotency_key_template"},
		{"a URL outside of the payload", `{"url": "https://example.com"}`, "url", `belongs in payload: "payload": {"url": "https://example.com/hook"}`},
		{"a duplicate in the payload", `{"payload": {"a": [{}, {"b": {"c": 1, "c": 2}}]}}`, "payload.a[1].b.c", "is duplicated"},
	} {
		in, syntax := decodeManifest([]byte(tt.body), belfry.DefaultNamespace, belfry.Manifest{})
		if diff := cmp.Diff([]belfry.FieldError{{Field: tt.field, Message: tt.message}}, in.Errors); diff != "" || syntax != nil {
			t.Errorf("%s: %v, difference (-want +got):\n%s", tt.name, syntax, diff)
		}
	}
}

func TestManifestPatchKeepsOtherFields(t *testing.T) {
	full := belfry.Manifest{
		Name: "n", Tags: []string{"t"}, Payload: json.RawMessage(`{}`), Status: belfry.StatusRunning,
		Spec: belfry.Spec{
			Type: "http", Schedule: "s", Timezone: "z", Queue: "q", MaxRetries: belfry.Some(9), RetryBaseSeconds: belfry.Some(10.0), RetryCapSeconds: belfry.Some(20.0),
			TimeoutSeconds: 5, RetryJitter: belfry.Some(0.1), RetryBackoff: belfry.BackoffLinear,
		},
	}
	for _, tt := range []struct {
		name, body string
		change     func(m *belfry.Manifest)
	}{
		{"nothing", `{}`, func(*belfry.Manifest) {}},
		{"fields of responses", `{"job_id": 1, "revision": 2}`, func(*belfry.Manifest) {}},
		{"one field", `{"schedule": "@daily"}`, func(m *belfry.Manifest) { m.Schedule = "@daily" }},
		{"zero", `{"maxRetries": 0}`, func(m *belfry.Manifest) { m.MaxRetries = belfry.Some(0) }},
		{"numbers to null", `{"max_retries": null, "timeout_seconds": null, "retry_jitter": null}`, func(m *belfry.Manifest) {
			m.MaxRetries, m.TimeoutSeconds, m.RetryJitter = belfry.Optional[int]{}, 0, belfry.Optional[float64]{}
		}},
		{"texts to null", `{"name": null, "tags": null, "queue": "", "timezone": null, "payload": null}`, func(m *belfry.Manifest) {
			m.Name, m.Tags, m.Payload, m.Queue, m.Timezone = "", nil, nil, "", ""
		}},
		{"a retry policy", `{"retryPolicy": {"maxRetries": 1}}`, func(m *belfry.Manifest) { m.MaxRetries = belfry.Some(1) }},
		{"the retry policy to null", `{"retryPolicy": null}`, func(m *belfry.Manifest) {
			m.MaxRetries, m.RetryBackoff = belfry.Optional[int]{}, ""
			m.RetryBaseSeconds, m.RetryCapSeconds, m.RetryJitter = belfry.Optional[float64]{}, belfry.Optional[float64]{}, belfry.Optional[float64]{}
		}},
		{"a payload that is an empty text", `{"payload": ""}`, func(m *belfry.Manifest) { m.Payload = json.RawMessage(`""`) }},
		{"a pause", `{"status": "paused"}`, func(m *belfry.Manifest) { m.Status = belfry.StatusPaused }},
	} {
		body := manifestBody{text: []byte(tt.body)}
		want := full
		want.Status = ""
		tt.change(&want)
		for range 2 { // a patch is pure
			in := body.patch(belfry.DefaultNamespace)(full)
			if diff := cmp.Diff(want, in.Manifest, manifestOptions); diff != "" || len(in.Errors) > 0 {
				t.Errorf("%s: errors %v, difference (-want +got):\n%s", tt.name, in.Errors, diff)
			}
		}
	}
}

// FuzzDecodeManifest checks that whatever is accepted as a job is one JSON object of
// known fields, and that every error has a message.
func FuzzDecodeManifest(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"name":"a","schedule":"@daily","payload":{"url":"https://example.com"}}`, `{"a":{"a":[1,{"b":2,"b":3}]}}`,
		`{"timeout_seconds":1e2,"retry_jitter":-0}`, `{"name":"\ud800\u0000"}`, "{\"n\xff\":1}", `[[[[`, `{"payload":"\"{}"}`, `{"status":"PAUSED"}`,
		`{"retryPolicy":{"maxRetries":3,"backoffMs":5000}}`, `{"tags":["a",["b"],{}], "maxRetries": null}`, `{"name" : "a" , "tags" : [ ] }`, `{"namespace":"x","retry_delays":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	names := append(slices.Clone(schema.For[belfry.Job]().Names()), "resolved_schedule", "retry_policy")
	f.Fuzz(func(t *testing.T, body []byte) {
		for array := range 2 {
			lines := newImportReader(bytes.NewReader(body), array == 1, belfry.DefaultNamespace)
			for _, err := lines.next(); err == nil; _, err = lines.next() {
			}
		}
		in, syntax := decodeManifest(body, belfry.DefaultNamespace, belfry.Manifest{})
		if syntax != nil {
			if syntax.Message == "" {
				t.Fatalf("%q is refused without a message", body)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("%q is accepted, but %v", body, err)
		}
		for _, e := range in.Errors {
			if e.Message == "" {
				t.Errorf("%q has an error without a message: %+v", body, e)
			}
		}
		if len(in.Errors) > 0 {
			return
		}
		for name := range members {
			if !slices.Contains(names, schema.SnakeCase(name)) {
				t.Errorf("%q has the unknown field %q", body, name)
			}
		}
		if in.Payload != nil && !json.Valid(in.Payload) {
			t.Errorf("%q has the payload %q", body, in.Payload)
		}
		patch := manifestBody{text: body}
		patch.patch(belfry.DefaultNamespace)(belfry.Manifest{})
	})
}

// BenchmarkDecodeManifest is what one job of an import costs before it is validated.
func BenchmarkDecodeManifest(b *testing.B) {
	text := []byte(`{"name": "report-4711", "schedule": "30 2 * * *", "timezone": "Europe/Paris", "tags": ["billing", "reports"], "maxRetries": 3, ` +
		`"payload": {"url": "https://example.com/hooks/report", "headers": {"Accept": "application/json"}, "body": {"format": "pdf", "customer": 4711}}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if in, syntax := decodeManifest(text, belfry.DefaultNamespace, belfry.Manifest{}); syntax != nil || len(in.Errors) > 0 {
			b.Fatal(in.Errors, syntax)
		}
	}
}
