package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestNewAddress(t *testing.T) {
	for _, tt := range []struct{ server, want, refused string }{
		{"http://localhost:8080", "http://localhost:8080", ""},
		{"https://belfry.example.com/", "https://belfry.example.com", ""},
		{"https://example.com/tools/belfry/", "https://example.com/tools/belfry", ""},
		{"http://[::1]:8080", "http://[::1]:8080", ""},
		{"localhost:8080", "http://localhost:8080", ""},
		{"127.0.0.1:8080", "http://127.0.0.1:8080", ""},
		{"[::1]:8080", "http://[::1]:8080", ""},
		{"belfry.example.com/tools/", "http://belfry.example.com/tools", ""},
		{"http://localhost:8080/api/v1", "http://localhost:8080", ""},
		{"http://localhost:8080/api/v1/", "http://localhost:8080", ""},
		{"localhost:8080//api/v1//", "http://localhost:8080", ""},
		{"https://example.com/belfry/api/v1/", "https://example.com/belfry", ""},
		{"https://example.com/my-api/v1", "https://example.com/my-api/v1", ""},
		{"", "", "has no host"},
		{"http:localhost:8080", "", "does not start with http"},
		{"http:/localhost:8080", "", "has no host"},
		{"ftp://localhost", "", "does not start with http"},
		{"http://", "", "has no host"},
		{"http://:8080", "", "has no host"},
		{"http://localhost?x=1", "", "must not contain ? or #"},
		{"http://localhost/?", "", "must not contain ? or #"},
		{"http://localhost#x", "", "must not contain ? or #"},
		{"http://me:s3cret@localhost", "", "user name or password"},
		{"http://s3cret@local host", "", "user name or password"},
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

func TestNewOptionErrors(t *testing.T) {
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

func TestRequestHeaders(t *testing.T) {
	c, s := scripted(t, said{status: 200, body: `{}`})
	c.namespace = "billing"
	if _, err := c.EditJob(t.Context(), "a b/ü?", map[string]any{"queue": nil}, IfMatch("v1")); err != nil {
		t.Fatal(err)
	}
	r := s.requests[0]
	if got := r.Method + " " + r.URL.String(); got != "PATCH http://belfry.test/api/v1/jobs/a%20b%2F%C3%BC%3F" {
		t.Errorf("the request is %s", got)
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

func TestJobPath(t *testing.T) {
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

func TestEmptyRefIsInvalid(t *testing.T) {
	c, s := scripted(t, said{status: 204})
	errs := []error{c.DeleteJob(t.Context(), "")}
	_, err := c.Job(t.Context(), "")
	errs = append(errs, err)
	_, _, err = c.PutJob(t.Context(), "", belfry.Manifest{})
	errs = append(errs, err)
	for _, err = range c.JobRuns(t.Context(), "", belfry.JobRunFilter{}) {
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

func TestManifestSendsWhatIsSet(t *testing.T) {
	delays, err := belfry.NewDelays([]float64{0, 1.5, 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		manifest belfry.Manifest
		want     string
	}{
		{belfry.Manifest{}, `{}`},
		{belfry.Manifest{Spec: belfry.Spec{Schedule: "@daily", MaxRetries: belfry.Some(0), RetryJitter: belfry.Some(0.0)}}, `{"schedule":"@daily","max_retries":0,"retry_jitter":0}`},
		{belfry.Manifest{Spec: belfry.Spec{Priority: belfry.PriorityHigh, RetryDelays: delays}}, `{"priority":"high","retry_delays":[0,1.5,60]}`},
		{belfry.Manifest{Tags: []string{"a"}, Payload: json.RawMessage(`{"b": 1}`), Status: belfry.StatusPaused}, `{"tags":["a"],"payload":{"b":1},"status":"paused"}`},
	} {
		c, s := scripted(t, said{status: 200, body: `{}`})
		if _, err := c.CreateJob(t.Context(), tt.manifest); err != nil || s.bodies[0] != tt.want {
			t.Errorf("sent %s, error %v, want %s", s.bodies[0], err, tt.want)
		}
	}
}

func TestKeyIsNeverShown(t *testing.T) {
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
	if err == nil || !strings.Contains(err.Error(), "redirects to "+other.URL+": use that address") {
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
