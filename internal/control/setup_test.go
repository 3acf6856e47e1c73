package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"

	"go.uber.org/goleak"
)

const ns = belfry.DefaultNamespace

var none control.Key

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// draft is a valid job.
func controltest.Input(schedule string) validate.Input {
	d := validate.Input{Spec: belfry.DefaultSpec(), Payload: json.RawMessage(`{"url": "https://example.com/hook"}`)}
	d.Type, d.Schedule, d.Timezone = belfry.TypeHTTP, schedule, ""
	return d
}

func controltest.Create(t *testing.T, c *control.Control, d validate.Input) belfry.Job {
	t.Helper()
	job, err := c.Create(t.Context(), ns, d, none)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func codeOf(t *testing.T, err error, want belfry.Code) {
	t.Helper()
	if err == nil || belfry.CodeOf(err) != want {
		t.Errorf("got error %v, want the code %s", err, want)
	}
}

// count says how many jobs there are.
func count(t *testing.T, c *control.Control) int {
	t.Helper()
	list, err := c.List(t.Context(), ns, belfry.JobFilter{}, store.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Jobs)
}

// faultsOf gives the faults of an error, as "field: message".
func errorsOf(t *testing.T, err error) (faults []string) {
	t.Helper()
	var e *belfry.Error
	if !errors.As(err, &e) || e.Code != belfry.Invalid || len(e.Fields) == 0 {
		t.Fatalf("got error %v, want faults", err)
	}
	for _, f := range e.Fields {
		faults = append(faults, f.Field+": "+f.Message)
	}
	return faults
}

// oneFault wants an error about one field that says something.
func oneError(t *testing.T, err error, field, says string) {
	t.Helper()
	if faults := errorsOf(t, err); len(faults) != 1 || !strings.HasPrefix(faults[0], field+": ") || !strings.Contains(faults[0], says) {
		t.Errorf("got %q, want one about %s that says %q", faults, field, says)
	}
}

var controltest.Shards = []int{0, 1, 2, 3}

// fire does what the owner of all controltest.Shards does that was in charge all the time until
// now: it makes runs of what is due and of what was asked for.
func fire(t *testing.T, s store.Store) {
	t.Helper()
	fireSince(t, s, s.Now().UTC().Truncate(time.Microsecond))
}

// fireSince is fire for an owner that is in charge since an instant.
func fireSince(t *testing.T, s store.Store, since time.Time) {
	t.Helper()
	var steps []plan.Step
	due, err := s.Overdue(t.Context(), controltest.Shards, s.Now().Add(time.Microsecond), 1000)
	if err != nil {
		t.Fatal(err)
	}
	now := s.Now().UTC().Truncate(time.Microsecond)
	for _, d := range due {
		steps = append(steps, plan.Decide(subject(t, d), d.Plan, since, now))
	}
	apply(t, s, steps)
	wishes, err := s.PendingTriggers(t.Context(), controltest.Shards, 1000)
	if err != nil {
		t.Fatal(err)
	}
	dues, triggers := map[belfry.ID]store.Due{}, map[belfry.ID][]plan.Trigger{}
	for _, w := range wishes {
		id := w.Trigger.JobID
		dues[id], triggers[id] = w.Due, append(triggers[id], w.Trigger)
	}
	steps = nil
	for id, due := range dues {
		steps = append(steps, plan.Fire(subject(t, due), due.Plan, triggers[id]))
	}
	apply(t, s, steps)
}

func apply(t *testing.T, s store.Store, steps []plan.Step) {
	t.Helper()
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), steps, store.FreeSlots{})
	if err != nil || slices.Contains(fired.Applied, false) {
		t.Fatalf("fired %v, error %v", fired.Applied, err)
	}
}

func subject(t *testing.T, d store.Due) plan.Subject {
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

// planOf gives the plan of a job.
func controltest.PlanOf(t *testing.T, s store.Store, job belfry.ID) plan.Plan {
	t.Helper()
	due, err := s.Find(t.Context(), []belfry.ID{job})
	if err != nil || len(due) != 1 {
		t.Fatalf("found %d plans, error %v", len(due), err)
	}
	return due[0].Plan
}

// history tells the runs and skips of a job, oldest first, as minutes after the
// start and what became of them.
func controltest.History(t *testing.T, c *control.Control, job belfry.ID, start time.Time) string {
	t.Helper()
	runs, err := c.JobRuns(t.Context(), ns, job.String(), store.Page{Limit: 100})
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

// same compares jobs as they are stored.
func same(t *testing.T, got, want belfry.Job) {
	t.Helper()
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) || got.State != want.State {
		t.Errorf("got  %s %s\nwant %s %s", a, got.State, b, want.State)
	}
}
