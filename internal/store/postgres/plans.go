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

// planScan reads the columns of a plan.
type planScan struct {
	p                   plan.Plan
	id                  pgtype.UUID
	next, nominal, mark pgtype.Timestamptz
}

func (s *planScan) fields() []any {
	return []any{&s.id, &s.p.Shard, &s.p.Version, &s.next, &s.nominal, &s.mark, &s.p.RunsMade, &s.p.ZoneVersion, &s.p.Once}
}

func (s *planScan) plan() plan.Plan {
	p := s.p
	p.JobID = s.id.Bytes
	p.NextAt, p.NominalAt, p.FiredFor = timeOrZero(s.next), timeOrZero(s.nominal), timeOrZero(s.mark)
	return p
}

// dueColumns are a plan with what is needed to decide it: the name only where a
// template of keys asks for it.
const dueColumns = `p.job_id, p.shard, p.version, p.next_at, p.nominal_at, p.fired_for, p.runs_made, p.zone_version, p.once, j.namespace, j.revision, j.spec,
	CASE WHEN strpos(j.spec, '{{') > 0 AND j.spec ~ '\{\{ *name *\}\}' THEN coalesce(j.name, '') ELSE '' END`

// dueScan reads dueColumns.
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

// Upcoming gives the plans that are due in the window, soonest first. The plans
// are picked from their narrow table before the jobs are looked up.
func (s *Store) Upcoming(ctx context.Context, w store.Window) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans
         WHERE shard = ANY($1) AND next_at <= $2 AND ($3::timestamptz IS NULL OR next_at > $3)
         ORDER BY next_at FETCH FIRST $4 ROWS WITH TIES)`, int32s(w.Shards), w.Until, timestamptz(w.After), int64(w.Limit))
}

// Overdue gives plans that were due before the instant, the earliest first.
func (s *Store) Overdue(ctx context.Context, shards []int, before time.Time, limit int) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans WHERE shard = ANY($1) AND next_at < $2 ORDER BY next_at LIMIT $3)`, int32s(shards), before, limit)
}

// Find gives the plans of the jobs.
func (s *Store) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	return s.queryDue(ctx, `(SELECT * FROM belfry.plans WHERE job_id = ANY($1))`, uuids(jobs))
}

// dues reads the plans that a subquery picks.
func (s *Store) queryDue(ctx context.Context, picked string, args ...any) ([]store.Due, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+dueColumns+` FROM `+picked+` p JOIN belfry.jobs j ON j.id = p.job_id ORDER BY p.next_at, p.job_id`, args...)
	if err != nil {
		return nil, wrapError("read plans", err)
	}
	dues, err := pgx.CollectRows(rows, scanDue)
	return dues, wrapError("read plans", err)
}

// Park notes beside the plan of a job why it cannot be fired.
func (s *Store) Quarantine(ctx context.Context, job belfry.ID, why string) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = s.pool.Exec(ctx, `/* park */ UPDATE belfry.plans SET parked = $2 WHERE job_id = $1 AND parked IS DISTINCT FROM $2`, uuid(job), storable(why))
	return wrapError("park", err)
}

// outdatedLook is how many plans one call looks at.
const zoneUpdateScanLimit = 8000

// Outdated gives plans that were made with an older release of the zone
// database. No index keeps them together: that would cost every firing something,
// for what happens a few times a year. One snapshot makes what was looked at and
// where that ended belong together.
func (s *Store) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) (due []store.Due, next belfry.ID, err error) {
	if limit < 1 {
		return nil, after, nil
	}
	err = pgx.BeginTxFunc(ctx, s.pool, snapshotOptions, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, restrictPlanner); err != nil {
			return err
		}
		due, next, err = plansForZoneUpdate(ctx, tx, int32s(shards), release, pgtype.UUID{Bytes: after, Valid: true}, limit)
		return err
	})
	if err != nil {
		return nil, belfry.ID{}, wrapError("read outdated plans", err)
	}
	return due, next, nil
}

func plansForZoneUpdate(ctx context.Context, tx pgx.Tx, shards []int32, release string, after pgtype.UUID, limit int) (due []store.Due, next belfry.ID, err error) {
	const walk = ` FROM belfry.plans WHERE job_id > $1 ORDER BY job_id`
	rows, err := tx.Query(ctx, `SELECT `+dueColumns+`
  FROM (SELECT *`+walk+` LIMIT $2) p JOIN belfry.jobs j ON j.id = p.job_id
 WHERE p.zone_version COLLATE "C" < $3 AND p.nominal_at IS NOT NULL AND p.shard = ANY($4) AND j.state <> 'deleted'
 ORDER BY p.job_id LIMIT $5`, after, zoneUpdateScanLimit, release, shards, limit)
	if err != nil {
		return nil, next, err
	}
	if due, err = pgx.CollectRows(rows, scanDue); err != nil {
		return nil, next, err
	}
	if len(due) == limit {
		return due, due[limit-1].Plan.JobID, nil
	}
	if rows, err = tx.Query(ctx, `SELECT job_id`+walk+` OFFSET $2 - 1 LIMIT 1`, after, zoneUpdateScanLimit); err != nil {
		return nil, next, err
	}
	last, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if len(last) > 0 {
		next = last[0].Bytes
	}
	return due, next, err
}
