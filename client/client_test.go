package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestAddressesOfServers(t *testing.T) {
	for _, tt := range []struct{ server, want, refused string }{
		{"http://localhost:8080", "http://localhost:8080", ""},
		{"https://belfry.example.com/", "https://belfry.example.com", ""},
		{"https://example.com/tools/belfry/", "https://example.com/tools/belfry", ""},
		{"http://[::1]:8080", "http://[::1]:8080", ""},
		{"", "", "does not begin with http"},
		{"localhost:8080", "", "does not begin with http"},
		{"ftp://localhost", "", "does not begin with http"},
		{"http://", "", "names no host"},
		{"http://:8080", "", "names no host"},
		{"http://localhost?x=1", "", "behind a ? or #"},
		{"http://localhost/?", "", "behind a ? or #"},
		{"http://localhost#x", "", "behind a ? or #"},
		{"http://me:s3cret@localhost", "", "user or password"},
		{"http://s3cret@local host", "", "user or password"},
		{"http://local host", "", "is not the address"},
		{"http://localhost\n", "", "is not the address"},
	} {
		c, err := New(tt.server)
		switch {
		case tt.refused != "":
			if err == nil || !strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q: got %v, want %q", tt.server, err, tt.refused)
			}
		case err != nil || c.base != tt.want:
			t.Errorf("%q: got %v, want %s", tt.server, err, tt.want)
		}
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, o := range map[string]Option{
		"a key with a line break": WithKey("s3cret\n"),
		"a key with a space":      WithKey("s3cret s3cret"),
		"a key with an accent":    WithKey("s3crét"),
		"a bad namespace":         WithNamespace("a\r\nX: y"),
		"a bad user agent":        WithUserAgent("a\nb"),
		"no HTTP client":          WithHTTPClient(nil),
	} {
		if _, err := New("http://localhost", o); err == nil || strings.Contains(err.Error(), "s3cr") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestRequestsSayWhoAsksForWhat(t *testing.T) {
	c, s := scripted(t, said{status: 200, body: `{}`})
	c.namespace = "billing"
	if _, err := c.EditJob(t.Context(), "a b/ü?", map[string]any{"queue": nil}, IfMatch("v1")); err != nil {
		t.Fatal(err)
	}
	r := s.requests[0]
	if got := r.Method + " " + r.URL.String(); got != "PATCH http://belfry.test/api/v1/jobs/a%20b%2F%C3%BC%3F" {
		t.Errorf("asked for %s", got)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer " + testKey, "Belfry-Namespace": "billing", "If-Match": `"v1"`,
		"Content-Type": "application/json", "User-Agent": "belfry-go", "Idempotency-Key": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if s.bodies[0] != `{"queue":null}` {
		t.Errorf("the body is %s", s.bodies[0])
	}
}

func TestJobsAreFoundByAnyName(t *testing.T) {
	for ref, want := range map[string]string{
		".": "%2E", "..": "%2E%2E", "a.b": "a.b", "100%": "100%25", "a?b#c": "a%3Fb%23c", "ü": "%C3%BC",
	} {
		c, s := scripted(t, said{status: 200, body: `{}`})
		if _, err := c.PauseJob(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		if got := s.requests[0].URL.EscapedPath(); got != "/api/v1/jobs/"+want+"/pause" {
			t.Errorf("%q is at %s", ref, got)
		}
	}
}

func TestNoNameIsNoJob(t *testing.T) {
	c, s := scripted(t, said{status: 204})
	errs := []error{c.DeleteJob(t.Context(), "")}
	_, err := c.Job(t.Context(), "")
	errs = append(errs, err)
	_, _, err = c.PutJob(t.Context(), "", Draft{})
	errs = append(errs, err)
	for _, err = range c.RunsOf(t.Context(), "") {
		errs = append(errs, err)
	}
	for _, err := range errs {
		if belfry.CodeOf(err) != belfry.Invalid {
			t.Errorf("got %v", err)
		}
	}
	if len(errs) != 4 || len(s.requests) != 0 {
		t.Errorf("%d errors and %d requests, want 4 and none", len(errs), len(s.requests))
	}
}

func TestDraftSendsWhatIsSet(t *testing.T) {
	for _, tt := range []struct {
		draft Draft
		want  string
	}{
		{Draft{}, `{}`},
		{Draft{Schedule: "@daily", MaxRetries: new(0), RetryJitter: new(0.0)}, `{"schedule":"@daily","max_retries":0,"retry_jitter":0}`},
		{Draft{Priority: belfry.PriorityHigh, RetryDelays: []float64{0, 1.5, 60}}, `{"priority":"high","retry_delays":[0,1.5,60]}`},
		{Draft{Priority: "normal"}, `{"priority":"normal"}`},
		{Draft{Status: belfry.StatusPaused, Tags: []string{"a"}, Payload: json.RawMessage(`{"b": 1}`)},
			`{"tags":["a"],"status":"paused","payload":{"b":1}}`},
	} {
		if got, err := json.Marshal(tt.draft); err != nil || string(got) != tt.want {
			t.Errorf("got %s and %v, want %s", got, err, tt.want)
		}
	}
}

// Every member of a job that a person may set is in the draft under its name.
func TestDraftHasEveryFieldOfAJob(t *testing.T) {
	full, _ := json.Marshal(belfry.Spec{Handler: "h", IdempotencyKeyTemplate: "k", DSTGap: "g", DSTOverlap: "o", StartsAt: time.Now(), EndsAt: time.Now(),
		MaxRuns: 1, JitterSeconds: 1, MaxMissed: 1, CatchUpSeconds: 1, MaxQueued: 1, RetryOn: "r", RetryDelays: "1", RetentionDays: 1})
	var spec map[string]any
	json.Unmarshal(full, &spec)
	filled, _ := json.Marshal(Draft{Name: "n", Tags: []string{"t"}, Type: "t", Handler: "h", Schedule: "s", Timezone: "z", MissedWindow: "m",
		Queue: "q", Overlap: "o", TimeoutSeconds: 1, MaxRetries: new(1), RetryBackoff: "b", RetryBaseSeconds: new(1.0), RetryCapSeconds: new(1.0),
		RetryJitter: new(1.0), IdempotencyKeyTemplate: "k", Status: "s", Payload: 1, DSTGap: "g", DSTOverlap: "o", StartsAt: time.Now(), EndsAt: time.Now(),
		MaxRuns: 1, JitterSeconds: 1, MaxMissed: 1, CatchUpSeconds: 1, Priority: "high", MaxQueued: 1, RetryOn: "r", RetryDelays: []float64{1}, RetentionDays: 1})
	var draft map[string]any
	json.Unmarshal(filled, &draft)
	for name := range spec {
		if _, ok := draft[name]; !ok {
			t.Errorf("a draft has no %s", name)
		}
	}
	if len(draft) != len(spec)+4 { // name, tags, status, payload
		t.Errorf("a draft has %d members, a spec %d", len(draft), len(spec))
	}
}

func TestTheKeyIsNowhereToBeSeen(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+testKey {
			t.Error("the key did not arrive")
		}
		http.Redirect(w, r, strings.Replace(other.URL, "http://", "http://user:"+testKey+"@", 1)+"/?"+testKey, http.StatusTemporaryRedirect)
	})
	shown := fmt.Sprintf("%v %+v %#v", c, c, c)
	_, err := c.Job(t.Context(), "x")
	if err == nil || !strings.Contains(err.Error(), "leads to "+other.URL+": give that address") {
		t.Errorf("got %v", err)
	}
	if elsewhere != 0 {
		t.Error("the redirect was followed")
	}
	gone, _ := New("http://127.0.0.1:1", WithKey(testKey), WithRetries(0))
	_, refused := gone.Job(t.Context(), "x")
	text, _ := json.Marshal(map[string]any{"client": c})
	for _, shown := range []string{shown, fmt.Sprintf("%v %+v %#v", err, err, err), fmt.Sprintf("%v %+v", refused, refused), string(text)} {
		if strings.Contains(shown, testKey[:12]) {
			t.Errorf("the key is in %s", shown)
		}
	}
	if belfry.CodeOf(refused) != belfry.Unavailable || !strings.Contains(refused.Error(), "no answer from http://127.0.0.1:1") {
		t.Errorf("got %v", refused)
	}
}
