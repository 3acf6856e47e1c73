package control_test

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
)

// key is the key of a request for something.
func key(text, what string) control.Key {
	return control.Key{Text: text, Hash: sha256.Sum256([]byte(what))}
}

func TestCreatePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		d := controltest.Input("* * * * *")
		d.Status = belfry.StatusPaused
		job := controltest.Create(t, c, d)
		if job.Status != belfry.StatusPaused || job.State != belfry.JobPaused || job.NextRunAt != nil {
			t.Errorf("status %s, next run at %v", job.Status, job.NextRunAt)
		}
		first := controltest.PlanOf(t, s, job.ID)
		if !first.NextAt.IsZero() || first.NominalAt.IsZero() {
			t.Errorf("the plan is %+v", first)
		}
		sameJob(t, get(t, c, job.ID), job)
		time.Sleep(time.Until(first.NominalAt) + 3*time.Minute)
		job, err := c.Resume(t.Context(), ns, job.ID.String(), belfry.Resume{})
		if err != nil || !job.NextRunAt.Equal(first.NominalAt.Add(4*time.Minute)) {
			t.Errorf("the next run is at %v, error %v", job.NextRunAt, err)
		}
		if got := controltest.History(t, c, job.ID, first.NominalAt); got != "0 paused x4 r1" {
			t.Errorf("got %s", got)
		}
	})
}

func TestCreateWithAnIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t)
		d := controltest.Input(time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
		d.Name = "once"
		d.Payload = json.RawMessage(`{"url":"https://example.com","headers":{"Authorization":"Bearer abc"}}`)
		first, err := c.Create(t.Context(), ns, d, key("k", "a"))
		if err != nil || strings.Contains(string(first.Payload), "Bearer abc") {
			t.Fatalf("got %s, error %v", first.Payload, err)
		}
		time.Sleep(24 * time.Hour) // its instant has passed by now
		again, err := c.Create(t.Context(), ns, d, key("k", "a"))
		if err != nil {
			t.Fatal(err)
		}
		if control.Version(again) != control.Version(first) {
			t.Errorf("version %s became %s", control.Version(first), control.Version(again))
		}
		sameJob(t, again, first)
		_, err = c.Create(t.Context(), ns, d, key("k", "b"))
		oneError(t, err, "Idempotency-Key", "another request")
		_, err = c.Create(t.Context(), ns, d, key("other", "a"))
		oneError(t, err, "schedule", "has passed")
		if n := count(t, c); n != 1 {
			t.Errorf("there are %d jobs", n)
		}
		d.Schedule = "@daily"
		if _, err = c.Create(t.Context(), "elsewhere", d, key("k", "b")); err != nil {
			t.Errorf("another namespace has other keys: %v", err)
		}
	})
}

func TestCreateStorm(t *testing.T) {
	for _, tt := range []struct {
		name                string
		keys                [2]control.Key
		name1, name2, loser string
	}{
		{"the same key", [2]control.Key{key("k", "a"), key("k", "a")}, "", "", ""},
		{"the same name and key", [2]control.Key{key("k", "a"), key("k", "a")}, "report", "report", ""},
		{"the same name", [2]control.Key{}, "report", "report", string(belfry.Conflict)},
		{"the same name under other keys", [2]control.Key{key("k", "a"), key("l", "a")}, "report", "report", string(belfry.Conflict)},
		{"the same key for something else", [2]control.Key{key("k", "a"), key("k", "b")}, "a", "b", string(belfry.Invalid)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControl(t)
			var jobs [8]belfry.Job
			var errs [8]error
			var all sync.WaitGroup
			for i := range jobs {
				d := controltest.Input("@daily")
				d.Name = []string{tt.name1, tt.name2}[i%2]
				all.Go(func() { jobs[i], errs[i] = c.Create(t.Context(), ns, d, tt.keys[i%2]) })
			}
			all.Wait()
			if n := count(t, c); n != 1 {
				t.Errorf("there are %d jobs", n)
			}
			var made []belfry.ID
			for i, err := range errs {
				if err == nil {
					made = append(made, jobs[i].ID)
				} else if got := string(belfry.CodeOf(err)); got != tt.loser {
					t.Errorf("got %v, want %s", err, tt.loser)
				}
			}
			if n := len(slices.Compact(made)); n != 1 || tt.loser == "" && len(made) != len(jobs) {
				t.Errorf("made %v", made)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	job := belfry.Job{ID: belfry.NewID(time.Now()), Revision: 1, State: belfry.JobActive, Manifest: belfry.Manifest{Name: "a", Tags: []string{"x", "y"}}, UpdatedAt: time.Unix(1, 0)}
	seen := map[string]string{}
	for name, change := range map[string]func(*belfry.Job){
		"as it was":     func(*belfry.Job) {},
		"another job":   func(j *belfry.Job) { j.ID[15]++ },
		"revision":      func(j *belfry.Job) { j.Revision++ },
		"paused":        func(j *belfry.Job) { j.State = belfry.JobPaused },
		"name":          func(j *belfry.Job) { j.Name = "b" },
		"no name":       func(j *belfry.Job) { j.Name, j.Tags = "", []string{"a", "x", "y"} },
		"tags":          func(j *belfry.Job) { j.Tags = []string{"xy"} },
		"a microsecond": func(j *belfry.Job) { j.UpdatedAt = j.UpdatedAt.Add(time.Microsecond) },
	} {
		j := job
		change(&j)
		v := control.Version(j)
		if other, twice := seen[v]; twice {
			t.Errorf("%q and %q have the same version %s", name, other, v)
		}
		seen[v] = name
		j.LastRunAt, j.NextRunAt, j.Status = &j.UpdatedAt, nil, belfry.StatusRunning
		if control.Version(j) != v {
			t.Errorf("%s: a run changes the version", name)
		}
	}
}
