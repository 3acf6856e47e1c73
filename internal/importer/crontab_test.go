package importer

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

var newYear = time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)

// occurrences are the instants of a job in 2027.
func occurrences(t *testing.T, job belfry.Manifest) (all []int64) {
	t.Helper()
	overlap := map[belfry.DSTOverlap]schedule.DSTOverlap{belfry.DSTFirst: schedule.DSTFirst, belfry.DSTBoth: schedule.DSTBoth}[job.DSTOverlap]
	rule, err := schedule.Parse(job.Schedule, schedule.Options{Timezone: job.Timezone, SkipGap: job.SkipsGap(), Overlap: overlap})
	if err != nil {
		t.Fatalf("%s: %v", job.Schedule, err)
	}
	end := time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := rule.Next(time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)); !at.IsZero() && at.Before(end); at = rule.Next(at) {
		all = append(all, at.Unix())
	}
	return all
}

var notAnEntry = regexp.MustCompile(`^\s*(#|$|[A-Z_]+\s*=)`)

// What the lines of the corpus run in 2027 is what cron runs, or there is a warning.
func TestCrontabRunsAsCronDoes(t *testing.T) {
	text, err := os.ReadFile("testdata/odd.crontab")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			result, err := Crontab(string(text), Options{Now: newYear, Timezone: zone})
			if err != nil {
				t.Fatal(err)
			}
			entries := make(map[int]Entry)
			for _, e := range result.Entries {
				entries[e.Line] = e
			}
			location, err := schedule.LoadZone(zone)
			if err != nil {
				t.Fatal(err)
			}
			var simulated []*simulatedLine
			var numbers []int
			for i, line := range lines {
				e, found := entries[i+1]
				if isEntry := !notAnEntry.MatchString(line); isEntry != found {
					t.Errorf("line %d, %q: imported is %v, want %v", i+1, line, found, isEntry)
				}
				if !found {
					continue
				}
				s, ok := simulate(strings.TrimSpace(line))
				if !ok {
					if e.LeftOut == "" && (lines[i-1] != "# differs" || len(e.Warnings) == 0) {
						t.Errorf("line %d, %q: cron does not run it, but there is a job: %s", i+1, line, e.Job.Schedule)
					}
					continue
				}
				simulated, numbers = append(simulated, s), append(numbers, i)
			}
			if len(simulated) < 100 {
				t.Fatalf("the corpus has only %d lines", len(simulated))
			}
			runs := simulateYear(simulated, location, 2027)
			for k, i := range numbers {
				compareRuns(t, lines, i, entries[i+1], runs[k])
			}
		})
	}
}

func compareRuns(t *testing.T, lines []string, i int, e Entry, want []int64) {
	mayDiffer := lines[i-1] == "# differs"
	if e.LeftOut != "" {
		if len(want) > 0 {
			t.Errorf("line %d, %q is left out: %s; cron runs it %d times", i+1, lines[i], e.LeftOut, len(want))
		}
		return
	}
	got := occurrences(t, e.Job)
	switch equal := slices.Equal(got, want); {
	case equal:
	case mayDiffer && len(e.Warnings) > 0:
	default:
		k := 0
		for k < min(len(got), len(want)) && got[k] == want[k] {
			k++
		}
		at := func(all []int64) string {
			if k < len(all) {
				return time.Unix(all[k], 0).UTC().Format(time.RFC3339)
			}
			return "none"
		}
		t.Errorf("line %d, %q, as %q (gap %q, overlap %q), warnings %q: %d runs, cron has %d; the first that differs is %s, of cron %s",
			i+1, lines[i], e.Job.Schedule, e.Job.DSTGap, e.Job.DSTOverlap, e.Warnings, len(got), len(want), at(got), at(want))
	}
}
