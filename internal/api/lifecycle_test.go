package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestCancelQueuedRun(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.createSendRuns(1)
	ids, _ := s.listIDs("/api/v1/runs?status=ready")
	var run belfry.Run
	for range 2 { // Repeating it changes nothing.
		s.expectDocumented(c, 200, &run, "POST", "/api/v1/runs/"+ids[0]+"/cancel", "")
		if run.ID.String() != ids[0] || run.Status != "cancelled" {
			t.Errorf("got %+v", run)
		}
	}
	if got, _ := s.listIDs("/api/v1/runs?status=CANCELLED"); !slices.Equal(got, ids) {
		t.Errorf("cancelled are %v, want %v", got, ids)
	}
	if left := s.claimAll(s.registerWorker()); len(left) != 0 {
		t.Errorf("a worker gets %+v", left)
	}
	s.expectDocumented(c, 404, nil, "POST", "/api/v1/runs/"+unknownID+"/cancel", "")
	s.expectDocumented(c, 404, nil, "POST", "/api/v1/runs/send/cancel", "")
	s.expectDocumented(c, 422, nil, "POST", "/api/v1/runs/"+ids[0]+"/cancel", `{"reason": "x"}`)
}

func TestCancelRunningRunStopsItsWorker(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.createSendRuns(2)
	worker := s.registerWorker()
	runs := s.claimAll(worker)
	if len(runs) != 2 {
		t.Fatalf("got %+v", runs)
	}
	var now belfry.Run
	path := "/api/v1/runs/" + runs[0].ID.String()
	if s.expectDocumented(c, 202, &now, "POST", path+"/cancel", ""); now.Status != "running" {
		t.Errorf("got %+v", now)
	}
	var heartbeat belfry.HeartbeatReply
	s.expectDocumented(c, 200, &heartbeat, "POST", worker+"/heartbeat", `{"slots": 2, "handlers": ["send"]}`)
	if want := []belfry.HeldAttempt{{RunID: runs[0].ID, Attempt: 1}}; !slices.Equal(heartbeat.Cancel, want) {
		t.Errorf("the worker is to cancel %v, want %v", heartbeat.Cancel, want)
	}
	s.finishRun(worker, runs[0], `"outcome": "cancelled", "error": "somebody cancelled it"`)
	if s.expectDocumented(c, 200, &now, "POST", path+"/cancel", ""); now.Status != "cancelled" {
		t.Errorf("got %+v", now)
	}
	s.finishRun(worker, runs[1], `"outcome": "succeeded"`)
	if p := s.expectDocumented(c, 409, nil, "POST", "/api/v1/runs/"+runs[1].ID.String()+"/cancel", "").problem(t); !strings.Contains(p.Detail, "succeeded") {
		t.Errorf("got %+v", p)
	}
}

func TestCancelJobPlansNothing(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.createSendRuns(2)
	for range 2 {
		var job belfry.Job
		a := s.expectDocumented(c, 200, &job, "POST", "/api/v1/jobs/send/cancel", "")
		if job.Status != belfry.StatusCancelled || job.NextRunAt != nil || a.header.Get("ETag") == "" {
			t.Errorf("got %s", a.body)
		}
	}
	if got, _ := s.listIDs("/api/v1/runs?status=cancelled"); len(got) != 2 {
		t.Errorf("cancelled are %v", got)
	}
	s.expectDocumented(c, 404, nil, "POST", "/api/v1/jobs/nobody/cancel", "")
	s.expectDocumented(c, 200, nil, "PATCH", "/api/v1/jobs/send", `{"schedule": "@daily"}`)
}

func TestDeleteJobWithRunsAndHistory(t *testing.T) {
	for _, tt := range []struct {
		query              string
		cancel, kept, left int // attempts to cancel, records of runs, and of those the running ones
	}{
		{"", 0, 2, 1},
		{"?runs=finish&history=keep", 0, 2, 1},
		{"?runs=CANCEL", 1, 2, 1},
	} {
		s := newService(t)
		c := newContract(t, s)
		s.createSendRuns(2)
		worker := s.registerWorker()
		runs := s.claimAll(worker)
		s.finishRun(worker, runs[0], `"outcome": "succeeded"`)
		s.expectDocumented(c, 204, nil, "DELETE", "/api/v1/jobs/send"+tt.query, "")
		var heartbeat belfry.HeartbeatReply
		s.expect(http.StatusOK, &heartbeat, "POST", worker+"/heartbeat", `{"slots": 2, "handlers": ["send"]}`)
		if len(heartbeat.Cancel) != tt.cancel {
			t.Errorf("%s: the worker is to cancel %v", tt.query, heartbeat.Cancel)
		}
		all, _ := s.listIDs("/api/v1/runs")
		running, _ := s.listIDs("/api/v1/runs?status=running")
		if len(all) != tt.kept || len(running) != tt.left {
			t.Errorf("%s: %d records are left, %d of them running", tt.query, len(all), len(running))
		}
	}
	s := newService(t)
	s.createSendRuns(1)
	worker := s.registerWorker()
	s.finishRun(worker, s.claimAll(worker)[0], `"outcome": "succeeded"`)
	s.expect(http.StatusNoContent, nil, "DELETE", "/api/v1/jobs/send?history=delete", "")
	if _, err := s.store.Prune(t.Context(), 90*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if all, _ := s.listIDs("/api/v1/runs"); len(all) != 0 {
		t.Errorf("%v are left of the deleted history", all)
	}
	s.create(validJob)
	p := s.send("DELETE", "/api/v1/jobs/report?runs=stop&history=no&colour=red", "").problem(t)
	if got := p.fields(); p.Status != 400 || !slices.Equal(got, []string{"colour", "runs", "history"}) {
		t.Errorf("got %+v", p)
	}
}

func TestResumeCatchesUp(t *testing.T) {
	for _, tt := range []struct {
		query, body, status string // of the latest record
	}{
		{"", "", "skipped"}, {"", `{"catch_up": false}`, "skipped"},
		{"", `{"catch_up": true}`, "ready"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t)
			c := newContract(t, s)
			s.create(`{"name": "hourly", "schedule": "@hourly", "payload": {"url": "https://example.com"}}`)
			s.expectDocumented(c, 200, nil, "POST", "/api/v1/jobs/hourly/pause", "")
			time.Sleep(3 * time.Hour)
			s.expectDocumented(c, 200, nil, "POST", "/api/v1/jobs/hourly/resume"+tt.query, tt.body)
			var runs []struct{ Status, Reason string }
			s.expect(http.StatusOK, &runs, "GET", "/api/v1/jobs/hourly/runs", "")
			if len(runs) == 0 || runs[0].Status != tt.status {
				t.Errorf("%s %s: the records are %+v", tt.query, tt.body, runs)
			}
		})
	}
	s := newService(t)
	s.create(validJob)
	for _, tt := range []struct {
		query, body string
		status      int
	}{
		{"?catch_up=true", "", 400}, {"?catchup=true", "", 400},
		{"", `{"catch_up": "true"}`, 422}, {"", `{"catchup": true}`, 422},
	} {
		if p := s.send("POST", "/api/v1/jobs/report/resume"+tt.query, tt.body).problem(t); p.Status != tt.status || len(p.Errors) != 1 {
			t.Errorf("%s %s: got %+v", tt.query, tt.body, p)
		}
	}
}

func TestArchivedOneOffCanBeShownButNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := newContract(t, s)
		job := s.create(`{"name": "once", "type": "worker", "handler": "send", "schedule": "` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`)
		time.Sleep(time.Hour)
		s.fireDue()
		worker := s.registerWorker()
		s.finishRun(worker, s.claimAll(worker)[0], `"outcome": "succeeded", "output": "done"`)
		for _, ref := range []string{"once", job.ID.String()} {
			path := "/api/v1/jobs/" + ref
			var ended belfry.Job
			s.expectDocumented(c, 200, &ended, "GET", path, "")
			if ended.ID != job.ID || ended.Status != belfry.StatusCompleted || ended.NextRunAt != nil || ended.EndedAt == nil {
				t.Errorf("%s: got %+v", ref, ended)
			}
			for _, more := range []string{"/runs", "/history", "/revisions", "/why"} {
				s.expectDocumented(c, 200, nil, "GET", path+more, "")
			}
			if runs, _ := s.listIDs(path + "/runs"); len(runs) != 1 {
				t.Errorf("%s: the runs are %v", ref, runs)
			}
			for _, change := range [][3]string{
				{"PATCH", "", `{"max_retries": 1}`}, {"POST", "/pause", ""}, {"POST", "/resume", ""}, {"POST", "/cancel", ""}, {"POST", "/trigger", ""},
				{"POST", "/backfill", `{"from": "1999-01-01T00:00:00Z"}`},
			} {
				if p := s.expectDocumented(c, 409, nil, change[0], path+change[1], change[2]).problem(t); !strings.Contains(p.Detail, "ended") {
					t.Errorf("%s %s: got %q", change[0], change[1], p.Detail)
				}
			}
		}
		if ids, _ := s.listIDs("/api/v1/jobs"); len(ids) != 0 {
			t.Errorf("the list has %v", ids)
		}
		if ids, _ := s.listIDs("/api/v1/jobs?status=completed"); !slices.Equal(ids, []string{job.ID.String()}) {
			t.Errorf("completed are %v", ids)
		}
		s.expectDocumented(c, 204, nil, "DELETE", "/api/v1/jobs/"+job.ID.String(), "")
		s.expectDocumented(c, 404, nil, "GET", "/api/v1/jobs/"+job.ID.String(), "")
		// Its name is free.
		if again := s.create(`{"name": "once", "type": "worker", "handler": "send", "schedule": "@daily"}`); again.ID == job.ID {
			t.Error("the job came back")
		}
	})
}
