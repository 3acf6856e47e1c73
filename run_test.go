package belfry

import (
	"encoding/json"
	"testing"
	"time"
)

func TestRunKey(t *testing.T) {
	const job = "0190b0f2-0001-7000-8000-0000000000aa"
	manual := RunID(jobA, KindManual, nine, jobB)
	for _, tt := range []struct {
		name string
		run  Run
		want string
	}{
		{"a scheduled run is its occurrence", Run{ID: jobB, JobID: jobA, Kind: KindScheduled, ScheduledAt: nine}, job + ":1772355600"},
		{"in whatever zone", Run{JobID: jobA, Kind: KindScheduled, ScheduledAt: nine.In(time.FixedZone("", -3600))}, job + ":1772355600"},
		{"in every attempt", Run{JobID: jobA, Kind: KindScheduled, ScheduledAt: nine, Attempt: 3, Token: NewToken()}, job + ":1772355600"},
		{"a manual run is one of its own", Run{ID: manual, JobID: jobA, Kind: KindManual, ScheduledAt: nine}, job + ":1772355600:" + manual.String()},
		{"and so is any other kind", Run{ID: jobB, JobID: jobA, Kind: "backfill", ScheduledAt: nine}, job + ":1772355600:" + jobB.String()},
	} {
		if got := tt.run.Key(); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestRunJSONHidesTokenAndPayload(t *testing.T) {
	run := Run{ID: jobA, JobID: jobB, Namespace: "default", Revision: 1, Kind: KindScheduled, Status: RunReady,
		ScheduledAt: nine, ReadyAt: nine, FiredAt: nine,
		Token: NewToken(), Payload: json.RawMessage(`{"secret":1}`), Spec: DefaultSpec(), DeadlineAt: nine, Report: Report{Output: []byte("x")}}
	const want = `{"run_id":"0190b0f2-0001-7000-8000-0000000000aa","job_id":"0190b0f2-0001-7000-8000-0000000000bb",` +
		`"namespace":"default","revision":1,"kind":"scheduled","status":"ready",` +
		`"scheduled_at":"2026-03-01T09:00:00Z","ready_at":"2026-03-01T09:00:00Z","fired_at":"2026-03-01T09:00:00Z",` +
		`"attempt":0,"started_at":null,"finished_at":null}`
	got, err := json.Marshal(run)
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
