package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

// policed is a job that differs from the default in every policy.
const policed = `{"name": "settle", "schedule": "*/10 * * * *", "payload": {"url": "https://example.com/hook"}, "overlap": "QUEUE", "maxQueued": 5,
 "missed_window": "RUN_ALL", "max_missed": 12, "catchUpWindowSeconds": 7200, "priority": 9, "retry_on": "Server_Errors", "retry_delays": [5, 30.5, 120], "retention_days": 30}`

func TestEveryPolicyIsKeptAndShown(t *testing.T) {
	s := serve(t)
	job := s.create(policed)
	check := func(job belfry.Job, when string) {
		t.Helper()
		if job.Overlap != "queue" || job.MaxQueued != 5 || job.MissedWindow != "run_all" || job.MaxMissed != 12 || job.CatchUpSeconds != 7200 || job.Priority != belfry.PriorityHigh ||
			job.RetryOn != "server_errors" || job.RetryBackoff != "list" || job.RetryDelays != "5,30.5,120" || job.MaxRetries != 3 || job.RetentionDays != 30 {
			t.Errorf("%s the job is %+v", when, job)
		}
	}
	check(job, "at first")
	a := s.want(http.StatusOK, &job, "GET", "/api/v1/jobs/settle", "")
	check(job, "looked up")
	for _, part := range []string{`"priority":"high"`, `"retry_delays":[5,30.5,120]`, `"catch_up_window_seconds":7200`} {
		if !strings.Contains(a.body, part) {
			t.Errorf("%s is not in %s", part, a.body)
		}
	}
	// What was shown can be handed back, and changes nothing.
	s.want(http.StatusOK, &job, "PUT", "/api/v1/jobs/settle", a.body)
	if check(job, "handed back"); job.Revision != 1 {
		t.Errorf("handing the job back made the revision %d", job.Revision)
	}
	job = belfry.Job{}
	s.want(http.StatusOK, &job, "PATCH", "/api/v1/jobs/settle", `{"priority": "low", "overlap": null, "retry_backoff": "fixed", "retry_on": "all", "missed_window": "skip"}`)
	if job.Priority != belfry.PriorityLow || job.Overlap != "skip" || job.RetryBackoff != "fixed" || job.RetryDelays != "" || job.RetryOn != "" || job.MissedWindow != "skip" || job.MaxMissed != 12 {
		t.Errorf("after the change the job is %+v", job)
	}
	s.want(http.StatusOK, &job, "PATCH", "/api/v1/jobs/settle", `{"priority": null}`)
	if job.Priority != belfry.PriorityNormal {
		t.Errorf("null made the priority %q", job.Priority)
	}
}

func TestPrioritiesInAnyForm(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	for given, want := range map[string]string{
		`"high"`: "high", `"HIGH"`: "high", `9`: "high", `"9"`: "high", `"normal"`: "normal", `5`: "normal", `"low"`: "low", `1`: "low", `0`: "0", `7`: "7", `"3"`: "3",
	} {
		a := s.want(http.StatusCreated, nil, "POST", "/api/v1/jobs", `{"schedule": "@daily", "payload": {"url": "https://example.com"}, "priority": `+given+`}`)
		if !strings.Contains(a.body, `"priority":"`+want+`"`) {
			t.Errorf("%s: got %s, want %s", given, a.body, want)
		}
		if err := c.agrees("POST", "/api/v1/jobs", "", "", a); err != nil {
			t.Error(err)
		}
	}
	for _, given := range []string{`10`, `-1`, `4.5`, `"highest"`, `true`, `["high"]`, `{}`} {
		p := s.ask("POST", "/api/v1/jobs", `{"schedule": "@daily", "payload": {"url": "https://example.com"}, "priority": `+given+`}`).problem(t)
		if p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{"priority"}) {
			t.Errorf("%s: got %+v", given, p)
		}
	}
}

func TestWrongPoliciesAreToldAllAtOnce(t *testing.T) {
	s := serve(t)
	p := s.ask("POST", "/api/v1/jobs", `{"schedule": "@daily", "payload": {"url": "https://example.com"}, "overlap": "que", "max_queued": -1, "missed_window": "run_al",
 "max_missed": 1001, "catch_up_window_seconds": -5, "priority": "urgent", "retry_on": "some", "retry_backoff": "list", "retention_days": 40000}`).problem(t)
	want := []string{"catch_up_window_seconds", "max_missed", "max_queued", "missed_window", "overlap", "priority", "retention_days", "retry_on"}
	for _, field := range want {
		if !slices.Contains(p.fields(), field) {
			t.Errorf("%s is not among the faults %v", field, p.Errors)
		}
	}
	if !slices.ContainsFunc(p.fields(), func(f string) bool { return f == "retry_backoff" || f == "retry_delays" }) {
		t.Errorf("a list without delays is no fault in %v", p.Errors)
	}
}
