package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	zoneUpdateScanLimit = 8000 // plans that one call of PlansForZoneUpdate reads

	planColumnsSQL = `p.job_id, p.shard, p.version, p.next_at, p.nominal_at, p.fired_for, p.runs_made, p.zone_version, p.one_off`

	// The name is read only where a template of keys has it.
	dueColumns = planColumnsSQL + `, j.namespace, j.revision, j.spec,
	CASE WHEN strpos(j.spec, '{{') > 0 AND j.spec ~ '\{\{ *name *\}\}' THEN coalesce(j.name, '') ELSE '' END`
)

type planScan struct {
	p                       plan.Plan
	id                      pgtype.UUID
	next, nominal, firedFor pgtype.Timestamptz
}

func (s *planScan) fields() []any {
	return []any{&s.id, &s.p.Shard, &s.p.Version, &s.next, &s.nominal, &s.firedFor, &s.p.RunsMade, &s.p.ZoneVersion, &s.p.Once}
}

func (s *planScan) plan() plan.Plan {
	p := s.p
	p.JobID = s.id.Bytes
	p.NextAt, p.NominalAt, p.FiredFor = timeOrZero(s.next), timeOrZero(s.nominal), timeOrZero(s.firedFor)
	return p
}

type dueScan struct {
	planScan
	due store.Due
}

func (s *dueScan) fields() []any {
	return append(s.planScan.fields(), &s.due.Namespace, &s.due.Revision, &s.due.Spec, &s.due.Name)
}

func (s *dueScan) result() store.Due {
	s.due.Plan = s.plan()
	return s.due
}

func scanDue(row pgx.CollectableRow) (store.Due, error) {
	var scan dueScan
	err := row.Scan(scan.fields()...)
	return scan.result(), err
}

// Upcoming returns the plans that are due in the window, soonest first. They are
// selected from their narrow table before the jobs are looked up.
func (s *Store) Upcoming(ctx context.Context, w store.Window) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans
         WHERE shard = ANY($1) AND next_at <= $2 AND ($3::timestamptz IS NULL OR next_at > $3)
         ORDER BY next_at FETCH FIRST $4 ROWS WITH TIES)`, int32s(w.Shards), w.Until, timestamptz(w.After), int64(w.Limit))
}

// Overdue returns plans that were due before the instant, the earliest first.
func (s *Store) Overdue(ctx context.Context, shards []int, before time.Time, limit int) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans WHERE shard = ANY($1) AND next_at < $2 ORDER BY next_at LIMIT $3)`, int32s(shards), before, limit)
}

// PlansByJob returns the plans of the jobs.
func (s *Store) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans WHERE job_id = ANY($1))`, uuids(jobs))
}

// queryDue reads the plans of a subquery.
func (s *Store) queryDue(ctx context.Context, plans string, args ...any) ([]store.Due, error) {
	due, err := collect(ctx, s.pool, scanDue, `SELECT `+dueColumns+` FROM `+plans+` p JOIN belfry.jobs j ON j.id = p.job_id ORDER BY p.next_at, p.job_id`, args...)
	return due, wrapError("read plans", err)
}

// PlansForZoneUpdate returns plans that were made with an older release of the
// time-zone data. They have no index: it would cost every firing something, for a
// search that happens a few times a year.
func (s *Store) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []store.Due, next belfry.ID, err error) {
	if limit < 1 {
		return nil, after, nil
	}
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		const scan = ` FROM belfry.plans WHERE job_id > $1 ORDER BY job_id`
		due, err = collect(ctx, tx, scanDue, `SELECT `+dueColumns+`
  FROM (SELECT *`+scan+` LIMIT $2) p JOIN belfry.jobs j ON j.id = p.job_id
 WHERE p.zone_version COLLATE "C" < $3 AND p.nominal_at IS NOT NULL AND p.shard = ANY($4) AND j.state <> 'deleted'
 ORDER BY p.job_id LIMIT $5`, notNull(after), zoneUpdateScanLimit, release, int32s(shards), limit)
		if err != nil {
			return err
		}
		if len(due) == limit {
			next = due[limit-1].Plan.JobID
			return nil
		}
		end, err := scanEnd(ctx, tx, "job_id", scan, notNull(after), zoneUpdateScanLimit)
		next = end.Bytes
		return err
	})
	if err != nil {
		return nil, belfry.ID{}, wrapError("read plans for a time-zone data update", err)
	}
	return due, next, nil
}

// Quarantine stores why the plan of a job cannot be fired.
func (s *Store) Quarantine(ctx context.Context, job belfry.ID, why string) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, `/* quarantine */ UPDATE belfry.plans SET quarantined = $2 WHERE job_id = $1 AND quarantined IS DISTINCT FROM $2`, uuid(job), storable(why))
	return wrapError("quarantine a job", err)
}
