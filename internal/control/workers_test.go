package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// register makes a worker known.
func register(t *testing.T, c *control.Control, lanes ...string) belfry.ID {
	t.Helper()
	id := belfry.NewID(time.Now())
	orders, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: id, Node: "test", Slots: 10, Lanes: lanes, Register: true})
	if err != nil || orders.Unknown {
		t.Fatalf("got %+v, error %v", orders, err)
	}
	return id
}

// forWorker is a job of a handler that only runs when it is triggered.
func controltest.WorkerInput(handler string) validate.Input {
	d := controltest.Input("@yearly")
	d.Type, d.Handler, d.Overlap, d.Payload = "worker", handler, "parallel", json.RawMessage(`{"a":1}`)
	return d
}

// ready makes so many runs of a job.
func ready(t *testing.T, s store.Store, job belfry.ID, n int) {
	t.Helper()
	for range n {
		if _, err := control.New(s, plan.Defaults{}).Trigger(t.Context(), ns, job.String(), belfry.Trigger{}, none); err != nil {
			t.Fatal(err)
		}
		controltest.Fire(t, s)
	}
}

func TestWhatAWorkerIsRefusedFor(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	claim := func(limit int, lanes ...string) error {
		_, err := c.Claim(t.Context(), ns, belfry.Claim{Lanes: lanes, Limit: limit}, time.Hour)
		return err
	}
	beat := func(b belfry.Heartbeat) error { _, err := c.Heartbeat(t.Context(), ns, b); return err }
	finish := func(results ...belfry.Result) error { _, err := c.Finish(t.Context(), ns, results); return err }
	for _, tt := range []struct {
		name        string
		err         error
		field, says string
	}{
		{"no lanes", claim(1), "lanes", "missing"},
		{"too many lanes", claim(1, slices.Repeat([]string{"default/x"}, 201)...), "lanes", "201"},
		{"no handler", claim(1, "default/x", "default"), "lanes[1]", "default/send-invoice"},
		{"an empty handler", claim(1, "default/"), "lanes[0]", "empty"},
		{"two handlers", claim(1, "default/a/b"), "lanes[0]", `"/"`},
		{"a bad queue", claim(1, "team:default/a"), "lanes[0]", "queue"},
		{"no queue", claim(1, "/a"), "lanes[0]", "queue"},
		{"a lane of Belfry's own", claim(1, "default/http"), "lanes[0]", "http is run by Belfry itself"},
		{"a control character", claim(1, "default/a\nb"), "lanes[0]", "control"},
		{"nothing to claim", claim(0, "default/x"), "limit", "1 to 1000"},
		{"too much to claim", claim(1001, "default/x"), "limit", "1 to 1000"},
		{"a heartbeat with a bad lane", beat(belfry.Heartbeat{Lanes: []string{"default/Command"}}), "lanes[0]", "Belfry itself"},
		{"negative slots", beat(belfry.Heartbeat{Slots: -1}), "slots", "0 to"},
		{"no results", finish(), "results", "1 to 1000"},
		{"too many results", finish(slices.Repeat([]belfry.Result{{Outcome: "failed"}}, 1001)...), "results", "1 to 1000"},
		{"an outcome that only Belfry knows", finish(belfry.Result{Outcome: "failed"}, belfry.Result{Outcome: belfry.OutcomeLost}), "results[1].outcome", `"succeeded"`},
		{"no outcome", finish(belfry.Result{}), "results[0].outcome", `"interrupted"`},
		{"an outcome with a typing error", finish(belfry.Result{Outcome: "canceled"}), "results[0].outcome", `did you mean "cancelled"?`},
		{"a wait for the past", finish(belfry.Result{Outcome: "snoozed", RetryAfterSeconds: -1}), "results[0].retry_after_seconds", "from 0 to 604800, not -1"},
		{"a wait for ever", finish(belfry.Result{Outcome: "failed", RetryAfterSeconds: math.NaN()}), "results[0].retry_after_seconds", "from 0 to 604800"},
		{"an odd status", finish(belfry.Result{Outcome: "failed", HTTPStatus: 1000}), "results[0].http_status", "999"},
	} {
		t.Run(tt.name, func(t *testing.T) { oneError(t, tt.err, tt.field, tt.says) })
	}
}

func TestAWorkerElsewhere(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	job := controltest.Create(t, c, controltest.WorkerInput("send"))
	worker := register(t, c, "default/send")
	ready(t, s, job.ID, 3)

	if runs, err := c.Claim(t.Context(), "elsewhere", belfry.Claim{WorkerID: worker, Lanes: []string{"default/send"}, Limit: 10}, 0); err != nil || len(runs) != 0 {
		t.Errorf("another namespace got %d runs, error %v", len(runs), err)
	}
	if runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: worker, Lanes: []string{"default/other", "slow/send"}, Limit: 10}, 0); err != nil || len(runs) != 0 {
		t.Errorf("other lanes got %d runs, error %v", len(runs), err)
	}
	runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: worker, Lanes: []string{"default/send"}, Limit: 2}, time.Hour)
	if err != nil || len(runs) != 2 || string(runs[0].Payload) != `{"a":1}` || runs[0].Attempt != 1 || runs[0].Spec.Handler != "send" {
		t.Fatalf("got %+v, error %v", runs, err)
	}

	var results []belfry.Result
	for i, run := range runs {
		results = append(results, belfry.Result{
			Namespace: "a lie", RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeFailed,
			Error: strings.Repeat("é", 8<<10), Output: bytes.Repeat([]byte("x"), belfry.MaxOutput+i),
		})
	}
	results[1].Outcome = belfry.OutcomeSucceeded
	given := slices.Clone(results)
	if _, err := c.Finish(t.Context(), "elsewhere", results); err != nil {
		t.Error(err)
	}
	if run, err := c.Run(t.Context(), ns, runs[0].ID); err != nil || run.Status != belfry.RunRunning {
		t.Errorf("a result from another namespace made it %s, error %v", run.Status, err)
	}
	verdicts, err := c.Finish(t.Context(), ns, results)
	if err != nil || !slices.Equal(verdicts, []belfry.Verdict{belfry.VerdictAccepted, belfry.VerdictAccepted}) {
		t.Errorf("got %v, error %v", verdicts, err)
	}
	if results[0].Namespace != given[0].Namespace || len(results[0].Error) != len(given[0].Error) {
		t.Error("the caller's results were changed")
	}
	failed, err := c.Run(t.Context(), ns, runs[0].ID)
	if err != nil || len(failed.Attempts) != 1 || len(failed.Attempts[0].Error) != 8<<10 || len(failed.Attempts[0].Output) != belfry.MaxOutput {
		t.Errorf("got %+v, error %v", failed.Status, err)
	}
	list, err := c.ListRuns(t.Context(), ns, belfry.RunFilter{State: belfry.RunSucceeded}, store.Page{Limit: 10})
	if err != nil || len(list.Runs) != 1 || list.Runs[0].ID != runs[1].ID {
		t.Errorf("listed %+v, error %v", list.Runs, err)
	}
	orders, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: worker, Slots: 1, Lanes: []string{"default/send"}, Complete: true, Held: []belfry.HeldAttempt{{RunID: runs[0].ID, Attempt: 1}}})
	if err != nil || orders.Unknown || len(orders.Lost) != 1 {
		t.Errorf("got %+v, error %v", orders, err)
	}
	if _, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: worker, Leave: true}); err != nil {
		t.Errorf("leave: %v", err)
	}
	if orders, err = c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: worker}); err != nil || !orders.Unknown {
		t.Errorf("got %+v, error %v", orders, err)
	}
}

// cut is a store whose claims have no known outcome.
type cut struct {
	store.Store
	claims int
}

func (s *cut) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	s.claims++
	s.Store.Claim(ctx, c)
	return nil, errCut
}

func TestAClaimOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	s := &cut{Store: controltest.Open(t)}
	_, err := control.New(s, plan.Defaults{}).Claim(t.Context(), ns, belfry.Claim{Lanes: []string{"default/x"}, Limit: 1}, time.Hour)
	codeOf(t, err, belfry.Unavailable)
	if !errors.Is(err, errCut) || s.claims != 1 {
		t.Errorf("got %v after %d claims", err, s.claims)
	}
}

// Who sees a worker's id beside a run, or knows it from elsewhere, cannot speak in
// its name.
func TestAWorkerIsNotKnownByTheIDThatPeopleSee(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	drawn := belfry.NewID(s.Now())
	lanes := []string{"default/send"}
	if _, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: drawn, Slots: 1, Lanes: lanes, Register: true}); err != nil {
		t.Fatal(err)
	}
	workers, err := s.Workers(t.Context())
	if err != nil || len(workers) != 1 || workers[0].ID == drawn {
		t.Fatalf("got %v, %v", workers, err)
	}
	for _, tt := range []struct {
		namespace string
		id        belfry.ID
	}{{ns, workers[0].ID}, {"elsewhere", drawn}, {"elsewhere", workers[0].ID}} {
		if _, err := c.Heartbeat(t.Context(), tt.namespace, belfry.Heartbeat{WorkerID: tt.id, Lanes: lanes, Leave: true}); err != nil {
			t.Fatal(err)
		}
		orders, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: drawn, Slots: 1, Lanes: lanes})
		if err != nil || orders.Unknown {
			t.Errorf("%s in %s made the worker leave: %v, %v", tt.id, tt.namespace, orders, err)
		}
	}
}
