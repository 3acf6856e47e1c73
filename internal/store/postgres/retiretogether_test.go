package postgres

import (
	"net/url"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// The last runs of a one-off may be settled by one call. The planner is kept to the
// plan that it has for few jobs among many.
func TestAOneOffWhoseRunsEndTogetherEndsOnce(t *testing.T) {
	u, err := url.Parse(pgtest.Database(t, Migrate))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("enable_hashjoin", "off")
	query.Set("enable_mergejoin", "off")
	u.RawQuery = query.Encode()
	s := open(t, Options{URL: u.String()})
	job := due(t, s, inParallel)
	fire(t, s, job)
	runs := []*belfry.Run{claimOne(t, s)}
	for range 3 {
		ask(t, s, job)
		runs = append(runs, claimOne(t, s))
	}
	var results []belfry.Result
	for _, run := range runs {
		results = append(results, belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeSucceeded})
	}
	if _, err := s.Finish(t.Context(), results); err != nil {
		t.Fatal(err)
	}
	got, err := s.Job(t.Context(), "default", job.ID)
	if err != nil || got.State != belfry.JobEnded || got.Status != belfry.StatusCompleted || got.LastRunAt == nil || !got.LastRunAt.Equal(runs[3].ScheduledAt) {
		t.Errorf("the job is %s and %s, and ran last at %v: %v", got.State, got.Status, got.LastRunAt, err)
	}
}
