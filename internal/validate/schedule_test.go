package validate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestScheduleAndItsBounds(t *testing.T) {
	for _, tt := range []struct {
		name, schedule string
		change         func(s *belfry.Spec)
		field, words   string // empty: it is valid
	}{
		{"skip in any case", "@daily", func(s *belfry.Spec) { s.DSTGap, s.DSTOverlap = " Skip", "BOTH" }, "", ""},
		{"auto", "@daily", func(s *belfry.Spec) { s.DSTOverlap = "Auto" }, "", ""},
		{"another gap", "@daily", func(s *belfry.Spec) { s.DSTGap = "jump" }, "dst_gap", `"skip"`},
		{"another overlap", "@daily", func(s *belfry.Spec) { s.DSTOverlap = "second" }, "dst_overlap", `"auto"`},
		{"bounds", "@daily", func(s *belfry.Spec) { s.StartsAt, s.EndsAt = now.AddDate(0, 0, 1), now.AddDate(0, 0, 3) }, "", ""},
		{"a start long ago", "@daily", func(s *belfry.Spec) { s.StartsAt = now.AddDate(-20, 0, 0) }, "", ""},
		{"a start before 1970", "@daily", func(s *belfry.Spec) { s.StartsAt = now.AddDate(-100, 0, 0) }, "starts_at", "1970"},
		{"an end after 2499", "@daily", func(s *belfry.Spec) { s.EndsAt = now.AddDate(1000, 0, 0) }, "ends_at", "2499"},
		{"an end at the start", "@daily", func(s *belfry.Spec) { s.StartsAt, s.EndsAt = now.Add(time.Hour), now.Add(time.Hour) }, "ends_at", "after starts_at"},
		{"an end in the past", "@daily", func(s *belfry.Spec) { s.EndsAt = now.Add(-time.Hour) }, "ends_at", "never fires: it is 2000"},
		{"an end before the next occurrence", "@daily", func(s *belfry.Spec) { s.EndsAt = now.Add(time.Hour) }, "ends_at", "its next occurrence is 2000-01-02T00:00:00Z"},
		{"an end at the next occurrence", "@daily", func(s *belfry.Spec) { s.EndsAt = now.AddDate(0, 0, 1) }, "", ""},
		{"a start after the last occurrence", "0 0 0 1 1 * 2001", func(s *belfry.Spec) { s.StartsAt = now.AddDate(5, 0, 0) }, "starts_at", "has ended by then"},
		{"an instant with jitter", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.JitterSeconds = 60 }, "", ""},
		{"an instant with a start", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.StartsAt = now }, "starts_at", "single instant"},
		{"an instant with an end", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.EndsAt = now.AddDate(1, 0, 0) }, "ends_at", "single instant"},
		{"an instant with a number of runs", "2000-01-02T00:00:00Z", func(s *belfry.Spec) { s.MaxRuns = 1 }, "max_runs", "single instant"},
		{"an instant that the clock skips", "2000-03-26T02:30:00", func(s *belfry.Spec) { s.Timezone, s.DSTGap = "Europe/Paris", "skip" }, "schedule", "skips"},
		{"an instant a little late", "1999-12-31T23:31:00Z", func(s *belfry.Spec) {}, "", ""},
		{"an instant that has passed", "1999-12-31T23:30:00Z", func(s *belfry.Spec) {}, "schedule", "1999-12-31T23:30:00Z has passed: it is 2000-01-01T00:00:00Z now, and an instant may be at most 30 minutes ago"},
		{"H", "H H * * *", func(s *belfry.Spec) {}, "", ""},
		{"no H", "X H * * *", func(s *belfry.Spec) {}, "schedule", "column 1"},
		{"H as year", "H H * * * * H", func(s *belfry.Spec) {}, "schedule", "years"},
		{"an interval", "PT15M", func(s *belfry.Spec) {}, "", ""},
		{"no interval", "PT15X", func(s *belfry.Spec) {}, "schedule", "designator"},
		{"an interval that has ended", "R3/PT1H", func(s *belfry.Spec) { s.StartsAt = now.AddDate(0, 0, -1) }, "schedule", "never fires"},
		{"a calendar rule", "FREQ=WEEKLY;BYDAY=MO", func(s *belfry.Spec) {}, "", ""},
		{"a calendar rule in a time zone of its own", "DTSTART;TZID=Asia/Tokyo:20000102T090000 RRULE:FREQ=DAILY", func(s *belfry.Spec) {}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(tt.schedule)
			tt.change(&in.Spec)
			r, errors := create(in)
			if tt.field != "" {
				oneError(t, errors, tt.field, tt.words)
				return
			}
			if len(errors) > 0 || r.Policy == nil {
				t.Fatal(errors)
			}
			if _, err := plan.Compile(r.Manifest.Spec); err != nil {
				t.Errorf("the normalized spec cannot be compiled: %v", err)
			}
		})
	}
}

func TestAllErrorsOfAScheduleAtOnce(t *testing.T) {
	in := input("61 * * * *")
	in.DSTGap, in.DSTOverlap, in.StartsAt, in.EndsAt = "x", "y", time.Unix(-1, 0), time.Unix(-2, 0)
	in.MaxRuns, in.JitterSeconds, in.Timezone = -1, -1, "Paris"
	_, errors := create(in)
	if want := []string{"dst_gap", "dst_overlap", "max_runs", "jitter_seconds", "starts_at", "ends_at", "timezone", "schedule"}; !slices.Equal(fieldsOf(errors), want) {
		t.Errorf("got  %v\nwant %v", errors, want)
	}
}

func TestHIsResolvedForTheJob(t *testing.T) {
	v := New(now, plan.Defaults{})
	seen := map[string]bool{}
	for range 20 {
		id := belfry.NewID(now)
		in := input(" H H(0-5) * * * ")
		in.Resolved = "0 0 * * *" // it is read-only
		r, errors := v.Create(id, in)
		want, _, err := schedule.Resolve("H H(0-5) * * *", id)
		if err != nil || len(errors) > 0 || r.Manifest.Schedule != "H H(0-5) * * *" || r.Manifest.Resolved != want {
			t.Fatalf("%q became %q, want %q, errors %v, %v", r.Manifest.Schedule, r.Manifest.Resolved, want, errors, err)
		}
		seen[want] = true
	}
	if len(seen) < 15 {
		t.Errorf("20 jobs have %d times", len(seen))
	}
}

func TestDefaultStart(t *testing.T) {
	at := now.Add(90*time.Second + 400*time.Millisecond)
	second := at.Truncate(time.Second)
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
		{"R/2000-01-01T00:00:00Z/PT1H", time.Time{}, at.Truncate(time.Hour).Add(time.Hour)},
		{"*/5 * * * *", time.Time{}, at.Truncate(5 * time.Minute).Add(5 * time.Minute)},
	} {
		r, errors := New(at, plan.Defaults{}).Create(belfry.NewID(at), input(tt.schedule))
		if len(errors) > 0 {
			t.Errorf("%s: %v", tt.schedule, errors)
			continue
		}
		if next := r.Policy.Rule.Next(at); !r.Manifest.StartsAt.Equal(tt.start) || !next.Equal(tt.next) {
			t.Errorf("%s starts at %v, next at %v; want %v and %v", tt.schedule, r.Manifest.StartsAt, next, tt.start, tt.next)
		}
	}
}

func TestEditThatLeavesTheSchedule(t *testing.T) {
	later := now.AddDate(0, 1, 0)
	for _, tt := range []struct {
		name, schedule string
		change         func(m *belfry.Manifest)
		same           bool
		errors         string
	}{
		{"nothing", "PT15M", func(m *belfry.Manifest) {}, true, "[]"},
		{"no start is the one before", "PT15M", func(m *belfry.Manifest) { m.StartsAt = time.Time{} }, true, "[]"},
		{"blanks", "0 9 * * *", func(m *belfry.Manifest) { m.Schedule = " 0 9 * * * " }, true, "[]"},
		{"no time zone is UTC", "0 9 * * *", func(m *belfry.Manifest) { m.Timezone = "" }, true, "[]"},
		{"the gap of another missed window", "0 9 * * *", func(m *belfry.Manifest) { m.MissedWindow = "skip" }, false, "[]"},
		{"a one-off that has passed", "2000-01-02T00:00:00Z", func(m *belfry.Manifest) { m.Queue = "slow" }, true, "[]"},
		{"a one-off in another notation", "2000-01-02T00:00:00Z", func(m *belfry.Manifest) { m.Schedule = "2000-01-02T01:00:00+01:00" }, false, "[]"},
		{"another one-off that has passed", "2000-01-02T00:00:00Z", func(m *belfry.Manifest) { m.Schedule = "2000-01-02T00:00:01Z" }, false, "[schedule]"},
		{"a number of runs of a one-off", "2000-01-02T00:00:00Z", func(m *belfry.Manifest) { m.MaxRuns = 1 }, true, "[max_runs]"},
		{"a start that a one-off does not have", "PT15M", func(m *belfry.Manifest) { m.Schedule = "2001-01-02T00:00:00Z" }, false, "[]"},
	} {
		job := mustCreate(t, input(tt.schedule))
		m := job.Manifest
		tt.change(&m)
		r, errors := New(later, plan.Defaults{}).Edit(job, Input{Manifest: m})
		if got := fmt.Sprint(fieldsOf(errors)); got != tt.errors || tt.errors == "[]" && (r.Policy == nil) != tt.same {
			t.Errorf("%s: errors %v, policy %v", tt.name, errors, r.Policy)
		}
		if tt.same && !r.Manifest.StartsAt.Equal(job.StartsAt) {
			t.Errorf("%s: starts at %v", tt.name, r.Manifest.StartsAt)
		}
	}
}
