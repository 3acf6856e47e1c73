package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const actions = "/api/v1/jobs/actions"

type acted struct {
	Matched, Done int
	Failed        []struct {
		JobID       string `json:"job_id"`
		Name, Error string
	}
	Next string
}

// few makes jobs of a worker, named after their queue.
func (s *service) few(queue string, n int) {
	s.t.Helper()
	for i := range n {
		s.create(fmt.Sprintf(`{"name": "%s-%d", "type": "worker", "handler": "send", "queue": %q, "tags": ["x", "n%d"], "schedule": "@yearly"}`, queue, i, queue, i))
	}
}

func TestActionsReachTheJobsOfTheirFilter(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.few("a", 3)
	s.few("b", 2)
	count := func(query string) int {
		ids, _ := s.follow("/api/v1/jobs?" + query)
		return len(ids)
	}
	for _, tt := range []struct {
		body          string
		matched, done int
		query         string // what to count afterwards
		want          int
	}{
		{`{"action": "pause", "filter": {"queue": "a"}, "dry_run": true}`, 3, 0, "status=paused", 0},
		{`{"action": "pause", "filter": {"queue": "a"}}`, 3, 3, "status=paused", 3},
		{`{"action": "pause", "filter": {"queue": "a"}}`, 3, 3, "status=paused", 3},
		{`{"action": "resume", "filter": {"status": "paused", "tags": ["n1", "x"]}}`, 1, 1, "status=paused", 2},
		{`{"action": "resume", "all": true}`, 5, 5, "status=paused", 0},
		{`{"action": "trigger", "filter": {"search": "B-", "type": "worker", "handler": "send"}}`, 2, 2, "status=queued", 2},
		{`{"action": "cancel", "filter": {"queue": "b"}}`, 2, 2, "status=cancelled", 2},
		{`{"action": "delete", "filter": {"tags": ["n0"]}}`, 2, 2, "", 3},
		{`{"action": "delete", "filter": {"tags": ["n0"]}}`, 0, 0, "", 3},
		{`{"action": "retry", "filter": {"queue": "a"}}`, 2, 2, "", 3},
	} {
		var got acted
		s.agreed(c, 200, &got, "POST", actions, tt.body)
		if got.Matched != tt.matched || got.Done != tt.done || len(got.Failed) != 0 || got.Failed == nil || got.Next != "" {
			t.Errorf("%s: got %+v", tt.body, got)
		}
		s.turn()
		if n := count(tt.query); n != tt.want {
			t.Errorf("%s: %d jobs are %q, want %d", tt.body, n, tt.query, tt.want)
		}
	}
	var got acted
	if s.want(http.StatusOK, &got, "POST", actions, `{"action": "PAUSE", "filter": {"status": "SCHEDULED"}, "dryRun": true}`); got.Matched != 2 {
		t.Errorf("other spellings: got %+v", got)
	}
}

func TestAnActionGoesOnWhereItStopped(t *testing.T) {
	s := serve(t)
	s.few("a", 5)
	order := func(cursor string) string {
		return fmt.Sprintf(`{"action": "pause", "filter": {"queue": "a"}, "limit": 2, "cursor": %q}`, cursor)
	}
	done, calls := 0, 0
	for next := ""; calls == 0 || next != ""; calls++ {
		var got acted
		s.want(http.StatusOK, &got, "POST", actions, order(next))
		done, next = done+got.Done, got.Next
		if calls > 5 {
			t.Fatal("it never ends")
		}
		for _, other := range []string{`"pause", "filter": {"queue": "b"}`, `"delete", "filter": {"queue": "a"}`} {
			if next == "" {
				break
			}
			p := s.ask("POST", actions, fmt.Sprintf(`{"action": %s, "cursor": %q}`, other, next)).problem(t)
			if p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{"cursor"}) || !strings.Contains(p.Errors[0].Message, "another action or filter") {
				t.Errorf("%s goes on with the cursor of another: %+v", other, p)
			}
		}
	}
	if done != 5 {
		t.Errorf("%d jobs were paused", done)
	}
}

func TestAnActionUnderAKeyTriggersOnce(t *testing.T) {
	s := serve(t)
	s.few("a", 2)
	for range 3 {
		s.want(http.StatusOK, nil, "POST", actions, `{"action": "trigger", "all": true}`, "Idempotency-Key: once")
		s.turn()
	}
	if runs, _ := s.follow("/api/v1/runs"); len(runs) != 2 {
		t.Errorf("there are %d runs, want one a job", len(runs))
	}
}

func TestRetryRedrivesTheDeadLettersOfJobs(t *testing.T) {
	s := serve(t)
	s.bury("one", `"error": "no paper"`, `"error": "no ink"`)
	s.bury("two", `"error": "no paper"`)
	var got acted
	s.want(http.StatusOK, &got, "POST", actions, `{"action": "retry", "filter": {"search": "one"}}`)
	if left, _ := s.follow(deadLetters); got.Done != 1 || len(left) != 1 {
		t.Errorf("got %+v, and %v are left", got, left)
	}
}

func TestWrongActionsAreRefused(t *testing.T) {
	s := serve(t)
	s.create(validJob)
	for _, tt := range []struct{ body, field, says string }{
		{`{"all": true}`, "action", "pause"},
		{`{"action": "pauses", "all": true}`, "action", `"pause"`},
		{`{"action": 1, "all": true}`, "action", "string"},
		{`{"action": "delete"}`, "filter", `"all": true`},
		{`{"action": "delete", "filter": {}, "all": false}`, "filter", `"all": true`},
		{`{"action": "delete", "filter": {"tags": []}}`, "filter", `"all": true`},
		{`{"action": "delete", "filter": "report"}`, "filter", "object"},
		{`{"action": "delete", "filter": {"tag": ["x"]}}`, "filter.tag", `"tags"`},
		{`{"action": "delete", "filter": {"status": "asleep"}}`, "filter.status", "scheduled"},
		{`{"action": "delete", "filter": {"type": "mail"}}`, "filter.type", "worker"},
		{`{"action": "delete", "filter": {"search": "\u0000"}}`, "filter.search", "control"},
		{`{"action": "delete", "filter": {"tags": ["a", "\u0007"]}}`, "filter.tags", "control"},
		{`{"action": "delete", "filter": {"tags": "x"}}`, "filter.tags", "array"},
		{`{"action": "delete", "filter": {"tags": ["` + strings.Join(strings.Split("abcdefghijklmnopqrstu", ""), `","`) + `"]}}`, "filter.tags", "20"},
		{`{"action": "delete", "all": true, "limit": 10001}`, "limit", "10000"},
		{`{"action": "delete", "all": true, "limit": -1}`, "limit", "10000"},
		{`{"action": "delete", "all": true, "cursor": "x"}`, "cursor", "next of the answer before"},
		{`{"action": "delete", "all": true, "dryrun": true}`, "dryrun", "dry_run"},
	} {
		p := s.ask("POST", actions, tt.body).problem(t)
		if p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{tt.field}) || !strings.Contains(p.Errors[0].Message, tt.says) {
			t.Errorf("%s: got %d %+v", tt.body, p.Status, p.Errors)
		}
	}
	if ids, _ := s.follow("/api/v1/jobs"); len(ids) != 1 {
		t.Errorf("there are %d jobs after all that", len(ids))
	}
}
