package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

const actionsPath = "/api/v1/jobs/actions"

// createWorkerJobs creates jobs of type worker, named after their queue.
func (s *service) createWorkerJobs(queue string, n int) {
	s.t.Helper()
	for i := range n {
		s.create(fmt.Sprintf(`{"name": "%s-%d", "type": "worker", "handler": "send", "queue": %q, "tags": ["x", "n%d"], "schedule": "@yearly"}`, queue, i, queue, i))
	}
}

func TestBulkAppliesActionToFilteredJobs(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.createWorkerJobs("a", 3)
	s.createWorkerJobs("b", 2)
	count := func(query string) int {
		ids, _ := s.listIDs("/api/v1/jobs?" + query)
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
		var got belfry.BulkResult
		s.expectDocumented(c, 200, &got, "POST", actionsPath, tt.body)
		if got.Matched != tt.matched || got.Done != tt.done || len(got.Failed) != 0 || got.Failed == nil || got.Next != "" {
			t.Errorf("%s: got %+v", tt.body, got)
		}
		s.fireTriggers()
		if n := count(tt.query); n != tt.want {
			t.Errorf("%s: %d jobs are %q, want %d", tt.body, n, tt.query, tt.want)
		}
	}
	var got belfry.BulkResult
	if s.expect(http.StatusOK, &got, "POST", actionsPath, `{"action": "PAUSE", "filter": {"status": "SCHEDULED"}, "dryRun": true}`); got.Matched != 2 {
		t.Errorf("other spellings: got %+v", got)
	}
}

func TestBulkContinuesAtCursor(t *testing.T) {
	s := newService(t)
	s.createWorkerJobs("a", 5)
	body := func(cursor string) string {
		return fmt.Sprintf(`{"action": "pause", "filter": {"queue": "a"}, "limit": 2, "cursor": %q}`, cursor)
	}
	done, calls := 0, 0
	for next := ""; calls == 0 || next != ""; calls++ {
		var got belfry.BulkResult
		s.expect(http.StatusOK, &got, "POST", actionsPath, body(next))
		done, next = done+got.Done, got.Next
		if calls > 5 {
			t.Fatal("it never ends")
		}
		for _, other := range []string{`"pause", "filter": {"queue": "b"}`, `"delete", "filter": {"queue": "a"}`} {
			if next == "" {
				break
			}
			p := s.send("POST", actionsPath, fmt.Sprintf(`{"action": %s, "cursor": %q}`, other, next)).problem(t)
			if p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{"cursor"}) || !strings.Contains(p.Errors[0].Message, "another list or filter") {
				t.Errorf("%s continues with the cursor of another: %+v", other, p)
			}
		}
	}
	if done != 5 {
		t.Errorf("%d jobs were paused", done)
	}
}

func TestBulkTriggersOncePerIdempotencyKey(t *testing.T) {
	s := newService(t)
	s.createWorkerJobs("a", 2)
	for range 3 {
		s.expect(http.StatusOK, nil, "POST", actionsPath, `{"action": "trigger", "all": true}`, "Idempotency-Key: once")
		s.fireTriggers()
	}
	if runs, _ := s.listIDs("/api/v1/runs"); len(runs) != 2 {
		t.Errorf("there are %d runs, want one a job", len(runs))
	}
}

func TestBulkRetryRedrivesDeadLetters(t *testing.T) {
	s := newService(t)
	s.createDeadLetters("one", `"error": "no paper"`, `"error": "no ink"`)
	s.createDeadLetters("two", `"error": "no paper"`)
	var got belfry.BulkResult
	s.expect(http.StatusOK, &got, "POST", actionsPath, `{"action": "retry", "filter": {"search": "one"}}`)
	if left, _ := s.listIDs(deadLettersPath); got.Done != 1 || len(left) != 1 {
		t.Errorf("got %+v, and %v are left", got, left)
	}
}

func TestBulkErrors(t *testing.T) {
	s := newService(t)
	job := s.create(validJob)
	for _, tt := range []struct{ body, field, message string }{
		{`{"all": true}`, "action", "is required"},
		{`{"action": "pauses", "all": true}`, "action", `did you mean "pause"?`},
		{`{"action": "delete"}`, "filter", `or "all"`},
		{`{"action": "delete", "filter": {}, "all": false}`, "filter", `or "all"`},
		{`{"action": "delete", "filter": {"tags": []}}`, "filter", `or "all"`},
		{`{"action": "delete", "filter": {"tag": ["x"]}}`, "filter.tag", `"tags"`},
		{`{"action": "delete", "filter": {"status": "asleep"}}`, "filter.status", `"scheduled"`},
		{`{"action": "delete", "filter": {"tags": ["a", "\u0007"]}}`, "filter.tags", "control characters"},
		{`{"action": "delete", "all": true, "limit": 10001}`, "limit", "10000"},
		{`{"action": "delete", "all": true, "cursor": "x"}`, "cursor", "is not a cursor of this list"},
	} {
		p := s.send("POST", actionsPath, tt.body).problem(t)
		if p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{tt.field}) || !strings.Contains(p.Errors[0].Message, tt.message) {
			t.Errorf("%s: got %d %+v", tt.body, p.Status, p.Errors)
		}
	}
	s.expectUnchanged(job)
}
