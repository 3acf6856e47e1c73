package postgres

import (
	"math/rand/v2"
	"slices"
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

// The rows of a statement arrive before its commit. If that fails, no run was claimed: it is
// fired again.
func TestFireWhoseCommitFailsReturnsNoRuns(t *testing.T) {
	s := openEmpty(t)
	steps := dueSteps(t, s, 200)
	execSQL(t, s, `CREATE FUNCTION belfry.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the commit fails'; END $$`)
	execSQL(t, s, `CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON belfry.runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION belfry.fail()`)
	slots := store.FreeSlots{Worker: belfry.NewID(s.Now()), Lanes: []string{"default/http"}, Free: 200}
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), steps, slots)
	if err == nil || !strings.Contains(err.Error(), "the commit fails") || len(fired.Claimed) > 0 || len(fired.Applied) > 0 {
		t.Errorf("%d runs were claimed, error %v", len(fired.Claimed), err)
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

// The first steps get the free slots, and each plan gets what was decided for it, in
// whatever order the steps are.
func TestSimpleStepsInAnotherOrderThanTheirJobs(t *testing.T) {
	s := openEmpty(t)
	steps := dueSteps(t, s, 200)
	rand.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for i := range steps {
		steps[i].Next.RunsMade = int64(i + 1)
		steps[i].Next.NextAt = steps[i].Next.NextAt.Add(time.Duration(i) * time.Minute)
		steps[i].Epoch = int64(1000 + i)
	}
	slots := store.FreeSlots{Worker: belfry.NewID(s.Now()), Lanes: []string{"default/http"}, Free: 50}
	if !s.firesSimply(steps, []store.FreeSlots{slots}) {
		t.Fatalf("the steps are not simple: %+v", steps[0])
	}
	fired, err := s.Fire(t.Context(), belfry.NewID(s.Now()), steps, slots)
	if err != nil || slices.Contains(fired.Applied, false) || len(fired.Claimed) != slots.Free {
		t.Fatalf("applied %v, claimed %d: %v", fired.Applied, len(fired.Claimed), err)
	}
	claimed := map[belfry.ID]*belfry.Run{}
	for _, run := range fired.Claimed {
		claimed[run.ID] = run
	}
	for i := range steps {
		id := steps[i].Runs[0].ID
		var job belfry.ID
		var token belfry.Token
		var made, epoch int64
		var next time.Time
		err := s.pool.QueryRow(t.Context(), `SELECT r.job_id, r.token, r.epoch, p.runs_made, p.next_at FROM belfry.runs r JOIN belfry.plans p USING (job_id) WHERE r.id = $1`, uuid(id)).
			Scan(idColumn(&job), idColumn(&token), &epoch, &made, timeColumn{&next})
		if err != nil || job != steps[i].Seen.JobID || made != int64(i+1) || epoch != steps[i].Epoch || !next.Equal(steps[i].Next.NextAt) {
			t.Errorf("step %d: the run is of job %s and epoch %d, the plan has %d runs and the next at %s: %v", i, job, epoch, made, next, err)
		}
		if run := claimed[id]; (run != nil) != (i < slots.Free) || run != nil && (run.JobID != job || run.Token != token) {
			t.Errorf("step %d: claimed %+v", i, run)
		}
	}
}
