package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// read is a draft that must be free of faults.
func read(t *testing.T, body string) control.Draft {
	t.Helper()
	d, faults, f := readDraft([]byte(body), ns, false)
	if f != nil || len(faults) > 0 {
		t.Fatalf("%s: %v, %v", body, faults, f)
	}
	return d
}

func TestNullAndNothingAreTheDefault(t *testing.T) {
	bare := read(t, `{}`)
	members := make(map[string]any)
	for _, name := range draftFields {
		members[name] = nil
	}
	body, _ := json.Marshal(members)
	for _, text := range []string{string(body), `{"queue": "", "timezone": "", "status": ""}`, `{"retryPolicy": null}`, `{"retry_policy": {}}`} {
		if given := read(t, text); !reflect.DeepEqual(given, bare) {
			t.Errorf("%s: got %+v, want %+v", text, given, bare)
		}
	}
}

func TestEveryMemberOfAJobCanBeGivenOrHandedBack(t *testing.T) {
	text, _ := json.Marshal(belfry.Job{Name: "n", Tags: []string{"t"}, Payload: []byte("{}"), Spec: belfry.Spec{Handler: "h", IdempotencyKeyTemplate: "k"}})
	var members map[string]any
	json.Unmarshal(text, &members)
	for name := range members {
		given, back := slices.Contains(draftFields, name), slices.Contains(shownFields, name)
		if given == back {
			t.Errorf("%s can be given: %v, and handed back: %v", name, given, back)
		}
	}
	body := `{"name":"n","tags":["a","b"],"type":"t","handler":"h","schedule":"s","timezone":"z","payload":{"a":1},"missed_window":"m","queue":"q","overlap":"o",
		"timeout_seconds":1,"max_retries":2,"retry_backoff":"b","retry_base_seconds":0.5,"retry_cap_seconds":4,"retry_jitter":1e-1,"idempotency_key_template":"k","status":"Paused",
		"id":"x","namespace":"default","revision":7,"next_run_at":"y","last_run_at":null,"created_at":1,"updated_at":{}}`
	want := control.Draft{
		Name: "n", Tags: []string{"a", "b"}, Payload: json.RawMessage(`{"a":1}`), Paused: true,
		Spec: belfry.Spec{Type: "t", Handler: "h", Schedule: "s", Timezone: "z", MissedWindow: "m", Queue: "q", Overlap: "o", TimeoutSeconds: 1,
			MaxRetries: 2, RetryBackoff: "b", RetryBaseSeconds: 0.5, RetryCapSeconds: 4, RetryJitter: 0.1, IdempotencyKeyTemplate: "k"},
	}
	if d := read(t, body); !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v, want %+v", d, want)
	}
}

func TestBothSpellingsMeanTheSame(t *testing.T) {
	snake := read(t, `{"missed_window":"m","timeout_seconds":7,"max_retries":2,"retry_backoff":"b","retry_base_seconds":5,"idempotency_key_template":"k"}`)
	for _, other := range []string{
		`{"missedWindow":"m","timeoutSeconds":7,"maxRetries":2,"retryBackoff":"b","retryBaseSeconds":5,"idempotencyKeyTemplate":"k"}`,
		`{"missed_window":"m","timeoutSeconds":7,"idempotencyKeyTemplate":"k","retryPolicy":{"maxRetries":2,"backoffMs":5000,"strategy":"b"}}`,
		`{"missed_window":"m","timeoutSeconds":7,"idempotencyKeyTemplate":"k","retry_policy":{"max_retries":2,"backoff_ms":5e3,"backoff":"b"}}`,
		`{"missed_window":"m","timeoutSeconds":7,"idempotencyKeyTemplate":"k","maxRetries":2,"retry_policy":{"backoffMs":5000.0},"retry_backoff":"b"}`,
	} {
		if got := read(t, other); !reflect.DeepEqual(got, snake) {
			t.Errorf("%s: got %+v, want %+v", other, got, snake)
		}
	}
}

func TestDelaysSayHowRetriesWait(t *testing.T) {
	listed := control.Draft{Spec: belfry.Spec{RetryBackoff: "list", RetryDelays: "1,2,3", MaxRetries: 3}}
	for _, tt := range []struct {
		body    string
		of      control.Draft // what it changes
		backoff belfry.Backoff
		delays  belfry.Delays
		retries int
	}{
		{`{"retry_delays": [5, 30]}`, control.Draft{}, "list", "5,30", 2},
		{`{"retryPolicy": {"delaysMs": [500, 30000]}}`, control.Draft{}, "list", "0.5,30", 2},
		{`{"retry_delays": [5], "max_retries": 7}`, control.Draft{}, "list", "5", 7},
		{`{"retry_delays": [5], "max_retries": null, "retry_backoff": null}`, control.Draft{}, "list", "5", 1},
		{`{"retry_delays": [5], "retry_backoff": "LIST"}`, control.Draft{}, "LIST", "5", 1},
		{`{"retry_delays": [5], "retry_backoff": "fixed"}`, control.Draft{}, "fixed", "5", 1}, // for others to refuse
		{`{"max_retries": 1}`, listed, "list", "1,2,3", 1},
		{`{"retry_delays": [9]}`, listed, "list", "9", 1},
		{`{"retry_delays": null}`, listed, "exponential", "", 3},
		{`{"retry_delays": []}`, listed, "exponential", "", 3},
		{`{"retry_backoff": "fixed"}`, listed, "fixed", "", 3},
		{`{"retry_backoff": "List"}`, listed, "List", "1,2,3", 3},
		{`{"retryPolicy": null}`, listed, "exponential", "", 3},
	} {
		patch, faults, f := readPatch([]byte(tt.body), ns)
		if f != nil || len(faults) > 0 {
			t.Fatalf("%s: %v, %v", tt.body, faults, f)
		}
		d := tt.of
		patch(&d)
		if d.Spec.RetryBackoff != tt.backoff || d.Spec.RetryDelays != tt.delays || d.Spec.MaxRetries != tt.retries {
			t.Errorf("%s: got %q, %q, %d", tt.body, d.Spec.RetryBackoff, d.Spec.RetryDelays, d.Spec.MaxRetries)
		}
	}
}

func TestAPolicyOfRetriesMayBeAnObject(t *testing.T) {
	flat := read(t, `{"max_retries": 2, "retry_base_seconds": 0.5, "retry_cap_seconds": 90, "retry_jitter": 0.1, "retry_backoff": "linear"}`)
	if got := read(t, `{"retryPolicy": {"maxRetries": 2, "backoffMs": 500, "maxBackoffMs": 90000, "jitter": 0.1, "strategy": "linear"}}`); !reflect.DeepEqual(got, flat) {
		t.Errorf("got %+v, want %+v", got, flat)
	}
	for body, field := range map[string]string{
		`{"retryPolicy": {"delaysMs": 5}}`:                       "retryPolicy.delaysMs",
		`{"retryPolicy": {"delaysMs": [1, "x"]}}`:                "retryPolicy.delaysMs[1]",
		`{"retryPolicy": {"delays_ms": [1, null]}}`:              "retryPolicy.delays_ms[1]",
		`{"retryPolicy": {"delaysMs": [-1]}}`:                    "retryPolicy.delaysMs",
		`{"retryPolicy": {"maxBackoff": 1}}`:                     "retryPolicy.maxBackoff",
		`{"retryPolicy": {"jitter": 0.1}, "retry_jitter": 0.1}`:  "retryPolicy.jitter",
		`{"retry_delays": [1, true]}`:                            "retry_delays[1]",
		`{"retry_delays": "1,2"}`:                                "retry_delays",
		`{"retry_delays": [604801]}`:                             "retry_delays",
		`{"priority": true}`:                                     "priority",
		`{"retry_delays": [` + strings.Repeat("1,", 100) + `1]}`: "retry_delays",
		`{"catch_up_window_seconds": "1h"}`:                      "catch_up_window_seconds",
	} {
		_, faults, f := readDraft([]byte(body), ns, false)
		if f != nil || len(faults) != 1 || faults[0].Field != field {
			t.Errorf("%s: got %v, want a fault of %s", body, faults, field)
		}
	}
}

func TestALongPauseRaisesTheCapThatNobodyGave(t *testing.T) {
	for body, want := range map[string]float64{
		`{"retryPolicy": {"backoffMs": 5000}}`:                                1800,
		`{"retryPolicy": {"backoffMs": 7200000}}`:                             7200,
		`{"retry_base_seconds": 7200}`:                                        7200,
		`{"retryPolicy": {"backoffMs": 7200000}, "retry_cap_seconds": 60}`:    60,
		`{"retryPolicy": {"backoffMs": 7200000}, "retry_cap_seconds": 10000}`: 10000,
	} {
		if got := read(t, body).Spec.RetryCapSeconds; got != want {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}
	}
}

func TestStatusesOfAJob(t *testing.T) {
	for _, tt := range []struct {
		status      string
		paused      bool
		made, again bool // it may be made so, and handed back so
	}{
		{`"paused"`, true, true, true},
		{`"PAUSED"`, true, true, true},
		{`"Scheduled"`, false, true, true},
		{`"active"`, false, true, true},
		{`null`, false, true, true},
		{`"running"`, false, false, true},
		{`"Completed"`, false, false, true},
		{`"resumed"`, false, false, false},
		{`1`, false, false, false},
	} {
		body := []byte(`{"status": ` + tt.status + `}`)
		for _, replaces := range []bool{false, true} {
			d, faults, f := readDraft(body, ns, replaces)
			fine := tt.made
			if replaces {
				fine = tt.again
			}
			if f != nil || (len(faults) == 0) != fine || d.Paused != tt.paused || d.KeepPaused {
				t.Errorf("%s in place of another (%v): got %+v, faults %v", body, replaces, d, faults)
			}
		}
		patch, faults, f := readPatch(body, ns)
		if f != nil || (len(faults) == 0) != tt.made {
			t.Fatalf("%s as a change: faults %v, %v", body, faults, f)
		}
		d := control.Draft{Paused: true}
		if len(patch(&d)) == 0 && d.Paused != tt.paused {
			t.Errorf("%s as a change: paused is %v", body, d.Paused)
		}
	}
	if d, _, _ := readDraft([]byte(`{}`), ns, true); !d.KeepPaused {
		t.Error("a job that is replaced without a word on its status does not keep it")
	}
}

func TestAChangeLeavesTheRest(t *testing.T) {
	full := control.Draft{
		Name: "n", Tags: []string{"t"}, Payload: json.RawMessage(`{}`), Paused: true,
		Spec: belfry.Spec{Type: "http", Schedule: "s", Timezone: "z", Queue: "q", MaxRetries: 9, RetryBaseSeconds: 10, RetryCapSeconds: 20, TimeoutSeconds: 5, RetryJitter: 0.1},
	}
	for _, tt := range []struct {
		name, body string
		change     func(d *control.Draft)
	}{
		{"nothing", `{}`, func(d *control.Draft) {}},
		{"what is only shown", `{"id": 1, "revision": 2}`, func(d *control.Draft) {}},
		{"one member", `{"schedule": "@daily"}`, func(d *control.Draft) { d.Spec.Schedule = "@daily" }},
		{"a zero", `{"maxRetries": 0}`, func(d *control.Draft) { d.Spec.MaxRetries = 0 }},
		{"numbers back to their defaults", `{"max_retries": null, "timeout_seconds": null, "retry_jitter": null}`,
			func(d *control.Draft) { d.Spec.MaxRetries, d.Spec.TimeoutSeconds, d.Spec.RetryJitter = 3, 60, 0.25 }},
		{"texts back to their defaults", `{"name": null, "tags": null, "queue": "", "timezone": null, "payload": null}`,
			func(d *control.Draft) {
				d.Name, d.Tags, d.Payload, d.Spec.Queue, d.Spec.Timezone = "", nil, nil, "default", ""
			}},
		{"a policy", `{"retryPolicy": {"maxRetries": 1}}`, func(d *control.Draft) { d.Spec.MaxRetries = 1 }},
		{"no policy", `{"retryPolicy": null}`, func(d *control.Draft) {
			d.Spec.MaxRetries, d.Spec.RetryBackoff, d.Spec.RetryBaseSeconds, d.Spec.RetryCapSeconds, d.Spec.RetryJitter = 3, "exponential", 5, 1800, 0.25
		}},
		{"delays", `{"retry_delays": [1, 2.5]}`, func(d *control.Draft) {
			d.Spec.RetryDelays, d.Spec.RetryBackoff, d.Spec.MaxRetries = "1,2.5", "list", 2
		}},
		{"a base above the cap", `{"retry_base_seconds": 30}`, func(d *control.Draft) { d.Spec.RetryBaseSeconds, d.Spec.RetryCapSeconds = 30, 30 }},
		{"a payload that is an empty text", `{"payload": ""}`, func(d *control.Draft) { d.Payload = json.RawMessage(`""`) }},
		{"its end of a pause", `{"status": "ACTIVE"}`, func(d *control.Draft) { d.Paused = false }},
	} {
		patch, faults, f := readPatch([]byte(tt.body), ns)
		if f != nil || len(faults) > 0 {
			t.Fatalf("%s: %v, %v", tt.name, faults, f)
		}
		want := full
		tt.change(&want)
		for range 2 { // It must be pure.
			got := full
			if faults := patch(&got); len(faults) > 0 || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, faults %v, want %+v", tt.name, got, faults, want)
			}
		}
	}
}

// FuzzReadDraft holds that whatever is read as a job was one JSON object of known
// members, each at most once, and that a refusal can be told to its sender.
func FuzzReadDraft(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"name":"a","schedule":"@daily","payload":{"url":"https://example.com"}}`, `{"a":{"a":[1,{"b":2,"b":3}]}}`,
		`{"timeout_seconds":1e2,"retry_jitter":-0}`, `{"name":"\ud800\u0000"}`, "{\"n\xff\":1}", `[[[[`, `{"payload":"\"{}"}`, `{"status":"PAUSED"}`,
		`{"retryPolicy":{"maxRetries":3,"backoffMs":5000}}`, `{"tags":["a",["b"],{}], "maxRetries": null}`, `{"name" : "a" , "tags" : [ ] }`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		readPatch(body, ns)
		for array := range 2 {
			p := newParts(bytes.NewReader(body), array == 1, ns)
			for _, err := p.next(); err == nil; _, err = p.next() {
			}
		}
		d, faults, flaw := readDraft(body, ns, false)
		if flaw != nil {
			var e *refusal
			if !errors.As(flaw.refusal(), &e) || e.status != http.StatusBadRequest || flaw.what == "" {
				t.Fatalf("%q is refused with %v", body, flaw)
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
			plain := strings.ReplaceAll(strings.ToLower(name), "_", "")
			known := func(k string) bool { return strings.ReplaceAll(k, "_", "") == plain }
			if !slices.ContainsFunc(jobFields, known) && !slices.ContainsFunc(shownFields, known) {
				t.Errorf("%q has the unknown member %q", body, name)
			}
		}
		if d.Payload != nil && !json.Valid(d.Payload) {
			t.Errorf("%q has the payload %q", body, d.Payload)
		}
	})
}
