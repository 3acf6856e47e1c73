package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

type backfilled struct {
	Count    int
	Instants []time.Time
	Runs     []string
	More     bool
	NextFrom time.Time `json:"next_from"`
}

func TestPastOccurrencesAreRun(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.create(`{"name": "hourly", "schedule": "@hourly", "payload": {"url": "https://example.com"}}`)
	const path = "/api/v1/jobs/hourly/backfill"
	var dry, first, again, rest backfilled
	s.agreed(c, 200, &dry, "POST", path, `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T05:00:00+01:00", "dry_run": true}`)
	if dry.Count != 5 || len(dry.Instants) != 5 || dry.Runs != nil || dry.More || !dry.Instants[0].Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("got %+v", dry)
	}
	if got, _ := s.follow("/api/v1/runs"); len(got) != 0 {
		t.Fatalf("a dry run made %v", got)
	}
	part := `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T04:00:00Z", "limit": 3}`
	s.agreed(c, 202, &first, "POST", path, part, "Idempotency-Key: k")
	s.agreed(c, 202, &again, "POST", path, strings.ReplaceAll(part, " ", ""), "Idempotency-Key: k")
	if first.Count != 3 || len(first.Runs) != 3 || !first.More || !first.NextFrom.Equal(dry.Instants[3]) || !slices.Equal(first.Runs, again.Runs) {
		t.Errorf("got %+v and %+v", first, again)
	}
	s.agreed(c, 422, nil, "POST", path, `{"from": "2026-01-02T00:00:00Z"}`, "Idempotency-Key: k")
	s.agreed(c, 202, &rest, "POST", path, fmt.Sprintf(`{"from": %q, "to": "2026-01-01T04:00:00Z"}`, first.NextFrom.Format(time.RFC3339)))
	s.turn()
	var runs []struct {
		ID, Kind, Status string
		At               time.Time `json:"scheduled_at"`
	}
	s.want(http.StatusOK, &runs, "GET", "/api/v1/jobs/hourly/runs", "")
	if len(runs) != 5 {
		t.Fatalf("got %d runs", len(runs))
	}
	alive := 0
	for i, run := range runs { // the latest first
		if run.ID != append(first.Runs, rest.Runs...)[4-i] || run.Kind != "backfill" || !run.At.Equal(dry.Instants[4-i]) {
			t.Errorf("run %d is %+v", i, run)
		}
		if run.Status == "ready" {
			alive++
		}
	}
	if alive != 1 {
		t.Errorf("%d runs are ready at once: %+v", alive, runs)
	}
}

func TestWrongBackfillsAreRefused(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
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
		if p := s.agreed(c, 422, nil, "POST", "/api/v1/jobs/report/backfill", body).problem(t); !slices.Equal(p.fields(), []string{field}) {
			t.Errorf("%s: got %+v", body, p.Errors)
		}
	}
	s.agreed(c, 409, nil, "POST", "/api/v1/jobs/once/backfill", `{"from": "2026-01-01T00:00:00Z"}`)
	s.agreed(c, 404, nil, "POST", "/api/v1/jobs/nobody/backfill", `{"from": "2026-01-01T00:00:00Z"}`)
}
