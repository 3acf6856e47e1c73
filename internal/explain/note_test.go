package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/explain"
)

// In 2000 the clock of Paris skips 2:00 to 3:00 on 26 March.
func TestNoteOfARun(t *testing.T) {
	controltest.Run(t, "at a clock change", func(sc *controltest.Scenario) {
		parallel := func(s *belfry.Spec) { s.Overlap = belfry.OverlapParallel }
		sc.SleepUntil("2000-03-25 12:00")
		runs := sc.Create("30 2 * * *", parallel)
		skips := sc.Create("30 2 * * *", parallel, func(s *belfry.Spec) { s.DSTGap = belfry.GapSkip })
		sc.FireAt("2000-03-26 12:00", "2000-03-27 12:00")
		sc.Edit(runs, func(m *belfry.Manifest) { m.Schedule = "0 13 * * *" })
		note := func(r belfry.Run) string {
			return explain.Note(sc.Context(), sc.Store, compile, r)
		}
		notes := func(job belfry.Job) string {
			var out []string
			for _, r := range sc.Runs(job) {
				out = append(out, fmt.Sprintf("%s %s%s: %s", r.ScheduledAt.Format("02 15:04"), r.Status, r.Reason, note(r)))
			}
			return strings.Join(out, "\n")
		}
		if got, want := notes(runs), "27 00:30 ready: \n26 01:00 ready: 02:30 does not exist that day: runs at 03:00"; got != want {
			sc.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if got, want := notes(skips), "27 00:30 ready: \n26 01:00 skippeddst_gap: 02:30 does not exist that day: left out"; got != want {
			sc.Errorf("got\n%s\nwant\n%s", got, want)
		}
		at := sc.Runs(runs)[1].ScheduledAt
		run := func(kind belfry.RunKind, job belfry.ID, revision int) belfry.Run {
			return belfry.Run{Kind: kind, Namespace: controltest.Namespace, JobID: job, ScheduledAt: at, Revision: revision}
		}
		for name, r := range map[string]belfry.Run{
			"a manual run":         run(belfry.KindManual, runs.ID, 1),
			"an unknown revision":  run(belfry.KindScheduled, runs.ID, 9),
			"the current revision": run(belfry.KindScheduled, runs.ID, 2),
			"an unknown job":       run(belfry.KindScheduled, belfry.NewID(time.Now()), 1),
		} {
			if got := note(r); got != "" {
				sc.Errorf("%s: %s", name, got)
			}
		}
		if got := note(belfry.Run{Kind: belfry.KindScheduled, Reason: belfry.ReasonZoneChange}); !strings.Contains(got, "time-zone data") {
			sc.Errorf("got %q", got)
		}
		if got := sc.Run(sc.Runs(runs)[1].ID).Note; !strings.Contains(got, "02:30 does not exist") {
			sc.Errorf("the run has the note %q", got)
		}
	})
}
