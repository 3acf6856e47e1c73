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

const deadLetters = "/api/v1/dead-letters"

// bury makes dead letters of a job of a worker, each with an error of its own, and
// gives their runs in that order.
func (s *service) bury(name string, failures ...string) []string {
	s.t.Helper()
	s.ask("PUT", "/api/v1/jobs/"+name, `{"type": "worker", "handler": "send", "schedule": "@yearly", "overlap": "parallel", "max_retries": 0, "payload": {"n": 1, "token": "s3cr3t"}}`)
	worker := s.worker()
	var runs []string
	for _, failure := range failures {
		s.want(http.StatusAccepted, nil, "POST", "/api/v1/jobs/"+name+"/trigger", "")
		s.turn()
		var c claims
		s.want(http.StatusOK, &c, "POST", worker+"/claim", `{"lanes": ["default/send"], "wait_seconds": 0}`)
		if len(c.Runs) != 1 {
			s.t.Fatalf("got %d runs, want the one that was triggered", len(c.Runs))
		}
		s.finish(worker, c.Runs[0], `"outcome": "failed", "output": "half of it", `+failure)
		runs = append(runs, c.Runs[0].ID.String())
	}
	return runs
}

// finish hands in a result that must be accepted.
func (s *service) finish(worker string, run belfry.ClaimedRun, result string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": %d, "token": %q, %s}]}`, run.ID, run.Attempt, run.Token, result)
	if a := s.want(http.StatusOK, nil, "POST", worker+"/finish", body); a.body != `{"verdicts":["accepted"]}`+"\n" {
		s.t.Fatalf("the verdict is %s", a.body)
	}
}

type deadLetter struct {
	ID, Status, Reason, Error, Fingerprint string
	JobName                                string `json:"job_name"`
	FinishedAt                             string `json:"finished_at"`
	Key                                    string `json:"idempotency_key"`
	Payload                                any
	Attempts                               []belfry.Attempt
}

func TestDeadLettersAreListedByTheirDeath(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	runs := s.bury("a", `"error": "no paper"`, `"error": "no ink", "http_status": 503`)
	runs = append(runs, s.bury("b", `"error": "no paper"`, `"error": "gone", "permanent": true`)...)
	slices.Reverse(runs)
	got, _ := s.follow(deadLetters + "?limit=1")
	if !slices.Equal(got, runs) {
		t.Errorf("got %v, want %v", got, runs)
	}
	var all []deadLetter
	s.agreed(c, 200, &all, "GET", deadLetters, "")
	if all[0].Status != "dead" || all[0].Reason != "permanent" || all[0].JobName != "b" || all[0].Key == "" || all[0].Payload != nil || all[0].Attempts != nil || all[3].Reason != "out_of_retries" {
		t.Errorf("got %+v", all)
	}
	for query, want := range map[string][]string{
		"job=a":                             {runs[2], runs[3]},
		"error=PAPER":                       {runs[1], runs[3]},
		"job=b&error=paper":                 {runs[1]},
		"reason=PERMANENT":                  {runs[0]},
		"reason=poison":                     {},
		"fingerprint=" + all[2].Fingerprint: {runs[2]},
		"since=" + url.QueryEscape(all[1].FinishedAt): {runs[0], runs[1]},
		"until=" + url.QueryEscape(all[1].FinishedAt): {runs[2], runs[3]},
		"since=2099-01-01T00:00:00+01:00":             {}, // The plus is a blank in an address.
		"error=%25":                                   {},
	} {
		if got, _ := s.follow(deadLetters + "?limit=1&" + query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
		s.agreed(c, 200, nil, "GET", deadLetters+"?"+query, "")
		s.agreed(c, 200, nil, "GET", deadLetters+"/groups?"+query, "")
	}
	if a := s.agreed(c, 200, nil, "GET", deadLetters, "", "Belfry-Namespace: other"); a.body != "[]\n" {
		t.Errorf("another namespace has %s", a.body)
	}
	s.agreed(c, 404, nil, "GET", deadLetters+"?job=nobody", "")
	var groups []belfry.DeadGroup
	s.agreed(c, 200, &groups, "GET", deadLetters+"/groups", "")
	if len(groups) != 3 || groups[0].Count != 2 || groups[0].Jobs != 2 || groups[0].Error != "no paper" || groups[0].LatestRunID.String() != runs[1] {
		t.Errorf("the groups are %+v", groups)
	}
	if s.agreed(c, 200, &groups, "GET", deadLetters+"/groups?limit=1", ""); len(groups) != 1 {
		t.Errorf("one group is %+v", groups)
	}
}

func TestADeadLetterTellsEverythingButSecrets(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	run := s.bury("a", `"error": "no paper"`)[0]
	var letter deadLetter
	a := s.agreed(c, 200, &letter, "GET", deadLetters+"/"+run, "")
	if strings.Contains(a.body, "s3cr3t") || fmt.Sprint(letter.Payload) != "map[n:1 token:***]" || len(letter.Attempts) != 1 || letter.Attempts[0].Output != "half of it" || letter.JobName != "a" {
		t.Errorf("got %s", a.body)
	}
	s.agreed(c, 404, nil, "GET", deadLetters+"/"+unknownID, "")
	s.agreed(c, 404, nil, "GET", deadLetters+"/a", "")
	s.agreed(c, 404, nil, "GET", deadLetters+"/"+run, "", "Belfry-Namespace: other")
}

func TestADeadLetterIsRedriven(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	runs := s.bury("a", `"error": "no paper"`, `"error": "no ink"`)
	var before, after deadLetter
	s.want(http.StatusOK, &before, "GET", deadLetters+"/"+runs[0], "")
	a := s.agreed(c, 202, &after, "POST", deadLetters+"/"+runs[0]+"/redrive", "")
	if after.ID != runs[0] || after.Status != "ready" || after.Key != before.Key || len(after.Attempts) != 1 || a.header.Get("Location") != "/api/v1/runs/"+runs[0] {
		t.Errorf("got %s at %q", a.body, a.header.Get("Location"))
	}
	if p := s.agreed(c, 404, nil, "POST", deadLetters+"/"+runs[0]+"/redrive", "").problem(t); p.Detail == "" {
		t.Errorf("a run that is alive is redriven: %+v", p)
	}
	s.agreed(c, 202, nil, "POST", deadLetters+"/"+runs[1]+"/redrive", `{"payload": {"n": 2, "token": "***"}}`)
	var claimed claims
	s.want(http.StatusOK, &claimed, "POST", s.worker()+"/claim", `{"lanes": ["default/send"], "limit": 5, "wait_seconds": 0}`)
	if len(claimed.Runs) != 2 || claimed.Runs[0].Attempt != 2 {
		t.Fatalf("got %+v", claimed)
	}
	payloads := []string{string(claimed.Runs[0].Payload), string(claimed.Runs[1].Payload)}
	if slices.Sort(payloads); !slices.Equal(payloads, []string{`{"n":1,"token":"s3cr3t"}`, `{"n":2,"token":"s3cr3t"}`}) {
		t.Errorf("the payloads are %s", payloads)
	}
	if got, _ := s.follow(deadLetters); len(got) != 0 {
		t.Errorf("%v are still dead", got)
	}
}

type decided struct {
	Matched, Done int
	More          bool
	LastAt        time.Time `json:"last_at"`
}

func TestManyDeadLettersAreDecidedAtOnce(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.bury("a", `"error": "no paper"`, `"error": "no paper"`, `"error": "no ink"`, `"error": "no ink"`, `"error": "no ink"`)
	s.bury("b", `"error": "no ink"`)
	for _, tt := range []struct {
		path, body string
		want       decided
		left       int
	}{
		{"/redrive", `{"filter": {"error": "ink"}, "dry_run": true}`, decided{Matched: 4}, 6},
		{"/discard", `{"all": true, "dry_run": true}`, decided{Matched: 6}, 6},
		{"/redrive", `{"filter": {"job": "a", "error": "ink"}, "rate": 0.5, "payload": {"n": 3}, "limit": 2}`, decided{Matched: 2, Done: 2, More: true}, 4},
		{"/discard", `{"filter": {"error": "ink", "reason": "out_of_retries", "since": "2020-01-01T00:00:00Z", "until": "2120-01-01T00:00:00Z"}}`, decided{Matched: 2, Done: 2}, 2},
		{"/redrive", `{"filter": {"error": "ink"}}`, decided{}, 2},
		{"/redrive", `{"all": true, "filter": {}}`, decided{Matched: 2, Done: 2}, 0},
		{"/discard", `{"all": true}`, decided{}, 0},
	} {
		start := time.Now()
		var got decided
		s.agreed(c, 200, &got, "POST", deadLetters+tt.path, tt.body)
		last := got.LastAt
		if got.LastAt = (time.Time{}); got != tt.want {
			t.Errorf("%s %s: got %+v, want %+v", tt.path, tt.body, got, tt.want)
		}
		if strings.Contains(tt.body, "rate") && last.Before(start.Add(time.Second)) {
			t.Errorf("%s: the second of two at one in two seconds may start at %v", tt.body, last)
		}
		if left, _ := s.follow(deadLetters); len(left) != tt.left {
			t.Errorf("%s %s: %d are left, want %d", tt.path, tt.body, len(left), tt.left)
		}
	}
	// Names and words may be written in other ways, too.
	s.want(http.StatusOK, nil, "POST", deadLetters+"/discard", `{"filter": {"reason": "POISON"}, "dryRun": true}`)
	if got, _ := s.follow("/api/v1/runs?status=discarded"); len(got) != 2 {
		t.Errorf("discarded are %v", got)
	}
}

func TestADeadLetterIsDiscarded(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	run := s.bury("a", `"error": "no paper"`)[0]
	s.agreed(c, 404, nil, "DELETE", deadLetters+"/"+run, "", "Belfry-Namespace: other")
	s.agreed(c, 204, nil, "DELETE", deadLetters+"/"+run, "")
	s.agreed(c, 404, nil, "DELETE", deadLetters+"/"+run, "")
	var after deadLetter
	s.agreed(c, 200, &after, "GET", "/api/v1/runs/"+run, "")
	if after.Status != "discarded" || after.Error != "no paper" || len(after.Attempts) != 1 {
		t.Errorf("got %+v", after)
	}
}

func TestWrongOrdersAboutDeadLettersAreRefused(t *testing.T) {
	s := serve(t)
	runs := s.bury("a", `"error": "no paper"`)
	for _, tt := range []struct {
		method, path, body, field string
		status                    int
	}{
		{"POST", "/redrive", `{}`, "filter", 422},
		{"POST", "/redrive", `{"filter": {}}`, "filter", 422},
		{"POST", "/discard", `{"filter": null, "all": false}`, "filter", 422},
		{"POST", "/discard", `{"filter": ["a"]}`, "filter", 422},
		{"POST", "/discard", `{"filter": {"jbo": "a"}}`, "filter.jbo", 422},
		{"POST", "/discard", `{"filter": {"error": "a\u0000b"}}`, "filter.error", 422},
		{"POST", "/discard", `{"filter": {"error": 5}}`, "filter.error", 422},
		{"POST", "/discard", `{"filter": {"since": "yesterday"}}`, "filter.since", 422},
		{"POST", "/discard", `{"filter": {"reason": "poision"}}`, "filter.reason", 422},
		{"POST", "/discard", `{"filter": {"reason": "overlap"}}`, "filter.reason", 422},
		{"POST", "/discard", `{"all": true, "rate": 5}`, "rate", 422},
		{"POST", "/discard", `{"all": true, "limit": 10001}`, "limit", 422},
		{"POST", "/redrive", `{"all": true, "limit": 0}`, "limit", 422},
		{"POST", "/redrive", `{"all": true, "rate": 0}`, "rate", 422},
		{"POST", "/redrive", `{"all": true, "rate": 1001}`, "rate", 422},
		{"POST", "/redrive", `{"all": true, "payload": {"n": 2}}`, "payload", 422},
		{"POST", "/redrive", `{"filter": {"job": "nobody"}}`, "", 404},
		{"POST", "/" + runs[0] + "/redrive", `{"rate": 5}`, "rate", 422},
		{"GET", "?since=soon", "", "since", 400},
		{"GET", "?until=1066-10-14T09:00:00Z", "", "until", 400},
		{"GET", "?reason=overlap", "", "reason", 400},
		{"GET", "?error=%00", "", "error", 400},
		{"GET", "?fingerprint=" + strings.Repeat("x", 201), "", "fingerprint", 400},
		{"GET", "/groups?cursor=x", "", "cursor", 400},
		{"GET", "/groups?limit=501", "", "limit", 400},
	} {
		p := s.ask(tt.method, deadLetters+tt.path, tt.body).problem(t)
		if p.Status != tt.status || tt.field != "" && !slices.Equal(p.fields(), []string{tt.field}) {
			t.Errorf("%s %s %s: got %d %v, want %d and %s", tt.method, tt.path, tt.body, p.Status, p.Errors, tt.status, tt.field)
		}
	}
	if left, _ := s.follow(deadLetters); len(left) != 1 {
		t.Errorf("%d are left after all that", len(left))
	}
}
