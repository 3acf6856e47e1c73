package explain_test

import (
	"context"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/explain"
	"github.com/belfry-sh/belfry/internal/store"
)

// changingStore changes something when it is first asked what a run waits for.
type changingStore struct {
	explain.Store
	change func()
}

func (s *changingStore) RunWait(ctx context.Context, namespace string, run belfry.ID) (store.RunWait, error) {
	if s.change != nil {
		s.change()
		s.change = nil
	}
	return s.Store.RunWait(ctx, namespace, run)
}

func TestExplainRunThatIsSettledMeanwhile(t *testing.T) {
	controltest.Run(t, "is explained by its end", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *")
		sc.FireAt("09:00")
		run := sc.Claim(1)[0]
		s := &changingStore{sc.Store, func() { sc.Finish(run, belfry.OutcomeSucceeded) }}
		why := explainFrom(sc, s, job, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00.")
		if why.WaitsFor != nil {
			sc.Errorf("it waits for %+v", why.WaitsFor)
		}
	})
}

func TestExplainRunThatIsClaimedMeanwhile(t *testing.T) {
	controltest.Run(t, "is running", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *")
		sc.FireAt("09:00")
		s := &changingStore{sc.Store, func() { sc.Claim(1) }}
		explainFrom(sc, s, job, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 has been running since 09:00 (attempt 1).")
	})
}

func TestExplainScheduleThatCannotBeParsed(t *testing.T) {
	controltest.Run(t, "is explained as far as it is known", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *")
		sc.FireAt("09:00", "09:05")
		job.Schedule, job.Resolved = "at dawn", ""
		explainJob(sc, sc.Store, job, "09:05", belfry.DecisionSkipped, belfry.ReasonOverlap,
			"2000-01-03 08:05 UTC was skipped: the run of 08:00 had not finished (overlap: skip).")
		explainJob(sc, sc.Store, job, "09:10", belfry.DecisionUnknown, "",
			`It is unknown what the job does at 2000-01-03 08:10 UTC: this server cannot parse its schedule "at dawn".`)
	})
}
