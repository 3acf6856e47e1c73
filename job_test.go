package belfry

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestStatusOf(t *testing.T) {
	none := LiveRuns{}
	for _, tt := range []struct {
		name    string
		state   JobState
		planned bool
		live    LiveRuns
		last    RunStatus
		want    JobStatus
	}{
		{"a new job waits for its first occurrence", JobActive, true, none, "", StatusScheduled},
		{"after a success it waits for the next", JobActive, true, none, RunSucceeded, StatusScheduled},
		{"after a dead letter too", JobActive, true, none, RunDead, StatusScheduled},
		{"a ready run waits for a worker", JobActive, true, LiveRuns{Waiting: 1}, "", StatusQueued},
		{"a one-off that is fired is not over", JobActive, false, LiveRuns{Waiting: 1}, "", StatusQueued},
		{"a run is held by a worker", JobActive, true, LiveRuns{Running: 1}, RunDead, StatusRunning},
		{"running beats queued", JobActive, false, LiveRuns{Running: 1, Waiting: 3}, "", StatusRunning},
		{"paused beats all", JobPaused, true, LiveRuns{Running: 1, Waiting: 1}, RunDead, StatusPaused},
		{"a paused job has nothing planned", JobPaused, false, none, RunSucceeded, StatusPaused},
		{"nothing planned, last run succeeded", JobActive, false, none, RunSucceeded, StatusCompleted},
		{"nothing planned, last run dead", JobActive, false, none, RunDead, StatusFailed},
		{"nothing planned, last run discarded", JobActive, false, none, RunDiscarded, StatusFailed},
		{"nothing planned, last run cancelled", JobActive, false, none, RunCancelled, StatusCancelled},
		{"nothing planned, last occurrence skipped", JobActive, false, none, RunSkipped, StatusCancelled},
		{"nothing planned, nothing ever run", JobActive, false, none, "", StatusCancelled},
	} {
		if got := StatusOf(tt.state, tt.planned, tt.live, tt.last); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAJobIsFlatInJSON(t *testing.T) {
	next := nine.Add(time.Hour)
	spec := DefaultSpec()
	spec.Type, spec.Schedule = TypeHTTP, "0 * * * *"
	job := Job{
		ID: jobA, Namespace: "default", Name: "hello", Revision: 2,
		Status: StatusScheduled, State: JobActive, Spec: spec,
		Payload:   json.RawMessage(`{"url":"https://example.com/hook"}`),
		NextRunAt: &next, CreatedAt: nine, UpdatedAt: nine.Add(time.Microsecond),
	}
	const want = `{
  "id": "0190b0f2-0001-7000-8000-0000000000aa",
  "namespace": "default",
  "name": "hello",
  "revision": 2,
  "status": "scheduled",
  "type": "http",
  "schedule": "0 * * * *",
  "timezone": "UTC",
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

func TestASpecIsReadBackAsItWasStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		spec := Spec{
			Type: text.Draw(t, "type"), Schedule: text.Draw(t, "schedule"), Timezone: text.Draw(t, "timezone"), Queue: text.Draw(t, "queue"),
			MissedWindow:     rapid.SampledFrom([]MissedWindow{MissedSkip, MissedRunOnce, MissedRunAll}).Draw(t, "missed window"),
			MaxMissed:        rapid.IntRange(0, 1000).Draw(t, "missed"),
			CatchUpSeconds:   rapid.IntRange(0, 1<<30).Draw(t, "catch up"),
			Priority:         rapid.SampledFrom(priorities).Draw(t, "priority"),
			Overlap:          rapid.SampledFrom([]Overlap{OverlapSkip, OverlapQueue, OverlapParallel}).Draw(t, "overlap"),
			MaxQueued:        rapid.IntRange(0, 10_000).Draw(t, "queued"),
			TimeoutSeconds:   rapid.IntRange(0, 86400).Draw(t, "timeout"),
			MaxRetries:       rapid.IntRange(0, 100).Draw(t, "retries"),
			RetryOn:          rapid.SampledFrom([]RetryOn{RetryOnAll, RetryOnServerErrors}).Draw(t, "retry on"),
			RetryBackoff:     rapid.SampledFrom(backoffs).Draw(t, "backoff"),
			RetryDelays:      anyDelays(t),
			RetentionDays:    rapid.IntRange(0, 36500).Draw(t, "retention"),
			RetryBaseSeconds: rapid.Float64Range(0, 86400).Draw(t, "base"),
			RetryCapSeconds:  rapid.Float64Range(0, 604800).Draw(t, "cap"),
			RetryJitter:      rapid.Float64Range(0, 0.25).Draw(t, "jitter"),
		}
		raw, err := json.Marshal(spec)
		var back Spec
		if err != nil || json.Unmarshal(raw, &back) != nil || back != spec {
			t.Fatalf("%+v was stored as %s, %v and read as %+v", spec, raw, err, back)
		}
	})
}

func TestTheDefaultSpecSaysWhatAJobGets(t *testing.T) {
	spec := DefaultSpec()
	spec.Type = TypeHTTP
	if got := spec.Lane("any"); got != "default/http" {
		t.Errorf("the lane is %q", got)
	}
	if got := spec.Timeout(); got != time.Minute {
		t.Errorf("the timeout is %v", got)
	}
	want := Retry{Max: 3, Backoff: BackoffExponential, Base: 5 * time.Second, Cap: 30 * time.Minute, Jitter: 0.25}
	if got := spec.Retry(); got != want {
		t.Errorf("the retry policy is %+v, want %+v", got, want)
	}
	if spec.Timezone != "UTC" || spec.Overlap != OverlapSkip {
		t.Errorf("the zone is %q, the overlap %q", spec.Timezone, spec.Overlap)
	}
}

func TestPartsOfASecondCountInARetryPolicy(t *testing.T) {
	got := Spec{RetryBaseSeconds: belfry.Some(0.5), RetryCapSeconds: belfry.Some(1.25)}.Retry()
	if got.Base != 500*time.Millisecond || got.Cap != 1250*time.Millisecond {
		t.Errorf("got %v and %v", got.Base, got.Cap)
	}
}

func TestOverlapSaysWhichRunsFollowOneAnother(t *testing.T) {
	for _, tt := range []struct {
		spec   Spec
		serial bool
		queue  int
	}{
		{Spec{Overlap: OverlapSkip}, true, 0},
		{Spec{Overlap: OverlapSkip, MaxQueued: 7}, true, 0},
		{Spec{Overlap: OverlapQueue}, true, DefaultMaxQueued},
		{Spec{Overlap: OverlapQueue, MaxQueued: 7}, true, 7},
		{Spec{Overlap: OverlapParallel, MaxQueued: 7}, false, 0},
		{Spec{Overlap: "of a newer version", MaxQueued: 7}, true, 0},
		{Spec{}, true, 0},
	} {
		if serial, queue := tt.spec.Serial(), tt.spec.QueueLimit(); serial != tt.serial || queue != tt.queue {
			t.Errorf("%q with %d: serial %v with a queue of %d, want %v and %d", tt.spec.Overlap, tt.spec.MaxQueued, serial, queue, tt.serial, tt.queue)
		}
	}
}

func TestSoManyMissedOccurrencesAreMadeUpFor(t *testing.T) {
	for given, want := range map[int]int{0: DefaultMaxMissed, 1: 1, 100: 100, 5000: 5000} {
		if got := (Spec{MaxMissed: given}).MissedLimit(); got != want {
			t.Errorf("%d given: got %d, want %d", given, got, want)
		}
	}
}

func TestARetryPolicyIsThatOfItsSpec(t *testing.T) {
	spec := Spec{
		MaxRetries: belfry.Some(7), RetryOn: RetryOnServerErrors, RetryBackoff: BackoffList, RetryBaseSeconds: belfry.Some(1.0), RetryCapSeconds: belfry.Some(2.0), RetryJitter: belfry.Some(0.1), RetryDelays: "1,2.5",
	}
	want := Retry{Max: 7, On: RetryOnServerErrors, Backoff: BackoffList, Base: time.Second, Cap: 2 * time.Second, Jitter: 0.1, Delays: "1,2.5"}
	if got := spec.Retry(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func ExampleSpec_Lane() {
	fmt.Println(Spec{Queue: "reports", Type: TypeHTTP}.Lane("team-a"))
	fmt.Println(Spec{Queue: "reports", Type: TypeWorker, Handler: "send-invoice"}.Lane("team-a"))
	// Output:
	// reports/http
	// team-a:reports/send-invoice
}
