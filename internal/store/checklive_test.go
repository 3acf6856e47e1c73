package store_test

import (
	"database/sql"
	"encoding/json"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// alive is a live run with the spec of the revision that it was fired from.
type alive struct {
	run, job belfry.ID
	state    belfry.RunStatus
	spec     belfry.Spec
	freed    bool // the job ran in parallel later, so that it need not wait
}

// alive gives all live runs.
func (f *fixture) alive(t tb) []alive {
	t.Helper()
	return read(t, f, func(rows *sql.Rows) (alive, error) {
		var run, job idColumn
		var a alive
		var spec string
		if err := rows.Scan(&run, &job, &a.state, &spec, &a.freed); err != nil {
			return a, err
		}
		a.run, a.job = run.ID, job.ID
		return a, json.Unmarshal([]byte(spec), &a.spec)
	}, `SELECT r.id, r.job_id, r.state, x.spec,
		EXISTS (SELECT 1 FROM (`+everySpec+`) y WHERE y.job_id = r.job_id AND y.revision > r.revision AND y.spec LIKE '%"overlap":"parallel"%')
		FROM runs r JOIN (`+everySpec+`) x ON x.job_id = r.job_id AND x.revision = r.revision`)
}

// checkLive expects every live run to be as the spec says that it was fired from,
// ready ones to stand in the queue where plan.Rank puts them, and at most one run
// of a job whose runs follow one after another not to wait. Others may run beside
// that one if the job allowed it when they were fired, or since.
func checkLive(t tb, f *fixture) {
	t.Helper()
	ahead := map[belfry.ID]int{}
	for _, a := range f.alive(t) {
		row := f.live(t, a.run)
		weight := (&plan.Policy{Spec: a.spec}).Weight()
		if row.State == belfry.RunReady && row.Rank != plan.Rank(row.ReadyAt, weight) {
			t.Errorf("invariant: the run %s is ready since %v with priority %s and has rank %d", a.run, row.ReadyAt, a.spec.Priority, row.Rank)
		}
		if row.Weight != weight || row.KeepDays != a.spec.RetentionDays {
			t.Errorf("invariant: the run %s has weight %d and is kept for %d days, its spec says %d and %d", a.run, row.Weight, row.KeepDays, weight, a.spec.RetentionDays)
		}
		if a.spec.Serial() && !a.freed && a.state != belfry.RunWaiting {
			ahead[a.job]++
		}
	}
	for job, n := range ahead {
		if n > 1 {
			t.Errorf("invariant: job %s has %d runs that do not wait, and they follow one after another", job, n)
		}
	}
}

// stuck counts the runs that wait for nothing.
const stuck = `SELECT count(*) FROM runs w WHERE w.state = 'waiting' AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = w.job_id AND r.state <> 'waiting')`

// checkWaiting expects a sweep to leave no run that waits for nothing.
func checkWaiting(t tb, f *fixture) {
	t.Helper()
	if _, _, err := f.Promote(ctx, f.all(), 1000); err != nil {
		t.Errorf("promote: %v", err)
	}
	if n := f.count(t, stuck); n != 0 {
		t.Errorf("invariant: %d runs wait for nothing", n)
	}
}
