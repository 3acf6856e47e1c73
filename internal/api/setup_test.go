package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// service is the HTTP face over a real store.
type service struct {
	t     testing.TB
	store *sqlite.Store
	http.Handler
	log *lines
}

// lines is a log that can be looked at.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func serve(t testing.TB, options ...func(*api.Options)) *service {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	log := new(lines)
	o := api.Options{
		Control: control.New(s, plan.Defaults{}),
		Ready:   s.Ping,
		Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, change := range options {
		change(&o)
	}
	return &service{t, s, api.New(o), log}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request; a header is written as "Name: value".
func (s *service) ask(method, path, body string, headers ...string) answer {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:8080"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Result().Body)
	return answer{w.Code, w.Result().Header, string(text)}
}

// want asks, wants the status, and decodes the answer.
func (s *service) want(status int, into any, method, path, body string, headers ...string) answer {
	s.t.Helper()
	a := s.ask(method, path, body, headers...)
	if a.status != status {
		s.t.Fatalf("%s %s: got %d, want %d: %s", method, path, a.status, status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(a.body), into); err != nil {
			s.t.Fatalf("%s %s: %v: %s", method, path, err, a.body)
		}
	}
	return a
}

// problem is a problem document as a client reads it.
type problem struct {
	Type      string              `json:"type"`
	Title     string              `json:"title"`
	Status    int                 `json:"status"`
	Detail    string              `json:"detail"`
	Code      string              `json:"code"`
	RequestID string              `json:"request_id"`
	Errors    []belfry.FieldError `json:"errors"`
}

// problem decodes an answer that must be a problem document without internals.
func (a answer) problem(t testing.TB) problem {
	t.Helper()
	var p problem
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("the content type is %q", got)
	}
	if p.Type != "about:blank" || p.Title != http.StatusText(a.status) || p.Status != a.status || p.Detail == "" || p.Code == "" ||
		p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("the problem document of a %d is %s", a.status, a.body)
	}
	for _, internal := range []string{"sqlite", "sql:", "select", "insert", "goroutine", ".go:", "belfry.db", "/tmp/", "constraint", "panic"} {
		if strings.Contains(strings.ToLower(a.body), internal) {
			t.Errorf("the problem document says %q: %s", internal, a.body)
		}
	}
	return p
}

func (p problem) fields() []string {
	var fields []string
	for _, f := range p.Errors {
		fields = append(fields, f.Field)
	}
	return fields
}

const validJob = `{"name": "report", "schedule": "30 9 * * MON-FRI", "timezone": "Europe/Paris", "payload": {"url": "https://example.com/hook"}}`

func (s *service) create(body string, headers ...string) belfry.Job {
	s.t.Helper()
	var job belfry.Job
	s.want(http.StatusCreated, &job, "POST", "/api/v1/jobs", body, headers...)
	return job
}

func (s *service) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// turn makes runs of the triggers that wait.
func (s *service) turn() {
	s.t.Helper()
	wishes, err := s.store.Triggers(context.Background(), []int{0, 1, 2, 3}, 100)
	s.check(err)
	dues := make(map[belfry.ID]store.Due)
	triggers := make(map[belfry.ID][]plan.Trigger)
	for _, w := range wishes {
		dues[w.Due.Plan.JobID] = w.Due
		triggers[w.Due.Plan.JobID] = append(triggers[w.Due.Plan.JobID], w.Trigger)
	}
	var steps []plan.Step
	for id, due := range dues {
		steps = append(steps, plan.Fire(s.subject(due), due.Plan, triggers[id]))
	}
	_, err = s.store.Fire(context.Background(), belfry.NewID(s.store.Now()), steps, store.Slots{})
	s.check(err)
}

// subject is what a decision needs to know of the job of a plan.
func (s *service) subject(due store.Due) plan.Subject {
	s.t.Helper()
	var spec belfry.Spec
	s.check(json.Unmarshal([]byte(due.Spec), &spec))
	policy, err := plan.Compile(spec)
	s.check(err)
	return plan.Subject{Namespace: due.Namespace, Name: due.Name, Revision: due.Revision, Policy: policy}
}

// tick decides about every occurrence that is due.
func (s *service) tick() {
	s.t.Helper()
	now := s.store.Now()
	due, err := s.store.Overdue(context.Background(), []int{0, 1, 2, 3}, now.Add(time.Microsecond), 100)
	s.check(err)
	var steps []plan.Step
	for _, d := range due {
		steps = append(steps, plan.Decide(s.subject(d), d.Plan, time.Time{}, now))
	}
	_, err = s.store.Fire(context.Background(), belfry.NewID(now), steps, store.Slots{})
	s.check(err)
}

// fire turns the triggers that wait into runs and gives one of them to a worker,
// which fails it.
func (s *service) fire() {
	s.t.Helper()
	ctx := context.Background()
	s.turn()
	worker := belfry.NewID(s.store.Now())
	_, err := s.store.Heartbeat(ctx, belfry.Heartbeat{WorkerID: worker, Node: "test", Slots: 1, Lanes: []string{"default/http"}, Register: true})
	s.check(err)
	runs, err := s.store.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{"default/http"}, Limit: 1})
	s.check(err)
	for _, run := range runs {
		_, err := s.store.Finish(ctx, []belfry.Result{{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token,
			Outcome: belfry.OutcomeFailed, HTTPStatus: 500, Error: "the target answered 500", Output: []byte("<b>oh no</b>")}})
		s.check(err)
	}
}
