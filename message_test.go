package belfry

import (
	"testing"
	"time"
)

func TestExpand(t *testing.T) {
	r := Run{ID: ID{2}, JobID: ID{1}, ScheduledAt: time.Date(2027, 1, 1, 23, 30, 0, 0, time.UTC), Spec: Spec{Timezone: "Europe/Paris"}}
	for text, want := range map[string]string{
		"":                          "",
		"plain":                     "plain",
		"{{job_id}}/{{ run_id }}":   r.JobID.String() + "/" + r.ID.String(),
		"{{date}} {{hour}}":         "2027-01-02 2027-01-02T00+01:00",
		"{{week}}":                  "2026-W53",
		"{{scheduled_at}} {{unix}}": "2027-01-02T00:30:00+01:00 1798846200",
		"{{name}}":                  "{{name}}",
	} {
		if got := r.Expand(text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if r.Spec.Timezone = "Nowhere/Else"; r.Expand("{{date}}") != "2027-01-01" {
		t.Error("a zone that is unknown here is not UTC")
	}
}
