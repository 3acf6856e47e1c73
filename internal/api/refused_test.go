package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

const unknownID = "0190b0f2-0000-7000-8000-000000000001"

func TestWhatIsRefused(t *testing.T) {
	s := serve(t)
	job := "/api/v1/jobs/" + s.create(validJob).ID.String()
	const (
		jobs    = "/api/v1/jobs"
		unknown = unknownID
	)
	for _, tt := range []struct {
		name, method, path, body string
		header                   string
		status                   int
		field                    string
	}{
		{"a body that is not JSON", "POST", jobs, `{"name"`, "", 400, ""},
		{"no body", "POST", jobs, ``, "", 400, ""},
		{"an array", "POST", jobs, `[]`, "", 400, ""},
		{"two bodies", "POST", jobs, validJob + validJob, "", 400, ""},
		{"a pit", "POST", jobs, strings.Repeat(`{"a":`, 50), "", 400, ""},
		{"a form", "POST", jobs, validJob, "Content-Type: application/x-www-form-urlencoded", 415, ""},
		{"text", "POST", jobs, validJob, "Content-Type: text/plain", 415, ""},
		{"a type that cannot be read", "POST", jobs, validJob, "Content-Type: ;", 415, ""},
		{"another charset", "POST", jobs, validJob, "Content-Type: application/json; charset=latin1", 415, ""},
		{"a compressed body", "POST", jobs, validJob, "Content-Encoding: gzip", 415, ""},
		{"a large body", "POST", jobs, `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, "", 413, ""},
		{"an empty job", "POST", jobs, `{}`, "", 422, "schedule"},
		{"an unknown member", "POST", jobs, strings.Replace(validJob, `"name"`, `"nome"`, 1), "", 422, "nome"},
		{"a member twice", "POST", jobs, strings.Replace(validJob, `"timezone"`, `"name"`, 1), "", 422, "name"},
		{"a wrong type", "POST", jobs, strings.Replace(validJob, `"report"`, `7`, 1), "", 422, "name"},
		{"a wrong schedule", "POST", jobs, strings.Replace(validJob, "30 9", "61 9", 1), "", 422, "schedule"},
		{"a wrong zone", "POST", jobs, strings.Replace(validJob, "Paris", "Pariss", 1), "", 422, "timezone"},
		{"a past instant", "POST", jobs, strings.Replace(validJob, "30 9 * * MON-FRI", "2001-01-01T00:00:00Z", 1), "", 422, "schedule"},
		{"a wrong address", "POST", jobs, strings.Replace(validJob, "https://example.com/hook", "gopher://x", 1), "", 422, "payload.url"},
		{"an unknown parameter", "POST", jobs + "?dry_run=1", validJob, "", 400, "dry_run"},
		{"an unknown filter", "GET", jobs + "?state=paused", "", "", 400, "state"},
		{"an unknown value of a filter", "GET", jobs + "?status=asleep", "", "", 400, "status"},
		{"an unknown type in a filter", "GET", jobs + "?type=mail", "", "", 400, "type"},
		{"a search that is not text", "GET", jobs + "?search=%ff", "", "", 400, "search"},
		{"a long search", "GET", jobs + "?search=" + strings.Repeat("x", 201), "", "", 400, "search"},
		{"an unknown state of runs", "GET", "/api/v1/runs?status=lost", "", "", 400, "status"},
		{"a parameter twice", "GET", jobs + "?limit=1&limit=2", "", "", 400, "limit"},
		{"a query that cannot be read", "GET", jobs + "?limit=%zz", "", "", 400, ""},
		{"no limit at all", "GET", jobs + "?limit=0", "", "", 400, "limit"},
		{"a high limit", "GET", jobs + "?limit=501", "", "", 400, "limit"},
		{"a limit in words", "GET", jobs + "?limit=ten", "", "", 400, "limit"},
		{"a wrong cursor", "GET", jobs + "?cursor=abc", "", "", 400, "cursor"},
		{"a wrong namespace", "GET", jobs, "", "Belfry-Namespace: A", 400, "Belfry-Namespace"},
		{"a job that is not there", "GET", jobs + "/" + unknown, "", "", 404, ""},
		{"a job without an id", "GET", jobs + "/nightly", "", "", 404, ""},
		{"a way out", "GET", jobs + "/..%2f..%2fetc%2fpasswd", "", "", 404, ""},
		{"a pause of a job that is not there", "PATCH", jobs + "/" + unknown, `{"status":"paused"}`, "", 404, ""},
		{"a trigger of a job that is not there", "POST", jobs + "/" + unknown + "/trigger", "", "", 404, ""},
		{"the runs of a job that is not there", "GET", jobs + "/" + unknown + "/runs", "", "", 404, ""},
		{"the deletion of a job that is not there", "DELETE", jobs + "/" + unknown, "", "", 404, ""},
		{"a run that is not there", "GET", "/api/v1/runs/" + unknown, "", "", 404, ""},
		{"a run without an id", "GET", "/api/v1/runs/x", "", "", 404, ""},
		{"a wrong edit", "PATCH", job, `{"schedule": "@dayly"}`, "", 422, "schedule"},
		{"an unknown status", "PATCH", job, `{"status": "running"}`, "", 422, "status"},
		{"a tag that does not fit", "PATCH", job, `{"status": "paused"}`, `If-Match: "1-x"`, 412, ""},
		{"a weak tag", "DELETE", job, "", `If-Match: W/"1-x"`, 412, ""},
		{"a tag without quotes", "DELETE", job, "", `If-Match: 1-x`, 400, "If-Match"},
		{"a replacement of a job that is not there", "PUT", jobs + "/" + unknown, validJob, "", 404, ""},
		{"a replacement of a job that must be there", "PUT", jobs + "/other", strings.Replace(validJob, "report", "other", 1), "If-Match: *", 412, ""},
		{"a replacement under another name", "PUT", jobs + "/other", validJob, "", 422, "name"},
		{"a rollback to nothing", "POST", job + "/rollback", `{"revision": 7}`, "", 404, ""},
		{"a rollback to no number", "POST", job + "/rollback", `{}`, "", 422, "revision"},
		{"a pause with a reason", "POST", job + "/pause", `{"reason": "x"}`, "", 422, "reason"},
		{"a change that is not JSON", "PATCH", job, `paused`, "", 400, ""},
		{"a change in a form", "PATCH", job, `status=paused`, "Content-Type: application/x-www-form-urlencoded", 415, ""},
		{"a trigger with an address", "POST", job + "/trigger", `{"url": "https://example.com"}`, "", 422, "url"},
		{"a blank key", "POST", jobs, validJob, "Idempotency-Key: ", 400, "Idempotency-Key"},
		{"a worker without an id", "POST", "/api/v1/workers/me/claim", `{"lanes": ["a/b"]}`, "", 400, "worker"},
		{"a claim of nothing", "POST", "/api/v1/workers/" + unknown + "/claim", `{}`, "", 422, "lanes"},
		{"a claim of a lane that is none", "POST", "/api/v1/workers/" + unknown + "/claim", `{"lanes": ["invoice"]}`, "", 422, "lanes[0]"},
		{"a claim of too much", "POST", "/api/v1/workers/" + unknown + "/claim", `{"lanes": ["a/b"], "limit": 1001}`, "", 422, "limit"},
		{"a claim that waits too long", "POST", "/api/v1/workers/" + unknown + "/claim", `{"lanes": ["a/b"], "wait_seconds": 31}`, "", 422, "wait_seconds"},
		{"a heartbeat that holds what is no run", "POST", "/api/v1/workers/" + unknown + "/heartbeat", `{"held": [{"run_id": "x", "attempt": 1}]}`, "", 422, "held[0].run_id"},
		{"a heartbeat that holds no attempt", "POST", "/api/v1/workers/" + unknown + "/heartbeat", `{"held": [{"run_id": "` + unknown + `"}]}`, "", 422, "held[0].attempt"},
		{"no results", "POST", "/api/v1/workers/" + unknown + "/finish", `{"results": []}`, "", 422, "results"},
		{"a result without a token", "POST", "/api/v1/workers/" + unknown + "/finish", `{"results": [{"run_id": "` + unknown + `", "attempt": 1, "outcome": "failed"}]}`, "", 422, "results[0].token"},
		{"a result with a typing error", "POST", "/api/v1/workers/" + unknown + "/finish", `{"results": [{"outcom": "failed"}]}`, "", 422, "results[0].outcom"},
		{"an outcome that a worker cannot know", "POST", "/api/v1/workers/" + unknown + "/finish",
			`{"results": [{"run_id": "` + unknown + `", "attempt": 1, "token": "00000000000000000000000000000000", "outcome": "lost"}]}`, "", 422, "results[0].outcome"},
		{"a trigger that is not JSON", "POST", job + "/trigger", `now`, "", 400, ""},
		{"a wrong cursor of runs", "GET", job + "/runs?cursor=EQ", "", "", 400, "cursor"},
		{"a high limit of runs", "GET", job + "/runs?limit=9999", "", "", 400, "limit"},
		{"an unknown path", "GET", "/api/v1/nothing", "", "", 404, ""},
		{"an unknown version", "GET", "/api/v2/jobs", "", "", 404, ""},
		{"a slash too much", "GET", jobs + "/", "", "", 404, ""},
		{"two slashes", "GET", "/api//v1/jobs", "", "", 404, ""},
		{"a detour", "GET", "/api/v1/x/../jobs", "", "", 404, ""},
		{"a wrong method", "PUT", jobs, "", "", 405, ""},
		{"a deletion of everything", "DELETE", jobs, "", "", 405, ""},
		{"a made-up method", "BREW", job, "", "", 405, ""},
		{"a trigger by GET", "GET", job + "/trigger", "", "", 405, ""},
		{"a question of another origin", "OPTIONS", jobs, "", "Origin: https://evil.example", 405, ""},
		{"another origin", "POST", jobs, validJob, "Origin: https://evil.example", 403, ""},
		{"another site", "POST", job + "/trigger", "", "Sec-Fetch-Site: cross-site", 403, ""},
		{"another host", "GET", jobs, "", "Host: evil.example", 421, ""},
		{"another host with a port", "GET", "/livez", "", "Host: evil.example:8080", 421, ""},
		{"a host that looks like ours", "GET", jobs, "", "Host: localhost.evil.example", 421, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var headers []string
			if tt.header != "" {
				headers = append(headers, tt.header)
			}
			a := s.ask(tt.method, tt.path, tt.body, headers...)
			if a.status != tt.status {
				t.Fatalf("got %d, want %d: %s", a.status, tt.status, a.body)
			}
			p := a.problem(t)
			if tt.field != "" && !slices.Contains(p.fields(), tt.field) {
				t.Errorf("%s is not among the faults %v", tt.field, p.Errors)
			}
			if tt.field == "" && len(p.Errors) > 0 {
				t.Errorf("there are faults: %v", p.Errors)
			}
			if (a.header.Get("Allow") != "") != (a.status == http.StatusMethodNotAllowed) {
				t.Errorf("allowed is %q", a.header.Get("Allow"))
			}
			for name := range a.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("there is the header %s", name)
				}
			}
		})
	}
	if p := s.ask("POST", job+"/pause", `{"reason": "x"}`).problem(t); p.Errors[0].Message != "is not known; there are no members here: leave it out" {
		t.Errorf("a pause with a reason: %q", p.Errors[0].Message)
	}
	if ids, _ := s.follow(jobs); len(ids) != 1 {
		t.Errorf("there are %d jobs after all that", len(ids))
	}
}

func TestWhatIsAllowedIsToldByMethod(t *testing.T) {
	s := serve(t)
	got := s.ask("PUT", "/api/v1/jobs", "").header.Get("Allow")
	if got != "GET, HEAD, POST" {
		t.Errorf("allowed is %q", got)
	}
}
