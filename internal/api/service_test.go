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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// service is the API over a real store.
type service struct {
	t     testing.TB
	store store.Store
	http.Handler
	log *logBuffer
}

// logBuffer is a log that a test can read.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newService(t testing.TB, options ...func(*api.Options)) *service {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	return newServiceOn(t, s, options...)
}

// newServiceOn is the API over a store, which it closes.
func newServiceOn(t testing.TB, s store.Store, options ...func(*api.Options)) *service {
	t.Helper()
	t.Cleanup(func() { s.Close() })
	log := new(logBuffer)
	o := api.Options{
		Control: control.New(s, plan.Defaults{}),
		Ready:   s.Ping,
		Metrics: metrics.New(),
		Log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, change := range options {
		change(&o)
	}
	return &service{t, s, api.New(o), log}
}

// as is the same service for a principal.
func (s *service) as(p *auth.Principal) *service {
	other := *s
	other.Handler = api.As(s.Handler, p)
	return &other
}

// reply is the response to a request.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request; a header is written as "Name: value".
func (s *service) send(method, path, body string, headers ...string) reply {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:8080"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch name {
		case "Host":
			r.Host = value
		case "Remote":
			r.RemoteAddr = value + ":1234"
		default:
			r.Header.Add(name, value)
		}
	}
	switch media, given := r.Header["Content-Type"]; {
	case given && media[0] == "":
		r.Header.Del("Content-Type")
	case !given && r.URL.Path == importPath && !strings.HasPrefix(body, "["):
		r.Header.Set("Content-Type", "application/x-ndjson")
	case !given && body != "":
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Result().Body)
	return reply{w.Code, w.Result().Header, string(text)}
}

// expect sends a request that must have the status, and decodes its reply.
func (s *service) expect(status int, into any, method, path, body string, headers ...string) reply {
	s.t.Helper()
	a := s.send(method, path, body, headers...)
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

// problem is a problem document with the names of its fields.
type problem struct{ belfry.Problem }

// problem decodes a reply that must be a problem document without internals.
func (a reply) problem(t testing.TB) problem {
	t.Helper()
	var p problem
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p.Problem); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("the content type is %q", got)
	}
	want := belfry.Problem{Type: "about:blank", Title: http.StatusText(a.status), Status: a.status, RequestID: a.header.Get("X-Request-Id")}
	if diff := cmp.Diff(want, p.Problem, cmpopts.IgnoreFields(belfry.Problem{}, "_", "Detail", "Code", "Errors")); diff != "" {
		t.Errorf("problem document of a %d (-want +got):\n%s", a.status, diff)
	}
	if p.Detail == "" || p.Code == "" || p.RequestID == "" {
		t.Errorf("the problem document of a %d lacks something: %s", a.status, a.body)
	}
	for _, internal := range []string{"sqlite", "sql:", "select", "insert", "goroutine", ".go:", "belfry.db", "/tmp/", "constraint", "panic"} {
		if strings.Contains(strings.ToLower(a.body), internal) {
			t.Errorf("the problem document says %q: %s", internal, a.body)
		}
	}
	return p
}

// jobOptions compare jobs by what is in them.
var jobOptions = cmp.Options{
	cmp.AllowUnexported(belfry.Optional[int]{}, belfry.Optional[float64]{}),
	cmpopts.IgnoreFields(belfry.Job{}, "_", "State"), cmpopts.IgnoreFields(belfry.Manifest{}, "_"), cmpopts.EquateEmpty(),
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
	s.expect(http.StatusCreated, &job, "POST", "/api/v1/jobs", body, headers...)
	return job
}

func (s *service) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// fireTriggers makes runs of the pending triggers.
func (s *service) fireTriggers() {
	s.t.Helper()
	pending, err := s.store.PendingTriggers(context.Background(), []int{0, 1, 2, 3}, nil, 100)
	s.check(err)
	dues := make(map[belfry.ID]store.Due)
	triggers := make(map[belfry.ID][]plan.Trigger)
	for _, p := range pending {
		dues[p.Due.Plan.JobID] = p.Due
		triggers[p.Due.Plan.JobID] = append(triggers[p.Due.Plan.JobID], p.Trigger)
	}
	var steps []plan.Step
	for id, due := range dues {
		steps = append(steps, plan.Fire(s.subject(due), due.Plan, triggers[id]))
	}
	_, err = s.store.Fire(context.Background(), belfry.NewID(s.store.Now()), steps, store.FreeSlots{})
	s.check(err)
}

// subject is the job of a plan as decisions need it.
func (s *service) subject(due store.Due) plan.Subject {
	s.t.Helper()
	spec, err := store.DecodeSpec(due.Spec)
	s.check(err)
	policy, err := plan.Compile(spec)
	s.check(err)
	return plan.Subject{Namespace: due.Namespace, Name: due.Name, Revision: due.Revision, Policy: policy}
}

// fireDue fires every occurrence that is due.
func (s *service) fireDue() {
	s.t.Helper()
	now := s.store.Now()
	planned, err := s.store.Upcoming(context.Background(), store.AllUntil(now, []int{0, 1, 2, 3}, 100))
	s.check(err)
	var jobs []belfry.ID
	for _, p := range planned {
		jobs = append(jobs, p.Plan.JobID)
	}
	due, err := s.store.PlansByJob(context.Background(), jobs)
	s.check(err)
	var steps []plan.Step
	for _, d := range due {
		steps = append(steps, plan.Decide(s.subject(d), d.Plan, time.Time{}, now))
	}
	_, err = s.store.Fire(context.Background(), belfry.NewID(now), steps, store.FreeSlots{})
	s.check(err)
}

// failTriggered makes runs of the pending triggers and lets a worker claim one of them
// and fail.
func (s *service) failTriggered() {
	s.t.Helper()
	ctx := context.Background()
	s.fireTriggers()
	worker := belfry.NewID(s.store.Now())
	_, err := s.store.Heartbeat(ctx, belfry.Heartbeat{WorkerID: worker, Node: "test", Slots: 1, Lanes: []string{"default/http"}, Register: true})
	s.check(err)
	runs, err := s.store.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{"default/http"}, Limit: 1})
	s.check(err)
	for _, run := range runs {
		_, err := s.store.Finish(ctx, []belfry.Result{{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token,
			Outcome: belfry.OutcomeFailed, HTTPStatus: 500, Error: "the target answered 500", Output: "<b>oh no</b>"}})
		s.check(err)
	}
}

// listIDs collects the ids of a list over all its pages.
func (s *service) listIDs(path string) (ids []string, pages int) {
	s.t.Helper()
	for ; path != ""; pages++ {
		var items []struct {
			JobID string `json:"job_id"`
			RunID string `json:"run_id"`
		}
		a := s.expect(http.StatusOK, &items, "GET", path, "")
		for _, item := range items {
			if item.RunID == "" {
				item.RunID = item.JobID
			}
			ids = append(ids, item.RunID)
		}
		path = nextPage(s.t, a)
	}
	return ids, pages
}

// nextPage is the address in the Link header; empty on the last page.
func nextPage(t testing.TB, a reply) string {
	t.Helper()
	link := a.header.Get("Link")
	if link == "" {
		return ""
	}
	path, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	if !ok {
		t.Fatalf("the link is %q", link)
	}
	return path
}
