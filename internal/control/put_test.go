package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

func put(t *testing.T, c *control.Control, d validate.Input) (belfry.Job, bool) {
	t.Helper()
	job, made, err := c.Put(t.Context(), ns, "report", "", d)
	if err != nil {
		t.Fatal(err)
	}
	return job, made
}

func TestPutCreatesAndReplaces(t *testing.T) {
	c := newControl(t)
	d := controltest.Input("@daily")
	d.Tags = []string{"a"}
	first, made := put(t, c, d)
	if !made || first.Name != "report" || first.Revision != 1 {
		t.Fatalf("made %v: %+v", made, first)
	}
	again, made := put(t, c, d)
	if made || control.Version(again) != control.Version(first) {
		t.Errorf("made %v: %+v", made, again)
	}
	d.Name, d.Tags, d.MaxRetries = " report ", nil, belfry.Some(7)
	second, made := put(t, c, d)
	if made || second.ID != first.ID || second.Revision != 2 || second.MaxRetries.Value() != 7 || len(second.Tags) != 0 {
		t.Errorf("made %v: %+v", made, second)
	}
	d.Spec = controltest.Input("@daily").Spec
	if third, _ := put(t, c, d); third.MaxRetries.Value() != 3 || third.Revision != 3 {
		t.Errorf("a field that is left out has not its default: %+v", third)
	}
	if n := count(t, c); n != 1 {
		t.Errorf("there are %d jobs", n)
	}
}

func TestPutAndStatus(t *testing.T) {
	c := newControl(t)
	d := controltest.Input("@daily")
	for _, step := range []struct {
		status, want belfry.JobStatus
	}{
		{"paused", belfry.StatusPaused},
		{"", belfry.StatusPaused},
		{"active", belfry.StatusScheduled},
		{"", belfry.StatusScheduled},
		{"paused", belfry.StatusPaused},
		{"completed", belfry.StatusScheduled}, // as it may have been shown
	} {
		d.Status = step.status
		if job, _ := put(t, c, d); job.Status != step.want || job.Revision != 1 {
			t.Errorf("%+v: got %s, revision %d", step, job.Status, job.Revision)
		}
	}
}

func TestPutNameErrors(t *testing.T) {
	c := newControl(t)
	d := controltest.Input("@daily")
	d.Name, d.Queue = "other", "a/b"
	_, _, err := c.Put(t.Context(), ns, "report", "", d)
	if got := fmt.Sprint(errorsOf(t, err)); got != "[name: is not the name that the job is put under; leave it out, or rename the job by an edit queue: must have 1 to 100 letters, digits, dots, underscores and hyphens]" {
		t.Errorf("got %s", got)
	}
	controltest.Create(t, c, controltest.Named("report", "@daily"))
	_, _, err = c.Put(t.Context(), ns, "report", "", controltest.Named("other", "@daily"))
	oneError(t, err, "name", "leave it out")
	for _, bad := range []string{"", " ", "..", "a\x00b", "caf\xe9"} {
		_, _, err = c.Put(t.Context(), ns, bad, "", controltest.Input("@daily"))
		oneError(t, err, "name", "must")
	}
}

func TestPutOfAnotherVersion(t *testing.T) {
	c := newControl(t)
	_, _, err := c.Put(t.Context(), ns, "report", "1-abc", controltest.Input("@daily"))
	codeOf(t, err, belfry.Changed)
	job, _ := put(t, c, controltest.Input("@daily"))
	if _, _, err = c.Put(t.Context(), ns, "report", control.Version(job), controltest.Input("@hourly")); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Put(t.Context(), ns, "report", control.Version(job), controltest.Input("@weekly"))
	codeOf(t, err, belfry.Changed)
}

func TestPutStorm(t *testing.T) {
	c := newControl(t)
	var all sync.WaitGroup
	var made [16]bool
	var errs [16]error
	for i := range made {
		d := controltest.Input("@daily")
		d.MaxRetries = belfry.Some(i % 2)
		all.Go(func() { _, made[i], errs[i] = c.Put(t.Context(), ns, "report", "", d) })
	}
	all.Wait()
	n := 0
	for i := range made {
		if errs[i] != nil {
			t.Error(errs[i])
		}
		if made[i] {
			n++
		}
	}
	if n != 1 || count(t, c) != 1 {
		t.Errorf("%d were made, there are %d", n, count(t, c))
	}
}

// racingStore has another request act between two calls.
type racingStore struct {
	store.Store
	before, after func() // a name is looked up
}

func (r *racingStore) JobIDByName(ctx context.Context, namespace, name string) (belfry.ID, error) {
	if r.before != nil {
		r.before()
	}
	id, err := r.Store.JobIDByName(ctx, namespace, name)
	if r.after != nil {
		r.after()
	}
	return id, err
}

func TestPutDuringAnotherRequest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rounds  int
		creates bool // the other request creates the job after the lookup, or else deletes it
		made    bool
	}{
		{"that creates the job first", 1, true, false},
		{"that deletes the job first", 1, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &racingStore{Store: controltest.Open(t)}
			other, c := control.New(s.Store, plan.Defaults{}), control.New(s, plan.Defaults{})
			if !tt.creates {
				controltest.Create(t, other, controltest.Named("report", "@daily"))
			}
			s.after = func() {
				s.after = nil
				if tt.creates {
					controltest.Create(t, other, controltest.Named("report", "@daily"))
					return
				}
				if err := other.Delete(t.Context(), ns, "report", "", control.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}
			job, made := put(t, c, controltest.Input("@hourly"))
			if made != tt.made || job.Schedule != "@hourly" || count(t, c) != 1 {
				t.Errorf("made %v: %+v", made, job)
			}
		})
	}
}

func TestPutByID(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Named("report", "@daily"))
	d := controltest.Input("@hourly")
	d.Type, d.Payload = "", json.RawMessage(`7`)
	job, created, err := c.Put(t.Context(), ns, job.ID.String(), control.Version(job), d)
	if err != nil || created || job.Name != "report" || job.Handler != "report" || job.Type != "worker" || string(job.Payload) != "7" {
		t.Errorf("got %+v, error %v", job, err)
	}
	_, _, err = c.Put(t.Context(), ns, belfry.NewID(job.CreatedAt).String(), "", d)
	codeOf(t, err, belfry.NotFound)
}

func TestJobReferences(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Named("näch/tly & co", "@daily"))
	for _, ref := range []string{job.ID.String(), "näch/tly & co", " näch/tly & co "} {
		if found, err := c.Get(t.Context(), ns, ref); err != nil || found.ID != job.ID {
			t.Errorf("%q is %s, error %v", ref, found.ID, err)
		}
	}
	for _, ref := range []string{"", "NÄCH/tly & co", "a\x00b", "caf\xe9", "nobody"} {
		_, err := c.Get(t.Context(), ns, ref)
		codeOf(t, err, belfry.NotFound)
	}
	_, err := c.Get(t.Context(), "elsewhere", job.Name)
	codeOf(t, err, belfry.NotFound)
	if err.Error() != `there is no job with the id or name "näch/tly & co"` {
		t.Errorf("got %q", err)
	}
	for name, err := range map[string]error{
		"pause":     second(c.Pause(t.Context(), ns, job.Name)),
		"resume":    second(c.Resume(t.Context(), ns, job.Name, belfry.Resume{})),
		"trigger":   second(c.Trigger(t.Context(), ns, job.Name, belfry.Trigger{}, none)),
		"backfill":  second(c.Backfill(t.Context(), ns, job.Name, belfry.Backfill{From: job.CreatedAt}, none)),
		"rollback":  second(c.Rollback(t.Context(), ns, job.Name, belfry.Rollback{Revision: 1})),
		"explain":   second(c.Explain(t.Context(), ns, job.Name, "")),
		"edit":      second(c.Edit(t.Context(), ns, job.Name, "*", controltest.Patch(func(m *belfry.Manifest) { m.Queue = "slow" }))),
		"dry edit":  second(c.DiffEdit(t.Context(), ns, job.Name, "*", controltest.Patch(func(m *belfry.Manifest) { m.Queue = "slow" }))),
		"cancel":    second(c.CancelJob(t.Context(), ns, job.Name)),
		"dead list": second(c.GroupDeadLetters(t.Context(), ns, belfry.DeadFilter{Job: job.Name}, 1)),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Delete(t.Context(), ns, job.Name, "*", control.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
