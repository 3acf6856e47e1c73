package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// tb is what a test, a benchmark and a property have in common.
type tb interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// count asks for one number.
func (f *fixture) count(t tb, query string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := f.tables.QueryRowContext(context.Background(), f.text(query), f.values(args)...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// exec changes the tables behind the store's back and says how many rows.
func (f *fixture) exec(t tb, query string, args ...any) int64 {
	t.Helper()
	done, err := f.tables.ExecContext(context.Background(), f.text(query), f.values(args)...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	n, err := done.RowsAffected()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// backdate moves the instants in the columns into the past, as if so much time
// had gone by. The condition may be empty.
func (f *fixture) backdate(t tb, by time.Duration, table, columns, where string, args ...any) int64 {
	t.Helper()
	var sets []string
	for _, column := range strings.Fields(columns) {
		if f.server {
			sets = append(sets, fmt.Sprintf("%s = %s - interval '%d microseconds'", column, column, by.Microseconds()))
		} else {
			sets = append(sets, fmt.Sprintf("%s = %s - %d", column, column, by.Microseconds()))
		}
	}
	query := "UPDATE " + table + " SET " + strings.Join(sets, ", ")
	if where != "" {
		query += " WHERE " + where
	}
	return f.exec(t, query, args...)
}

// read collects the rows of a query.
func read[T any](t tb, f *fixture, scan func(rows *sql.Rows) (T, error), query string, args ...any) []T {
	t.Helper()
	rows, err := f.tables.QueryContext(context.Background(), f.text(query), f.values(args)...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		out = append(out, item)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// text numbers the placeholders where the database wants that.
func (f *fixture) text(query string) string {
	if !f.server {
		return query
	}
	var b strings.Builder
	n := 0
	for _, r := range query {
		if r != '?' {
			b.WriteRune(r)
			continue
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
	}
	return b.String()
}

// values gives ids and instants the form that they have in the tables.
func (f *fixture) values(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case belfry.ID:
			out[i] = v[:]
			if f.server {
				out[i] = v.String()
			}
		case time.Time:
			out[i] = v.UnixMicro()
			if f.server {
				out[i] = v
			}
		default:
			out[i] = arg
		}
	}
	return out
}

// idColumn reads an id; null is the zero one.
type idColumn struct{ belfry.ID }

func (c *idColumn) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		c.ID = belfry.ID{}
		return nil
	case []byte:
		if copy(c.ID[:], v) != len(c.ID) || len(v) != len(c.ID) {
			return fmt.Errorf("%x is not an id", v)
		}
		return nil
	case string:
		return c.ID.UnmarshalText([]byte(v))
	}
	return fmt.Errorf("%T is not an id", src)
}

// timeColumn reads an instant; null is the zero one.
type timeColumn struct{ time.Time }

func (c *timeColumn) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		c.Time = time.Time{}
	case int64:
		c.Time = time.UnixMicro(v).UTC()
	case time.Time:
		c.Time = v.UTC()
	default:
		return fmt.Errorf("%T is not an instant", src)
	}
	return nil
}

// plan reads a plan as it is stored.
func (f *fixture) plan(t tb, job belfry.ID) plan.Plan {
	t.Helper()
	found := read(t, f, func(rows *sql.Rows) (plan.Plan, error) {
		p := plan.Plan{JobID: job}
		var next, nominal, fired timeColumn
		err := rows.Scan(&p.Shard, &p.Version, &next, &nominal, &fired, &p.RunsMade, &p.Once, &p.ZoneVersion)
		p.NextAt, p.NominalAt, p.FiredFor = next.Time, nominal.Time, fired.Time
		return p, err
	}, `SELECT shard, version, next_at, nominal_at, fired_for, runs_made, one_off, zone_version FROM plans WHERE job_id = ?`, job)
	if len(found) != 1 {
		t.Fatalf("job %s has %d plans, wants 1", job, len(found))
	}
	return found[0]
}

// liveRow is what a live run's row says beyond a belfry.Run.
type liveRow struct {
	State                   belfry.RunStatus
	Attempt, Failures, Lost int
	Rank, Epoch, TimeoutMS  int64
	FiredBy, Worker         belfry.ID
	Lane                    string
	ReadyAt, DeadlineAt     time.Time
	Weight                  int64 // what its priority adds to its rank
	RetentionDays           int   // zero: no retention of its own
	CancelAt                time.Time
}

// liveRow reads a run that is still alive.
func (f *fixture) liveRow(t tb, run belfry.ID) liveRow {
	t.Helper()
	found := read(t, f, func(rows *sql.Rows) (liveRow, error) {
		var r liveRow
		var by, worker idColumn
		var ready, deadline, cancel timeColumn
		err := rows.Scan(&r.State, &r.Attempt, &r.Failures, &r.Lost, &r.Rank, &r.Epoch, &r.TimeoutMS, &by, &worker, &r.Lane, &ready, &deadline, &r.Weight, &r.RetentionDays, &cancel)
		r.FiredBy, r.Worker, r.ReadyAt, r.DeadlineAt, r.CancelAt = by.ID, worker.ID, ready.Time, deadline.Time, cancel.Time
		return r, err
	}, `SELECT state, attempt, failures, lost, rank, epoch, timeout_ms, fired_by, worker, lane, ready_at, deadline_at, weight, coalesce(retention_days, 0), cancel_requested_at FROM runs WHERE id = ?`, run)
	if len(found) != 1 {
		t.Fatalf("there are %d live runs with id %s, wants 1", len(found), run)
	}
	return found[0]
}

// state says where a run is, whatever table that means; empty: nowhere.
func (f *fixture) state(t tb, run belfry.ID) belfry.RunStatus {
	t.Helper()
	found := read(t, f, func(rows *sql.Rows) (belfry.RunStatus, error) {
		var s belfry.RunStatus
		err := rows.Scan(&s)
		return s, err
	}, `SELECT state FROM runs WHERE id = ? UNION ALL SELECT 'dead' FROM dead WHERE id = ? UNION ALL SELECT state FROM history WHERE id = ?`, run, run, run)
	if len(found) > 1 {
		t.Fatalf("run %s is in several places: %v", run, found)
	}
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

func scanTime(rows *sql.Rows) (time.Time, error) {
	var at timeColumn
	err := rows.Scan(&at)
	return at.Time, err
}

func scanID(rows *sql.Rows) (belfry.ID, error) {
	var id idColumn
	err := rows.Scan(&id)
	return id.ID, err
}

func scanText(rows *sql.Rows) (string, error) {
	var text string
	err := rows.Scan(&text)
	return text, err
}
