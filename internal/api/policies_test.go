package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

// allPolicies is a job that differs from the default in every policy.
const allPolicies = `{"name": "settle", "schedule": "*/10 * * * *", "payload": {"url": "https://example.com/hook"}, "overlap": "QUEUE", "maxQueued": 5,
 "missed_window": "RUN_ALL", "max_missed": 12, "catchUpWindowSeconds": 7200, "priority": 9, "retry_on": "Server_Errors", "retry_delays": [5, 30.5, 120], "retention_days": 30}`

func TestPoliciesAreStoredAndShown(t *testing.T) {
	s := newService(t)
	want := belfry.DefaultSpec()
	want.Type, want.Schedule, want.Timezone = belfry.TypeHTTP, "*/10 * * * *", "UTC"
	want.Overlap, want.MaxQueued, want.MissedWindow, want.MaxMissed, want.CatchUpSeconds = belfry.OverlapQueue, 5, belfry.MissedRunAll, 12, 7200
	want.Priority, want.RetryOn, want.RetryBackoff, want.RetryDelays, want.RetentionDays = belfry.PriorityHigh, belfry.RetryOnServerErrors, belfry.BackoffList, "5,30.5,120", 30
	expectSpec(t, want, s.create(allPolicies))
	var job belfry.Job
	a := s.expect(http.StatusOK, &job, "GET", "/api/v1/jobs/settle", "")
	expectSpec(t, want, job)
	for _, part := range []string{`"priority":"high"`, `"retry_delays":[5,30.5,120]`, `"catch_up_window_seconds":7200`} {
		if !strings.Contains(a.body, part) {
			t.Errorf("%s is not in %s", part, a.body)
		}
	}
	// A job can be sent back as it was shown, which changes nothing.
	job = belfry.Job{}
	s.expect(http.StatusOK, &job, "PUT", "/api/v1/jobs/settle", a.body)
	if expectSpec(t, want, job); job.Revision != 1 {
		t.Errorf("the revision became %d", job.Revision)
	}
	want.Priority, want.Overlap, want.RetryBackoff, want.RetryDelays, want.RetryOn, want.MissedWindow = belfry.PriorityLow, belfry.OverlapSkip, belfry.BackoffFixed, "", belfry.RetryOnAll, belfry.MissedSkip
	job = belfry.Job{}
	s.expect(http.StatusOK, &job, "PATCH", "/api/v1/jobs/settle", `{"priority": "low", "overlap": null, "retry_backoff": "fixed", "retry_on": "all", "missed_window": "skip"}`)
	expectSpec(t, want, job)
	want.Priority = belfry.PriorityNormal
	s.expect(http.StatusOK, &job, "PATCH", "/api/v1/jobs/settle", `{"priority": null}`)
	expectSpec(t, want, job)
}

func TestPrioritySpellings(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	for given, want := range map[string]string{
		`"high"`: "high", `"HIGH"`: "high", `9`: "high", `"9"`: "high", `"normal"`: "normal", `5`: "normal", `"low"`: "low", `1`: "low", `0`: "0", `7`: "7", `"3"`: "3",
	} {
		a := s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs", `{"schedule": "@daily", "payload": {"url": "https://example.com"}, "priority": `+given+`}`)
		if !strings.Contains(a.body, `"priority":"`+want+`"`) {
			t.Errorf("%s: got %s, want %s", given, a.body, want)
		}
		if err := c.check("POST", "/api/v1/jobs", "", "", a); err != nil {
			t.Error(err)
		}
	}
	for _, given := range []string{`10`, `-1`, `4.5`, `"highest"`, `true`, `["high"]`, `{}`} {
		p := s.send("POST", "/api/v1/jobs", `{"schedule": "@daily", "payload": {"url": "https://example.com"}, "priority": `+given+`}`).problem(t)
		if p.Status != http.StatusUnprocessableEntity || !slices.Equal(p.fields(), []string{"priority"}) {
			t.Errorf("%s: got %+v", given, p)
		}
	}
}
