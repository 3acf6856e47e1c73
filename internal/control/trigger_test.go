package control_test

import (
	"encoding/json"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestTriggerWithAPayload(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	in := controltest.Named("job", "@yearly")
	in.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"abc"},"body":{"token":"xyz"}}`)
	controltest.Create(t, c, in)
	result, err := c.Trigger(t.Context(), ns, "job", belfry.Trigger{Payload: json.RawMessage(`{"token":"***","b":2}`)}, none)
	if err != nil {
		t.Fatal(err)
	}
	pending, err := s.PendingTriggers(t.Context(), controltest.Shards, nil, 10)
	want := `{"body":{"token":"xyz","b":2},"headers":{"Authorization":"abc"},"url":"https://example.com"}`
	if err != nil || len(pending) != 1 || pending[0].Trigger.RunID() != result.RunID || string(pending[0].Trigger.Payload) != want {
		t.Errorf("got %+v, error %v", pending, err)
	}
	_, err = c.Trigger(t.Context(), ns, "job", belfry.Trigger{Payload: json.RawMessage(`{`)}, none)
	oneError(t, err, "payload", "must be JSON")
	_, err = c.Trigger(t.Context(), ns, "nobody", belfry.Trigger{}, none)
	codeOf(t, err, belfry.NotFound)
}

func TestTriggerWithAnIdempotencyKey(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	job := controltest.Create(t, c, controltest.Input("@yearly"))
	first, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if again, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "a")); err != nil || again != first {
			t.Errorf("got %v, error %v; want %v", again, err, first)
		}
	}
	_, err = c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "b"))
	oneError(t, err, "Idempotency-Key", "another request")
	if other, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("l", "a")); err != nil || other == first {
		t.Errorf("got %v, error %v", other, err)
	}
	if pending, err := s.PendingTriggers(t.Context(), controltest.Shards, nil, 10); err != nil || len(pending) != 2 {
		t.Errorf("there are %d triggers, error %v", len(pending), err)
	}
	if err := c.Delete(t.Context(), ns, job.ID.String(), "", control.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "a")); err != nil || again != first {
		t.Errorf("after the job was deleted: %v, error %v", again, err)
	}
	_, err = c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{Payload: json.RawMessage(`{}`)}, none)
	codeOf(t, err, belfry.NotFound)
}
