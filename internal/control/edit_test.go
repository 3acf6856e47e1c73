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
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

func TestEditAndRevisions(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(m *belfry.Manifest)
		revision int
		changed  bool
	}{
		{"nothing", func(m *belfry.Manifest) {}, 1, false},
		{"another form of the same", func(m *belfry.Manifest) {
			m.Name, m.Type, m.Tags, m.Payload = " report ", "HTTP", []string{"b", "a", "b"}, json.RawMessage(` {"url": "https:\/\/example.com/hook"} `)
			m.Timezone, m.Schedule = "", " 0 9 * * * "
		}, 1, false},
		{"the name", func(m *belfry.Manifest) { m.Name = "other" }, 1, true},
		{"no name any more", func(m *belfry.Manifest) { m.Name = "" }, 1, true},
		{"the tags", func(m *belfry.Manifest) { m.Tags = append(m.Tags, "c") }, 1, true},
		{"paused", func(m *belfry.Manifest) { m.Status = belfry.StatusPaused }, 1, true},
		{"the spec", func(m *belfry.Manifest) { m.MaxRetries = belfry.Some(7) }, 2, true},
		{"the payload", func(m *belfry.Manifest) { m.Payload = json.RawMessage(`{"url":"https://example.com/other"}`) }, 2, true},
		{"the schedule", func(m *belfry.Manifest) { m.Schedule = "0 10 * * *" }, 2, true},
		{"everything", func(m *belfry.Manifest) {
			m.Name, m.Tags, m.Queue, m.Payload, m.Status = "x", nil, "slow", json.RawMessage(`{"url":"https://example.com"}`), belfry.StatusPaused
		}, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := controltest.Open(t)
			c := control.New(s, plan.Defaults{})
			d := controltest.Named("report", "0 9 * * *")
			d.Tags = []string{"a", "b"}
			before := controltest.Create(t, c, d)
			was := controltest.PlanOf(t, s, before.ID)
			after := controltest.Edit(t, c, before.ID, tt.change)
			if after.Revision != tt.revision || (control.Version(after) != control.Version(before)) != tt.changed {
				t.Errorf("revision %d, version %s after %s", after.Revision, control.Version(after), control.Version(before))
			}
			if moved := controltest.PlanOf(t, s, before.ID).Version != was.Version; moved != tt.changed {
				t.Errorf("something was written: %v", moved)
			}
			found, err := c.Get(t.Context(), ns, before.ID.String())
			if err != nil {
				t.Fatal(err)
			}
			sameJob(t, found, after)
			again := controltest.Edit(t, c, before.ID, tt.change)
			sameJob(t, again, after)
			if revisions, _, err := c.Revisions(t.Context(), ns, before.ID.String(), store.Page{Limit: 10}); err != nil || len(revisions) != tt.revision {
				t.Errorf("there are %d revisions, error %v", len(revisions), err)
			}
		})
	}
}

func TestEditErrors(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Input("@daily"))
	controltest.Create(t, c, controltest.Named("taken", "@daily"))
	_, err := c.Edit(t.Context(), ns, job.ID.String(), "", func(m belfry.Manifest) validate.Input {
		m.Queue, m.MaxRetries = "a/b", belfry.Some(-1)
		return validate.Input{Manifest: m, Errors: []belfry.FieldError{{Field: "queue", Message: "must be a string"}, {Field: "bogus", Message: "is unknown"}}}
	})
	if got := strings.Join(errorsOf(t, err), "; "); got != "queue: must be a string; bogus: is unknown; max_retries: must be from 0 to 100, not -1" {
		t.Errorf("got %s", got)
	}
	_, err = c.Edit(t.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Name = "taken" }))
	codeOf(t, err, belfry.Conflict)
	_, err = c.Edit(t.Context(), "elsewhere", job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) {}))
	codeOf(t, err, belfry.NotFound)
	found := get(t, c, job.ID)
	sameJob(t, found, job)
}

func TestEditOfAnotherVersion(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Input("@daily"))
	read := control.Version(job)
	tag := func(text string) control.Patch {
		return controltest.Patch(func(m *belfry.Manifest) { m.Tags = []string{text} })
	}
	job, err := c.Edit(t.Context(), ns, job.ID.String(), read, tag("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Edit(t.Context(), ns, job.ID.String(), read, tag("b"))
	codeOf(t, err, belfry.Changed)
	_, err = c.Edit(t.Context(), ns, job.ID.String(), read, tag("a")) // even if it would change nothing
	codeOf(t, err, belfry.Changed)
	_, _, err = c.Put(t.Context(), ns, job.ID.String(), read, controltest.Input("@daily"))
	codeOf(t, err, belfry.Changed)
	codeOf(t, c.Delete(t.Context(), ns, job.ID.String(), read, control.DeleteOptions{}), belfry.Changed)
	if err := c.Delete(t.Context(), ns, job.ID.String(), control.Version(job), control.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestEditWhoseAnswerIsLost(t *testing.T) {
	for _, before := range []bool{false, true} {
		inBubble(t, fmt.Sprint("the request is lost: ", before), func(t *testing.T) {
			s := &lossy{Store: controltest.Open(t), before: before}
			c := control.New(s, plan.Defaults{})
			job := controltest.Create(t, c, controltest.Input("@daily"))
			s.losses = 2
			job, err := c.Edit(t.Context(), ns, job.ID.String(), control.Version(job), controltest.Patch(func(m *belfry.Manifest) { m.MaxRetries = belfry.Some(7) }))
			if err != nil || job.Revision != 2 || job.MaxRetries.Value() != 7 {
				t.Errorf("got revision %d with %d retries, error %v", job.Revision, job.MaxRetries.Value(), err)
			}
		})
	}
}

func TestEditKeepsMaskedSecrets(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	d := controltest.Input("@daily")
	d.Payload = json.RawMessage(`{"url":"https://example.com/?token=abc","headers":{"Authorization":"Bearer xyz"}}`)
	job := controltest.Create(t, c, d)
	shown := job.Payload
	if want := `{"url":"https://example.com/?token=***","headers":{"Authorization":"***"}}`; string(shown) != want || string(get(t, c, job.ID).Payload) != want {
		t.Errorf("it is shown with %s", shown)
	}
	if after := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Payload = shown }); after.Revision != 1 {
		t.Errorf("an edit to what is shown made revision %d with %s", after.Revision, after.Payload)
	}
	method := json.RawMessage(strings.Replace(string(shown), `{`, `{"method":"PUT",`, 1))
	controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Payload = method })
	stored, err := s.Job(t.Context(), ns, job.ID)
	if want := `{"method":"PUT","url":"https://example.com/?token=abc","headers":{"Authorization":"Bearer xyz"}}`; err != nil || string(stored.Payload) != want {
		t.Errorf("stored %s, want %s, error %v", stored.Payload, want, err)
	}
	_, err = c.Edit(t.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) {
		m.Payload = json.RawMessage(`{"url":"https://example.com/?token=***","headers":{"Authorization":"***","Cookie":"***"}}`)
	}))
	oneError(t, err, "payload.headers.Cookie", "masked")
}

func TestEditOfTypeAndTimezone(t *testing.T) {
	c := newControl(t)
	d := controltest.Named("send", "0 9 * * *")
	d.Type, d.Payload = "worker", nil
	job := controltest.Create(t, c, d)
	job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Name = "renamed" })
	if job.Handler != "send" {
		t.Errorf("a new name made the handler %q", job.Handler)
	}
	job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Type, m.Payload = "Http", controltest.Input("").Payload })
	if job.Type != "http" || job.Handler != "" {
		t.Errorf("got type %s with handler %q", job.Type, job.Handler)
	}
	job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = "CRON_TZ=Asia/Tokyo 0 9 * * *" })
	if job.Timezone != "Asia/Tokyo" || job.NextRunAt.Format("15:04") != "00:00" {
		t.Errorf("got %s, next run at %v", job.Timezone, job.NextRunAt)
	}
	job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = "0 10 * * *" })
	if job.Timezone != "Asia/Tokyo" || job.NextRunAt.Format("15:04") != "01:00" {
		t.Errorf("got %s, next run at %v", job.Timezone, job.NextRunAt)
	}
	_, err := c.Edit(t.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Handler = "x" }))
	oneError(t, err, "handler", "leave it out")
}

func TestEditOfAScheduleThatCannotBeParsed(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	now := s.Now().UTC().Truncate(time.Microsecond)
	id := belfry.NewID(now)
	d := controltest.Input("every blue moon")
	d.Timezone = "UTC"
	created := store.NewJob{
		Job:  belfry.Job{ID: id, Namespace: ns, Revision: 1, State: belfry.JobActive, Manifest: d.Manifest, CreatedAt: now, UpdatedAt: now},
		Plan: plan.Plan{JobID: id, Shard: belfry.ShardOf(id, s.Shards()), Version: 1, NominalAt: now, NextAt: now},
	}
	if err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) { yield(created, nil) }, nil); err != nil {
		t.Fatal(err)
	}
	if job := controltest.Edit(t, c, id, func(m *belfry.Manifest) { m.Name = "moon" }); job.Name != "moon" || job.Revision != 1 {
		t.Errorf("got %+v", job)
	}
	_, err := c.Edit(t.Context(), ns, id.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Status = belfry.StatusPaused }))
	codeOf(t, err, belfry.Conflict)
	if !strings.Contains(err.Error(), "edit it: schedule: 3 fields instead of 5") {
		t.Errorf("got %v", err)
	}
	job := controltest.Edit(t, c, id, func(m *belfry.Manifest) { m.Schedule = "@yearly" })
	if job.Revision != 2 || job.NextRunAt == nil {
		t.Errorf("got %+v", job)
	}
	if got := controltest.History(t, c, id, now); got != "0 ready r1" {
		t.Errorf("what was due became %s", got)
	}
}

func TestRunKeepsItsRevisionAfterAnEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		d := controltest.Named("send", "* * * * *")
		d.Type, d.Payload = "worker", json.RawMessage(`"old"`)
		job := controltest.Create(t, c, d)
		start := *job.NextRunAt
		time.Sleep(time.Until(start) + 30*time.Second)
		controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) {
			m.Schedule, m.Handler, m.Payload = "0 0 1 1 *", "other", json.RawMessage(`"new"`)
		})
		w := controltest.Register(t, c, 10, "send", "other")
		runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: w, Handlers: []string{"send", "other"}, Limit: 10})
		if err != nil || len(runs) != 1 || string(runs[0].Payload) != `"old"` || runs[0].Spec.Handler != "send" || runs[0].Revision != 1 {
			t.Errorf("got %+v, error %v", runs, err)
		}
	})
}
