package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
)

// a worker of a test, under an id of its own.
func workerPath() string { return "/api/v1/workers/" + belfry.NewID(time.Now()).String() }

const beat = `{"node": "test", "slots": 2, "lanes": ["default/send"], "register": true}`

func (s *service) worker(headers ...string) string {
	s.t.Helper()
	path := workerPath()
	a := s.want(http.StatusOK, nil, "POST", path+"/heartbeat", beat, headers...)
	if a.body != `{"unknown":false,"lost":[],"cancel":[]}`+"\n" {
		s.t.Fatalf("the orders are %s", a.body)
	}
	return path
}

// queue makes a job for a worker and asks for runs of it.
func (s *service) queue(runs int) {
	s.t.Helper()
	s.ask("PUT", "/api/v1/jobs/send", `{"type": "worker", "schedule": "@yearly", "overlap": "parallel", "payload": {"n": 1, "token": "s3cr3t"}, "max_retries": 0}`)
	for range runs {
		s.want(http.StatusAccepted, nil, "POST", "/api/v1/jobs/send/trigger", "")
		s.turn()
	}
}

type claims struct{ Runs []belfry.ClaimedRun }

func TestTheLifeOfAWorker(t *testing.T) {
	s := serve(t)
	s.queue(3)
	path := s.worker()
	var c claims
	s.want(http.StatusOK, &c, "POST", path+"/claim", `{"lanes": ["default/other"], "limit": 2, "wait_seconds": 0}`)
	if len(c.Runs) != 0 {
		t.Fatalf("another lane gave %+v", c)
	}
	a := s.want(http.StatusOK, &c, "POST", path+"/claim", `{"lanes": ["default/send"], "limit": 2, "waitSeconds": 0}`)
	if len(c.Runs) != 2 {
		t.Fatalf("got %s", a.body)
	}
	run := c.Runs[0]
	if run.Handler != "send" || run.Queue != "default" || run.JobName != "send" || run.Attempt != 1 || run.IdempotencyKey == "" || run.TimeoutSeconds != 60 ||
		!strings.Contains(string(run.Payload), "s3cr3t") || run.DeadlineAt.IsZero() {
		t.Errorf("got %s", a.body)
	}
	held := fmt.Sprintf(`{"slots": 2, "lanes": ["default/send"], "listed": true, "held": [{"run_id": %q, "attempt": 1}, {"runId": %q, "attempt": 7}]}`, run.ID, unknownID)
	a = s.want(http.StatusOK, nil, "POST", path+"/heartbeat", held)
	if want := fmt.Sprintf(`{"unknown":false,"lost":[{"run_id":%q,"attempt":7}],"cancel":[]}`+"\n", unknownID); a.body != want {
		t.Errorf("the orders are %s, want %s", a.body, want)
	}
	result := func(run belfry.ClaimedRun, more string) string {
		return fmt.Sprintf(`{"run_id": %q, "attempt": %d, "token": %q, %s}`, run.ID, run.Attempt, run.Token, more)
	}
	body := `{"results": [` + result(run, `"outcome": "succeeded", "output": "12 pages"`) + `,` +
		result(c.Runs[1], `"outcome": "failed", "error": "no paper", "http_status": 500`) + `]}`
	for range 2 { // A lost answer may be asked for again.
		if a := s.want(http.StatusOK, nil, "POST", path+"/finish", body); a.body != `{"verdicts":["accepted","accepted"]}`+"\n" {
			t.Errorf("the verdicts are %s", a.body)
		}
	}
	stale := run
	stale.Token = belfry.NewToken()
	if a := s.want(http.StatusOK, nil, "POST", path+"/finish", `{"results": [`+result(stale, `"outcome": "failed"`)+`]}`); a.body != `{"verdicts":["late"]}`+"\n" {
		t.Errorf("the verdicts are %s", a.body)
	}
	var done struct{ Status, Output, Error string }
	if s.want(http.StatusOK, &done, "GET", "/api/v1/runs/"+run.ID.String(), ""); done.Status != "succeeded" || done.Output != "12 pages" {
		t.Errorf("got %+v", done)
	}
	if s.want(http.StatusOK, &done, "GET", "/api/v1/runs/"+c.Runs[1].ID.String(), ""); done.Status != "dead" || done.Error != "no paper" {
		t.Errorf("got %+v", done)
	}
	s.want(http.StatusOK, nil, "POST", path+"/heartbeat", `{"slots": 0, "lanes": [], "leave": true}`)
	if a := s.want(http.StatusOK, nil, "POST", path+"/heartbeat", `{"slots": 2, "lanes": ["default/send"]}`); !strings.Contains(a.body, `"unknown":true`) {
		t.Errorf("a worker that left is told %s", a.body)
	}
}

func TestWorkersOfAnotherNamespaceGetNothing(t *testing.T) {
	s := serve(t)
	s.queue(1)
	path := s.worker("Belfry-Namespace: other")
	var c claims
	s.want(http.StatusOK, &c, "POST", path+"/claim", `{"lanes": ["default/send"], "wait_seconds": 0}`, "Belfry-Namespace: other")
	if len(c.Runs) != 0 {
		t.Errorf("got %+v", c)
	}
	if p := s.ask("POST", path+"/claim", `{"lanes": ["default/http"], "wait_seconds": 0}`).problem(t); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("a worker may claim HTTP jobs: %+v", p)
	}
}

func TestAClaimWaitsForARun(t *testing.T) {
	s := serve(t)
	s.queue(0)
	path := s.worker()
	got := make(chan answer)
	go func() { got <- s.ask("POST", path+"/claim", `{"lanes": ["default/send"], "wait_seconds": 30}`) }()
	s.queue(1)
	var c claims
	if a := <-got; json.Unmarshal([]byte(a.body), &c) != nil || a.status != http.StatusOK || len(c.Runs) != 1 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	start := time.Now()
	if a := s.ask("POST", path+"/claim", `{"lanes": ["default/send"], "wait_seconds": 0.05}`); a.body != `{"runs":[]}`+"\n" || time.Since(start) < 50*time.Millisecond {
		t.Errorf("got %s after %v", a.body, time.Since(start))
	}
}

func TestANodeThatDrainsSendsItsWorkersAway(t *testing.T) {
	draining := make(chan struct{})
	s := serve(t, func(o *api.Options) { o.Draining = draining })
	const waiting = 20
	got := make(chan answer)
	for range waiting {
		path := s.worker()
		go func() { got <- s.ask("POST", path+"/claim", `{"lanes": ["default/send"], "wait_seconds": 30}`) }()
	}
	path := s.worker()
	start := time.Now()
	close(draining)
	for range waiting {
		a := <-got
		empty := a.status == http.StatusOK && a.body == `{"runs":[]}`+"\n"
		if !empty && a.status != http.StatusServiceUnavailable || a.header.Get("Connection") != "close" {
			t.Errorf("got %d %s %v", a.status, a.body, a.header)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("they went after %v", took)
	}
	a := s.ask("POST", path+"/claim", `{"lanes": ["default/send"]}`)
	if p := a.problem(t); p.Status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("got %s", a.body)
	}
	// What they hold can still be told.
	s.want(http.StatusOK, nil, "POST", path+"/heartbeat", `{"slots": 2, "lanes": ["default/send"]}`)
}

func TestLargeOutputsAreCut(t *testing.T) {
	s := serve(t)
	s.queue(1)
	path := s.worker()
	var c claims
	s.want(http.StatusOK, &c, "POST", path+"/claim", `{"lanes": ["default/send"], "wait_seconds": 0}`)
	output := strings.Repeat("é", 1<<20)
	body := fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "succeeded", "output": %q}]}`, c.Runs[0].ID, c.Runs[0].Token, output)
	s.want(http.StatusOK, nil, "POST", path+"/finish", body)
	var done struct{ Output string }
	s.want(http.StatusOK, &done, "GET", "/api/v1/runs/"+c.Runs[0].ID.String(), "")
	if len(done.Output) != belfry.MaxOutput || !strings.HasPrefix(output, done.Output) {
		t.Errorf("%d bytes are kept", len(done.Output))
	}
}
