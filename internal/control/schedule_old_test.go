package control_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestWhatMayStandBesideASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in the year 2000
		c := control.New(controltest.Open(t), plan.Defaults{})
		now := time.Now().UTC()
		for _, tt := range []struct {
			name, schedule string
			bend           func(s *belfry.Spec)
			field, says    string // empty: it is fine
		}{
			{"skip in any case", "@daily", func(s *belfry.Spec) { s.DSTGap, s.DSTOverlap = " Skip", "BOTH" }, "", ""},
			{"auto", "@daily", func(s *belfry.Spec) { s.DSTOverlap = "Auto" }, "", ""},
			{"another gap", "@daily", func(s *belfry.Spec) { s.DSTGap = "jump" }, "dst_gap", `"skip"`},
			{"another overlap", "@daily", func(s *belfry.Spec) { s.DSTOverlap = "second" }, "dst_overlap", `"auto"`},
			{"bounds", "@daily", func(s *belfry.Spec) { s.StartsAt, s.EndsAt = now.AddDate(0, 0, 1), now.AddDate(0, 0, 3) }, "", ""},
			{"a start long ago", "@daily", func(s *belfry.Spec) { s.StartsAt = now.AddDate(-20, 0, 0) }, "", ""},
			{"a start before there was time", "@daily", func(s *belfry.Spec) { s.StartsAt = now.AddDate(-100, 0, 0) }, "starts_at", "1970"},
			{"an end after all time", "@daily", func(s *belfry.Spec) { s.EndsAt = now.AddDate(1000, 0, 0) }, "ends_at", "2499"},
			{"an end before the start", "@daily", func(s *belfry.Spec) { s.StartsAt, s.EndsAt = now.Add(time.Hour), now.Add(time.Hour) }, "ends_at", "after starts_at"},
			{"an end in the past", "@daily", func(s *belfry.Spec) { s.EndsAt = now.Add(-time.Hour) }, "ends_at", "never fires: it is 2000"},
			{"an end before the next time", "@daily", func(s *belfry.Spec) { s.EndsAt = now.Add(time.Hour) }, "ends_at", "its next time is 2000-01-02T00:00:00Z"},
			{"an end at the next time", "@daily", func(s *belfry.Spec) { s.EndsAt = now.AddDate(0, 0, 1) }, "", ""},
			{"a start after the last time", "0 0 0 1 1 * 2001", func(s *belfry.Spec) { s.StartsAt = now.AddDate(5, 0, 0) }, "starts_at", "over by then"},
			{"runs without number", "@daily", func(s *belfry.Spec) { s.MaxRuns = -1 }, "max_runs", "from 0 to 1000000000"},
			{"runs", "@daily", func(s *belfry.Spec) { s.MaxRuns = 1_000_000_000 }, "", ""},
			{"too many runs", "@daily", func(s *belfry.Spec) { s.MaxRuns = 1_000_000_001 }, "max_runs", "1000000000"},
			{"a day of jitter", "@daily", func(s *belfry.Spec) { s.JitterSeconds = 86400 }, "", ""},
			{"more jitter", "@daily", func(s *belfry.Spec) { s.JitterSeconds = 86401 }, "jitter_seconds", "86400"},
			{"no jitter", "@daily", func(s *belfry.Spec) { s.JitterSeconds = -1 }, "jitter_seconds", "86400"},
			{"an instant with jitter", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.JitterSeconds = 60 }, "", ""},
			{"an instant with a start", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.StartsAt = now }, "starts_at", "single instant"},
			{"an instant with an end", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.EndsAt = now.AddDate(1, 0, 0) }, "ends_at", "single instant"},
			{"an instant with a number of runs", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.MaxRuns = 1 }, "max_runs", "single instant"},
			{"an instant that the clock skips", "2000-03-26T02:30:00", func(s *belfry.Spec) { s.Timezone, s.DSTGap = "Europe/Paris", "skip" }, "schedule", "skips"},
			{"any time", "H H * * *", func(s *belfry.Spec) {}, "", ""},
			{"any time of another kind", "X H * * *", func(s *belfry.Spec) {}, "schedule", "column 1"},
			{"any year", "H H * * * * H", func(s *belfry.Spec) {}, "schedule", "years"},
			{"an interval", "PT15M", func(s *belfry.Spec) {}, "", ""},
			{"an interval that is none", "PT15X", func(s *belfry.Spec) {}, "schedule", "designator"},
			{"an interval that is over", "R3/PT1H", func(s *belfry.Spec) { s.StartsAt = now.AddDate(0, 0, -1) }, "schedule", "never fires"},
			{"a calendar rule", "FREQ=WEEKLY;BYDAY=MO", func(s *belfry.Spec) {}, "", ""},
			{"a calendar rule in a zone of its own", "DTSTART;TZID=Asia/Tokyo:20000102T090000 RRULE:FREQ=DAILY", func(s *belfry.Spec) {}, "", ""},
		} {
			d := controltest.Input(tt.schedule)
			tt.bend(&d.Spec)
			job, err := c.Create(t.Context(), ns, d, none)
			if tt.field != "" {
				oneError(t, err, tt.field, tt.says)
				if t.Failed() {
					t.Fatal(tt.name)
				}
				continue
			}
			if err != nil || job.NextRunAt == nil {
				t.Errorf("%s: next run at %v, error %v", tt.name, job.NextRunAt, err)
				continue
			}
			if _, err := plan.Compile(job.Spec); err != nil {
				t.Errorf("%s: the stored spec cannot be read: %v", tt.name, err)
			}
			found, err := c.Get(t.Context(), ns, job.ID.String())
			if err != nil {
				t.Fatal(err)
			}
			same(t, found, job)
		}
	})
}

func TestAllFaultsBesideAScheduleAreToldAtOnce(t *testing.T) {
	d := controltest.Input("61 * * * *")
	d.DSTGap, d.DSTOverlap, d.StartsAt, d.EndsAt = "x", "y", time.Unix(-1, 0), time.Unix(-2, 0)
	d.MaxRuns, d.JitterSeconds, d.Timezone = -1, -1, "Paris"
	var fields []string
	for _, f := range control.New(controltest.Open(t), plan.Defaults{}).Check(d) {
		fields = append(fields, f.Field)
	}
	if want := []string{"dst_gap", "dst_overlap", "starts_at", "ends_at", "max_runs", "jitter_seconds", "timezone", "schedule"}; !slices.Equal(fields, want) {
		t.Errorf("got  %v\nwant %v", fields, want)
	}
}

func TestAnHIsResolvedForTheJob(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	d := controltest.Named("spread", " H H(0-5) * * * ")
	d.Resolved = "0 0 * * *" // nobody asked
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
	lines := func(yield func(control.Line, error) bool) {
		for range 20 {
			if !yield(control.Line{Draft: controltest.Input("H H * * *")}, nil) {
				return
			}
		}
	}
	ids, err := c.Import(t.Context(), ns, lines, none)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, id := range ids {
		job, err := c.Get(t.Context(), ns, id.String())
		if want, _, _ := schedule.Resolve("H H * * *", id); err != nil || job.Resolved != want {
			t.Errorf("got %q, want %q, error %v", job.Resolved, want, err)
		}
		seen[job.Resolved] = true
	}
	if len(seen) < 15 {
		t.Errorf("20 jobs have %d times", len(seen))
	}
}

func TestWhatARuleIsCountedFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control.New(controltest.Open(t), plan.Defaults{})
		time.Sleep(90*time.Second + 400*time.Millisecond)
		now := time.Now().UTC()
		second := now.Truncate(time.Second)
		for _, tt := range []struct {
			schedule    string
			start, next time.Time
		}{
			{"PT15M", second, second.Add(15 * time.Minute)},
			{"@every 90s", second, second.Add(90 * time.Second)},
			{"P1D", second, second.AddDate(0, 0, 1)},
			{"FREQ=HOURLY", second, second.Add(time.Hour)},
			{"R3/PT1H", second.Add(time.Second), second.Add(time.Second)},
			{"FREQ=HOURLY;COUNT=3", second.Add(time.Second), second.Add(time.Second)},
			{"R/2000-01-01T00:00:00Z/PT1H", time.Time{}, now.Truncate(time.Hour).Add(time.Hour)},
			{"*/5 * * * *", time.Time{}, now.Truncate(5 * time.Minute).Add(5 * time.Minute)},
		} {
			job := controltest.Create(t, c, controltest.Input(tt.schedule))
			if !job.StartsAt.Equal(tt.start) || !job.NextRunAt.Equal(tt.next) {
				t.Errorf("%s starts at %v, next run at %v; want %v and %v", tt.schedule, job.StartsAt, job.NextRunAt, tt.start, tt.next)
			}
		}
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
func TestAnEditOfWhatStandsBesideARule(t *testing.T) {
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

func TestAnEditOfTheJitter(t *testing.T) {
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
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.JitterSeconds, m.Paused = 0, true })
		if p := controltest.PlanOf(t, s, job.ID); job.NextRunAt != nil || !p.NominalAt.Equal(nine) {
			t.Errorf("paused it is %+v", p)
		}
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.JitterSeconds, m.Paused = 60, false })
		if got := controltest.History(t, c, job.ID, nine); got != "0 paused r5" || job.NextRunAt.Sub(nine) <= 24*time.Hour {
			t.Errorf("got %s, next run at %v", got, job.NextRunAt)
		}
	})
}

func TestASpecSurvivesItsJSON(t *testing.T) {
	c := control.New(controltest.Open(t), plan.Defaults{})
	d := controltest.Input("H 2 * * *")
	start := time.Date(2030, 1, 1, 0, 0, 0, 123456789, time.FixedZone("", -3600))
	d.DSTGap, d.DSTOverlap, d.StartsAt, d.EndsAt, d.MaxRuns, d.JitterSeconds = "SKIP", "both", start, start.AddDate(1, 0, 0), 7, 60
	job := controltest.Create(t, c, d)
	text, err := json.Marshal(job)
	if err != nil || !strings.Contains(string(text), `"starts_at":"2030-01-01T01:00:00.123456Z"`) {
		t.Errorf("got %s, error %v", text, err)
	}
	if after := controltest.Edit(t, c, job.ID, func(*validate.Input) {}); after.Revision != 1 {
		t.Errorf("nothing made revision %d", after.Revision)
	}
}
