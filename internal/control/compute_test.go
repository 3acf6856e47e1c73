package control_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// largeRule is a schedule that takes some milliseconds and much memory to parse. The
// number makes it different from others.
func largeRule(n string) string {
	return "DTSTART:20260302T090000" + strings.Repeat("\nRRULE:FREQ=HOURLY;BYDAY=MO,TU,WE,TH,FR;COUNT=1000"+n, 15)
}

// lockedStore measures how much memory edits allocate while the store has the job locked.
type lockedStore struct {
	control.Store
	allocated uint64
	before    func() // called before each edit
}

func (s *lockedStore) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (belfry.Job, error) {
	if s.before != nil {
		s.before()
	}
	return s.Store.EditJob(ctx, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		change, err := edit(job, p, now)
		runtime.ReadMemStats(&after)
		s.allocated = max(s.allocated, after.TotalAlloc-before.TotalAlloc)
		return change, err
	})
}

// On SQLite all writers wait while an edit has the store, so schedules are parsed before.
func TestEditsParseNothingWhileTheJobIsLocked(t *testing.T) {
	s := &lockedStore{Store: controltest.Open(t)}
	c := control.New(s, plan.Defaults{})
	job := controltest.Create(t, c, controltest.Input(largeRule("1")))
	ref := job.ID.String()
	edit := func(change func(*belfry.Manifest)) func() error {
		return func() error { return second(c.Edit(t.Context(), ns, ref, "", controltest.Patch(change))) }
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"another schedule", edit(func(m *belfry.Manifest) { m.Schedule = largeRule("2") })},
		{"a schedule without a start", edit(func(m *belfry.Manifest) {
			m.Schedule = strings.Replace(largeRule("3"), "DTSTART:20260302T090000\n", "", 1)
		})},
		{"jitter", edit(func(m *belfry.Manifest) { m.JitterSeconds = 7 })},
		{"max_runs", edit(func(m *belfry.Manifest) { m.MaxRuns = 7 })},
		{"pause", func() error { return second(c.Pause(t.Context(), ns, ref)) }},
		{"resume", func() error { return second(c.Resume(t.Context(), ns, ref, belfry.Resume{CatchUp: true})) }},
		{"cancel", func() error { return second(c.CancelJob(t.Context(), ns, ref)) }},
		{"resume a cancelled job", func() error { return second(c.Resume(t.Context(), ns, ref, belfry.Resume{})) }},
		{"delete", func() error { return c.Delete(t.Context(), ns, ref, "", control.DeleteOptions{}) }},
	} {
		runtime.GC() // The rules before are not in use any more.
		runtime.GC()
		s.allocated = 0
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if s.allocated == 0 || s.allocated > 40<<10 {
			t.Errorf("%s: %d bytes were allocated while the job was locked", step.name, s.allocated)
		}
	}
}

// An edit that was prepared for a job that has changed since is prepared again.
func TestEditOfAJobThatChangesMeanwhile(t *testing.T) {
	inner := controltest.Open(t)
	other := control.New(inner, plan.Defaults{})
	s := &lockedStore{Store: inner}
	c := control.New(s, plan.Defaults{})
	job := controltest.Create(t, c, controltest.Input("0 9 * * *"))
	patch := func(c *control.Control, match string, change func(*belfry.Manifest)) error {
		return second(c.Edit(t.Context(), ns, job.ID.String(), match, controltest.Patch(change)))
	}
	times := 0
	s.before = func() {
		if times++; times > 1 {
			return
		}
		if err := patch(other, "", func(m *belfry.Manifest) { m.Schedule, m.Tags = "0 10 * * *", []string{"theirs"} }); err != nil {
			t.Error(err)
		}
	}
	if err := patch(c, "", func(m *belfry.Manifest) { m.MaxRuns = 7 }); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c, job.ID); got.Schedule != "0 10 * * *" || got.MaxRuns != 7 || len(got.Tags) != 1 || got.Revision != 3 {
		t.Errorf("got %+v", got)
	}
	s.before = func() {
		if err := patch(other, "", func(m *belfry.Manifest) { m.Tags = nil }); err != nil {
			t.Error(err)
		}
	}
	codeOf(t, patch(c, control.Version(get(t, c, job.ID)), func(m *belfry.Manifest) { m.MaxRuns = 8 }), belfry.Changed)
	s.before = func() {
		times++
		if err := patch(other, "", func(m *belfry.Manifest) { m.MaxRuns = 100 + times }); err != nil {
			t.Error(err)
		}
	}
	codeOf(t, patch(c, "", func(m *belfry.Manifest) { m.MaxRuns = 9 }), belfry.Conflict)
}

func TestExpensiveScheduleIsRefused(t *testing.T) {
	c := newControl(t)
	input := controltest.Input("DTSTART:20260302T090000" + strings.Repeat("\nRRULE:FREQ=HOURLY;BYDAY=MO,TU,WE,TH,FR;COUNT=1000000", 15))
	_, err := c.Create(t.Context(), ns, input, none)
	oneError(t, err, "schedule", "takes too long to compute, all its lines together; use fewer RRULE lines, UNTIL instead of COUNT")
}

func TestNothingIsComputedForNobody(t *testing.T) {
	c := newControl(t)
	job := controltest.Create(t, c, controltest.Input("0 9 * * *"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Preview(gone, belfry.PreviewRequest{Schedule: "0 9 * * *"})
	codeOf(t, err, belfry.Unavailable)
	_, err = c.Create(gone, ns, controltest.Input("0 9 * * *"), none)
	codeOf(t, err, belfry.Unavailable)
	_, err = c.Backfill(gone, ns, job.ID.String(), belfry.Backfill{From: time.Now().AddDate(0, 0, -3), DryRun: true}, none)
	codeOf(t, err, belfry.Unavailable)
}
