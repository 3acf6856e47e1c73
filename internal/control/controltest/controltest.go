// Package controltest is what the tests of packages control and explain share: jobs to
// create, an owner of all shards that fires them, and a scenario with one worker.
package controltest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Namespace is the namespace of the tests.
const Namespace = belfry.DefaultNamespace

// Shards lists the shards of the stores that Open opens.
var Shards = []int{0, 1, 2, 3}

// Open opens an empty store.
func Open(t testing.TB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Shards: len(Shards)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Input is a valid job of type http.
func Input(schedule string) validate.Input {
	return validate.Input{Manifest: belfry.Manifest{
		Spec:    belfry.Spec{Type: belfry.TypeHTTP, Schedule: schedule},
		Payload: json.RawMessage(`{"url": "https://example.com/hook"}`),
	}}
}

// Named is Input with a name.
func Named(name, schedule string) validate.Input {
	in := Input(schedule)
	in.Name = name
	return in
}

// WorkerInput is a job of type worker that runs only when it is triggered.
func WorkerInput(handler string) validate.Input {
	return validate.Input{Manifest: belfry.Manifest{
		Spec:    belfry.Spec{Type: belfry.TypeWorker, Handler: handler, Schedule: "@yearly", Overlap: belfry.OverlapParallel},
		Payload: json.RawMessage(`{"a":1}`),
	}}
}

// Create creates a job.
func Create(t testing.TB, c *control.Control, input validate.Input) belfry.Job {
	t.Helper()
	job, err := c.Create(t.Context(), Namespace, input, control.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Patch is a patch that gives the fields that change sets to another value.
func Patch(change func(m *belfry.Manifest)) control.Patch {
	return func(current belfry.Manifest) validate.Input {
		before := current
		change(&current)
		given := schema.FieldSet{}
		for _, f := range schema.For[belfry.Manifest]().Fields {
			if !reflect.DeepEqual(f.Value(reflect.ValueOf(before)).Interface(), f.Value(reflect.ValueOf(current)).Interface()) {
				given = append(given, f.Name)
			}
		}
		return validate.Input{Manifest: current, Fields: given}
	}
}

// Edit edits a job.
func Edit(t testing.TB, c *control.Control, id belfry.ID, change func(m *belfry.Manifest)) belfry.Job {
	t.Helper()
	job, err := c.Edit(t.Context(), Namespace, id.String(), "", Patch(change))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Register registers a worker with so many slots.
func Register(t testing.TB, c *control.Control, slots int, handlers ...string) belfry.ID {
	t.Helper()
	id := belfry.NewID(time.Now())
	reply, err := c.Heartbeat(t.Context(), Namespace, belfry.Heartbeat{WorkerID: id, Node: "test", Slots: slots, Handlers: handlers, Register: true})
	if err != nil || reply.Unknown {
		t.Fatalf("got %+v, error %v", reply, err)
	}
	return id
}

// Due returns the plans that are due, earliest first.
func Due(t testing.TB, s store.Store) []store.Due {
	t.Helper()
	var jobs []belfry.ID
	planned, err := s.Upcoming(t.Context(), store.AllUntil(s.Now(), Shards, 1000))
	for _, p := range planned {
		jobs = append(jobs, p.Plan.JobID)
	}
	var due []store.Due
	if err == nil {
		due, err = s.PlansByJob(t.Context(), jobs)
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(due, func(a, b store.Due) int { return a.Plan.NextAt.Compare(b.Plan.NextAt) })
	return due
}

// Fire does what the owner of all shards does that has been running all the time: it
// creates the runs that are due and those that were requested.
func Fire(t testing.TB, s store.Store) {
	t.Helper()
	FireSince(t, s, s.Now().UTC().Truncate(time.Microsecond))
}

// FireSince is Fire for an owner that has been running since an instant.
func FireSince(t testing.TB, s store.Store, since time.Time) {
	t.Helper()
	var steps []plan.Step
	due := Due(t, s)
	now := s.Now().UTC().Truncate(time.Microsecond)
	for _, d := range due {
		steps = append(steps, plan.Decide(subject(t, d), d.Plan, since, now))
	}
	apply(t, s, steps)
	pending, err := s.PendingTriggers(t.Context(), Shards, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	dues, triggers := map[belfry.ID]store.Due{}, map[belfry.ID][]plan.Trigger{}
	for _, p := range pending {
		id := p.Trigger.JobID
		dues[id], triggers[id] = p.Due, append(triggers[id], p.Trigger)
	}
	steps = nil
	for id, due := range dues {
		steps = append(steps, plan.Fire(subject(t, due), due.Plan, triggers[id]))
	}
	apply(t, s, steps)
}

func apply(t testing.TB, s store.Store, steps []plan.Step) {
	t.Helper()
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), steps, store.FreeSlots{})
	if err != nil || slices.Contains(fired.Applied, false) {
		t.Fatalf("fired %v, error %v", fired.Applied, err)
	}
}

func subject(t testing.TB, d store.Due) plan.Subject {
	t.Helper()
	var specs store.Specs
	spec, err := specs.Decode(d.Spec)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := plan.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Subject{Namespace: d.Namespace, Name: d.Name, Revision: d.Revision, Policy: policy}
}

// PlanOf returns the plan of a job.
func PlanOf(t testing.TB, s store.Store, job belfry.ID) plan.Plan {
	t.Helper()
	due, err := s.PlansByJob(t.Context(), []belfry.ID{job})
	if err != nil || len(due) != 1 {
		t.Fatalf("found %d plans, error %v", len(due), err)
	}
	return due[0].Plan
}

// History lists the runs and skips of a job, oldest first, as minutes after the start,
// status or reason, and revision.
func History(t testing.TB, c *control.Control, job belfry.ID, start time.Time) string {
	t.Helper()
	runs, _, err := c.JobRuns(t.Context(), Namespace, job.String(), belfry.JobRunFilter{}, store.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range slices.Backward(runs) {
		what := string(r.Status)
		if r.Reason != "" {
			what = string(r.Reason)
		}
		if r.SkippedCount > 1 {
			what = fmt.Sprintf("%s x%d", what, r.SkippedCount)
		}
		out = append(out, fmt.Sprintf("%g %s r%d", r.ScheduledAt.Sub(start).Minutes(), what, r.Revision))
	}
	return strings.Join(out, ", ")
}
