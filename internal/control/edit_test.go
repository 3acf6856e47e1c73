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
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// to is a patch that cannot be at fault.
func to(change func(d *control.Draft)) control.Patch {
	return func(d *control.Draft) []belfry.FieldError { change(d); return nil }
}

func edit(t *testing.T, c *control.Control, id belfry.ID, change func(d *control.Draft)) belfry.Job {
	t.Helper()
	job, err := c.Edit(t.Context(), ns, id, "", to(change))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestWhatAnEditChanges(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(d *control.Draft)
		revision int
		changed  bool
	}{
		{"nothing", func(d *control.Draft) {}, 1, false},
		{"another form of the same", func(d *control.Draft) {
			d.Name, d.Spec.Type, d.Tags, d.Payload = " report ", "HTTP", []string{"b", "a", "b"}, json.RawMessage(` {"url": "https:\/\/example.com/hook"} `)
			d.Spec.Timezone, d.Spec.Schedule = "", " 0 9 * * * "
		}, 1, false},
		{"the name", func(d *control.Draft) { d.Name = "other" }, 1, true},
		{"no name any more", func(d *control.Draft) { d.Name = "" }, 1, true},
		{"the tags", func(d *control.Draft) { d.Tags = append(d.Tags, "c") }, 1, true},
		{"paused", func(d *control.Draft) { d.Paused = true }, 1, true},
		{"the spec", func(d *control.Draft) { d.Spec.MaxRetries = 7 }, 2, true},
		{"the payload", func(d *control.Draft) { d.Payload = json.RawMessage(`{"url":"https://example.com/other"}`) }, 2, true},
		{"the schedule", func(d *control.Draft) { d.Spec.Schedule = "0 10 * * *" }, 2, true},
		{"everything", func(d *control.Draft) {
			d.Name, d.Tags, d.Spec.Queue, d.Payload, d.Paused = "x", nil, "slow", json.RawMessage(`{"url":"https://example.com"}`), true
		}, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t)
			c := control.New(s, plan.Defaults{})
			d := named("report", "0 9 * * *")
			d.Tags = []string{"a", "b"}
			before := create(t, c, d)
			was := planOf(t, s, before.ID)
			after := edit(t, c, before.ID, tt.change)
			if after.Revision != tt.revision || (control.Version(after) != control.Version(before)) != tt.changed {
				t.Errorf("revision %d, version %s after %s", after.Revision, control.Version(after), control.Version(before))
			}
			if moved := planOf(t, s, before.ID).Version != was.Version; moved != tt.changed {
				t.Errorf("something was written: %v", moved)
			}
			found, err := c.Get(t.Context(), ns, before.ID)
			if err != nil {
				t.Fatal(err)
			}
			same(t, found, after)
			again := edit(t, c, before.ID, tt.change)
			same(t, again, after)
			if revisions, err := c.Revisions(t.Context(), ns, before.ID, 0, 10); err != nil || len(revisions) != tt.revision-1 {
				t.Errorf("there are %d revisions, error %v", len(revisions), err)
			}
		})
	}
}

func TestAnEditIsRefusedWithAllFaults(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	job := create(t, c, draft("@daily"))
	create(t, c, named("taken", "@daily"))
	_, err := c.Edit(t.Context(), ns, job.ID, "", func(d *control.Draft) []belfry.FieldError {
		d.Spec.Queue, d.Spec.MaxRetries = "", -1
		return []belfry.FieldError{{Field: "queue", Message: "must be text"}, {Field: "bogus", Message: "there is no such field"}}
	})
	if got := strings.Join(faultsOf(t, err), "; "); got != "queue: must be text; bogus: there is no such field; max_retries: must be from 0 to 100, not -1" {
		t.Errorf("got %s", got)
	}
	_, err = c.Edit(t.Context(), ns, job.ID, "", to(func(d *control.Draft) { d.Name = "taken" }))
	codeOf(t, err, belfry.Conflict)
	_, err = c.Edit(t.Context(), "elsewhere", job.ID, "", to(func(d *control.Draft) {}))
	codeOf(t, err, belfry.NotFound)
	found, err := c.Get(t.Context(), ns, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, found, job)
}

func TestAnEditOfWhatChangedMeanwhile(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	job := create(t, c, draft("@daily"))
	read := control.Version(job)
	tag := func(text string) control.Patch { return to(func(d *control.Draft) { d.Tags = []string{text} }) }
	job, err := c.Edit(t.Context(), ns, job.ID, read, tag("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Edit(t.Context(), ns, job.ID, read, tag("b"))
	codeOf(t, err, belfry.Changed)
	_, err = c.Edit(t.Context(), ns, job.ID, read, tag("a")) // even if it would change nothing
	codeOf(t, err, belfry.Changed)
	_, err = c.Replace(t.Context(), ns, job.ID, read, draft("@daily"))
	codeOf(t, err, belfry.Changed)
	codeOf(t, c.Delete(t.Context(), ns, job.ID, read, control.DeleteOptions{}), belfry.Changed)
	if err := c.Delete(t.Context(), ns, job.ID, control.Version(job), control.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestALostAnswerToAnEdit(t *testing.T) {
	for _, before := range []bool{false, true} {
		inBubble(t, fmt.Sprint("the request is lost: ", before), func(t *testing.T) {
			s := &lossy{Store: open(t), before: before}
			c := control.New(s, plan.Defaults{})
			job := create(t, c, draft("@daily"))
			s.losses = 2
			job, err := c.Edit(t.Context(), ns, job.ID, control.Version(job), to(func(d *control.Draft) { d.Spec.MaxRetries = 7 }))
			if err != nil || job.Revision != 2 || job.MaxRetries != 7 {
				t.Errorf("got revision %d with %d retries, error %v", job.Revision, job.MaxRetries, err)
			}
		})
	}
}

func TestMaskedSecretsSurviveAnEdit(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	d := draft("@daily")
	d.Payload = json.RawMessage(`{"url":"https://example.com/?token=abc","headers":{"Authorization":"Bearer xyz"}}`)
	job := create(t, c, d)
	shown := secret.Mask(job.Payload)
	if after := edit(t, c, job.ID, func(d *control.Draft) { d.Payload = shown }); after.Revision != 1 {
		t.Errorf("an edit to what is shown made revision %d with %s", after.Revision, after.Payload)
	}
	method := json.RawMessage(strings.Replace(string(shown), `{`, `{"method":"PUT",`, 1))
	after := edit(t, c, job.ID, func(d *control.Draft) { d.Payload = method })
	if want := `{"method":"PUT","url":"https://example.com/?token=abc","headers":{"Authorization":"Bearer xyz"}}`; string(after.Payload) != want {
		t.Errorf("got %s, want %s", after.Payload, want)
	}
	_, err := c.Edit(t.Context(), ns, job.ID, "", to(func(d *control.Draft) {
		d.Payload = json.RawMessage(`{"url":"https://example.com/?token=***","headers":{"Authorization":"***","Cookie":"***"}}`)
	}))
	oneFault(t, err, "payload.headers.Cookie", "masked")
}

func TestWhatFollowsAnEdit(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	d := named("send", "0 9 * * *")
	d.Spec.Type, d.Payload = "worker", nil
	job := create(t, c, d)
	job = edit(t, c, job.ID, func(d *control.Draft) { d.Name = "renamed" })
	if job.Handler != "send" {
		t.Errorf("a new name made the handler %q", job.Handler)
	}
	job = edit(t, c, job.ID, func(d *control.Draft) { d.Spec.Type, d.Payload = "Http", draft("").Payload })
	if job.Type != "http" || job.Handler != "" {
		t.Errorf("got type %s with handler %q", job.Type, job.Handler)
	}
	job = edit(t, c, job.ID, func(d *control.Draft) { d.Spec.Schedule = "CRON_TZ=Asia/Tokyo 0 9 * * *" })
	if job.Timezone != "Asia/Tokyo" || job.NextRunAt.Format("15:04") != "00:00" {
		t.Errorf("got %s, next run at %v", job.Timezone, job.NextRunAt)
	}
	job = edit(t, c, job.ID, func(d *control.Draft) { d.Spec.Schedule = "0 10 * * *" })
	if job.Timezone != "Asia/Tokyo" || job.NextRunAt.Format("15:04") != "01:00" {
		t.Errorf("got %s, next run at %v", job.Timezone, job.NextRunAt)
	}
	_, err := c.Edit(t.Context(), ns, job.ID, "", to(func(d *control.Draft) { d.Spec.Handler = "x" }))
	oneFault(t, err, "handler", "leave it out")
}

func TestAJobWhoseRuleCannotBeReadCanBeMended(t *testing.T) {
	s := open(t)
	c := control.New(s, plan.Defaults{})
	now := s.Now().UTC().Truncate(time.Microsecond)
	id := belfry.NewID(now)
	d := draft("every blue moon")
	d.Spec.Timezone = "UTC"
	fresh := store.NewJob{
		Job:  belfry.Job{ID: id, Namespace: ns, Revision: 1, State: belfry.JobActive, Spec: d.Spec, Payload: d.Payload, CreatedAt: now, UpdatedAt: now},
		Plan: plan.Plan{JobID: id, Shard: belfry.ShardOf(id, s.Shards()), Version: 1, NominalAt: now, NextAt: now},
	}
	if err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) { yield(fresh, nil) }, nil); err != nil {
		t.Fatal(err)
	}
	if job := edit(t, c, id, func(d *control.Draft) { d.Name = "moon" }); job.Name != "moon" || job.Revision != 1 {
		t.Errorf("got %+v", job)
	}
	_, err := c.Edit(t.Context(), ns, id, "", to(func(d *control.Draft) { d.Paused = true }))
	codeOf(t, err, belfry.Internal)
	job := edit(t, c, id, func(d *control.Draft) { d.Spec.Schedule = "@yearly" })
	if job.Revision != 2 || job.NextRunAt == nil {
		t.Errorf("got %+v", job)
	}
	if got := history(t, c, id, now); got != "0 ready r1" {
		t.Errorf("what was due became %s", got)
	}
}

func TestAnEditedRunKeepsTheRevisionThatItWasFiredFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		c := control.New(s, plan.Defaults{})
		d := named("send", "* * * * *")
		d.Spec.Type, d.Payload = "worker", json.RawMessage(`"old"`)
		job := create(t, c, d)
		start := *job.NextRunAt
		time.Sleep(time.Until(start) + 30*time.Second)
		edit(t, c, job.ID, func(d *control.Draft) {
			d.Spec.Schedule, d.Spec.Handler, d.Payload = "0 0 1 1 *", "other", json.RawMessage(`"new"`)
		})
		w := register(t, c, "default/send", "default/other")
		runs, err := c.Claim(t.Context(), ns, belfry.Claim{WorkerID: w, Lanes: []string{"default/send", "default/other"}, Limit: 10}, 0)
		if err != nil || len(runs) != 1 || string(runs[0].Payload) != `"old"` || runs[0].Spec.Handler != "send" || runs[0].Revision != 1 {
			t.Errorf("got %+v, error %v", runs, err)
		}
	})
}
