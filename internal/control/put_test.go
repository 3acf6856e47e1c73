package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
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
	c := control.New(controltest.Open(t), plan.Defaults{})
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
	d.Name, d.Tags, d.MaxRetries = " report ", nil, 7
	second, made := put(t, c, d)
	if made || second.ID != first.ID || second.Revision != 2 || second.MaxRetries != 7 || len(second.Tags) != 0 {
		t.Errorf("made %v: %+v", made, second)
	}
	d.Spec = controltest.Input("@daily").Spec
	if third, _ := put(t, c, d); third.MaxRetries != 3 || third.Revision != 3 {
		t.Errorf("what the draft leaves out has not its default: %+v", third)
	}
	if n := count(t, c); n != 1 {
		t.Errorf("there are %d jobs", n)
	}
}

func TestPutAndAPause(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	d := controltest.Input("@daily")
	for _, step := range []struct {
		paused, keep bool
		want         belfry.JobStatus
	}{
		{true, true, belfry.StatusPaused}, // a new one has nothing to keep
		{false, true, belfry.StatusPaused},
		{false, false, belfry.StatusScheduled},
		{true, true, belfry.StatusScheduled},
		{true, false, belfry.StatusPaused},
	} {
		d.Paused, d.KeepPaused = step.paused, step.keep
		if job, _ := put(t, c, d); job.Status != step.want || job.Revision != 1 {
			t.Errorf("%+v: got %s, revision %d", step, job.Status, job.Revision)
		}
	}
}

func TestPutUnderAName(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	d := controltest.Input("@daily")
	d.Name, d.Queue = "other", ""
	_, _, err := c.Put(t.Context(), ns, "report", "", d)
	if got := fmt.Sprint(errorsOf(t, err)); got != "[name: is not that of the job that is put; leave it out queue: must have 1 to 100 letters, digits, dots, underscores and hyphens]" {
		t.Errorf("got %s", got)
	}
	controltest.Create(t, c, controltest.Named("report", "@daily"))
	_, _, err = c.Put(t.Context(), ns, "report", "", controltest.Named("other", "@daily"))
	oneError(t, err, "name", "leave it out")
	for _, bad := range []string{"", " ", "..", "a\x00b", "caf\xe9", belfry.NewID(time.Now()).String()} {
		_, _, err = c.Put(t.Context(), ns, bad, "", controltest.Input("@daily"))
		oneError(t, err, "name", "must")
	}
}

func TestPutOfWhatChangedMeanwhile(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	_, _, err := c.Put(t.Context(), ns, "report", "1-abc", controltest.Input("@daily"))
	codeOf(t, err, belfry.Changed)
	job, _ := put(t, c, controltest.Input("@daily"))
	if _, _, err = c.Put(t.Context(), ns, "report", control.Version(job), controltest.Input("@hourly")); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.Put(t.Context(), ns, "report", control.Version(job), controltest.Input("@weekly"))
	codeOf(t, err, belfry.Changed)
}

func TestManyPutsOfOneName(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	var all sync.WaitGroup
	var made [16]bool
	var errs [16]error
	for i := range made {
		d := controltest.Input("@daily")
		d.MaxRetries = i % 2
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

// rival has somebody else act between two calls.
type rival struct {
	store.Store
	before, after func() // a name is looked up
}

func (r *rival) JobNamed(ctx context.Context, namespace, name string) (belfry.ID, error) {
	if r.before != nil {
		r.before()
	}
	id, err := r.Store.JobNamed(ctx, namespace, name)
	if r.after != nil {
		r.after()
	}
	return id, err
}

func TestPutMeetsARival(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rounds  int
		creates bool // the rival creates the job after the look, or else deletes it
		made    bool
	}{
		{"that creates the job first", 1, true, false},
		{"that deletes the job first", 1, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &rival{Store: controltest.Open(t)}
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
				id, err := other.Find(t.Context(), ns, "report")
				if err == nil {
					err = other.Delete(t.Context(), ns, id.String(), "", control.DeleteOptions{})
				}
				if err != nil {
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

func TestReplaceByID(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	job := controltest.Create(t, c, controltest.Named("report", "@daily"))
	d := controltest.Input("@hourly")
	d.Type, d.Payload = "", json.RawMessage(`7`)
	job, err := c.Replace(t.Context(), ns, job.ID.String(), control.Version(job), d)
	if err != nil || job.Name != "report" || job.Handler != "report" || job.Type != "worker" || string(job.Payload) != "7" {
		t.Errorf("got %+v, error %v", job, err)
	}
	_, err = c.Replace(t.Context(), ns, belfry.NewID(job.CreatedAt), "", d)
	codeOf(t, err, belfry.NotFound)
}

func TestFind(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	job := controltest.Create(t, c, controltest.Named("näch/tly & co", "@daily"))
	for _, ref := range []string{job.ID.String(), "näch/tly & co", " näch/tly & co "} {
		if id, err := c.Find(t.Context(), ns, ref); err != nil || id != job.ID {
			t.Errorf("%q is %s, error %v", ref, id, err)
		}
	}
	for _, ref := range []string{"", "NÄCH/tly & co", "a\x00b", "caf\xe9", "nobody"} {
		_, err := c.Find(t.Context(), ns, ref)
		codeOf(t, err, belfry.NotFound)
	}
	_, err := c.Find(t.Context(), "elsewhere", job.Name)
	codeOf(t, err, belfry.NotFound)
	if err.Error() != `there is no job with the id or name "näch/tly & co"` {
		t.Errorf("got %q", err)
	}
}
