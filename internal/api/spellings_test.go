package api_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
)

// Bodies of other schedulers.
const (
	oneTime = `{
"name": "send-report",
"type": "http",
"schedule": "2026-03-01T09:00:00Z",
"payload": {
"url": "https://api.example.com/generate-report",
"method": "POST",
"body": { "reportId": "abc-123" }
},
"retryPolicy": {
"maxRetries": 3,
"backoffMs": 5000
}
}`
	recurring = `{
"name": "nightly-cleanup",
"type": "http",
"schedule": "0 2 * * *",
"payload": {
"url": "https://api.example.com/cleanup",
"method": "POST"
}
}`
	weekly = `{
  "name": "send-weekly-report",
  "schedule": "0 9 * * 1",           // cron: every Monday at 09:00 UTC
  "timezone": "America/New_York",
  "payload": { "report_type": "weekly" },
  "idempotency_key_template": "report-{{week}}",
  "max_retries": 3,
  "retry_backoff": "exponential",
  "missed_window": "RUN_ONCE",       // SKIP | RUN_ONCE | RUN_ALL
  "timeout_seconds": 120
}`
)

var comments = regexp.MustCompile(`(?m) //.*$`)

func TestJobsInBothSpellings(t *testing.T) {
	s := newService(t)
	body := strings.Replace(oneTime, "2026-03-01", "2099-03-01", 1)
	job := s.create(body)
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule, spec.Timezone = belfry.TypeHTTP, "2099-03-01T09:00:00Z", "UTC"
	expectSpec(t, spec, job)
	if at := time.Date(2099, 3, 1, 9, 0, 0, 0, time.UTC); !job.NextRunAt.Equal(at) {
		t.Errorf("it runs next at %v, want %v", job.NextRunAt, at)
	}
	spec.Schedule = "0 2 * * *"
	expectSpec(t, spec, s.create(recurring))
	spec.Type, spec.Handler, spec.Schedule, spec.Timezone = belfry.TypeWorker, "send-weekly-report", "0 9 * * 1", "America/New_York"
	spec.IdempotencyKeyTemplate, spec.TimeoutSeconds = "report-{{week}}", 120
	expectSpec(t, spec, s.create(comments.ReplaceAllString(weekly, "")))
	a := s.expect(http.StatusOK, &job, "PATCH", "/api/v1/jobs/send-report", `{ "status": "PAUSED" }`)
	if job.Status != belfry.StatusPaused {
		t.Errorf("got %s", a.body)
	}
	var found belfry.JobHistory
	s.expect(http.StatusOK, &found, "GET", "/api/v1/jobs/send-report/history", "")
	if found.Name != "send-report" || found.Executions == nil {
		t.Errorf("the history is %+v", found)
	}
	s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs/send-weekly-report/runs?limit=20", "")
	s.expect(http.StatusNoContent, nil, "DELETE", "/api/v1/jobs/send-report", "")
}

// expectSpec compares the spec of a job with what it should be.
func expectSpec(t *testing.T, want belfry.Spec, job belfry.Job) {
	t.Helper()
	if diff := cmp.Diff(want, job.Spec, jobOptions); diff != "" {
		t.Errorf("the spec of %q differs (-want +got):\n%s", job.Name, diff)
	}
}
