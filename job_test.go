package belfry

import (
	"encoding/json"
	"testing"
	"time"
)

func TestStatusOf(t *testing.T) {
	none, now, later := LiveRuns{}, nine, nine.Add(time.Second)
	for _, tt := range []struct {
		name  string
		state JobState
		next  *time.Time
		live  LiveRuns
		last  RunStatus
		want  JobStatus
	}{
		{"a new job waits for its first occurrence", JobActive, &later, none, "", StatusScheduled},
		{"after a success it waits for the next", JobActive, &later, none, RunSucceeded, StatusScheduled},
		{"after a dead letter too", JobActive, &later, none, RunDead, StatusScheduled},
		{"a job that is due waits for a worker", JobActive, &now, none, RunSucceeded, StatusQueued},
		{"a ready run waits for a worker", JobActive, &later, LiveRuns{Waiting: 1}, "", StatusQueued},
		{"a one-off that is fired is not over", JobActive, nil, LiveRuns{Waiting: 1}, "", StatusQueued},
		{"a run is held by a worker", JobActive, &later, LiveRuns{Running: 1}, RunDead, StatusRunning},
		{"running beats queued", JobActive, nil, LiveRuns{Running: 1, Waiting: 3}, "", StatusRunning},
		{"paused beats all", JobPaused, &later, LiveRuns{Running: 1, Waiting: 1}, RunDead, StatusPaused},
		{"a paused job has nothing planned", JobPaused, nil, none, RunSucceeded, StatusPaused},
		{"nothing planned, last run succeeded", JobActive, nil, none, RunSucceeded, StatusCompleted},
		{"nothing planned, last run dead", JobActive, nil, none, RunDead, StatusFailed},
		{"nothing planned, last run discarded", JobActive, nil, none, RunDiscarded, StatusFailed},
		{"nothing planned, last run cancelled", JobActive, nil, none, RunCancelled, StatusCancelled},
		{"nothing planned, last occurrence skipped", JobActive, nil, none, RunSkipped, StatusCancelled},
		{"nothing planned, nothing ever run", JobActive, nil, none, "", StatusCancelled},
	} {
		if got := StatusOf(tt.state, tt.next, nine, tt.live, tt.last); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestJobJSONIsFlat(t *testing.T) {
	next := nine.Add(time.Hour)
	spec := DefaultSpec()
	spec.Type, spec.Schedule = TypeHTTP, "0 * * * *"
	job := Job{
		ID: jobA, Namespace: "default", Revision: 2, State: JobActive,
		Manifest: Manifest{
			Name: "hello", Tags: []string{"a", "b"}, Spec: spec, Status: StatusScheduled,
			Payload: json.RawMessage(`{"url":"https://example.com/hook"}`),
		},
		NextRunAt: &next, CreatedAt: nine, UpdatedAt: nine.Add(time.Microsecond),
	}
	const want = `{
  "job_id": "0190b0f2-0001-7000-8000-0000000000aa",
  "namespace": "default",
  "name": "hello",
  "tags": [
    "a",
    "b"
  ],
  "type": "http",
  "schedule": "0 * * * *",
  "missed_window": "run_once",
  "queue": "default",
  "priority": "normal",
  "overlap": "skip",
  "timeout_seconds": 60,
  "max_retries": 3,
  "retry_backoff": "exponential",
  "retry_base_seconds": 5,
  "retry_cap_seconds": 1800,
  "retry_jitter": 0.25,
  "payload": {
    "url": "https://example.com/hook"
  },
  "status": "scheduled",
  "revision": 2,
  "next_run_at": "2026-03-01T10:00:00Z",
  "last_run_at": null,
  "created_at": "2026-03-01T09:00:00Z",
  "updated_at": "2026-03-01T09:00:00.000001Z"
}`
	got, err := json.MarshalIndent(job, "", "  ")
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}
