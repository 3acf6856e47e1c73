package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

const deadLettersPath = "/api/v1/dead-letters"

// createDeadLetters creates a job of type worker and a dead letter for each failure, and
// returns the ids of their runs in that order.
func (s *service) createDeadLetters(name string, failures ...string) []string {
	s.t.Helper()
	s.send("PUT", "/api/v1/jobs/"+name, `{"type": "worker", "handler": "send", "schedule": "@yearly", "overlap": "parallel", "max_retries": 0, "payload": {"n": 1, "token": "s3cr3t"}}`)
	worker := s.registerWorker()
	var runs []string
	for _, failure := range failures {
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/"+name+"/trigger", "")
		s.fireTriggers()
		var c belfry.ClaimReply
		s.expect(http.StatusOK, &c, "POST", worker+"/claim", `{"handlers": ["send"], "wait_seconds": 0}`)
		if len(c.Runs) != 1 {
			s.t.Fatalf("got %d runs, want the one that was triggered", len(c.Runs))
		}
		s.finishRun(worker, c.Runs[0], `"outcome": "failed", "output": "half of it", `+failure)
		runs = append(runs, c.Runs[0].ID.String())
	}
	return runs
}

// finishRun reports a result that must be accepted.
func (s *service) finishRun(worker string, run belfry.ClaimedRun, result string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": %d, "token": %q, %s}]}`, run.ID, run.Attempt, run.Token, result)
	if a := s.expect(http.StatusOK, nil, "POST", worker+"/finish", body); a.body != `{"verdicts":["accepted"]}`+"\n" {
		s.t.Fatalf("the verdict is %s", a.body)
	}
}

func TestListDeadLettersWithFilters(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	runs := s.createDeadLetters("a", `"error": "no paper"`, `"error": "no ink", "http_status": 503`)
	runs = append(runs, s.createDeadLetters("b", `"error": "no paper"`, `"error": "gone", "permanent": true`)...)
	slices.Reverse(runs)
	got, _ := s.listIDs(deadLettersPath + "?limit=1")
	if !slices.Equal(got, runs) {
		t.Errorf("got %v, want %v", got, runs)
	}
	var all []belfry.DeadLetter
	s.expectDocumented(c, 200, &all, "GET", deadLettersPath, "")
	if all[0].Status != "dead" || all[0].Reason != "permanent" || all[0].JobName != "b" || all[0].IdempotencyKey == "" || all[0].Payload != nil || all[0].Attempts != nil || all[3].Reason != "out_of_retries" {
		t.Errorf("got %+v", all)
	}
	for query, want := range map[string][]string{
		"job=a":                             {runs[2], runs[3]},
		"error=PAPER":                       {runs[1], runs[3]},
		"job=b&error=paper":                 {runs[1]},
		"reason=PERMANENT":                  {runs[0]},
		"reason=poison":                     {},
		"fingerprint=" + all[2].Fingerprint: {runs[2]},
		"since=" + url.QueryEscape(all[1].FinishedAt.Format(time.RFC3339Nano)): {runs[0], runs[1]},
		"until=" + url.QueryEscape(all[1].FinishedAt.Format(time.RFC3339Nano)): {runs[2], runs[3]},
		"since=2099-01-01T00:00:00+01:00":                                      {}, // The plus is a blank in an address.
		"error=%25":                                                            {},
	} {
		if got, _ := s.listIDs(deadLettersPath + "?limit=1&" + query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
		s.expectDocumented(c, 200, nil, "GET", deadLettersPath+"?"+query, "")
		s.expectDocumented(c, 200, nil, "GET", deadLettersPath+"/groups?"+query, "")
	}
	if a := s.expectDocumented(c, 200, nil, "GET", deadLettersPath, "", "Belfry-Namespace: other"); a.body != "[]\n" {
		t.Errorf("another namespace has %s", a.body)
	}
	s.expectDocumented(c, 404, nil, "GET", deadLettersPath+"?job=nobody", "")
	var groups []belfry.DeadGroup
	s.expectDocumented(c, 200, &groups, "GET", deadLettersPath+"/groups", "")
	if len(groups) != 3 || groups[0].Count != 2 || groups[0].Jobs != 2 || groups[0].Error != "no paper" || groups[0].LatestRunID.String() != runs[1] {
		t.Errorf("the groups are %+v", groups)
	}
	if s.expectDocumented(c, 200, &groups, "GET", deadLettersPath+"/groups?limit=1", ""); len(groups) != 1 {
		t.Errorf("one group is %+v", groups)
	}
}

func TestGetDeadLetterMasksSecrets(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	run := s.createDeadLetters("a", `"error": "no paper"`)[0]
	var letter belfry.DeadLetter
	a := s.expectDocumented(c, 200, &letter, "GET", deadLettersPath+"/"+run, "")
	if strings.Contains(a.body, "s3cr3t") || string(letter.Payload) != `{"n":1,"token":"***"}` || len(letter.Attempts) != 1 || letter.Attempts[0].Output != "half of it" || letter.JobName != "a" {
		t.Errorf("got %s", a.body)
	}
	s.expectDocumented(c, 404, nil, "GET", deadLettersPath+"/"+unknownID, "")
	s.expectDocumented(c, 404, nil, "GET", deadLettersPath+"/a", "")
	s.expectDocumented(c, 404, nil, "GET", deadLettersPath+"/"+run, "", "Belfry-Namespace: other")
}

func TestRedriveDeadLetter(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	runs := s.createDeadLetters("a", `"error": "no paper"`, `"error": "no ink"`)
	var before, after belfry.DeadLetter
	s.expect(http.StatusOK, &before, "GET", deadLettersPath+"/"+runs[0], "")
	a := s.expectDocumented(c, 202, &after, "POST", deadLettersPath+"/"+runs[0]+"/redrive", "")
	if after.ID.String() != runs[0] || after.Status != "ready" || after.IdempotencyKey != before.IdempotencyKey || len(after.Attempts) != 1 || a.header.Get("Location") != "/api/v1/runs/"+runs[0] {
		t.Errorf("got %s at %q", a.body, a.header.Get("Location"))
	}
	if p := s.expectDocumented(c, 404, nil, "POST", deadLettersPath+"/"+runs[0]+"/redrive", "").problem(t); p.Detail == "" {
		t.Errorf("a live run is redriven: %+v", p)
	}
	s.expectDocumented(c, 202, nil, "POST", deadLettersPath+"/"+runs[1]+"/redrive", `{"payload": {"n": 2, "token": "***"}}`)
	var claimed belfry.ClaimReply
	s.expect(http.StatusOK, &claimed, "POST", s.registerWorker()+"/claim", `{"handlers": ["send"], "limit": 5, "wait_seconds": 0}`)
	if len(claimed.Runs) != 2 || claimed.Runs[0].Attempt != 2 {
		t.Fatalf("got %+v", claimed)
	}
	payloads := []string{string(claimed.Runs[0].Payload), string(claimed.Runs[1].Payload)}
	if slices.Sort(payloads); !slices.Equal(payloads, []string{`{"n":1,"token":"s3cr3t"}`, `{"n":2,"token":"s3cr3t"}`}) {
		t.Errorf("the payloads are %s", payloads)
	}
	if got, _ := s.listIDs(deadLettersPath); len(got) != 0 {
		t.Errorf("%v are still dead", got)
	}
}

func TestRedriveAndDiscardByFilter(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.createDeadLetters("a", `"error": "no paper"`, `"error": "no paper"`, `"error": "no ink"`, `"error": "no ink"`, `"error": "no ink"`)
	s.createDeadLetters("b", `"error": "no ink"`)
	for _, tt := range []struct {
		path, body string
		want       belfry.DeadResult
		left       int
	}{
		{"/redrive", `{"filter": {"error": "ink"}, "dry_run": true}`, belfry.DeadResult{Matched: 4}, 6},
		{"/discard", `{"all": true, "dry_run": true}`, belfry.DeadResult{Matched: 6}, 6},
		{"/redrive", `{"filter": {"job": "a", "error": "ink"}, "rate": 0.5, "payload": {"n": 3}, "limit": 2}`, belfry.DeadResult{Matched: 2, Done: 2, More: true}, 4},
		{"/discard", `{"filter": {"error": "ink", "reason": "out_of_retries", "since": "2020-01-01T00:00:00Z", "until": "2120-01-01T00:00:00Z"}}`, belfry.DeadResult{Matched: 2, Done: 2}, 2},
		{"/redrive", `{"filter": {"error": "ink"}}`, belfry.DeadResult{}, 2},
		{"/redrive", `{"all": true, "filter": {}}`, belfry.DeadResult{Matched: 2, Done: 2}, 0},
		{"/discard", `{"all": true}`, belfry.DeadResult{}, 0},
	} {
		start := time.Now()
		var got belfry.DeadResult
		s.expectDocumented(c, 200, &got, "POST", deadLettersPath+tt.path, tt.body)
		last := got.LastAt
		if got.LastAt = (time.Time{}); got != tt.want {
			t.Errorf("%s %s: got %+v, want %+v", tt.path, tt.body, got, tt.want)
		}
		if strings.Contains(tt.body, "rate") && last.Before(start.Add(time.Second)) {
			t.Errorf("%s: the second of two at one in two seconds may start at %v", tt.body, last)
		}
		if left, _ := s.listIDs(deadLettersPath); len(left) != tt.left {
			t.Errorf("%s %s: %d are left, want %d", tt.path, tt.body, len(left), tt.left)
		}
	}
	// Names and words may be written in other ways, too.
	s.expect(http.StatusOK, nil, "POST", deadLettersPath+"/discard", `{"filter": {"reason": "POISON"}, "dryRun": true}`)
	if got, _ := s.listIDs("/api/v1/runs?status=discarded"); len(got) != 2 {
		t.Errorf("discarded are %v", got)
	}
}

func TestDiscardDeadLetter(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	run := s.createDeadLetters("a", `"error": "no paper"`)[0]
	s.expectDocumented(c, 404, nil, "DELETE", deadLettersPath+"/"+run, "", "Belfry-Namespace: other")
	s.expectDocumented(c, 204, nil, "DELETE", deadLettersPath+"/"+run, "")
	s.expectDocumented(c, 404, nil, "DELETE", deadLettersPath+"/"+run, "")
	var after belfry.DeadLetter
	s.expectDocumented(c, 200, &after, "GET", "/api/v1/runs/"+run, "")
	if after.Status != "discarded" || after.Error != "no paper" || len(after.Attempts) != 1 {
		t.Errorf("got %+v", after)
	}
}

func TestDeadLetterErrors(t *testing.T) {
	s := newService(t)
	runs := s.createDeadLetters("a", `"error": "no paper"`)
	for _, tt := range []struct {
		method, path, body, field string
		status                    int
	}{
		{"POST", "/redrive", `{}`, "filter", 422},
		{"POST", "/redrive", `{"filter": {}}`, "filter", 422},
		{"POST", "/discard", `{"filter": null, "all": false}`, "filter", 422},
		{"POST", "/discard", `{"filter": {"jbo": "a"}}`, "filter.jbo", 422},
		{"POST", "/discard", `{"filter": {"error": "a\u0000b"}}`, "filter.error", 422},
		{"POST", "/discard", `{"filter": {"since": "yesterday"}}`, "filter.since", 422},
		{"POST", "/discard", `{"filter": {"reason": "overlap"}}`, "filter.reason", 422},
		{"POST", "/discard", `{"all": true, "rate": 5}`, "rate", 422},
		{"POST", "/redrive", `{"all": true, "limit": 0}`, "limit", 422},
		{"POST", "/redrive", `{"all": true, "rate": 0}`, "rate", 422},
		{"POST", "/redrive", `{"all": true, "payload": {"n": 2}}`, "payload", 422},
		{"POST", "/redrive", `{"filter": {"job": "nobody"}}`, "", 404},
		{"POST", "/" + runs[0] + "/redrive", `{"rate": 5}`, "rate", 422},
		{"GET", "?reason=overlap", "", "reason", 400},
		{"GET", "?job=nobody", "", "", 404},
	} {
		p := s.send(tt.method, deadLettersPath+tt.path, tt.body).problem(t)
		if p.Status != tt.status || tt.field != "" && !slices.Equal(p.fields(), []string{tt.field}) {
			t.Errorf("%s %s %s: got %d %v, want %d and %s", tt.method, tt.path, tt.body, p.Status, p.Errors, tt.status, tt.field)
		}
	}
	if left, _ := s.listIDs(deadLettersPath); len(left) != 1 {
		t.Errorf("%d are left", len(left))
	}
}
