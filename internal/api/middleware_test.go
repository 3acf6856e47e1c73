package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/control"
)

func TestAcceptedHosts(t *testing.T) {
	s := newService(t, func(o *api.Options) { o.Hosts = []string{"Belfry.example.com:443", "other.example."} })
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:80": 200, "a.localhost": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200,
		"192.0.2.7": 200, "belfry.example.com": 200, "BELFRY.example.com.:9": 200, "other.example": 200,
		"evil.example": 421, "xbelfry.example.com": 421, "example.com": 421, "127.0.0.1.evil.example": 421, "notlocalhost": 421,
	} {
		if a := s.send("GET", "/api/v1/jobs", "", "Host: "+host); a.status != want {
			t.Errorf("%s: got %d, want %d", host, a.status, want)
		}
	}
	if p := s.send("GET", "/api/v1/jobs", "", "Host: evil.example:80").problem(t); !strings.Contains(p.Detail, `"evil.example"`) || !strings.Contains(p.Detail, "--host") {
		t.Errorf("the answer is %q", p.Detail)
	}
}

// Load balancers and supervisors use whatever name or address they know.
func TestHealthChecksAcceptAnyHost(t *testing.T) {
	s := newService(t)
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/livez/": 421, "/docs/api": 421, "/": 421} {
		if a := s.send("GET", path, "", "Host: pod-7.belfry.svc"); a.status != want {
			t.Errorf("%s: got %d, want %d", path, a.status, want)
		}
	}
}

func TestAPIKeysAreRequired(t *testing.T) {
	const key = testKey
	s := newService(t, withKeys(t))
	for _, tt := range []struct {
		name, method, path string
		header             string
		status             int
	}{
		{"without a key", "GET", "/api/v1/jobs", "Accept: */*", 401},
		{"without a key, elsewhere", "GET", "/nothing", "Accept: */*", 401},
		{"without a key, at the index", "GET", "/", "Accept: */*", 401},
		{"near the public paths", "GET", "/livez/", "Accept: */*", 401},
		{"with another key", "POST", "/api/v1/jobs", "Authorization: Bearer " + strings.Repeat("x", 40), 401},
		{"with half a key", "GET", "/api/v1/jobs", "Authorization: Bearer " + key[:32], 401},
		{"with a password", "GET", "/api/v1/jobs", "Authorization: Basic b3BzOng=", 401},
		{"with the key", "GET", "/api/v1/jobs", "Authorization: Bearer " + key, 200},
		{"to live", "GET", "/livez", "Accept: */*", 200},
		{"to be ready", "GET", "/readyz", "Accept: */*", 200},
	} {
		a := s.send(tt.method, tt.path, "", tt.header)
		if a.status != tt.status {
			t.Errorf("%s: got %d, want %d", tt.name, a.status, tt.status)
			continue
		}
		if a.status == 401 {
			a.problem(t)
			if !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer ") {
				t.Errorf("%s: the challenge is %q", tt.name, a.header.Get("WWW-Authenticate"))
			}
		}
	}
	if log := s.log.String(); strings.Contains(log, key) || strings.Contains(log, "b3BzOng") || !strings.Contains(log, "key=ops") {
		t.Errorf("the log is\n%s", log)
	}
}

func TestRequestIDs(t *testing.T) {
	s := newService(t)
	if got := s.send("GET", "/livez", "", "X-Request-Id: abc-DEF_123").header.Get("X-Request-Id"); got != "abc-DEF_123" {
		t.Errorf("the id became %q", got)
	}
	for _, id := range []string{"", "a b", "a\"b", "é", strings.Repeat("x", 65)} {
		a := s.send("GET", "/nothing", "", "X-Request-Id: "+id)
		if got := a.header.Get("X-Request-Id"); got == id || len(got) != 36 {
			t.Errorf("%q became %q", id, got)
		}
		a.problem(t)
	}
	if !strings.Contains(s.log.String(), "request_id=abc-DEF_123") {
		t.Error("the id is not in the log")
	}
}

func TestSecurityHeaders(t *testing.T) {
	s := newService(t)
	for _, path := range []string{"/", "/livez", "/readyz", "/api/v1/jobs", "/nothing"} {
		h := s.send("GET", path, "").header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the headers are %v", path, h)
		}
	}
	if a := s.send("POST", "/api/v1/jobs", validJob, "Origin: http://localhost:8080", "Sec-Fetch-Site: same-origin"); a.status != 201 {
		t.Errorf("our own pages are refused: %d", a.status)
	}
}

func TestPanicIsInternalError(t *testing.T) {
	s := newService(t, func(o *api.Options) { o.Control = new(control.Control) })
	a := s.send("GET", "/api/v1/jobs", "", "X-Request-Id: boom")
	p := a.problem(t)
	if p.Status != http.StatusInternalServerError || p.Code != "internal" {
		t.Errorf("got %+v", p)
	}
	if log := s.log.String(); !strings.Contains(log, "request_id=boom") || !strings.Contains(log, "stack=") {
		t.Errorf("the log is\n%s", log)
	}
}

func TestDatabaseIsUnavailable(t *testing.T) {
	s := newService(t)
	job := s.create(validJob)
	s.expect(http.StatusOK, nil, "GET", "/readyz", "")
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/jobs/" + job.ID.String()
	for _, r := range [][3]string{
		{"GET", "/api/v1/jobs", ""}, {"POST", "/api/v1/jobs", strings.Replace(validJob, "report", "other", 1)}, {"GET", path, ""}, {"DELETE", path, ""},
		{"PATCH", path, `{"status":"paused"}`}, {"POST", path + "/trigger", ""}, {"GET", path + "/runs", ""}, {"GET", "/api/v1/runs/" + job.ID.String(), ""},
		{"GET", "/readyz", ""}, {"PUT", "/api/v1/jobs/other", `{"schedule": "@daily", "payload": {"url": "https://example.com"}}`}, {"POST", "/api/v1/jobs/bulk", jobLine("x")},
		{"GET", path + "/history", ""}, {"GET", path + "/revisions", ""}, {"POST", path + "/rollback", `{"revision": 1}`}, {"POST", path + "/pause", ""}, {"POST", path + "/resume", ""},
		{"GET", "/api/v1/runs", ""}, {"GET", "/api/v1/jobs/report", ""}, {"POST", newWorkerPath() + "/claim", `{"handlers": ["send"], "wait_seconds": 0}`},
		{"POST", newWorkerPath() + "/heartbeat", registration}, {"POST", newWorkerPath() + "/finish", `{"results": [{"run_id": "` + unknownID +
			`", "attempt": 1, "token": "9f86d081884c7d659a2feaa0c55ad015", "outcome": "failed"}]}`},
	} {
		a := s.send(r[0], r[1], r[2])
		p := a.problem(t)
		if p.Status != http.StatusServiceUnavailable || p.Code != "unavailable" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s %s: got %+v", r[0], r[1], p)
		}
	}
	s.expect(http.StatusOK, nil, "GET", "/livez", "")
	if log := s.log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "closed") {
		t.Errorf("the log is\n%s", log)
	}
}

func TestReadyHidesCauses(t *testing.T) {
	dial := errors.New("dial tcp 10.0.0.5:5432: connection refused; password=hunter2")
	for _, tt := range []struct {
		err    error
		detail string
	}{
		{dial, "the database cannot be reached"},
		{belfry.Errorf(belfry.Unavailable, "the database does not answer: %w", dial), "the database does not answer"},
		{fmt.Errorf("start: %w", belfry.Errorf(belfry.Unavailable, "the node is shutting down")), "the node is shutting down"},
		{belfry.Errorf(belfry.Internal, "select 1"), "the database cannot be reached"},
	} {
		s := newService(t, func(o *api.Options) { o.Ready = func(context.Context) error { return tt.err } })
		a := s.send("GET", "/readyz", "")
		if p := a.problem(t); p.Status != 503 || p.Detail != tt.detail || strings.Contains(a.body, "hunter2") {
			t.Errorf("%v: got %s", tt.err, a.body)
		}
	}
	s := newService(t, func(o *api.Options) { o.Ready = nil })
	s.expect(http.StatusOK, nil, "GET", "/readyz", "")
}

func TestNodeWithoutStoreServesHealthChecks(t *testing.T) {
	s := newService(t, func(o *api.Options) { o.Control = nil })
	for path, status := range map[string]int{"/livez": 200, "/readyz": 200, "/": 200, "/api/v1/jobs": 404, "/docs/api": 404} {
		if a := s.send("GET", path, ""); a.status != status {
			t.Errorf("%s: got %d %s", path, a.status, a.body)
		}
	}
}

func TestServerOverTCP(t *testing.T) {
	s := newService(t)
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(s)
	server.Start()
	defer server.Close()
	created, err := server.Client().Post(server.URL+"/api/v1/jobs", "application/json", strings.NewReader(validJob))
	if err != nil {
		t.Fatal(err)
	}
	created.Body.Close()
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"HEAD", created.Header.Get("Location"), 200}, {"GET", "/api/v1/jobs", 200}, {"HEAD", "/nothing", 404}, {"DELETE", created.Header.Get("Location"), 204},
	} {
		r, err := http.NewRequest(tt.method, server.URL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := server.Client().Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", tt.method, tt.path, err)
		}
		body, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil || a.StatusCode != tt.status || (len(body) == 0) != (tt.method != "GET") {
			t.Errorf("%s %s: got %d and %d bytes, error %v", tt.method, tt.path, a.StatusCode, len(body), err)
		}
	}
}

func TestServerHasTimeouts(t *testing.T) {
	server := api.NewServer(http.NotFoundHandler())
	if server.Handler == nil || server.ReadHeaderTimeout == 0 || server.ReadTimeout == 0 || server.WriteTimeout == 0 || server.IdleTimeout == 0 || server.MaxHeaderBytes != 64<<10 {
		t.Errorf("got %+v", server)
	}
}

// endlessReader is a body without an end.
type endlessReader struct{ read int64 }

func (e *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += int64(len(p))
	return len(p), nil
}

func TestLargeBodyIsNotRead(t *testing.T) {
	s := newService(t)
	body := new(endlessReader)
	r := httptest.NewRequest("POST", "/api/v1/jobs", body)
	r.Host, r.ContentLength = "localhost", -1
	r.Header.Set("Content-Type", "application/json")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 20
	for range times {
		body.read = 0
		s.ServeHTTP(httptest.NewRecorder(), r)
		if body.read > 2<<20 {
			t.Fatalf("%d bytes were read", body.read)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / times; got > 8<<20 {
		t.Errorf("a request took %d bytes of memory", got)
	}
	w := httptest.NewRecorder()
	r.ContentLength = 1 << 40
	body.read = 0
	s.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge || body.read != 0 || w.Result().Header.Get("Connection") != "close" {
		t.Errorf("got %d after reading %d bytes", w.Code, body.read)
	}
}
