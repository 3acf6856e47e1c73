package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// Every answer with a job has its last result, as documented, and no secret of its payload.
func TestJobLastResult(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	began := s.store.Now().Add(-time.Second)
	idle := s.create(`{"name": "idle", "schedule": "@yearly", "type": "worker", "handler": "send"}`)
	if a := s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs/idle", ""); idle.LastResult != nil || strings.Contains(a.body, "last_result") {
		t.Errorf("a job without a run is %s", a.body)
	}
	runs := s.createDeadLetters("a", `"error": "no paper"`, `"error": "no ink"`)
	want := belfry.LastResult{Status: belfry.ResultDead, Failures: 1, Error: "no ink"}
	check := func(what string, r *belfry.LastResult) {
		t.Helper()
		if r == nil || r.RunID.String() != runs[1] || r.At.Before(began) {
			t.Errorf("%s: the last result is %+v", what, r)
			return
		}
		got := *r
		if got.RunID, got.At = (belfry.ID{}), (time.Time{}); got != want {
			t.Errorf("%s: the last result is %+v, want %+v", what, got, want)
		}
	}
	var job belfry.Job
	s.expectDocumented(c, 200, &job, "GET", "/api/v1/jobs/a", "")
	check("a job", job.LastResult)
	var history belfry.JobHistory
	s.expectDocumented(c, 200, &history, "GET", "/api/v1/jobs/a/history", "")
	check("its history", history.LastResult)
	var list []belfry.Job
	s.expectDocumented(c, 200, &list, "GET", "/api/v1/jobs?status=failing", "")
	if len(list) != 0 {
		t.Errorf("failing before it was found: %+v", list)
	}
	failures, err := s.store.Failures(t.Context(), began, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.SetFailing(t.Context(), failures); err != nil {
		t.Fatal(err)
	}
	want.Failures = 2
	a := s.expectDocumented(c, 200, &list, "GET", "/api/v1/jobs?status=failing", "")
	if len(list) != 1 || list[0].Name != "a" || list[0].Status != belfry.StatusScheduled || strings.Contains(a.body, "s3cr3t") {
		t.Fatalf("the failing jobs are %s", a.body)
	}
	check("a list", list[0].LastResult)
	var bulk belfry.BulkResult
	s.expectDocumented(c, 200, &bulk, "POST", "/api/v1/jobs/actions", `{"action": "retry", "filter": {"status": "failing"}}`)
	if bulk.Matched != 1 || bulk.Done != 1 {
		t.Errorf("a bulk action on failing jobs: %+v", bulk)
	}
	refused := s.send("POST", "/api/v1/jobs", `{"name": "b", "schedule": "@yearly", "type": "worker", "handler": "send", "status": "failing"}`)
	if refused.status != http.StatusUnprocessableEntity || !strings.Contains(refused.body, `"field":"status"`) {
		t.Errorf("a job that is to be failing: %d %s", refused.status, refused.body)
	}
}
