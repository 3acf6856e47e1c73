package plan

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Each case is a plan that an older zone database made, in which the clock of Paris
// was set otherwise. By ours it is an hour ahead of UTC that week.
func TestUpdateZone(t *testing.T) {
	const nine, quarters = "Europe/Paris 0 9 * * *", "Europe/Paris */15 * * * *"
	for _, tt := range []struct {
		name, schedule string
		mark, nominal  string
		now            string
		paused         bool
		want           string
	}{
		{"nothing moves", nine, "08:00", "Tue 08:00", "12:00", false, "next Tue 08:00"},
		{"earlier", nine, "09:00", "Tue 09:00", "12:00", false, "skip 1, Tue 09:00, zone_change; next Tue 08:00"},
		{"later", nine, "07:00", "Tue 07:00", "12:00", false, "skip 1, Tue 07:00, zone_change; next Tue 08:00"},
		{"later, just after a run, which is not repeated", nine, "07:00", "Tue 07:00", "07:30", false, "skip 1, Tue 07:00, zone_change; next Tue 08:00"},
		{"into the past, which is due at once", nine, "2026-03-01 09:00", "09:00", "08:20", false, "skip 1, 09:00, zone_change; next 08:20 for 08:00"},
		{"due already", nine, "2026-03-01 09:00", "09:00", "09:00", false, "next 09:00"},
		{"a rule that keeps its pace", quarters, "09:00", "09:15", "09:10", false, "next 09:15"},
		{"before the first run", nine, "", "09:00", "07:00", false, "skip 1, 09:00, zone_change; next 08:00"},
		{"a new job, into the past", nine, "", "09:00", "08:20", false, "skip 1, 09:00, zone_change; next 08:20 for 08:00"},
		{"a rule that came after the mark", nine, "2026-02-01 00:00", "Tue 08:00", "12:00", false, "next Tue 08:00"},
		{"a rule that came after the mark and moves", nine, "2026-02-01 00:00", "Tue 09:00", "12:00", false, "skip 1, Tue 09:00, zone_change; next Tue 08:00"},
		{"the same, later", nine, "2026-02-01 00:00", "Tue 07:00", "12:00", false, "skip 1, Tue 07:00, zone_change; next Tue 08:00"},
		{"the same, and another that there was not before", "Europe/Paris 0 9,21 * * *", "2026-02-01 00:00", "Tue 09:00", "12:00", false,
			"skip 1, Tue 09:00, zone_change; next 20:00"},
		{"one that there was not before", nine, "2026-03-01 08:00", "Tue 08:00", "07:00", false, "skip 1, Tue 08:00, zone_change; next 08:00"},
		{"paused", nine, "09:00", "Tue 09:00", "12:00", true, "skip 1, Tue 09:00, zone_change; paused before Tue 08:00"},
		{"paused and it fell into the pause", nine, "2026-03-01 09:00", "09:00", "12:00", true, "paused before 09:00"},
		{"paused and nothing moves", nine, "08:00", "Tue 08:00", "12:00", true, "paused before Tue 08:00"},
		{"nothing is left", nine, "09:00", "", "12:00", false, "next never"},
		{"the last one is gone", "Europe/Paris 0 0 9 1 3 * 2026", "2026-03-01 09:00", "Tue 09:00", "12:00", false, "skip 1, Tue 09:00, zone_change; next never"},
		{"an instant with an offset", "2026-03-03T09:00:00Z", "", "Tue 09:00", "12:00", false, "next Tue 09:00"},
		{"an instant on the clock", "Europe/Paris 2026-03-03T09:00:00", "", "Tue 09:00", "12:00", false, "skip 1, Tue 09:00, zone_change; next Tue 08:00"},
		{"an instant on the clock, into the past", "Europe/Paris 2026-03-02T09:00:00", "", "09:00", "08:20", false,
			"skip 1, 09:00, zone_change; next 08:20 for 08:00"},
		{"an instant before what was decided", "Europe/Paris 2026-03-03T09:00:00", "Tue 08:30", "Tue 09:00", "Tue 08:40", false, "next Tue 09:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			if seen.FiredFor = at(t, tt.mark); tt.paused {
				seen.NextAt = time.Time{}
			}
			if tt.mark == "" {
				seen.JobID = belfry.NewID(at(t, "2026-03-01 12:00"))
			}
			step, moved := UpdateZone(s, seen, at(t, tt.now))
			if got := describe(step); got != tt.want || moved != (len(step.Skips) > 0) {
				t.Errorf("got  %s, moved %v\nwant %s", got, moved, tt.want)
			}
			if step.Next != seen && step.Next.ZoneVersion != schedule.ZoneVersion() {
				t.Errorf("the plan is of %s", step.Next.ZoneVersion)
			}
			checkStep(t, s, seen, step)
			if step.Due || len(step.Runs) > 0 || !step.First().IsZero() {
				t.Errorf("something was decided: %+v", step)
			}
			for _, k := range step.Skips {
				if k.ID != belfry.RunID(seen.JobID, "zone_change", seen.NominalAt, belfry.ID{}) {
					t.Errorf("got %+v", k)
				}
			}
		})
	}
}

func TestUpdateZoneOnlyForOlderReleases(t *testing.T) {
	s, now := subject(t, "Europe/Paris 0 9 * * *"), at(t, "12:00")
	for release, want := range map[string]bool{"": true, "1999a": true, schedule.ZoneVersion(): false, "2999a": false, schedule.ZoneVersion() + "x": false} {
		seen := planned(t, "Tue 09:00")
		seen.ZoneVersion, seen.FiredFor = release, at(t, "09:00")
		step, moved := UpdateZone(s, seen, now)
		if moved != want || (step.Next != seen) != want {
			t.Errorf("a plan of %q moved: %v", release, moved)
		}
		again, moved := UpdateZone(s, step.Next, now)
		if moved || again.Next != step.Next {
			t.Errorf("a plan of %q moved again, to %+v", release, again.Next)
		}
	}
}

func TestUpdateZoneKeepsJitter(t *testing.T) {
	s := subjectWith(t, "Europe/Paris 0 9 * * *", func(s *belfry.Spec) { s.JitterSeconds = 1800 })
	seen := planned(t, "Tue 09:00")
	seen.FiredFor = at(t, "09:00")
	step, moved := UpdateZone(s, seen, at(t, "12:00"))
	if want := s.Policy.ReadyAt(job, at(t, "Tue 08:00")); !moved || !step.Next.NextAt.Equal(want) || want.Equal(step.Next.NominalAt) {
		t.Errorf("got %+v, want NextAt %v", step.Next, want)
	}
	waits := planned(t, "08:00") // it has passed, but for its jitter
	waits.FiredFor, waits.NextAt = at(t, "2026-03-01 08:00"), s.Policy.ReadyAt(job, at(t, "08:00"))
	if step, moved := UpdateZone(s, waits, at(t, "08:00:01")); moved || !step.Next.NextAt.Equal(waits.NextAt) {
		t.Errorf("got %+v", step.Next)
	}
}
