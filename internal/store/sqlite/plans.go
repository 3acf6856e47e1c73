package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

const planColumns = `p.job_id, p.shard, p.version, p.next_at, p.nominal_at, p.fired_for, p.runs_made, p.zone_version, p.one_off`

// planScan reads planColumns.
type planScan struct{ plan.Plan }

func (p *planScan) fields() []any {
	return []any{key{p.JobID[:]}, &p.Shard, &p.Version, moment{&p.NextAt}, moment{&p.NominalAt}, moment{&p.FiredFor}, &p.RunsMade, &p.ZoneVersion, &p.Once}
}

// A name is read only where there may be a template that asks for it.
const dueColumns = planColumns + `, j.namespace, j.revision, j.spec, CASE WHEN instr(j.spec, '{{') THEN coalesce(j.name, '') ELSE '' END`

func (t *tx) scanDue(rows *sql.Rows, d *store.Due) error { return t.scanDueAnd(rows, d) }

// scanDueAnd reads dueColumns and what follows them.
func (t *tx) scanDueAnd(rows *sql.Rows, d *store.Due, more ...any) error {
	var p planScan
	err := rows.Scan(append(append(p.fields(), &d.Namespace, &d.Revision, &d.Spec, &d.Name), more...)...)
	d.Plan = p.Plan
	if d.Name != "" {
		keys, err := belfry.ParseKeyTemplate(t.specs.OrZero(d.Spec).IdempotencyKeyTemplate)
		if err != nil || !keys.UsesName() {
			d.Name = ""
		}
	}
	return err
}

// inShards is a condition on one node's shards, which are usually all of them.
const inShards = ` shard IN (SELECT value FROM json_each(?)) `

const (
	selectDue = `SELECT ` + dueColumns + ` FROM plans p CROSS JOIN jobs j ON j.id = p.job_id `

	// The instant at which the limit is reached, and the plans until then.
	selectBound    = `SELECT next_at FROM plans WHERE next_at > ? AND next_at <= ? AND` + inShards + `ORDER BY next_at LIMIT 1 OFFSET ?`
	selectUpcoming = selectDue + `WHERE p.next_at > ? AND p.next_at <= ? AND p.` + inShards + `ORDER BY p.next_at, p.job_id`

	selectOverdue = selectDue + `WHERE p.next_at < ? AND p.` + inShards + `ORDER BY p.next_at, p.job_id LIMIT ?`
	selectPlan    = selectDue + `WHERE p.job_id = ?`
)

// Upcoming gives the plans that are due in the window, whole instants each.
func (s *Store) Upcoming(ctx context.Context, w store.Window) (due []store.Due, err error) {
	if w.Limit <= 0 {
		return nil, ctx.Err()
	}
	after, until, shards := int64(math.MinInt64), micro(w.Until), list(w.Shards)
	if !w.After.IsZero() {
		after = micro(w.After)
	}
	err = s.read(ctx, "read the upcoming plans", func(t *tx) error {
		err := t.get([]any{&until}, selectBound, after, until, shards, int64(w.Limit-1))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		due, err = all(t, t.scanDue, selectUpcoming, after, until, shards)
		return err
	})
	return due, err
}

// Overdue gives plans that were due before the instant, the earliest first.
func (s *Store) Overdue(ctx context.Context, shards []int, before time.Time, limit int) (due []store.Due, err error) {
	err = s.read(ctx, "read the overdue plans", func(t *tx) error {
		due, err = all(t, t.scanDue, selectOverdue, micro(before), list(shards), atMost(limit))
		return err
	})
	return due, err
}

// Find gives the plans of the jobs.
func (s *Store) PlansByJob(ctx context.Context, jobs []belfry.ID) (found []store.Due, err error) {
	err = s.read(ctx, "find plans", func(t *tx) error {
		for _, id := range jobs {
			due, err := all(t, t.scanDue, selectPlan, id[:])
			if err != nil {
				return err
			}
			found = append(found, due...)
		}
		return nil
	})
	return found, err
}

const selectWishes = `SELECT ` + dueColumns + `, w.id, w.kind, w.at, w.created_at, w.payload
FROM triggers w CROSS JOIN jobs j ON j.id = w.job_id CROSS JOIN plans p ON p.job_id = w.job_id
WHERE w.fired_at IS NULL AND j.state <> 'deleted' AND w.` + inShards + `ORDER BY w.created_at, w.id LIMIT ?`

// Triggers gives triggers that are not fired yet, oldest first.
func (s *Store) PendingTriggers(ctx context.Context, shards []int, limit int) (wishes []store.PendingTrigger, err error) {
	err = s.read(ctx, "read the triggers", func(t *tx) error {
		wishes, err = all(t, func(rows *sql.Rows, w *store.PendingTrigger) error {
			d, g := &w.Due, &w.Trigger
			err := t.scanDueAnd(rows, d, key{g.ID[:]}, &g.Kind, moment{&g.At}, moment{&g.ReadyAt}, payload{&g.Payload})
			g.Namespace, g.JobID, g.Shard = d.Namespace, d.Plan.JobID, d.Plan.Shard
			return err
		}, selectWishes, list(shards), atMost(limit))
		return err
	})
	return wishes, err
}

const (
	promote = `UPDATE runs SET state = 'ready', rank = ready_at + weight WHERE id IN
(SELECT id FROM runs WHERE state = 'retry' AND ready_at <= ? AND` + inShards + `ORDER BY ready_at LIMIT ?)`

	selectRetry = `SELECT ready_at FROM runs WHERE state = 'retry' AND` + inShards + `ORDER BY ready_at LIMIT 1`
)

// Promote makes runs whose retry is due ready, and lets go what waits for nothing.
func (s *Store) Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error) {
	mine := list(shards)
	err = s.write(ctx, "promote retries", func(t *tx) error {
		if promoted, err = t.exec(promote, micro(t.now), mine, atMost(limit)); err != nil {
			return err
		}
		t.news.ready = promoted > 0
		free, err := all(t, scanID, selectHeldUp, mine, atMost(limit-promoted))
		if err != nil {
			return err
		}
		for _, job := range free {
			if err := t.goAhead(job); err != nil {
				return err
			}
		}
		promoted += len(free)
		if err := t.get([]any{moment{&next}}, selectRetry, mine); !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return nil
	})
	if err != nil {
		return 0, time.Time{}, err
	}
	return promoted, next, nil
}

func scanID(rows *sql.Rows, id *belfry.ID) error { return rows.Scan(key{id[:]}) }

// Park notes beside the plan of a job why it cannot be fired.
func (s *Store) Quarantine(ctx context.Context, job belfry.ID, why string) error {
	return s.write(ctx, "park a plan", func(t *tx) error {
		_, err := t.exec(`UPDATE plans SET quarantined = ? WHERE job_id = ?`, sanitize.Text(why, maxError), job[:])
		return err
	})
}

// countReady hops from lane to lane, so that a long queue costs no more than the
// limit.
const countReady = `
WITH RECURSIVE lanes (lane) AS (
  SELECT min(lane) FROM runs WHERE state = 'ready'
  UNION ALL
  SELECT (SELECT min(r.lane) FROM runs r WHERE r.state = 'ready' AND r.lane > lanes.lane) FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane, (SELECT count(*) FROM (SELECT 1 FROM runs r WHERE r.state = 'ready' AND r.lane = lanes.lane LIMIT ?))
FROM lanes WHERE lane IS NOT NULL`

// Ready counts the ready runs of each lane, up to the limit a lane.
func (s *Store) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	type depth struct {
		lane string
		runs int
	}
	ready := map[string]int{}
	err := s.read(ctx, "count the ready runs", func(t *tx) error {
		lanes, err := all(t, func(rows *sql.Rows, d *depth) error { return rows.Scan(&d.lane, &d.runs) }, countReady, atMost(limit))
		for _, d := range lanes {
			ready[d.lane] = d.runs
		}
		return err
	})
	return ready, err
}
