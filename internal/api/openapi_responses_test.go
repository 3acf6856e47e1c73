package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
)

const workerJob = `{"name": "invoices", "handler": "send-invoice", "type": "worker", "schedule": "@daily", "payload": {"customer": 4711}, "tags": ["billing"]}`

func TestJobRepliesMatchTheDocument(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	var job belfry.Job
	a := s.expectDocumented(c, 201, &job, "POST", "/api/v1/jobs", validJob)
	id := "/api/v1/jobs/" + job.ID.String()
	s.expectDocumented(c, 201, nil, "POST", "/api/v1/jobs", workerJob, "Idempotency-Key: one")
	s.expectDocumented(c, 201, nil, "POST", "/api/v1/jobs", workerJob, "Idempotency-Key: one")
	s.expectDocumented(c, 422, nil, "POST", "/api/v1/jobs", validJob, "Idempotency-Key: one")
	s.expectDocumented(c, 201, nil, "POST", "/api/v1/jobs/bulk", `{"schedule": "@hourly", "payload": {"url": "https://example.com/a"}}`+"\n", "Content-Type: application/x-ndjson")
	s.expectDocumented(c, 201, nil, "POST", "/api/v1/jobs/bulk", `[{"schedule": "@hourly", "payload": {"url": "https://example.com/a"}}]`, "Content-Type: application/json")
	s.expectDocumented(c, 422, nil, "POST", "/api/v1/jobs/bulk", `[{"schedule": "every so often"}]`, "Content-Type: application/json")

	s.expectDocumented(c, 200, nil, "GET", id, "")
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs/report", "")
	first := s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs?limit=1", "")
	next := strings.TrimSuffix(strings.TrimPrefix(first.header.Get("Link"), "<"), `>; rel="next"`)
	s.expectDocumented(c, 200, nil, "GET", next, "")
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs?status=scheduled&type=worker&handler=send-invoice&queue=default&tag=billing&search=inv", "")

	s.expectDocumented(c, 200, nil, "PATCH", id, `{"schedule": "0 3 * * *", "max_retries": null, "overlap": "parallel"}`, "If-Match: "+a.header.Get("ETag"))
	s.expectDocumented(c, 412, nil, "PATCH", id, `{"schedule": "0 4 * * *"}`, "If-Match: "+a.header.Get("ETag"))
	s.expectDocumented(c, 409, nil, "PATCH", id, `{"name": "invoices"}`)
	s.expectDocumented(c, 200, nil, "PUT", "/api/v1/jobs/report", validJob)
	s.expectDocumented(c, 201, nil, "PUT", "/api/v1/jobs/other", strings.Replace(validJob, `"report"`, `"other"`, 1))
	s.expectDocumented(c, 200, nil, "POST", id+"/pause", "")
	s.expectDocumented(c, 200, nil, "GET", id, "")
	s.expectDocumented(c, 200, nil, "POST", id+"/resume", "")
	s.expectDocumented(c, 200, nil, "GET", id+"/revisions", "")
	s.expectDocumented(c, 200, nil, "GET", id+"/revisions?limit=1", "")
	s.expectDocumented(c, 200, nil, "POST", id+"/rollback", `{"revision": 1}`)
	s.expectDocumented(c, 204, nil, "DELETE", id, "")
	s.expectDocumented(c, 404, nil, "GET", id, "")
	s.expectDocumented(c, 404, nil, "DELETE", id, "")
}

func TestRunRepliesMatchTheDocument(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(validJob)
	var created belfry.TriggerResult
	s.expectDocumented(c, 202, &created, "POST", "/api/v1/jobs/report/trigger", `{"payload": {"a": 1}}`)
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/runs/"+created.RunID.String(), "")
	s.failTriggered()
	s.expectDocumented(c, 202, nil, "POST", "/api/v1/jobs/report/trigger", "")
	var run belfry.Run
	s.expectDocumented(c, 200, &run, "GET", "/api/v1/runs/"+created.RunID.String(), "")
	if len(run.Attempts) != 1 {
		t.Errorf("the run has %d attempts, want the one that failed", len(run.Attempts))
	}
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs/report/runs", "")
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs/report/runs?limit=1", "")
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs/report/history", "")
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/runs?status=retry", "")
	s.expectDocumented(c, 200, nil, "GET", "/api/v1/runs?limit=1", "")
	s.expectDocumented(c, 404, nil, "GET", "/api/v1/runs/nothing", "")
	s.expectDocumented(c, 404, nil, "POST", "/api/v1/jobs/nothing/trigger", "")
	s.expectDocumented(c, 400, nil, "GET", "/api/v1/runs?limit=0", "")
}

func TestWorkerRepliesMatchTheDocument(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(workerJob)
	s.expectDocumented(c, 202, nil, "POST", "/api/v1/jobs/invoices/trigger", "")
	s.fireTriggers()
	worker := "/api/v1/workers/" + belfry.NewID(s.store.Now()).String()
	s.expectDocumented(c, 200, nil, "POST", worker+"/heartbeat", `{"node": "n", "slots": 1, "handlers": ["send-invoice"], "register": true}`)
	var got belfry.ClaimReply
	s.expectDocumented(c, 200, &got, "POST", worker+"/claim", `{"handlers": ["send-invoice"], "limit": 5, "wait_seconds": 0}`)
	if len(got.Runs) != 1 {
		t.Fatalf("got %d runs, want one", len(got.Runs))
	}
	run := got.Runs[0]
	s.expectDocumented(c, 200, nil, "POST", worker+"/claim", `{"handlers": ["send-invoice"], "wait_seconds": 0}`)
	s.expectDocumented(c, 200, nil, "POST", worker+"/heartbeat", fmt.Sprintf(`{"slots": 1, "handlers": ["send-invoice"], "complete": true, "held": [{"run_id": %q, "attempt": 1}, {"run_id": %q, "attempt": 1}]}`,
		run.ID, belfry.NewID(s.store.Now())))
	result := fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": %d, "token": %q, "outcome": "succeeded", "output": "done"}, {"run_id": %q, "attempt": 9, "token": %q, "outcome": "failed", "error": "no"}]}`,
		run.ID, run.Attempt, run.Token, run.ID, belfry.NewToken())
	s.expectDocumented(c, 200, nil, "POST", worker+"/finish", result)
	s.expectDocumented(c, 200, nil, "POST", worker+"/heartbeat", `{"leave": true}`)
	s.expectDocumented(c, 422, nil, "POST", worker+"/claim", `{"handlers": []}`)
	s.expectDocumented(c, 422, nil, "POST", worker+"/finish", `{"results": [{"run_id": "x"}]}`)
	s.expectDocumented(c, 400, nil, "POST", "/api/v1/workers/me/heartbeat", `{}`)
}

func TestProblemsMatchTheDocument(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(validJob)
	s.expectDocumented(c, 409, nil, "POST", "/api/v1/jobs", validJob)
	s.expectDocumented(c, 400, nil, "POST", "/api/v1/jobs", `{"name"`)
	s.expectDocumented(c, 422, nil, "POST", "/api/v1/jobs", `{"nmae": "x", "schedule": "61 * * * *"}`)
	s.expectDocumented(c, 413, nil, "POST", "/api/v1/jobs", strings.Repeat(" ", 2<<20))
	s.expectDocumented(c, 415, nil, "POST", "/api/v1/jobs", `<job/>`, "Content-Type: application/xml")
	s.expectDocumented(c, 421, nil, "GET", "/api/v1/jobs", "", "Host: evil.example")
	s.expectDocumented(c, 403, nil, "POST", "/api/v1/jobs", validJob, "Origin: https://evil.example", "Sec-Fetch-Site: cross-site")
	s.store.Close()
	s.expectDocumented(c, 503, nil, "GET", "/api/v1/jobs", "")
	s.expectDocumented(c, 503, nil, "GET", "/readyz", "")
}

func TestServerRepliesMatchTheDocument(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	for _, path := range []string{"/", "/livez", "/readyz", "/metrics", "/api/v1/openapi.json", "/docs/api"} {
		s.expectDocumented(c, 200, nil, "GET", path, "")
	}
	for _, path := range []string{"/api/v1/openapi.json", "/docs/api"} {
		s.expectDocumented(c, 304, nil, "GET", path, "", "If-None-Match: *")
	}
}

func TestKeyProblemsMatchTheDocument(t *testing.T) {
	const key = "9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA"
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("me:"+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := api.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, func(o *api.Options) {
		o.Access, o.RateLimit = api.NewAccess(keys, nil, slog.New(slog.DiscardHandler)), 1
	})
	bearer := "Authorization: Bearer " + key
	c := newContract(t, s, bearer)
	s.expectDocumented(c, 401, nil, "GET", "/api/v1/jobs", "")
	s.expectDocumented(c, 401, nil, "POST", "/api/v1/jobs", validJob, "Authorization: Bearer wrong")
	s.expectDocumented(c, 200, nil, "GET", "/livez", "")
	last := 0
	for range 20 {
		if last = s.send("GET", "/api/v1/jobs", "", bearer).status; last == http.StatusTooManyRequests {
			break
		}
	}
	if last != http.StatusTooManyRequests {
		t.Fatalf("twenty requests at once under a limit of one a second: the last one was answered with %d", last)
	}
	s.expectDocumented(c, 429, nil, "GET", "/api/v1/jobs", "", bearer)
}

// Every example of a request body must work as it is.
func TestExamplesOfRequestsWork(t *testing.T) {
	count := 0
	for _, op := range api.OperationsOf(newService(t).Handler) {
		for title, body := range op.Examples {
			count++
			s := newService(t)
			path := s.prepareExample(op)
			if op.Permission == auth.Admin { // the first key of a server is another
				s = newService(t, withKeys(t))
				path = strings.Replace(path, "none", s.createKey(`{"role": "reader"}`).ID, 1)
			}
			media := openapi.MediaJSON
			if op.ID == "importJobs" && !strings.HasPrefix(body, "[") {
				media = openapi.MediaLines
			}
			if a := s.send(op.Method, path, body, "Content-Type: "+media, bearer(testKey)); a.status >= 300 {
				t.Errorf("%s: the example %q gets %d: %s", op.ID, title, a.status, a.body)
			}
		}
	}
	if count < 30 {
		t.Errorf("there are only %d examples", count)
	}
}

// prepareExample creates what the examples of an operation are about and returns their
// path.
func (s *service) prepareExample(op openapi.Operation) string {
	s.t.Helper()
	id := "report"
	switch {
	case op.ID == "putJob":
		id = "nightly-report"
	case strings.Contains(op.Path, "{run}"):
		id = s.createDeadLetters("dead", `"error": "no paper"`)[0]
	case op.ID == "editMonitor":
		s.expect(http.StatusCreated, nil, "POST", "/api/v1/monitors", validMonitor)
	case op.ID == "claimRuns": // without a run it would wait
		s.create(workerJob)
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/invoices/trigger", "")
		s.fireTriggers()
		s.expect(http.StatusOK, nil, "POST", strings.Replace(pathOf(op, ""), "/claim", "/heartbeat", 1), `{"handlers": ["send-invoice"], "slots": 1, "register": true}`)
	}
	if op.ID != "importJobs" {
		s.create(validJob)
		for n := range 2 { // revisions to roll back to
			s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/report", fmt.Sprintf(`{"timeout_seconds": %d}`, 100+n))
		}
	}
	return pathOf(op, id)
}
