package api_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

// Bodies as people write them elsewhere.
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

func TestJobsInBothSpellingsAreAccepted(t *testing.T) {
	s := serve(t)
	body := strings.Replace(oneTime, "2026-03-01", "2099-03-01", 1)
	job := s.create(body)
	if job.Type != "http" || job.MaxRetries != 3 || job.RetryBaseSeconds != 5 || job.RetryCapSeconds != 1800 || job.NextRunAt.Format("2006-01-02T15:04:05Z07:00") != "2099-03-01T09:00:00Z" {
		t.Errorf("got %+v", job)
	}
	if job := s.create(recurring); job.Status != belfry.StatusScheduled || job.Schedule != "0 2 * * *" {
		t.Errorf("got %+v", job)
	}
	job = s.create(comments.ReplaceAllString(weekly, ""))
	if job.Type != "worker" || job.Handler != "send-weekly-report" || job.Timezone != "America/New_York" || job.MissedWindow != belfry.MissedRunOnce ||
		job.IdempotencyKeyTemplate != "report-{{week}}" || job.TimeoutSeconds != 120 {
		t.Errorf("got %+v", job)
	}
	a := s.want(http.StatusOK, &job, "PATCH", "/api/v1/jobs/send-report", `{ "status": "PAUSED" }`)
	if job.Status != belfry.StatusPaused {
		t.Errorf("got %s", a.body)
	}
	var found struct {
		Name       string
		Executions []any
	}
	s.want(http.StatusOK, &found, "GET", "/api/v1/jobs/send-report/history", "")
	if found.Name != "send-report" || found.Executions == nil {
		t.Errorf("the history is %+v", found)
	}
	s.want(http.StatusOK, nil, "GET", "/api/v1/jobs/send-weekly-report/runs?limit=20", "")
	s.want(http.StatusNoContent, nil, "DELETE", "/api/v1/jobs/send-report", "")
}
