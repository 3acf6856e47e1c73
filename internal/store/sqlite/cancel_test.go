package sqlite

import (
	"testing"

	"github.com/belfry-sh/belfry"
)

// cancelAll cancels runs that a worker holds, which is told of it and lets go.
func cancelAll(t *testing.T, s *Store, runs []*belfry.Run) {
	t.Helper()
	for _, run := range runs {
		for range 2 { // Asking again does nothing.
			if err := s.Cancel(ctx, run.Namespace, run.ID); err != nil {
				t.Fatal(err)
			}
		}
		orders, err := s.Heartbeat(ctx, belfry.Heartbeat{WorkerID: run.WorkerID, Lanes: []string{testLane}})
		if err != nil || len(orders.Cancel) != 1 || orders.Cancel[0] != (belfry.HeldAttempt{RunID: run.ID, Attempt: run.Attempt}) {
			t.Fatalf("the worker is told %+v (%v), wants that the run is cancelled", orders, err)
		}
		finish(t, s, belfry.OutcomeCancelled, run)
	}
}
