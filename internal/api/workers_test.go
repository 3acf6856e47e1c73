package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
)

// newWorkerPath is the path of a worker with a new id.
func newWorkerPath() string { return "/api/v1/workers/" + belfry.NewID(time.Now()).String() }

const registration = `{"node": "test", "slots": 2, "handlers": ["send"], "register": true}`

// registerWorker registers a worker of the handler send and returns its path.
func (s *service) registerWorker(headers ...string) string {
	s.t.Helper()
	path := newWorkerPath()
	a := s.expect(http.StatusOK, nil, "POST", path+"/heartbeat", registration, headers...)
	if a.body != `{"unknown":false,"lost":[],"cancel":[]}`+"\n" {
		s.t.Fatalf("the reply is %s", a.body)
	}
	return path
}

// createSendRuns creates the job send of type worker and runs of it.
func (s *service) createSendRuns(runs int) {
	s.t.Helper()
	s.send("PUT", "/api/v1/jobs/send", `{"type": "worker", "schedule": "@yearly", "overlap": "parallel", "payload": {"n": 1, "token": "s3cr3t"}, "max_retries": 0}`)
	for range runs {
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/send/trigger", "")
		s.fireTriggers()
	}
}

// claimAll claims all runs of the handler send.
func (s *service) claimAll(worker string) []belfry.ClaimedRun {
	s.t.Helper()
	var c belfry.ClaimReply
	s.expect(http.StatusOK, &c, "POST", worker+"/claim", `{"handlers": ["send"], "limit": 100, "wait_seconds": 0}`)
	return c.Runs
}

// triggerSend triggers the job send and fires the triggers.
func (s *service) triggerSend(runs int) {
	s.t.Helper()
	for range runs {
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/send/trigger", "")
		s.fireTriggers()
	}
}

func TestWorkerClaimsHoldsAndFinishes(t *testing.T) {
	s := newService(t)
	s.createSendRuns(3)
	path := s.registerWorker()
	var c belfry.ClaimReply
	s.expect(http.StatusOK, &c, "POST", path+"/claim", `{"handlers": ["other"], "limit": 2, "wait_seconds": 0}`)
	if len(c.Runs) != 0 {
		t.Fatalf("another handler gave %+v", c)
	}
	a := s.expect(http.StatusOK, &c, "POST", path+"/claim", `{"handlers": ["send"], "limit": 2, "waitSeconds": 0}`)
	if len(c.Runs) != 2 {
		t.Fatalf("got %s", a.body)
	}
	run := c.Runs[0]
	want := belfry.ClaimedRun{
		Namespace: "default", Revision: 1, Kind: belfry.KindManual, Handler: "send", Queue: "default", JobName: "send", Attempt: 1, TimeoutSeconds: 60,
		Payload: []byte(`{"n":1,"token":"s3cr3t"}`),
	}
	ignored := cmpopts.IgnoreFields(belfry.ClaimedRun{}, "_", "ID", "JobID", "ScheduledAt", "ReadyAt", "FiredAt", "Token", "IdempotencyKey", "DeadlineAt")
	if diff := cmp.Diff(want, run, ignored); diff != "" {
		t.Errorf("the claimed run differs (-want +got):\n%s", diff)
	}
	if run.IdempotencyKey == "" || run.DeadlineAt.IsZero() || run.FiredAt.IsZero() || run.Token == (belfry.Token{}) {
		t.Errorf("got %s", a.body)
	}
	held := fmt.Sprintf(`{"slots": 2, "handlers": ["send"], "complete": true, "held": [{"run_id": %q, "attempt": 1}, {"runId": %q, "attempt": 7}]}`, run.ID, unknownID)
	a = s.expect(http.StatusOK, nil, "POST", path+"/heartbeat", held)
	if want := fmt.Sprintf(`{"unknown":false,"lost":[{"run_id":%q,"attempt":7}],"cancel":[]}`+"\n", unknownID); a.body != want {
		t.Errorf("the reply is %s, want %s", a.body, want)
	}
	result := func(run belfry.ClaimedRun, more string) string {
		return fmt.Sprintf(`{"run_id": %q, "attempt": %d, "token": %q, %s}`, run.ID, run.Attempt, run.Token, more)
	}
	body := `{"results": [` + result(run, `"outcome": "succeeded", "output": "12 pages"`) + `,` +
		result(c.Runs[1], `"outcome": "failed", "error": "no paper", "http_status": 500`) + `]}`
	for range 2 { // the reply may have been lost
		if a := s.expect(http.StatusOK, nil, "POST", path+"/finish", body); a.body != `{"verdicts":["accepted","accepted"]}`+"\n" {
			t.Errorf("the verdicts are %s", a.body)
		}
	}
	stale := run
	stale.Token = belfry.NewToken()
	if a := s.expect(http.StatusOK, nil, "POST", path+"/finish", `{"results": [`+result(stale, `"outcome": "failed"`)+`]}`); a.body != `{"verdicts":["late"]}`+"\n" {
		t.Errorf("the verdicts are %s", a.body)
	}
	var done struct{ Status, Output, Error string }
	if s.expect(http.StatusOK, &done, "GET", "/api/v1/runs/"+run.ID.String(), ""); done.Status != "succeeded" || done.Output != "12 pages" {
		t.Errorf("got %+v", done)
	}
	if s.expect(http.StatusOK, &done, "GET", "/api/v1/runs/"+c.Runs[1].ID.String(), ""); done.Status != "dead" || done.Error != "no paper" {
		t.Errorf("got %+v", done)
	}
	s.expect(http.StatusOK, nil, "POST", path+"/heartbeat", `{"slots": 0, "handlers": [], "leave": true}`)
	if a := s.expect(http.StatusOK, nil, "POST", path+"/heartbeat", `{"slots": 2, "handlers": ["send"]}`); !strings.Contains(a.body, `"unknown":true`) {
		t.Errorf("a worker that left gets %s", a.body)
	}
}

func TestClaimFromQueues(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	for _, queue := range []string{"default", "mail", "slow"} {
		s.create(fmt.Sprintf(`{"name": %q, "type": "worker", "handler": "send", "queue": %q, "schedule": "@yearly", "overlap": "parallel"}`, queue, queue))
	}
	for _, tt := range []struct {
		queue string // as the worker writes it
		want  []string
	}{
		{``, []string{"default"}},
		{`"queue": null, `, []string{"default"}},
		{`"queue": "mail", `, []string{"mail"}},
		{`"queue": ["mail"], `, []string{"mail"}},
		{`"queue": ["slow", "default"], `, []string{"default", "slow"}},
		{`"queue": ["slow", "default", "mail", "none"], `, []string{"default", "mail", "slow"}},
		{`"queue": "none", `, nil},
	} {
		for _, name := range []string{"default", "mail", "slow"} {
			s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/"+name+"/trigger", "")
		}
		s.fireTriggers()
		path := newWorkerPath()
		s.expectDocumented(c, 200, nil, "POST", path+"/heartbeat", `{"slots": 9, `+strings.ReplaceAll(tt.queue, "null", `"default"`)+`"handlers": ["send"], "register": true}`)
		var claimed belfry.ClaimReply
		s.expect(http.StatusOK, &claimed, "POST", path+"/claim", `{`+tt.queue+`"handlers": ["other", "send"], "limit": 9, "wait_seconds": 0}`)
		var got []string
		for _, run := range claimed.Runs {
			got = append(got, run.Queue)
			s.finishRun(path, run, `"outcome": "succeeded"`)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("a claim with %q got runs of %v, want %v", tt.queue, got, tt.want)
		}
		s.expect(http.StatusOK, nil, "POST", path+"/heartbeat", `{"leave": true}`)
		for _, name := range []string{"default", "mail", "slow"} { // nothing is left for the next one
			s.expect(http.StatusOK, nil, "POST", "/api/v1/jobs/"+name+"/cancel", "")
			s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/"+name, `{"schedule": "@yearly"}`)
		}
	}
	for _, queue := range []string{`7`, `{}`, `[7]`, `["a b"]`, `"a b"`} {
		p := s.send("POST", newWorkerPath()+"/claim", `{"queue": `+queue+`, "handlers": ["send"]}`).problem(t)
		if p.Status != http.StatusUnprocessableEntity || len(p.Errors) != 1 || !strings.HasPrefix(p.Errors[0].Field, "queue") {
			t.Errorf("a claim with the queue %s: got %+v", queue, p)
		}
	}
}

func TestClaimIsLimitedToNamespace(t *testing.T) {
	s := newService(t)
	s.createSendRuns(1)
	path := s.registerWorker("Belfry-Namespace: other")
	var c belfry.ClaimReply
	s.expect(http.StatusOK, &c, "POST", path+"/claim", `{"handlers": ["send"], "wait_seconds": 0}`, "Belfry-Namespace: other")
	if len(c.Runs) != 0 {
		t.Errorf("got %+v", c)
	}
	if p := s.send("POST", path+"/claim", `{"handlers": ["http"], "wait_seconds": 0}`).problem(t); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("a worker may claim HTTP jobs: %+v", p)
	}
}

func TestClaimWaitsForRun(t *testing.T) {
	s := newService(t)
	s.createSendRuns(0)
	path := s.registerWorker()
	got := make(chan reply)
	go func() { got <- s.send("POST", path+"/claim", `{"handlers": ["send"], "wait_seconds": 30}`) }()
	s.createSendRuns(1)
	var c belfry.ClaimReply
	if a := <-got; json.Unmarshal([]byte(a.body), &c) != nil || a.status != http.StatusOK || len(c.Runs) != 1 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	start := time.Now()
	if a := s.send("POST", path+"/claim", `{"handlers": ["send"], "wait_seconds": 0.05}`); a.body != `{"runs":[]}`+"\n" || time.Since(start) < 50*time.Millisecond {
		t.Errorf("got %s after %v", a.body, time.Since(start))
	}
}

func TestClaimEndsOnShutdown(t *testing.T) {
	draining := make(chan struct{})
	s := newService(t, func(o *api.Options) { o.Draining = draining })
	const waiting = 20
	got := make(chan reply)
	for range waiting {
		path := s.registerWorker()
		go func() { got <- s.send("POST", path+"/claim", `{"handlers": ["send"], "wait_seconds": 30}`) }()
	}
	path := s.registerWorker()
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
		t.Errorf("the claims ended after %v", took)
	}
	a := s.send("POST", path+"/claim", `{"handlers": ["send"]}`)
	if p := a.problem(t); p.Status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("got %s", a.body)
	}
	// Heartbeats still work.
	s.expect(http.StatusOK, nil, "POST", path+"/heartbeat", `{"slots": 2, "handlers": ["send"]}`)
}

func TestFinishCutsLargeOutput(t *testing.T) {
	s := newService(t)
	s.createSendRuns(1)
	path := s.registerWorker()
	var c belfry.ClaimReply
	s.expect(http.StatusOK, &c, "POST", path+"/claim", `{"handlers": ["send"], "wait_seconds": 0}`)
	output := strings.Repeat("é", 1<<20)
	body := fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "succeeded", "output": %q}]}`, c.Runs[0].ID, c.Runs[0].Token, output)
	s.expect(http.StatusOK, nil, "POST", path+"/finish", body)
	var done struct{ Output string }
	s.expect(http.StatusOK, &done, "GET", "/api/v1/runs/"+c.Runs[0].ID.String(), "")
	if len(done.Output) != belfry.MaxOutput || !strings.HasPrefix(output, done.Output) {
		t.Errorf("%d bytes are kept", len(done.Output))
	}
}

func TestFinishWithRetryAfterPermanentAndSnooze(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.send("PUT", "/api/v1/jobs/send", `{"type": "worker", "schedule": "@yearly", "overlap": "parallel", "max_retries": 5, "retry_backoff": "immediate"}`)
	s.triggerSend(3)
	worker := s.registerWorker()
	runs := s.claimAll(worker)
	if len(runs) != 3 {
		t.Fatalf("got %+v", runs)
	}
	start := time.Now()
	s.finishRun(worker, runs[0], `"outcome": "failed", "error": "busy", "retry_after_seconds": 3600`)
	s.finishRun(worker, runs[1], `"outcome": "failed", "error": "no such customer", "permanent": true`)
	s.finishRun(worker, runs[2], `"outcome": "snoozed", "retryAfterSeconds": 7200`)
	for i, want := range []struct {
		status, reason, outcome string
		after                   time.Duration
	}{{"retry", "", "failed", time.Hour}, {"dead", "permanent", "failed", 0}, {"retry", "", "snoozed", 2 * time.Hour}} {
		var run struct {
			Status, Reason string
			ReadyAt        time.Time `json:"ready_at"`
			Attempts       []belfry.Attempt
		}
		a := s.expectDocumented(c, 200, &run, "GET", "/api/v1/runs/"+runs[i].ID.String(), "")
		if run.Status != want.status || run.Reason != want.reason || len(run.Attempts) != 1 || string(run.Attempts[0].Outcome) != want.outcome {
			t.Errorf("%d: got %s", i, a.body)
		}
		if late := run.ReadyAt.Sub(start); want.after > 0 && (late < want.after || late > want.after+time.Minute) {
			t.Errorf("%d: it is ready after %v, want %v", i, late, want.after)
		}
	}
	p := s.send("POST", worker+"/finish", fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "failed", "retry_after_seconds": -1, "permanent": 1}]}`, runs[0].ID, runs[0].Token)).problem(t)
	if got := p.fields(); p.Status != 422 || !slices.Equal(got, []string{"results[0].permanent", "results[0].retry_after_seconds"}) {
		t.Errorf("got %+v", p)
	}
}

func TestWorkerSendsLogs(t *testing.T) {
	s := newService(t)
	s.createSendRuns(1)
	path := s.registerWorker()
	var c belfry.ClaimReply
	s.expect(http.StatusOK, &c, "POST", path+"/claim", `{"handlers": ["send"], "limit": 1, "wait_seconds": 0}`)
	run := c.Runs[0]
	send := func(status int, more string, headers ...string) reply {
		t.Helper()
		return s.expect(status, nil, "POST", path+"/heartbeat", fmt.Sprintf(`{"slots": 2, "handlers": ["send"], "logs": [{"run_id": %q, "attempt": 1, "token": %q, %s}]}`, run.ID, run.Token, more), headers...)
	}
	read := func(query, text string, offset, next int64) {
		t.Helper()
		var log belfry.RunLog
		s.expect(http.StatusOK, &log, "GET", "/api/v1/runs/"+run.ID.String()+"/log"+query, "")
		if log.Text != text || log.Offset != offset || log.NextOffset != next || log.RunID != run.ID {
			t.Errorf("%q: got %+v, want %q from %d to %d", query, log, text, offset, next)
		}
	}
	read("", "", 0, 0)
	send(http.StatusOK, `"text": "one\n"`)
	send(http.StatusOK, `"offset": 4, "text": "<b>\u001b[31m\n"`)
	send(http.StatusOK, `"offset": 13, "text": ""`)
	read("", "one\n<b>\x1b[31m\n", 0, 13)
	read("?attempt=1&offset=4", "<b>\x1b[31m\n", 4, 13)
	read("?offset=13", "", 13, 13)
	if send(http.StatusOK, `"offset": 13, "text": "elsewhere"`, "Belfry-Namespace: other"); strings.Contains(s.send("GET", "/api/v1/runs/"+run.ID.String()+"/log", "").body, "elsewhere") {
		t.Error("a worker of another namespace wrote to the log")
	}
	if p := send(http.StatusUnprocessableEntity, `"offset": -1, "txt": ""`).problem(t); !slices.Contains(p.fields(), "logs[0].offset") || !slices.Contains(p.fields(), "logs[0].txt") {
		t.Errorf("the errors are %+v", p.Errors)
	}
	s.expect(http.StatusOK, nil, "POST", path+"/finish", fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "succeeded", "log": "end\n", "log_offset": 100}]}`, run.ID, run.Token))
	read("", "end\n", 100, 104)
	s.expect(http.StatusNotFound, nil, "GET", "/api/v1/runs/"+unknownID+"/log", "")
	s.expect(http.StatusBadRequest, nil, "GET", "/api/v1/runs/"+run.ID.String()+"/log?offset=x", "")
}
