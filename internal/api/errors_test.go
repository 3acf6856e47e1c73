package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What the decoder refuses is proved in package schema and, for every operation, in
// TestEveryOperationRefusesBadRequests. Here is what needs more than one request to
// be known as wrong.
func TestErrorStatuses(t *testing.T) {
	s := newService(t)
	created := s.create(validJob)
	job := "/api/v1/jobs/" + created.ID.String()
	const (
		jobs   = "/api/v1/jobs"
		worker = "/api/v1/workers/" + unknownID
	)
	result := func(more string) string {
		return `{"results": [{"run_id": "` + unknownID + `", "attempt": 1` + more + `}]}`
	}
	for _, tt := range []struct {
		name, method, path, body string
		header                   string
		status                   int
		field                    string
	}{
		{"an empty manifest", "POST", jobs, `{}`, "", 422, "schedule"},
		{"a wrong schedule", "POST", jobs, strings.Replace(validJob, "30 9", "61 9", 1), "", 422, "schedule"},
		{"an unknown time zone", "POST", jobs, strings.Replace(validJob, "Paris", "Pariss", 1), "", 422, "timezone"},
		{"a past instant", "POST", jobs, strings.Replace(validJob, "30 9 * * MON-FRI", "2001-01-01T00:00:00Z", 1), "", 422, "schedule"},
		{"a wrong URL", "POST", jobs, strings.Replace(validJob, "https://example.com/hook", "gopher://x", 1), "", 422, "payload.url"},
		{"two bodies", "POST", jobs, validJob + validJob, "", 400, ""},
		{"a wrong edit", "PATCH", job, `{"schedule": "@dayly"}`, "", 422, "schedule"},
		{"a status that an edit cannot set", "PATCH", job, `{"status": "running"}`, "", 422, "status"},
		{"a stale version", "PATCH", job, `{"status": "paused"}`, `If-Match: "1-x"`, 412, ""},
		{"a weak tag", "DELETE", job, "", `If-Match: W/"1-x"`, 412, ""},
		{"a replacement of a job that does not exist", "PUT", jobs + "/" + unknownID, validJob, "", 404, ""},
		{"a replacement of a job that must exist", "PUT", jobs + "/other", strings.Replace(validJob, "report", "other", 1), "If-Match: *", 412, ""},
		{"a replacement under another name", "PUT", jobs + "/other", validJob, "", 422, "name"},
		{"a rollback to an unknown revision", "POST", job + "/rollback", `{"revision": 7}`, "", 404, ""},
		{"a rollback without a revision", "POST", job + "/rollback", `{}`, "", 422, "revision"},
		{"a pause with a reason", "POST", job + "/pause", `{"reason": "x"}`, "", 422, "reason"},
		{"a trigger with an address", "POST", job + "/trigger", `{"url": "https://example.com"}`, "", 422, "url"},
		{"a claim without handlers", "POST", worker + "/claim", `{}`, "", 422, "handlers"},
		{"a claim of a handler with an invalid name", "POST", worker + "/claim", `{"handlers": ["a/b"]}`, "", 422, "handlers[0]"},
		{"a claim of a queue with an invalid name", "POST", worker + "/claim", `{"queue": ["a", "b c"], "handlers": ["send"]}`, "", 422, "queue[1]"},
		{"a claim of HTTP jobs", "POST", worker + "/claim", `{"handlers": ["http"]}`, "", 422, "handlers[0]"},
		{"a claim of too many runs", "POST", worker + "/claim", `{"handlers": ["send"], "limit": 1001}`, "", 422, "limit"},
		{"a claim that waits too long", "POST", worker + "/claim", `{"handlers": ["send"], "wait_seconds": 31}`, "", 422, "wait_seconds"},
		{"a heartbeat with an invalid run", "POST", worker + "/heartbeat", `{"held": [{"run_id": "x", "attempt": 1}]}`, "", 422, "held[0].run_id"},
		{"a heartbeat without an attempt", "POST", worker + "/heartbeat", `{"held": [{"run_id": "` + unknownID + `"}]}`, "", 422, "held[0].attempt"},
		{"no results", "POST", worker + "/finish", `{"results": []}`, "", 422, "results"},
		{"a result without a token", "POST", worker + "/finish", result(`, "outcome": "failed"`), "", 422, "results[0].token"},
		{"a result with a typing error", "POST", worker + "/finish", result(`, "outcom": "failed"`), "", 422, "results[0].outcom"},
		{"an outcome that a worker cannot report", "POST", worker + "/finish", result(`, "token": "9f86d081884c7d659a2feaa0c55ad015", "outcome": "lost"`), "", 422, "results[0].outcome"},
		{"an unknown path", "GET", "/api/v1/nothing", "", "", 404, ""},
		{"an unknown version", "GET", "/api/v2/jobs", "", "", 404, ""},
		{"a trailing slash", "GET", jobs + "/", "", "", 404, ""},
		{"two slashes", "GET", "/api//v1/jobs", "", "", 404, ""},
		{"a path with dots", "GET", "/api/v1/x/../jobs", "", "", 404, ""},
		{"a preflight request", "OPTIONS", jobs, "", "Origin: https://evil.example", 405, ""},
		{"another origin", "POST", jobs, validJob, "Origin: https://evil.example", 403, ""},
		{"another site", "POST", job + "/trigger", "", "Sec-Fetch-Site: cross-site", 403, ""},
		{"another host", "GET", jobs, "", "Host: evil.example", 421, ""},
		{"another host with a port", "GET", jobs, "", "Host: evil.example:8080", 421, ""},
		{"a host with a prefix of ours", "GET", jobs, "", "Host: localhost.evil.example", 421, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var headers []string
			if tt.header != "" {
				headers = append(headers, tt.header)
			}
			a := s.send(tt.method, tt.path, tt.body, headers...)
			if a.status != tt.status {
				t.Fatalf("got %d, want %d: %s", a.status, tt.status, a.body)
			}
			p := a.problem(t)
			if tt.field != "" && !slices.Contains(p.fields(), tt.field) {
				t.Errorf("the errors %v do not name %s", p.Errors, tt.field)
			}
			if tt.field == "" && len(p.Errors) > 0 {
				t.Errorf("there are errors of fields: %v", p.Errors)
			}
			for name := range a.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("there is the header %s", name)
				}
			}
		})
	}
	s.expectUnchanged(created)
}

func TestErrorsOfAllFieldsAtOnce(t *testing.T) {
	s := newService(t)
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{"of the decoder, the limits and the schedule", `{"shedule": "@daily", "schedule": "0 25 * * *", "timezone": "Europe/Pariss", "timeout_seconds": "60", "max_retries": 101, "payload": 3, "retry_jitter": 0.5, "queue": "a b"}`,
			[]string{"handler", "max_retries", "queue", "retry_jitter", "schedule", "shedule", "timeout_seconds", "timezone"}},
		{"of policies", `{"schedule": "@daily", "payload": {"url": "https://example.com"}, "overlap": "que", "max_queued": -1, "missed_window": "run_al", "max_missed": 1001,
 "catch_up_window_seconds": -5, "priority": "urgent", "retry_on": "some", "retry_backoff": "list", "retention_days": 40000}`,
			[]string{"catch_up_window_seconds", "max_missed", "max_queued", "missed_window", "overlap", "priority", "retention_days", "retry_delays", "retry_on"}},
	} {
		p := s.send("POST", "/api/v1/jobs", tt.body).problem(t)
		fields := p.fields()
		slices.Sort(fields)
		if p.Status != http.StatusUnprocessableEntity || p.Code != "invalid" || !slices.Equal(fields, tt.want) {
			t.Errorf("%s: got %v\nwant %v", tt.name, p.Errors, tt.want)
		}
	}
}

func TestAllowHeader(t *testing.T) {
	s := newService(t)
	if got := s.send("PUT", "/api/v1/jobs", "").header.Get("Allow"); got != "GET, HEAD, POST" {
		t.Errorf("allowed is %q", got)
	}
}
