package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// skipsGaps is a job in Paris that does not run what the clock skips.
func skipsGaps(t *testing.T, text string) Subject {
	return subjectWith(t, "Europe/Paris "+text, func(s *belfry.Spec) { s.DSTGap = belfry.GapSkip })
}

// The clock of Paris skips the hour from 2:00, which is 1:00 in UTC, on 29 March
// 2026 and on 28 March 2027.
func TestDSTGapsAreRecorded(t *testing.T) {
	const daily, gap, sunday = "30 2 * * *", "skip 1, 2026-03-29 01:00, dst_gap", "2026-03-28 01:30"
	nightly := "0,15,30,45 2,3 * * *"
	for _, tt := range []struct {
		name, schedule string
		mark, nominal  string
		now            string
		do             string
		want           string
	}{
		{"the occurrence before", daily, "2026-03-27 01:30", sunday, sunday, "decide", "run 2026-03-28 01:30; next 2026-03-30 00:30; decided 2026-03-28 01:30"},
		{"the occurrence after", daily, sunday, "2026-03-30 00:30", "2026-03-30 00:30", "decide",
			gap + "; run 2026-03-30 00:30; next 2026-03-31 00:30; decided 2026-03-30 00:30"},
		{"several and one at the same instant", nightly, "2026-03-28 02:45", "2026-03-29 01:00", "2026-03-29 01:00", "decide",
			"skip 4, 2026-03-29 01:00, dst_gap; run 2026-03-29 01:00; next 2026-03-29 01:15; decided 2026-03-29 01:00"},
		{"and not again", nightly, "2026-03-29 01:00", "2026-03-29 01:15", "2026-03-29 01:15", "decide",
			"run 2026-03-29 01:15; next 2026-03-29 01:30; decided 2026-03-29 01:15"},
		{"between missed ones", daily, "2026-03-27 01:30", sunday, "2026-03-31 12:00", "decide",
			"skip 2, 2026-03-28 01:30 to 2026-03-30 00:30, missed_window; " + gap + "; run 2026-03-31 00:30; next 2026-04-01 00:30; decided 2026-03-31 00:30"},
		{"over years", daily, sunday, "2026-03-30 00:30", "2027-03-29 12:00", "decide",
			"skip 363, 2026-03-30 00:30 to 2027-03-27 01:30, missed_window; " + gap + "; skip 1, 2027-03-28 01:00, dst_gap; " +
				"run 2027-03-29 00:30; next 2027-03-30 00:30; decided 2027-03-29 00:30"},
		{"before the first decision", daily, "", "2026-03-30 00:30", "2026-03-30 00:30", "decide",
			"skip 1, 2025-03-30 01:00, dst_gap; " + gap + "; run 2026-03-30 00:30; next 2026-03-31 00:30; decided 2026-03-30 00:30"}, // its id is of July 2024
		{"a pause decides nothing", daily, sunday, "2026-03-30 00:30", "2026-03-29 12:00", "pause", "paused before 2026-03-30 00:30"},
		{"a pause with one due", daily, sunday, "2026-03-30 00:30", "2026-03-30 00:30", "pause",
			gap + "; run 2026-03-30 00:30; paused before 2026-03-31 00:30; decided 2026-03-30 00:30"},
		{"in a pause with one that fell into it", daily, sunday, "2026-03-30 00:30", "2026-03-30 12:00", "resume",
			"skip 1, 2026-03-30 00:30, paused; " + gap + "; next 2026-03-31 00:30; decided 2026-03-30 00:30"},
		{"in a pause of which nothing came, later", daily, sunday, "2026-03-30 00:30", "2026-03-29 12:00", "resume", "next 2026-03-30 00:30"},
		{"an edit", daily, sunday, "2026-03-30 00:30", "2026-03-29 12:00", "edit", gap + "; next 2026-03-30 07:00"},
		{"an edit before it", daily, sunday, "2026-03-30 00:30", "2026-03-28 12:00", "edit", "next 2026-03-29 07:00"},
		{"an edit to a rule that skips", daily, sunday, "2026-03-30 00:30", "2026-03-29 12:00", "edit to skip",
			gap + "; next 2026-03-30 00:20; decided 2026-03-29 12:00"},
		{"an edit from a rule that does not", "", sunday, "2026-03-30 00:30", "2026-03-29 12:00", "edit to skip",
			"next 2026-03-30 00:20; decided 2026-03-29 12:00"},
		{"deleted", daily, sunday, "2026-03-30 00:30", "2026-03-29 12:00", "delete", gap + "; next never"},
		{"deleted when it was over", daily, sunday, "", "2026-03-29 12:00", "delete", "next never"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := subject(t, "Europe/Paris 30 2 * * *")
			if tt.schedule != "" {
				s = skipsGaps(t, tt.schedule)
			}
			seen, now := planned(t, tt.nominal), at(t, tt.now)
			seen.FiredFor = at(t, tt.mark)
			var step Step
			switch tt.do {
			case "decide":
				step = Decide(s, seen, now, now)
			case "pause":
				step = Pause(s, seen, now)
			case "resume":
				seen.NextAt = time.Time{}
				step = Resume(s, seen, false, now)
			case "edit":
				step = Edit(s, editedPolicy(t, "Europe/Paris 0 9 * * *"), seen, false, now)
			case "edit to skip":
				step = Edit(s, skipsGaps(t, "20 2 * * *").Policy, seen, false, now)
			case "delete":
				step = Delete(s, seen, now)
			}
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, s, seen, step)
		})
	}
}

func TestDSTGapNoteIDDiffersFromRunID(t *testing.T) {
	s, seen := skipsGaps(t, "0 2,3 * * *"), planned(t, "2026-03-29 01:00")
	seen.FiredFor = at(t, "2026-03-28 02:00")
	step := Decide(s, seen, seen.NominalAt, seen.NominalAt)
	if len(step.Runs) != 1 || len(step.Skips) != 1 || step.Runs[0].ID == step.Skips[0].ID {
		t.Fatalf("got %+v", step)
	}
	want := belfry.RunID(job, "dst_gap", seen.NominalAt, belfry.ID{})
	if k := step.Skips[0]; k.ID != want || !k.From.Equal(seen.NominalAt) || !k.To.Equal(k.From) || !step.First().Equal(seen.NominalAt) {
		t.Errorf("got %+v", k)
	}
}

func TestDSTGapAfterTheLastRunIsNotRecorded(t *testing.T) {
	s := subjectWith(t, "Europe/Paris 30 2 * * *", func(s *belfry.Spec) { s.DSTGap, s.MaxRuns = belfry.GapSkip, 4 })
	seen, now := planned(t, "2026-03-28 01:30"), at(t, "2026-03-29 12:00")
	seen.FiredFor = at(t, "2026-03-27 01:30")
	step := Edit(s, editedPolicy(t, "Europe/Paris 0 9 * * *"), seen, false, now)
	if got, want := describe(step), "run 2026-03-28 01:30; next 2026-03-30 07:00; decided 2026-03-28 01:30"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A one-off never records gaps, so that those until now are recorded when it replaces
// what waits for its jitter.
func TestDSTGapBeforeAnEditToAOneOff(t *testing.T) {
	s := subjectWith(t, "Europe/Paris 50 1,2 * * *", func(s *belfry.Spec) { s.DSTGap, s.JitterSeconds = belfry.GapSkip, 36_000 })
	seen, now := planned(t, "2026-03-29 00:50"), at(t, "2026-03-29 01:10")
	seen.FiredFor, seen.NextAt = at(t, "2026-03-28 01:50"), s.Policy.ReadyAt(job, seen.NominalAt)
	if !seen.NextAt.After(now) {
		t.Fatal("the tests need another job")
	}
	for rule, want := range map[string]string{
		"2026-03-29T00:50:00Z":      "skip 1, 2026-03-29 01:00, dst_gap; next 2026-03-29 01:10 for 2026-03-29 00:50",
		"Europe/Paris 50 1,2 * * *": "next 2026-03-29 01:10 for 2026-03-29 00:50",
	} {
		if got := describe(Edit(s, editedPolicy(t, rule), seen, false, now)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", rule, got, want)
		}
	}
}

func TestDSTGapsOutsideTheBoundsAreNotRecorded(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		want     int
	}{
		{"", "", 10},
		{"2027-03-28 01:00", "", 9},
		{"2027-03-28 01:00:01", "", 8},
		{"", "2027-03-28 01:00", 2},
		{"2026-03-29 01:00", "2026-03-29 01:00", 1},
	} {
		s := subjectWith(t, "Europe/Paris 30 2 * * *", func(s *belfry.Spec) {
			s.DSTGap, s.StartsAt, s.EndsAt = belfry.GapSkip, at(t, tt.from), at(t, tt.to)
		})
		seen := planned(t, "2026-01-01 01:30")
		seen.FiredFor = at(t, "2025-12-31 01:30")
		if got := s.Policy.gaps(seen, at(t, "2035-12-31 00:00")); len(got) != tt.want {
			t.Errorf("from %s to %s: got %v", tt.from, tt.to, got)
		}
	}
	all := skipsGaps(t, "30 2 * * *").Policy.gaps(Plan{JobID: job}, at(t, "2499-12-31 00:00"))
	if len(all) != maxGaps || !strings.HasPrefix(short(all[maxGaps-1].From), "2499") {
		t.Errorf("%d gaps until the end of time, the last at %v", len(all), all[len(all)-1].From)
	}
}
