package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestBackfillRunsPastOccurrences(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(`{"name": "hourly", "schedule": "@hourly", "payload": {"url": "https://example.com"}}`)
	const path = "/api/v1/jobs/hourly/backfill"
	var dry, first, again, rest belfry.BackfillResult
	s.expectDocumented(c, 200, &dry, "POST", path, `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T05:00:00+01:00", "dry_run": true}`)
	if dry.Count != 5 || len(dry.Instants) != 5 || dry.RunIDs != nil || dry.More || !dry.Instants[0].Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("got %+v", dry)
	}
	if got, _ := s.listIDs("/api/v1/runs"); len(got) != 0 {
		t.Fatalf("a dry run made %v", got)
	}
	part := `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T04:00:00Z", "limit": 3}`
	s.expectDocumented(c, 202, &first, "POST", path, part, "Idempotency-Key: k")
	s.expectDocumented(c, 202, &again, "POST", path, strings.ReplaceAll(part, " ", ""), "Idempotency-Key: k")
	if first.Count != 3 || len(first.RunIDs) != 3 || !first.More || !first.NextFrom.Equal(dry.Instants[3]) || !slices.Equal(first.RunIDs, again.RunIDs) {
		t.Errorf("got %+v and %+v", first, again)
	}
	s.expectDocumented(c, 422, nil, "POST", path, `{"from": "2026-01-02T00:00:00Z"}`, "Idempotency-Key: k")
	s.expectDocumented(c, 202, &rest, "POST", path, fmt.Sprintf(`{"from": %q, "to": "2026-01-01T04:00:00Z"}`, first.NextFrom.Format(time.RFC3339)))
	s.fireTriggers()
	var runs []belfry.Run
	s.expect(http.StatusOK, &runs, "GET", "/api/v1/jobs/hourly/runs", "")
	if len(runs) != 5 {
		t.Fatalf("got %d runs", len(runs))
	}
	ready := 0
	for i, run := range runs { // the latest first
		if run.ID != append(first.RunIDs, rest.RunIDs...)[4-i] || run.Kind != "backfill" || !run.ScheduledAt.Equal(dry.Instants[4-i]) {
			t.Errorf("run %d is %+v", i, run)
		}
		if run.Status == "ready" {
			ready++
		}
	}
	if ready != 1 {
		t.Errorf("%d runs are ready at once: %+v", ready, runs)
	}
}

func TestBackfillErrors(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(validJob)
	s.create(`{"name": "once", "schedule": "2099-01-01T00:00:00Z", "payload": {"url": "https://example.com"}}`)
	for body, field := range map[string]string{
		`{}`:                               "from",
		`{"from": null}`:                   "from",
		`{"from": 5}`:                      "from",
		`{"from": "2026-01-01 00:00"}`:     "from",
		`{"from": "2099-01-01T00:00:00Z"}`: "from",
		`{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}`: "to",
		`{"from": "2026-01-01T00:00:00Z", "limit": 1001}`:                "limit",
		`{"from": "2026-01-01T00:00:00Z", "limit": 0}`:                   "limit",
		`{"from": "2026-01-01T00:00:00Z", "dry_run": 1}`:                 "dry_run",
		`{"from": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00Z"}`: "until",
	} {
		if p := s.expectDocumented(c, 422, nil, "POST", "/api/v1/jobs/report/backfill", body).problem(t); !slices.Equal(p.fields(), []string{field}) {
			t.Errorf("%s: got %+v", body, p.Errors)
		}
	}
	s.expectDocumented(c, 409, nil, "POST", "/api/v1/jobs/once/backfill", `{"from": "2026-01-01T00:00:00Z"}`)
	s.expectDocumented(c, 404, nil, "POST", "/api/v1/jobs/nobody/backfill", `{"from": "2026-01-01T00:00:00Z"}`)
}
