package explain_test

import (
	"context"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/explain"
	"github.com/belfry-sh/belfry/internal/plan"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func compile(_ context.Context, spec belfry.Spec) (*plan.Policy, error) { return plan.Compile(spec) }

// explainInstant explains an instant of a job as it is stored.
func explainInstant(sc *controltest.Scenario, s explain.Store, id belfry.ID, at time.Time) (belfry.Explanation, error) {
	sc.Helper()
	job, err := s.Job(sc.Context(), controltest.Namespace, id)
	sc.OK(err)
	return explain.Explain(sc.Context(), s, compile, job, at, sc.Store.Now().UTC())
}

// explainAt explains a time of the scenario and compares the explanation.
func explainAt(sc *controltest.Scenario, job belfry.Job, at string, decision belfry.Decision, reason belfry.Reason, want string) belfry.Explanation {
	sc.Helper()
	return explainFrom(sc, sc.Store, job, at, decision, reason, want)
}

// explainFrom is explainAt from another store.
func explainFrom(sc *controltest.Scenario, s explain.Store, job belfry.Job, at string, decision belfry.Decision, reason belfry.Reason, want string) belfry.Explanation {
	sc.Helper()
	job, err := s.Job(sc.Context(), controltest.Namespace, job.ID)
	sc.OK(err)
	return explainJob(sc, s, job, at, decision, reason, want)
}

// explainJob is explainFrom for a job that need not be as it is stored.
func explainJob(sc *controltest.Scenario, s explain.Store, job belfry.Job, at string, decision belfry.Decision, reason belfry.Reason, want string) belfry.Explanation {
	sc.Helper()
	e, err := explain.Explain(sc.Context(), s, compile, job, sc.At(at), sc.Store.Now().UTC())
	if err != nil || e.Decision != decision || e.Reason != reason || e.Sentence != want {
		sc.Errorf("got  %s %s %s, error %v\nwant %s %s %s", e.Decision, e.Reason, e.Sentence, err, decision, reason, want)
	}
	return e
}
