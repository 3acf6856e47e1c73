package belfry

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestClaimedRunRoundTripsThroughJSON(t *testing.T) {
	at := time.Date(2026, 3, 2, 9, 0, 0, 123456000, time.UTC)
	for _, tt := range []struct {
		name string
		run  Run
	}{
		{"scheduled", Run{Kind: KindScheduled, JobName: "send invoices", Payload: json.RawMessage(`{"a":1}`)}},
		{"by hand", Run{Kind: KindManual}},
		{"with a key of its template", Run{Kind: KindScheduled, TemplateKey: "report-2026-W10"}},
		{"by hand, with a key of its template", Run{Kind: KindManual, TemplateKey: "report-2026-W10", Payload: json.RawMessage(`[null]`)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run, worker := tt.run, NewID(at)
			run.ID, run.JobID, run.Namespace, run.Revision, run.Status = NewID(at), NewID(at), "team", 3, RunRunning
			run.ScheduledAt, run.ReadyAt, run.FiredAt = at, at.Add(time.Second), at.Add(2*time.Second)
			run.Attempt, run.Token, run.DeadlineAt, run.WorkerID = 2, NewToken(), at.Add(time.Minute), worker
			run.Spec = Spec{Type: TypeWorker, Handler: "send-invoice", Queue: "slow", TimeoutSeconds: 30}

			text, err := json.Marshal(run.Claimed())
			if err != nil {
				t.Fatal(err)
			}
			var travelled ClaimedRun
			if err := json.Unmarshal(text, &travelled); err != nil {
				t.Fatal(err)
			}
			got := travelled.Run(worker)
			if got.Key() != run.Key() {
				t.Errorf("the key %q became %q", run.Key(), got.Key())
			}
			run.IdempotencyKey, run.TemplateKey = run.Key(), "" // a worker needs only the whole key
			if diff := cmp.Diff(run, *got, cmpopts.EquateComparable(Spec{})); diff != "" {
				t.Errorf("the run after a round trip (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(travelled, got.Claimed()); diff != "" {
				t.Errorf("the JSON form after a second round trip (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaimedRunHandlerOfABuiltInType(t *testing.T) {
	run := Run{Spec: Spec{Type: TypeHTTP, Queue: "default"}}
	if c := run.Claimed(); c.Handler != "http" || c.Queue != "default" {
		t.Errorf("got %s/%s", c.Queue, c.Handler)
	}
}
