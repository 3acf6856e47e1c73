package sqlite

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestTheFirstLateResultIsTheEvidence(t *testing.T) {
	s := openStore(t)
	create(t, s, newJob(t, s, s.Now().Add(-2*time.Minute), "* * * * *"))
	fire(t, s, steps(t, s, 1), store.FreeSlots{})
	run := claim(t, s, register(t, s), 1)[0]
	finish(t, s, belfry.OutcomeInterrupted, run)
	for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
		late := belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: outcome}
		if verdicts, err := s.Finish(ctx, []belfry.Result{late}); err != nil || verdicts[0] != belfry.VerdictLate {
			t.Errorf("%s: got %v, %v, wants late", outcome, verdicts, err)
		}
	}
	got, err := s.Run(ctx, run.Namespace, run.ID)
	if err != nil || len(got.Attempts) != 1 || got.Attempts[0].LateOutcome != belfry.OutcomeSucceeded || got.Attempts[0].LateAt == nil {
		t.Errorf("the attempts are %+v, %v", got.Attempts, err)
	}
}
