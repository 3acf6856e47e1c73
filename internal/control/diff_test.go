package control_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
)

// changesOf writes the result and the changes of a dry run in lines.
func changesOf(d belfry.JobDiff) string {
	lines := []string{string(d.Result)}
	for _, c := range d.Changes {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s: %s -> %s", c.Field, c.Old, c.New), " "))
	}
	return strings.Join(lines, "\n")
}

func TestDiffCreate(t *testing.T) {
	c := newControl(t)
	in := controltest.Named("report", "0 9 * * *")
	in.Type, in.TimeoutSeconds, in.Tags = "", 60, []string{"b", "a"}
	in.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"Bearer abc"}}`)
	diff, err := c.DiffCreate(t.Context(), ns, in)
	want := `created
name:  -> "report"
tags:  -> ["a","b"]
type:  -> "http"
schedule:  -> "0 9 * * *"
timeout_seconds:  -> 60
payload:  -> {"url":"https://example.com","headers":{"Authorization":"***"}}`
	if got := changesOf(diff); err != nil || got != want {
		t.Errorf("got\n%s\nwant\n%s\nerror %v", got, want, err)
	}
	if diff.Job.Status != belfry.StatusScheduled || diff.Job.NextRunAt == nil || diff.Job.Queue != "default" || strings.Contains(string(diff.Job.Payload), "abc") {
		t.Errorf("the job would be %+v", diff.Job)
	}
	in.Fields, in.Status = schema.FieldSet{"name", "schedule", "payload", "status"}, belfry.StatusPaused
	if diff, err = c.DiffCreate(t.Context(), ns, in); err != nil || strings.Contains(changesOf(diff), "timeout") || !strings.Contains(changesOf(diff), `status:  -> "paused"`) {
		t.Errorf("got\n%s\nerror %v", changesOf(diff), err)
	}
	if n := count(t, c); n != 0 {
		t.Errorf("there are %d jobs", n)
	}
	controltest.Create(t, c, controltest.Named("report", "@daily"))
	_, err = c.DiffCreate(t.Context(), ns, in)
	codeOf(t, err, belfry.Conflict)
	in.Schedule = "never"
	_, err = c.DiffCreate(t.Context(), ns, in)
	oneError(t, err, "schedule", "")
}

func TestDiffEdit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(m *belfry.Manifest)
		want   string
	}{
		{"nothing", func(m *belfry.Manifest) {}, "unchanged"},
		{"another notation", func(m *belfry.Manifest) { m.Name, m.Overlap = " report ", "SKIP" }, "unchanged"},
		{"fields", func(m *belfry.Manifest) {
			m.Name, m.Tags, m.Schedule, m.MaxRetries, m.Status = "R&D", []string{"x"}, "0 10 * * *", belfry.Some(0), belfry.StatusPaused
		}, `updated
name: "report" -> "R&D"
tags:  -> ["x"]
schedule: "0 9 * * *" -> "0 10 * * *"
max_retries: 3 -> 0
status: "active" -> "paused"`},
		{"what follows a field", func(m *belfry.Manifest) { m.Schedule = "CRON_TZ=Asia/Tokyo 0 9 * * *" }, `updated
schedule: "0 9 * * *" -> "CRON_TZ=Asia/Tokyo 0 9 * * *"
timezone: "UTC" -> "Asia/Tokyo"`},
		{"members of the payload", func(m *belfry.Manifest) {
			m.Payload = json.RawMessage(`{"method":"PUT","url":"https://example.com","headers":{"Accept":"text/html"},"body":{"n":10.0,"list":[1,3]}}`)
		}, `updated
payload.body.list: [1,2] -> [1,3]
payload.headers.Accept:  -> "text/html"
payload.headers.Authorization: "***" ->
payload.method:  -> "PUT"`},
		{"a secret", func(m *belfry.Manifest) {
			m.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"new"},"body":{"n":1e1,"list":[1,2]}}`)
		}, `updated
payload: {"url":"https://example.com","headers":{"Authorization":"***"},"body":{"n":10,"list":[1,2]}} -> {"url":"https://example.com","headers":{"Authorization":"***"},"body":{"n":1e1,"list":[1,2]}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := controltest.Open(t)
			c := control.New(s, plan.Defaults{})
			in := controltest.Named("report", "0 9 * * *")
			in.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"abc"},"body":{"n":10,"list":[1,2]}}`)
			job := controltest.Create(t, c, in)
			before := controltest.PlanOf(t, s, job.ID)
			diff, err := c.DiffEdit(t.Context(), ns, "report", control.Version(job), controltest.Patch(tt.change))
			if got := changesOf(diff); err != nil || got != tt.want {
				t.Errorf("got\n%s\nwant\n%s\nerror %v", got, tt.want, err)
			}
			sameJob(t, get(t, c, job.ID), job)
			if controltest.PlanOf(t, s, job.ID) != before {
				t.Error("the plan was written")
			}
			after := controltest.Edit(t, c, job.ID, tt.change)
			after.UpdatedAt, diff.Job.UpdatedAt = time.Time{}, time.Time{}
			sameJob(t, diff.Job, after)
		})
	}
}

func TestDiffEditErrors(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Named("report", "@daily"))
	controltest.Create(t, c, controltest.Named("taken", "@daily"))
	rename := controltest.Patch(func(m *belfry.Manifest) { m.Name = "taken" })
	_, err := c.DiffEdit(t.Context(), ns, "report", "", rename)
	codeOf(t, err, belfry.Conflict)
	_, err = c.DiffEdit(t.Context(), ns, "report", "1-abc", rename)
	codeOf(t, err, belfry.Changed)
	_, err = c.DiffEdit(t.Context(), ns, "nobody", "", rename)
	codeOf(t, err, belfry.NotFound)
	_, err = c.DiffEdit(t.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Schedule = "never" }))
	oneError(t, err, "schedule", "")
}

func TestDiffPut(t *testing.T) {
	c := newControl(t)
	in := controltest.Input("@daily")
	diff, err := c.DiffPut(t.Context(), ns, "report", "", in)
	if err != nil || diff.Result != belfry.DiffCreated || diff.Job.Name != "report" || count(t, c) != 0 {
		t.Fatalf("got %+v, error %v", diff, err)
	}
	_, err = c.DiffPut(t.Context(), ns, "report", "*", in)
	codeOf(t, err, belfry.Changed)
	job, _ := put(t, c, in)
	if diff, err = c.DiffPut(t.Context(), ns, "report", control.Version(job), in); err != nil || diff.Result != belfry.DiffUnchanged || diff.Changes == nil {
		t.Errorf("got %+v, error %v", diff, err)
	}
	in.Queue = "slow"
	for _, ref := range []string{"report", job.ID.String()} {
		if diff, err = c.DiffPut(t.Context(), ns, ref, "", in); err != nil || changesOf(diff) != "updated\nqueue: \"default\" -> \"slow\"" || diff.Job.Revision != 2 {
			t.Errorf("%s: got %+v, error %v", ref, diff, err)
		}
	}
	_, err = c.DiffPut(t.Context(), ns, "report", "1-abc", in)
	codeOf(t, err, belfry.Changed)
	sameJob(t, get(t, c, job.ID), job)
}

// The status of a dry run follows from the plan as far as it can.
func TestDiffStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		job := controltest.Create(t, c, controltest.Input("0 * * * *"))
		for _, tt := range []struct {
			name    string
			prepare func()
			change  func(m *belfry.Manifest)
			want    belfry.JobStatus
		}{
			{"resumed", func() { c.Pause(t.Context(), ns, job.ID.String()) }, func(m *belfry.Manifest) { m.Status = belfry.StatusActive }, belfry.StatusScheduled},
			{"resumed after it was cancelled", func() {
				c.CancelJob(t.Context(), ns, job.ID.String())
				c.Pause(t.Context(), ns, job.ID.String())
			}, func(m *belfry.Manifest) { m.Status = belfry.StatusActive }, belfry.StatusScheduled},
			{"with another schedule", func() {}, func(m *belfry.Manifest) { m.Schedule, m.Status = "30 * * * *", belfry.StatusActive }, belfry.StatusScheduled},
		} {
			tt.prepare()
			diff, err := c.DiffEdit(t.Context(), ns, job.ID.String(), "", controltest.Patch(tt.change))
			after := controltest.Edit(t, c, job.ID, tt.change)
			if err != nil || diff.Job.Status != tt.want || after.Status != tt.want {
				t.Errorf("%s: %s, then %s, want %s, error %v", tt.name, diff.Job.Status, after.Status, tt.want, err)
			}
		}
	})
}
