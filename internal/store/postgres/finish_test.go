package postgres

import (
	"slices"
	"testing"

	"github.com/belfry-sh/belfry"
)

// Results that were sent before are judged together.
func TestRepeatedResultsCostOneStatement(t *testing.T) {
	s := openEmpty(t)
	results := make([]belfry.Result, 1000)
	for i := range results {
		results[i] = belfry.Result{Namespace: "default", RunID: belfry.NewID(s.Now()), Attempt: 1, Token: belfry.NewToken(), Outcome: belfry.OutcomeSucceeded}
	}
	statements := func() int64 { return s.pool.Stat().AcquireCount() + s.finishPool.Stat().AcquireCount() }
	before := statements()
	verdicts, err := s.Finish(t.Context(), results)
	if err != nil || slices.ContainsFunc(verdicts, func(v belfry.Verdict) bool { return v != belfry.VerdictLate }) {
		t.Errorf("%v %v", verdicts, err)
	}
	if n := statements() - before; n > 2 {
		t.Errorf("it took %d statements", n)
	}
}
