package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

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

func TestWorkerErrors(t *testing.T) {
	c := newControl(t)
	claim := func(queue string, handlers ...string) error {
		_, err := c.Claim(t.Context(), ns, belfry.Claim{Queues: []string{queue}, Handlers: handlers, Limit: 1})
		return err
	}
	for _, tt := range []struct {
		name         string
		err          error
		field, words string
	}{
		{"an empty handler", claim("default", "x", ""), "handlers[1]", "empty"},
		{"a handler with a slash", claim("default", "a/b"), "handlers[0]", `"/"`},
		{"a reserved handler", claim("default", "http"), "handlers[0]", "http is run by Belfry itself"},
		{"a control character", claim("default", "a\nb"), "handlers[0]", "control"},
		{"a wrong queue", claim("team:default", "a"), "queue[0]", "letters"},
		{"no queue", claim("", "a"), "queue[0]", "1 to 100"},
		{"a heartbeat with a reserved handler", second(c.Heartbeat(t.Context(), ns, belfry.Heartbeat{Handlers: []string{"Command"}})), "handlers[0]", "Belfry itself"},
	} {
		t.Run(tt.name, func(t *testing.T) { oneError(t, tt.err, tt.field, tt.words) })
	}
}

func TestRemoteWorker(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	job := controltest.Create(t, c, controltest.WorkerInput("send"))
	worker := controltest.Register(t, c, 10, "send")
	ready(t, s, job.ID, 3)

	if runs, err := c.Claim(t.Context(), "elsewhere", belfry.Claim{WorkerID: worker, Handlers: []string{"send"}, Limit: 10}); err != nil || len(runs) != 0 {
		t.Errorf("another namespace got %d runs, error %v", len(runs), err)
	}
	if runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: worker, Queues: []string{"slow"}, Handlers: []string{"other", "send"}, Limit: 10}); err != nil || len(runs) != 0 {
		t.Errorf("another queue got %d runs, error %v", len(runs), err)
	}
	runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: worker, Queues: []string{"slow", "default"}, Handlers: []string{"send"}, Limit: 2, WaitSeconds: belfry.Some(3600.0)})
	if err != nil || len(runs) != 2 || string(runs[0].Payload) != `{"a":1}` || runs[0].Attempt != 1 || runs[0].Spec.Handler != "send" {
		t.Fatalf("got %+v, error %v", runs, err)
	}

	var results []belfry.Result
	for i, run := range runs {
		results = append(results, belfry.Result{
			Namespace: "a lie", RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeFailed,
			Error: strings.Repeat("é", 8<<10), Output: strings.Repeat("x", belfry.MaxOutput+i),
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
	list, next, err := c.ListRuns(t.Context(), ns, belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: belfry.RunSucceeded}}, store.Page{Limit: 10})
	if err != nil || len(list) != 1 || list[0].ID != runs[1].ID || list[0].IdempotencyKey != runs[1].Key() || next != (store.Position{}) {
		t.Errorf("listed %+v, then %v, error %v", list, next, err)
	}
	orders, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: worker, Slots: 1, Handlers: []string{"send"}, Complete: true, Held: []belfry.HeldAttempt{{RunID: runs[0].ID, Attempt: 1}}})
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

// lostClaims is a store whose claims have no known outcome.
type lostClaims struct {
	store.Store
	claims int
}

func (s *lostClaims) ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error) {
	s.claims++
	s.Store.ClaimBelow(ctx, c, rank)
	return nil, errCut
}

func TestClaimOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	s := &lostClaims{Store: controltest.Open(t)}
	_, err := control.New(s, plan.Defaults{}).Claim(t.Context(), ns, belfry.Claim{Handlers: []string{"x"}, Limit: 1, WaitSeconds: belfry.Some(3600.0)})
	codeOf(t, err, belfry.Unavailable)
	if !errors.Is(err, errCut) || s.claims != 1 {
		t.Errorf("got %v after %d claims", err, s.claims)
	}
}

// Who sees a worker's id beside a run, or knows it from elsewhere, cannot speak in
// its name.
func TestWorkerIDThatUsersSeeIsNotTheOneItDrew(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	drawn := belfry.NewID(s.Now())
	handlers := []string{"send"}
	if _, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: drawn, Slots: 1, Handlers: handlers, Register: true}); err != nil {
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
		if _, err := c.Heartbeat(t.Context(), tt.namespace, belfry.Heartbeat{WorkerID: tt.id, Handlers: handlers, Leave: true}); err != nil {
			t.Fatal(err)
		}
		orders, err := c.Heartbeat(t.Context(), ns, belfry.Heartbeat{WorkerID: drawn, Slots: 1, Handlers: handlers})
		if err != nil || orders.Unknown {
			t.Errorf("%s in %s made the worker leave: %v, %v", tt.id, tt.namespace, orders, err)
		}
	}
}
