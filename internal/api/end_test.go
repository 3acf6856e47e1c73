package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

// claim gives a worker as many runs as it gets of the lane default/send.
func (s *service) claim(worker string) []belfry.ClaimedRun {
	s.t.Helper()
	var c claims
	s.want(http.StatusOK, &c, "POST", worker+"/claim", `{"lanes": ["default/send"], "limit": 100, "wait_seconds": 0}`)
	return c.Runs
}

func TestAQueuedRunIsCancelledAtOnce(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.queue(1)
	ids, _ := s.follow("/api/v1/runs?status=ready")
	var run struct{ ID, Status string }
	for range 2 { // Asking again changes nothing.
		s.agreed(c, 200, &run, "POST", "/api/v1/runs/"+ids[0]+"/cancel", "")
		if run.ID != ids[0] || run.Status != "cancelled" {
			t.Errorf("got %+v", run)
		}
	}
	if got, _ := s.follow("/api/v1/runs?status=CANCELLED"); !slices.Equal(got, ids) {
		t.Errorf("cancelled are %v, want %v", got, ids)
	}
	if left := s.claim(s.worker()); len(left) != 0 {
		t.Errorf("a worker gets %+v", left)
	}
	s.agreed(c, 404, nil, "POST", "/api/v1/runs/"+unknownID+"/cancel", "")
	s.agreed(c, 404, nil, "POST", "/api/v1/runs/send/cancel", "")
	s.agreed(c, 422, nil, "POST", "/api/v1/runs/"+ids[0]+"/cancel", `{"reason": "x"}`)
}

func TestTheWorkerOfARunningRunIsToldToEndIt(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.queue(2)
	worker := s.worker()
	runs := s.claim(worker)
	if len(runs) != 2 {
		t.Fatalf("got %+v", runs)
	}
	var now struct{ Status string }
	path := "/api/v1/runs/" + runs[0].ID.String()
	if s.agreed(c, 202, &now, "POST", path+"/cancel", ""); now.Status != "running" {
		t.Errorf("got %+v", now)
	}
	var orders struct{ Cancel []belfry.HeldAttempt }
	s.agreed(c, 200, &orders, "POST", worker+"/heartbeat", `{"slots": 2, "lanes": ["default/send"]}`)
	if want := []belfry.HeldAttempt{{RunID: runs[0].ID, Attempt: 1}}; !slices.Equal(orders.Cancel, want) {
		t.Errorf("the worker is to cancel %v, want %v", orders.Cancel, want)
	}
	s.finish(worker, runs[0], `"outcome": "cancelled", "error": "somebody cancelled it"`)
	if s.agreed(c, 200, &now, "POST", path+"/cancel", ""); now.Status != "cancelled" {
		t.Errorf("got %+v", now)
	}
	s.finish(worker, runs[1], `"outcome": "succeeded"`)
	if p := s.agreed(c, 409, nil, "POST", "/api/v1/runs/"+runs[1].ID.String()+"/cancel", "").problem(t); !strings.Contains(p.Detail, "succeeded") {
		t.Errorf("got %+v", p)
	}
}

func TestAHandlerSaysWhatToDoAboutItsFailure(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.ask("PUT", "/api/v1/jobs/send", `{"type": "worker", "schedule": "@yearly", "overlap": "parallel", "max_retries": 5, "retry_backoff": "immediate"}`)
	s.queueAgain(3)
	worker := s.worker()
	runs := s.claim(worker)
	if len(runs) != 3 {
		t.Fatalf("got %+v", runs)
	}
	start := time.Now()
	s.finish(worker, runs[0], `"outcome": "failed", "error": "busy", "retry_after_seconds": 3600`)
	s.finish(worker, runs[1], `"outcome": "failed", "error": "no such customer", "permanent": true`)
	s.finish(worker, runs[2], `"outcome": "snoozed", "retryAfterSeconds": 7200`)
	for i, want := range []struct {
		status, reason, outcome string
		after                   time.Duration
	}{{"retry", "", "failed", time.Hour}, {"dead", "permanent", "failed", 0}, {"retry", "", "snoozed", 2 * time.Hour}} {
		var run struct {
			Status, Reason string
			ReadyAt        time.Time `json:"ready_at"`
			Attempts       []belfry.Attempt
		}
		a := s.agreed(c, 200, &run, "GET", "/api/v1/runs/"+runs[i].ID.String(), "")
		if run.Status != want.status || run.Reason != want.reason || len(run.Attempts) != 1 || string(run.Attempts[0].Outcome) != want.outcome {
			t.Errorf("%d: got %s", i, a.body)
		}
		if late := run.ReadyAt.Sub(start); want.after > 0 && (late < want.after || late > want.after+time.Minute) {
			t.Errorf("%d: it is ready after %v, want %v", i, late, want.after)
		}
	}
	p := s.ask("POST", worker+"/finish", fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "failed", "retry_after_seconds": -1, "permanent": 1}]}`, runs[0].ID, runs[0].Token)).problem(t)
	if got := p.fields(); p.Status != 422 || !slices.Equal(got, []string{"results[0].permanent", "results[0].retry_after_seconds"}) {
		t.Errorf("got %+v", p)
	}
}

// queueAgain asks for runs of the job send as it is.
func (s *service) queueAgain(runs int) {
	s.t.Helper()
	for range runs {
		s.want(http.StatusAccepted, nil, "POST", "/api/v1/jobs/send/trigger", "")
		s.turn()
	}
}

func TestACancelledJobPlansNothing(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.queue(2)
	for range 2 {
		var job belfry.Job
		a := s.agreed(c, 200, &job, "POST", "/api/v1/jobs/send/cancel", "")
		if job.Status != belfry.StatusCancelled || job.NextRunAt != nil || a.header.Get("ETag") == "" {
			t.Errorf("got %s", a.body)
		}
	}
	if got, _ := s.follow("/api/v1/runs?status=cancelled"); len(got) != 2 {
		t.Errorf("cancelled are %v", got)
	}
	s.agreed(c, 404, nil, "POST", "/api/v1/jobs/nobody/cancel", "")
	s.agreed(c, 200, nil, "PATCH", "/api/v1/jobs/send", `{"schedule": "@daily"}`)
}

func TestADeletionDecidesAboutRunsAndHistory(t *testing.T) {
	for _, tt := range []struct {
		query              string
		orders, kept, left int // orders to cancel, records of runs, and of those the ones alive
	}{
		{"", 0, 2, 1},
		{"?runs=finish&history=keep", 0, 2, 1},
		{"?runs=CANCEL", 1, 2, 1},
	} {
		s := serve(t)
		c := contractOf(t, s)
		s.queue(2)
		worker := s.worker()
		runs := s.claim(worker)
		s.finish(worker, runs[0], `"outcome": "succeeded"`)
		s.agreed(c, 204, nil, "DELETE", "/api/v1/jobs/send"+tt.query, "")
		var orders struct{ Cancel []belfry.HeldAttempt }
		s.want(http.StatusOK, &orders, "POST", worker+"/heartbeat", `{"slots": 2, "lanes": ["default/send"]}`)
		if len(orders.Cancel) != tt.orders {
			t.Errorf("%s: the worker is to cancel %v", tt.query, orders.Cancel)
		}
		all, _ := s.follow("/api/v1/runs")
		running, _ := s.follow("/api/v1/runs?status=running")
		if len(all) != tt.kept || len(running) != tt.left {
			t.Errorf("%s: %d records are left, %d of them alive", tt.query, len(all), len(running))
		}
	}
	s := serve(t)
	s.queue(1)
	worker := s.worker()
	s.finish(worker, s.claim(worker)[0], `"outcome": "succeeded"`)
	s.want(http.StatusNoContent, nil, "DELETE", "/api/v1/jobs/send?history=delete", "")
	if _, err := s.store.Prune(t.Context(), 90*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if all, _ := s.follow("/api/v1/runs"); len(all) != 0 {
		t.Errorf("%v are left of what was to go", all)
	}
	s.create(validJob)
	p := s.ask("DELETE", "/api/v1/jobs/report?runs=stop&history=no&colour=red", "").problem(t)
	if got := p.fields(); p.Status != 400 || !slices.Equal(got, []string{"colour", "runs", "history"}) {
		t.Errorf("got %+v", p)
	}
}

func TestResumingMayMakeUpForThePause(t *testing.T) {
	for _, tt := range []struct {
		query, body, kind string // of the latest record
	}{
		{"", "", "skipped"}, {"", `{"catch_up": false}`, "skipped"}, {"?catch_up=false", "", "skipped"},
		{"", `{"catch_up": true}`, "ready"}, {"?catch_up=true", "", "ready"}, {"?catch_up=true", `{"catch_up": true}`, "ready"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t)
			c := contractOf(t, s)
			s.create(`{"name": "hourly", "schedule": "@hourly", "payload": {"url": "https://example.com"}}`)
			s.agreed(c, 200, nil, "POST", "/api/v1/jobs/hourly/pause", "")
			time.Sleep(3 * time.Hour)
			s.agreed(c, 200, nil, "POST", "/api/v1/jobs/hourly/resume"+tt.query, tt.body)
			var runs []struct{ Status, Reason string }
			s.want(http.StatusOK, &runs, "GET", "/api/v1/jobs/hourly/runs", "")
			if len(runs) == 0 || runs[0].Status != tt.kind {
				t.Errorf("%s %s: the records are %+v", tt.query, tt.body, runs)
			}
		})
	}
	s := serve(t)
	s.create(validJob)
	for _, tt := range []struct {
		query, body string
		status      int
	}{
		{"?catch_up=yes", "", 400}, {"?catchup=true", "", 400}, {"?catch_up=true&catch_up=true", "", 400},
		{"", `{"catch_up": "true"}`, 422}, {"?catch_up=true", `{"catch_up": false}`, 422}, {"", `{"catchup": true}`, 422},
	} {
		if p := s.ask("POST", "/api/v1/jobs/report/resume"+tt.query, tt.body).problem(t); p.Status != tt.status || len(p.Errors) != 1 {
			t.Errorf("%s %s: got %+v", tt.query, tt.body, p)
		}
	}
}

func TestAOneOffThatHasEndedCanStillBeLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		c := contractOf(t, s)
		job := s.create(`{"name": "once", "type": "worker", "handler": "send", "schedule": "` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`)
		time.Sleep(time.Hour)
		s.tick()
		worker := s.worker()
		s.finish(worker, s.claim(worker)[0], `"outcome": "succeeded", "output": "done"`)
		for _, ref := range []string{"once", job.ID.String()} {
			path := "/api/v1/jobs/" + ref
			var ended belfry.Job
			s.agreed(c, 200, &ended, "GET", path, "")
			if ended.ID != job.ID || ended.Status != belfry.StatusCompleted || ended.NextRunAt != nil || ended.EndedAt == nil {
				t.Errorf("%s: got %+v", ref, ended)
			}
			for _, more := range []string{"/runs", "/history", "/revisions", "/why"} {
				s.agreed(c, 200, nil, "GET", path+more, "")
			}
			if runs, _ := s.follow(path + "/runs"); len(runs) != 1 {
				t.Errorf("%s: the runs are %v", ref, runs)
			}
			for _, change := range [][3]string{
				{"PATCH", "", `{"max_retries": 1}`}, {"POST", "/pause", ""}, {"POST", "/resume", ""}, {"POST", "/cancel", ""}, {"POST", "/trigger", ""},
				{"POST", "/backfill", `{"from": "1999-01-01T00:00:00Z"}`},
			} {
				if p := s.agreed(c, 409, nil, change[0], path+change[1], change[2]).problem(t); !strings.Contains(p.Detail, "ended") {
					t.Errorf("%s %s: got %q", change[0], change[1], p.Detail)
				}
			}
		}
		if ids, _ := s.follow("/api/v1/jobs"); len(ids) != 0 {
			t.Errorf("the list has %v", ids)
		}
		if ids, _ := s.follow("/api/v1/jobs?status=completed"); !slices.Equal(ids, []string{job.ID.String()}) {
			t.Errorf("completed are %v", ids)
		}
		s.agreed(c, 204, nil, "DELETE", "/api/v1/jobs/"+job.ID.String(), "")
		s.agreed(c, 404, nil, "GET", "/api/v1/jobs/"+job.ID.String(), "")
		// Its name is free.
		if again := s.create(`{"name": "once", "type": "worker", "handler": "send", "schedule": "@daily"}`); again.ID == job.ID {
			t.Error("the job came back")
		}
	})
}
