package control_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Without a dst_gap of its own, a job that does not catch up on missed occurrences does
// not run skipped wall times either: that is another schedule.
func TestEditOfTheMissedWindowMayChangeTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The bubble begins on 1 January 2000; the clock is set forward on 26 March.
		c := newControl(t)
		d := controltest.Input("30 2 * * *")
		d.Timezone = "Europe/Paris"
		time.Sleep(time.Until(time.Date(2000, 3, 25, 12, 0, 0, 0, time.UTC)))
		job := controltest.Create(t, c, d)
		for _, tt := range []struct {
			missed belfry.MissedWindow
			gap    belfry.DSTGap
			want   string
		}{
			{belfry.MissedRunOnce, "", "03-26 03:00"},
			{belfry.MissedSkip, "", "03-27 02:30"},
			{belfry.MissedSkip, belfry.GapRun, "03-26 03:00"},
			{belfry.MissedRunAll, "", "03-26 03:00"},
			{belfry.MissedRunAll, belfry.GapSkip, "03-27 02:30"},
			{belfry.MissedSkip, belfry.GapSkip, "03-27 02:30"},
		} {
			after := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.MissedWindow, m.DSTGap = tt.missed, tt.gap })
			if after.NextRunAt == nil || after.NextRunAt.In(controltest.Paris).Format("01-02 15:04") != tt.want {
				t.Errorf("%s %q: next run at %v, want %s", tt.missed, tt.gap, after.NextRunAt, tt.want)
			}
		}
	})
}

func TestEditOfPoliciesLeavesThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		job := controltest.Create(t, c, controltest.Input("PT1H"))
		before := controltest.PlanOf(t, s, job.ID)
		time.Sleep(90 * time.Minute)
		after := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) {
			m.RetryDelays, m.RetryOn, m.Priority, m.MaxQueued = "1,2", "server_errors", "high", 3
			m.MissedWindow, m.MaxMissed, m.CatchUpSeconds, m.RetentionDays = "run_all", 5, 60, 7
		})
		left := controltest.PlanOf(t, s, job.ID)
		if after.Revision != 2 || !left.NominalAt.Equal(before.NominalAt) || !left.NextAt.Equal(before.NextAt) {
			t.Errorf("revision %d, plan %+v, before %+v", after.Revision, left, before)
		}
	})
}

func TestServerDefaultsApplyToJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			window time.Duration
			want   string
		}{
			{0, "60 paused x2, 180 ready"},
			{30 * time.Minute, "60 paused x3"},
		} {
			s := controltest.Open(t)
			c := control.New(s, plan.Defaults{CatchUpWindow: tt.window})
			d := controltest.Input("PT1H")
			d.Status = belfry.StatusPaused
			job := controltest.Create(t, c, d)
			start := job.CreatedAt.Truncate(time.Second)
			time.Sleep(3*time.Hour + 45*time.Minute)
			if _, err := c.Resume(t.Context(), ns, job.ID.String(), belfry.Resume{CatchUp: true}); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(controltest.History(t, c, job.ID, start), " r1", ""); got != tt.want {
				t.Errorf("window %s: got %q, want %q", tt.window, got, tt.want)
			}
		}
	})
}

func TestHIsStoredWithItsValue(t *testing.T) {
	c := newControl(t)
	d := controltest.Named("spread", " H H(0-5) * * * ")
	d.Resolved = "0 0 * * *" // it is read-only
	job := controltest.Create(t, c, d)
	want, _, err := schedule.Resolve("H H(0-5) * * *", job.ID)
	if err != nil || job.Schedule != "H H(0-5) * * *" || job.Resolved != want || want == job.Schedule {
		t.Fatalf("%q became %q, want %q, error %v", job.Schedule, job.Resolved, want, err)
	}
	replaced, made, err := c.Put(t.Context(), ns, "spread", "", d)
	if err != nil || made || replaced.Revision != 1 {
		t.Errorf("the same again made revision %d, error %v", replaced.Revision, err)
	}
	after := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = "0 3 * * *" })
	if after.Resolved != "" || after.NextRunAt.Format("15:04") != "03:00" {
		t.Errorf("without an H it is %q, next run at %v", after.Resolved, after.NextRunAt)
	}
	if back := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = "H H(0-5) * * *" }); back.Resolved != want {
		t.Errorf("back again it is %q, want %q", back.Resolved, want)
	}
}

// An interval keeps the start that it got when it was created.
func TestPutOfAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t)
		time.Sleep(90*time.Second + 400*time.Millisecond)
		second := time.Now().UTC().Truncate(time.Second)
		d := controltest.Named("every", "PT15M")
		job := controltest.Create(t, c, d)
		time.Sleep(7 * time.Minute)
		if again, _, err := c.Put(t.Context(), ns, "every", "", d); err != nil || again.Revision != 1 || !again.StartsAt.Equal(second) {
			t.Errorf("the same again: revision %d, start %v, error %v", again.Revision, again.StartsAt, err)
		}
		d.MaxRetries = belfry.Some(9)
		if again, _, err := c.Put(t.Context(), ns, "every", "", d); err != nil || again.Revision != 2 || !again.NextRunAt.Equal(second.Add(15*time.Minute)) {
			t.Errorf("more retries: revision %d, next run at %v, error %v", again.Revision, again.NextRunAt, err)
		}
		d.Schedule = "PT20M"
		if again, _, err := c.Put(t.Context(), ns, "every", "", d); err != nil || !again.NextRunAt.Equal(second.Add(27*time.Minute)) {
			t.Errorf("another interval: next run at %v, error %v", again.NextRunAt, err)
		}
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = "2000-01-02T00:00:00Z" })
		if !job.StartsAt.IsZero() || job.NextRunAt == nil {
			t.Errorf("an instant starts at %v", job.StartsAt)
		}
	})
}

// Each case is about a job that fires every minute from start, after 30 seconds.
func TestEditOfBoundsAndRuns(t *testing.T) {
	for _, tt := range []struct {
		name   string
		made   int // scheduled runs before
		change func(s *belfry.Spec, start time.Time)
		want   string
		next   time.Duration // negative: nothing is planned
	}{
		{"a start", 0, func(s *belfry.Spec, start time.Time) { s.StartsAt = start.Add(5 * time.Minute) }, "0 ready r1", 5 * time.Minute},
		{"an end", 0, func(s *belfry.Spec, start time.Time) { s.EndsAt = start.Add(time.Hour) }, "0 ready r1", time.Minute},
		{"a gap", 0, func(s *belfry.Spec, _ time.Time) { s.DSTGap = belfry.GapSkip }, "0 ready r1", time.Minute},
		{"an overlap", 0, func(s *belfry.Spec, _ time.Time) { s.DSTOverlap = belfry.DSTFirst }, "0 ready r1", time.Minute},
		{"a number of runs to come", 0, func(s *belfry.Spec, _ time.Time) { s.MaxRuns = 2 }, "", 0},
		{"a number of runs that were", 1, func(s *belfry.Spec, _ time.Time) { s.MaxRuns = 1 }, "0 ready r1, 1 ready r1", -1},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			s := controltest.Open(t)
			c := control.New(s, plan.Defaults{})
			time.Sleep(9*time.Minute + 20*time.Second)
			d := controltest.Input("* * * * *")
			d.Overlap = belfry.OverlapParallel
			job := controltest.Create(t, c, d)
			start := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
			for range tt.made {
				time.Sleep(time.Until(controltest.PlanOf(t, s, job.ID).NextAt))
				controltest.Fire(t, s)
			}
			time.Sleep(time.Until(controltest.PlanOf(t, s, job.ID).NextAt) + 30*time.Second)
			job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { tt.change(&m.Spec, start) })
			if got := controltest.History(t, c, job.ID, start); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			switch {
			case tt.next < 0 && job.NextRunAt != nil, tt.next >= 0 && (job.NextRunAt == nil || job.NextRunAt.Sub(start) != tt.next):
				t.Errorf("the next run is at %v", job.NextRunAt)
			}
			if again := controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { tt.change(&m.Spec, start.In(time.FixedZone("", 3600))) }); job.Revision != 2 || again.Revision != 2 {
				t.Errorf("revisions %d and %d", job.Revision, again.Revision)
			}
			if tt.next < 0 {
				job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.MaxRuns = 0 })
				if job.NextRunAt == nil || job.NextRunAt.Sub(start) != 2*time.Minute {
					t.Errorf("without a limit the next run is at %v", job.NextRunAt)
				}
			}
		})
	}
}

func TestEditOfTheJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		job := controltest.Create(t, c, controltest.Input("0 9 * * *"))
		nine := *job.NextRunAt
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.JitterSeconds = 3600 })
		late := job.NextRunAt.Sub(nine)
		if p := controltest.PlanOf(t, s, job.ID); late <= 0 || late > time.Hour || !p.NominalAt.Equal(nine) || job.Revision != 2 {
			t.Fatalf("the next run is %v late: %+v", late, p)
		}
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.MaxRetries = belfry.Some(9) })
		if job.NextRunAt.Sub(nine) != late {
			t.Errorf("the next run moved to %v", job.NextRunAt)
		}
		time.Sleep(time.Until(nine.Add(late / 2)))
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.EndsAt = nine.AddDate(0, 0, 7) })
		if job.NextRunAt.Sub(nine) != late {
			t.Errorf("an edit of the rule while it waits makes the next run %v", job.NextRunAt)
		}
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.JitterSeconds, m.Status = 0, belfry.StatusPaused })
		if p := controltest.PlanOf(t, s, job.ID); job.NextRunAt != nil || !p.NominalAt.Equal(nine) {
			t.Errorf("paused it is %+v", p)
		}
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.JitterSeconds, m.Status = 60, belfry.StatusActive })
		if got := controltest.History(t, c, job.ID, nine); got != "0 paused r5" || job.NextRunAt.Sub(nine) <= 24*time.Hour {
			t.Errorf("got %s, next run at %v", got, job.NextRunAt)
		}
	})
}

func TestEditOfNothingAfterJSON(t *testing.T) {
	c := newControl(t)
	d := controltest.Input("H 2 * * *")
	start := time.Date(2030, 1, 1, 0, 0, 0, 123456789, time.FixedZone("", -3600))
	d.DSTGap, d.DSTOverlap, d.StartsAt, d.EndsAt, d.MaxRuns, d.JitterSeconds = "SKIP", "both", start, start.AddDate(1, 0, 0), 7, 60
	job := controltest.Create(t, c, d)
	text, err := json.Marshal(job)
	if err != nil || !strings.Contains(string(text), `"starts_at":"2030-01-01T01:00:00.123456Z"`) {
		t.Errorf("got %s, error %v", text, err)
	}
	if after := controltest.Edit(t, c, job.ID, func(*belfry.Manifest) {}); after.Revision != 1 {
		t.Errorf("nothing made revision %d", after.Revision)
	}
}
