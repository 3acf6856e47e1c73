package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// dueSteps creates so many recurring jobs and decides their first occurrences.
func dueSteps(t *testing.T, s *Store, n int) (steps []plan.Step) {
	t.Helper()
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob(t, s)
		at := s.Now().Add(-time.Minute).Truncate(time.Minute)
		jobs[i].Plan.NextAt, jobs[i].Plan.NominalAt = at, at
		steps = append(steps, plan.Decide(subjectOf(t, jobs[i].Job), jobs[i].Plan, time.Time{}, s.Now()))
	}
	createJobs(t, s, jobs...)
	for i := range steps {
		steps[i].Seen.Version = 1
	}
	return steps
}

// A batch of simple steps looks up its plans, however many others there are.
func TestSimpleStepsReadNoOtherPlans(t *testing.T) {
	s := openEmpty(t)
	steps := dueSteps(t, s, 5000)[:1000]
	if !s.firesSimply(steps, nil) {
		t.Fatalf("the steps are not simple: %+v", steps[0])
	}
	execSlow(t, s, `ANALYZE belfry.plans`)
	_, args := simpleFireArgs(belfry.NewID(s.Now()), steps, []store.FreeSlots{{Worker: belfry.NewID(s.Now()), Lanes: []string{"default/http"}, Free: 1000}})
	rows, err := s.pool.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF) `+fireSimpleSQL, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	text := strings.Join(lines, "\n")
	if err != nil || !strings.Contains(text, "Index Scan using plans_pkey") || strings.Contains(text, "Seq Scan on plans") || strings.Contains(text, "Seq Scan on runs") {
		t.Errorf("%v\n%s", err, text)
	}
}

// What the statement for simple steps does not decide is left to the general one.
func TestSimpleStepWhoseRunExists(t *testing.T) {
	s := openEmpty(t)
	steps := dueSteps(t, s, 2)
	worker := belfry.NewID(s.Now())
	slots := store.FreeSlots{Worker: worker, Lanes: []string{"default/http"}, Free: 2}
	execSQL(t, s, `INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost)
		VALUES ('`+steps[0].Runs[0].ID.String()+`', 0, 'default', gen_random_uuid(), 1, 'scheduled', 'other', 'ready', 0, now(), now(), now(), gen_random_uuid(), 0, 0, 0, 0, 0)`)
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), steps, slots)
	if err != nil || !fired.Applied[0] || !fired.Applied[1] || len(fired.Claimed) != 1 || fired.Claimed[0].ID != steps[1].Runs[0].ID {
		t.Errorf("fired %+v: %v", fired, err)
	}
}
