package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// fill inserts n rows by a statement over the numbers i from 1.
func fill(t testing.TB, s *Store, n int, insert string, args ...any) {
	t.Helper()
	err := s.write(ctx, "fill", func(x *tx) error {
		_, err := x.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) `+insert, append([]any{n}, args...)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, s *Store, query string, args ...any) (n int) {
	t.Helper()
	if err := s.read(ctx, "count", func(x *tx) error { return x.get([]any{&n}, query, args...) }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

const testLane = "default/echo"

// openDir opens a store that the test closes itself.
func openDir(tb testing.TB, dir string) *Store {
	tb.Helper()
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return s
}

// opened opens a fresh store that is closed when the test ends.
func openStore(tb testing.TB) *Store {
	tb.Helper()
	s := openDir(tb, tb.TempDir())
	tb.Cleanup(func() { closeStore(tb, s) })
	return s
}

func closeStore(tb testing.TB, s *Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Errorf("close: %v", err)
	}
}

// newJob is a job with its first plan, made at the given time.
func newJob(tb testing.TB, s *Store, now time.Time, schedule string) store.NewJob {
	tb.Helper()
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule = "echo", schedule
	job := belfry.Job{
		ID: belfry.NewID(now), Namespace: belfry.DefaultNamespace, Revision: 1, State: belfry.JobActive,
		Manifest: belfry.Manifest{Spec: spec, Payload: json.RawMessage(`{"hello":"world"}`)}, CreatedAt: now, UpdatedAt: now,
	}
	policy := compile(tb, spec)
	return store.NewJob{Job: job, Plan: plan.First(job.ID, belfry.ShardOf(job.ID, s.Shards()), policy, now)}
}

func compile(tb testing.TB, spec belfry.Spec) *plan.Policy {
	tb.Helper()
	policy, err := plan.Compile(spec)
	if err != nil {
		tb.Fatalf("compile %q: %v", spec.Schedule, err)
	}
	return policy
}

func seq(jobs ...store.NewJob) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		for _, job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
	}
}

func create(tb testing.TB, s *Store, jobs ...store.NewJob) {
	tb.Helper()
	if err := s.CreateJobs(ctx, seq(jobs...), nil); err != nil {
		tb.Fatalf("create %d jobs: %v", len(jobs), err)
	}
}

// steps decides, for at most limit jobs, the first occurrence that is due.
func steps(tb testing.TB, s *Store, limit int) []plan.Step {
	tb.Helper()
	planned, err := s.Upcoming(ctx, store.AllUntil(s.Now(), s.allShards(), limit))
	if err != nil {
		tb.Fatalf("look for what is due: %v", err)
	}
	var jobs []belfry.ID
	for _, p := range planned {
		jobs = append(jobs, p.Plan.JobID)
	}
	due, err := s.PlansByJob(ctx, jobs)
	if err != nil {
		tb.Fatalf("look for what is due: %v", err)
	}
	slices.SortFunc(due, func(a, b store.Due) int { return a.Plan.NextAt.Compare(b.Plan.NextAt) })
	due = due[:min(limit, len(due))]
	policies := map[string]*plan.Policy{}
	out := make([]plan.Step, len(due))
	for i, d := range due {
		if policies[d.Spec] == nil {
			spec, err := store.DecodeSpec(d.Spec)
			if err != nil {
				tb.Fatalf("read the spec %s: %v", d.Spec, err)
			}
			policies[d.Spec] = compile(tb, spec)
		}
		out[i] = plan.Decide(plan.Subject{Namespace: d.Namespace, Revision: d.Revision, Policy: policies[d.Spec]}, d.Plan, time.Time{}, s.Now())
	}
	return out
}

// fire applies steps and expects all of them to apply.
func fire(tb testing.TB, s *Store, steps []plan.Step, slots store.FreeSlots) store.FireResult {
	tb.Helper()
	fired, err := s.Fire(ctx, belfry.ID{1}, steps, slots)
	if err != nil {
		tb.Fatalf("fire: %v", err)
	}
	for i, applied := range fired.Applied {
		if !applied {
			tb.Fatalf("step %d was left out", i)
		}
	}
	return fired
}

func register(tb testing.TB, s *Store) belfry.ID {
	tb.Helper()
	id := belfry.NewID(s.Now())
	if _, err := s.Heartbeat(ctx, belfry.Heartbeat{WorkerID: id, Node: "here", Slots: 10, Lanes: []string{testLane}, Register: true}); err != nil {
		tb.Fatalf("register: %v", err)
	}
	return id
}

func claim(tb testing.TB, s *Store, worker belfry.ID, limit int) []*belfry.Run {
	tb.Helper()
	runs, err := s.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{testLane}, Limit: limit})
	if err != nil {
		tb.Fatalf("claim: %v", err)
	}
	return runs
}

// finish settles the runs with one outcome and expects all to be accepted.
func finish(tb testing.TB, s *Store, outcome belfry.Outcome, runs ...*belfry.Run) {
	tb.Helper()
	results := make([]belfry.Result, len(runs))
	for i, r := range runs {
		results[i] = belfry.Result{Namespace: r.Namespace, RunID: r.ID, Attempt: r.Attempt, Token: r.Token, Outcome: outcome, HTTPStatus: 200, Output: "ok"}
	}
	verdicts, err := s.Finish(ctx, results)
	if err != nil {
		tb.Fatalf("finish: %v", err)
	}
	for i, v := range verdicts {
		if v != belfry.VerdictAccepted {
			tb.Fatalf("result %d is %s", i, v)
		}
	}
}

// dump writes down the schema and every row of every table.
func dump(tb testing.TB, s *Store) string {
	tb.Helper()
	var out strings.Builder
	err := s.read(ctx, "dump", func(t *tx) error {
		type object struct{ kind, name, text string }
		objects, err := all(t, func(rows *sql.Rows, o *object) error { return rows.Scan(&o.kind, &o.name, &o.text) },
			`SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name`)
		if err != nil {
			return err
		}
		for _, o := range objects {
			fmt.Fprintln(&out, o.kind, o.name, o.text)
			if o.kind != "table" {
				continue
			}
			rows, err := all(t, scanAny, `SELECT * FROM `+o.name)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if row[0] != "stopped_at" && row[0] != "opened_at" { // They are written whenever the store is opened and closed.
					fmt.Fprintln(&out, row...)
				}
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

func scanAny(rows *sql.Rows, row *[]any) error {
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	into := make([]any, len(columns))
	*row = make([]any, len(columns))
	for i := range into {
		into[i] = &(*row)[i]
	}
	return rows.Scan(into...)
}
