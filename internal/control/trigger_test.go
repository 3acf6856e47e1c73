package control_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestATriggerWithAPayload(t *testing.T) {
	for _, tt := range []struct {
		name, kind, own, given string
		want                   string
		field, says            string
	}{
		{"a worker gets it all", "worker", `{"a":1}`, ` [1, "<&>"] `, `[1,"<&>"]`, "", ""},
		{"a worker gets nothing", "worker", `{"a":1}`, `null`, `null`, "", ""},
		{"a worker gets secrets back", "worker", `{"token":"abc"}`, `{"token":"***","b":2}`, `{"token":"abc","b":2}`, "", ""},
		{"a worker gets no masks", "worker", `{}`, `{"token":"***"}`, ``, "payload.token", "masked"},
		{"a request gets a body", "http", `{"url":"https://example.com","body":{"a":1}}`, `{"b":"<&>"}`, `{"body":{"b":"<&>"},"url":"https://example.com"}`, "", ""},
		{"a request never gets another address", "http", `{"url":"https://example.com"}`, `{"url":"https://evil.example"}`,
			`{"body":{"url":"https://evil.example"},"url":"https://example.com"}`, "", ""},
		{"a request gets secrets back", "http", `{"url":"https://example.com","body":{"token":"abc"}}`, `{"token":"***"}`, `{"body":{"token":"abc"},"url":"https://example.com"}`, "", ""},
		{"a request keeps its headers", "http", `{"url":"https://example.com","headers":{"Authorization":"abc"},"method":"PUT"}`, `3`,
			`{"body":3,"headers":{"Authorization":"abc"},"method":"PUT","url":"https://example.com"}`, "", ""},
		{"a request gets no body", "http", `{"url":"https://example.com","body":3}`, `null`, `{"body":null,"url":"https://example.com"}`, "", ""},
		{"a request without a body", "http", `{"url":"https://example.com","method":"get"}`, `3`, ``, "payload", "GET"},
		{"not JSON", "worker", `{}`, `{`, ``, "payload", "JSON"},
		{"too much", "worker", `{}`, `"` + strings.Repeat("x", belfry.MaxPayload) + `"`, ``, "payload", "262146"},
		{"too much with the rest", "http", `{"url":"https://example.com"}`, `"` + strings.Repeat("x", belfry.MaxPayload-10) + `"`, ``, "payload", "the rest"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := controltest.Open(t)
			c := control.New(s, plan.Defaults{})
			d := controltest.Named("job", "@yearly")
			d.Type, d.Payload = tt.kind, json.RawMessage(tt.own)
			job := controltest.Create(t, c, d)
			id, err := c.Trigger(t.Context(), ns, job.ID.String(), json.RawMessage(tt.given), none)
			if tt.field != "" {
				oneError(t, err, tt.field, tt.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wishes, err := s.PendingTriggers(t.Context(), controltest.Shards, 10)
			if err != nil || len(wishes) != 1 || wishes[0].Trigger.RunID() != id || string(wishes[0].Trigger.Payload) != tt.want {
				t.Errorf("got %+v, error %v", wishes, err)
			}
			if tt.kind == "http" {
				if _, faults := target.ParseHTTP(wishes[0].Trigger.Payload); len(faults) > 0 {
					t.Errorf("it cannot be sent: %v", faults)
				}
			}
		})
	}
}

func TestTheSameKeyGivesTheSameRun(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	job := controltest.Create(t, c, controltest.Input("@yearly"))
	first, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if again, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "a")); err != nil || again != first {
			t.Errorf("got %s, error %v; want %s", again, err, first)
		}
	}
	_, err = c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "b"))
	oneError(t, err, "Idempotency-Key", "another request")
	if other, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("l", "a")); err != nil || other == first {
		t.Errorf("got %s, error %v", other, err)
	}
	if wishes, err := s.PendingTriggers(t.Context(), controltest.Shards, 10); err != nil || len(wishes) != 2 {
		t.Errorf("there are %d triggers, error %v", len(wishes), err)
	}
	if err := c.Delete(t.Context(), ns, job.ID.String(), "", control.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, key("k", "a")); err != nil || again != first {
		t.Errorf("after the job was deleted: %s, error %v", again, err)
	}
	_, err = c.Trigger(t.Context(), ns, job.ID.String(), json.RawMessage(`{}`), none)
	codeOf(t, err, belfry.NotFound)
}
