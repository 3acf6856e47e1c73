package sqlstore

import (
	"context"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// The columns of plans p, and of due ones with their jobs j.
const (
	PlanColumns = `p.job_id, p.shard, p.version, p.next_at, p.nominal_at, p.fired_for, p.runs_made, p.zone_version, p.one_off`

	// DueColumns have a name only where there may be a template that uses it, see Named.
	DueColumns = PlanColumns + `, j.namespace, j.revision, j.spec, CASE WHEN strpos(j.spec, '{{') > 0 THEN coalesce(j.name, '') ELSE '' END`

	FindPlans = `SELECT ` + DueColumns + ` FROM belfry.plans p JOIN belfry.jobs j ON j.id = p.job_id WHERE p.job_id = ANY($1::uuid[])`

	ListPendingTriggers = `SELECT ` + DueColumns + `, g.id, g.kind, g.at, g.created_at, g.payload
  FROM belfry.triggers g JOIN belfry.plans p ON p.job_id = g.job_id JOIN belfry.jobs j ON j.id = g.job_id
 WHERE g.fired_at IS NULL AND j.state <> 'deleted' AND NOT (g.job_id = ANY($2::uuid[])) AND g.shard = ANY($1::integer[]) ORDER BY g.created_at, g.id LIMIT $3`
)

// PlanFields is where the columns of a plan belong.
func PlanFields(p *plan.Plan) []any {
	return []any{&p.JobID, &p.Shard, &p.Version, &p.NextAt, &p.NominalAt, &p.FiredFor, &p.RunsMade, &p.ZoneVersion, &p.Once}
}

// PlannedFields is where the columns of a plan and its digest belong.
func PlannedFields(p *store.Planned) []any { return append(PlanFields(&p.Plan), &p.Digest) }

// DueFields is where DueColumns belong.
func DueFields(d *store.Due) []any {
	return append(PlanFields(&d.Plan), &d.Namespace, &d.Revision, &d.Spec, &d.Name)
}

// Named leaves the name to those of the plans whose keys depend on it.
func (s Store) Named(due ...*store.Due) {
	for _, d := range due {
		if d.Name == "" {
			continue
		}
		keys, err := belfry.ParseKeyTemplate(s.Specs.OrZero(d.Spec).IdempotencyKeyTemplate)
		if err != nil || !keys.UsesName() {
			d.Name = ""
		}
	}
}

func (s Store) PlansByJob(ctx context.Context, jobs []belfry.ID) ([]store.Due, error) {
	found, err := list(ctx, s, Duty, "read plans", DueFields, FindPlans, jobs)
	for i := range found {
		s.Named(&found[i])
	}
	return found, err
}

// PendingTriggers: no run is ready before its trigger was stored.
func (s Store) PendingTriggers(ctx context.Context, shards []int, skip []belfry.ID, limit int) ([]store.PendingTrigger, error) {
	pending, err := list(ctx, s, Duty, "read triggers", func(p *store.PendingTrigger) []any {
		return append(DueFields(&p.Due), &p.Trigger.ID, &p.Trigger.Kind, &p.Trigger.At, &p.Trigger.ReadyAt, &p.Trigger.Payload)
	}, ListPendingTriggers, shards, skip, max(limit, 0))
	for i := range pending {
		d, g := &pending[i].Due, &pending[i].Trigger
		g.Namespace, g.JobID, g.Shard = d.Namespace, d.Plan.JobID, d.Plan.Shard
		s.Named(d)
	}
	return pending, err
}

// readyLanes goes from lane to lane, so that a long queue costs no more than the limit. Columns
// are of a lane that has ready runs.
func readyLanes(columns string) string {
	return `WITH RECURSIVE lanes (name) AS (
  SELECT min(lane) FROM belfry.runs WHERE state = 'ready'
  UNION ALL
  SELECT (SELECT min(r.lane) FROM belfry.runs r WHERE r.state = 'ready' AND r.lane > lanes.name) FROM lanes WHERE lanes.name IS NOT NULL)
SELECT name, (SELECT count(*) FROM (SELECT 1 FROM belfry.runs r WHERE r.state = 'ready' AND r.lane = lanes.name LIMIT $1) found)` + columns + ` FROM lanes WHERE name IS NOT NULL`
}

// The statements about lanes with ready runs.
var (
	CountReady = `/* count ready */ ` + readyLanes("")
	listReady  = `/* ready lanes */ ` + readyLanes(`, (SELECT coalesce(min(r.rank), 0) FROM belfry.runs r WHERE r.state = 'ready' AND r.lane = lanes.name)`)
)

func (s Store) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	return toMap(list(ctx, s, Duty, "count the ready runs", pairFields[string, int], CountReady, max(limit, 0)))
}

func (s Store) ReadyLanes(ctx context.Context, limit int) (map[string]store.ReadyLane, error) {
	type row = pair[string, store.ReadyLane]
	return toMap(list(ctx, s, Duty, "list the lanes with ready runs", func(r *row) []any { return []any{&r.key, &r.value.Count, &r.value.Rank} }, listReady, limit))
}

func (s Store) Workers(ctx context.Context) ([]store.Worker, error) {
	return list(ctx, s, UrgentRead, "list workers", func(w *store.Worker) []any {
		return []any{&w.ID, &w.Node, &w.Slots, store.JSONColumn{To: &w.Lanes}, &w.StartedAt, &w.LastSeen}
	}, `SELECT id, node, slots, lanes, started_at, last_seen FROM belfry.workers ORDER BY node, id`)
}

// CountRunning counts the running attempts by worker.
const CountRunning = `/* stats */ SELECT worker, count(*) FROM (SELECT worker FROM belfry.runs WHERE state = 'running' LIMIT $1) r GROUP BY worker`

func (s Store) Running(ctx context.Context) (map[belfry.ID]int, error) {
	return toMap(list(ctx, s, Read, "count running attempts", pairFields[belfry.ID, int], CountRunning, store.MaxRunningCounted))
}

// SetOnce stores a setting unless it has a value, and returns its value.
func (s Store) SetOnce(ctx context.Context, name, value string) (stored string, err error) {
	err = s.DB.Do(ctx, Change, "store the setting "+name, func(t Tx) error {
		if _, err := t.Exec(`INSERT INTO belfry.settings (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`, name, value); err != nil {
			return err
		}
		return t.Query([]any{&stored}, func() {}, `SELECT value FROM belfry.settings WHERE name = $1`, name)
	})
	return stored, err
}

// Statements about plans that older time-zone data made. There is no index for it: that would cost
// every firing something, for a search that happens a few times a year.
const (
	FindZoneFloor  = `SELECT job_id FROM belfry.plans WHERE job_id > $1 ORDER BY job_id LIMIT 1 OFFSET $2`
	ListZoneUpdate = `SELECT ` + DueColumns + ` FROM belfry.plans p JOIN belfry.jobs j ON j.id = p.job_id
 WHERE p.job_id > $1 AND p.job_id <= $2 AND p.zone_version COLLATE "C" < $3 AND p.nominal_at IS NOT NULL AND p.shard = ANY($4::integer[]) AND j.state <> 'deleted'
 ORDER BY p.job_id LIMIT $5`
)

// ZoneUpdate is PlansForZoneUpdate, which reads at most so many plans.
func (s Store) ZoneUpdate(ctx context.Context, scanned int, shards []int, release string, after belfry.ID, limit int) (due []store.Due, next belfry.ID, err error) {
	if limit < 1 {
		return nil, after, ctx.Err()
	}
	err = s.DB.Do(ctx, Scan, "read plans for a time-zone data update", func(t Tx) error {
		floor := maxID
		if err := t.Query([]any{&next}, func() { floor = next }, FindZoneFloor, after, scanned-1); err != nil {
			return err
		}
		due, err = all(t, DueFields, ListZoneUpdate, after, floor, release, shards, limit)
		return err
	})
	if err != nil {
		return nil, belfry.ID{}, err
	}
	for i := range due {
		s.Named(&due[i])
	}
	if len(due) == limit {
		next = due[limit-1].Plan.JobID
	}
	return due, next, nil
}

// LeaseHeld is a condition on a lease l. One that was renewed in the future was renewed before the
// clock was set back.
const LeaseHeld = `(l.expires_at > clock_timestamp() AND l.renewed_at < clock_timestamp() + interval '5 seconds')`

// LeaseFields is where the name, the owner and the epoch of a lease belong.
func LeaseFields(l *store.Lease) []any { return []any{&l.Name, &l.Owner, &l.Epoch} }

func (s Store) Held(ctx context.Context, prefix string) ([]store.Lease, error) {
	return list(ctx, s, UrgentRead, "list leases", LeaseFields, `SELECT name, owner, epoch FROM belfry.leases l WHERE substr(name, 1, length($1)) = $1 AND `+LeaseHeld+` ORDER BY name`, prefix)
}

// ReadLog reads the pieces of a log from a position, those of the last attempt for attempt 0.
const ReadLog = `SELECT attempt, start, stop, text FROM belfry.attempt_logs WHERE run_id = $1 AND namespace = $2 AND stop > $4
   AND attempt = CASE WHEN $3::integer > 0 THEN $3 ELSE (SELECT max(attempt) FROM belfry.attempt_logs WHERE run_id = $1) END ORDER BY start`

func (s Store) RunLog(ctx context.Context, namespace string, run belfry.ID, q belfry.LogQuery) (log belfry.RunLog, err error) {
	err = s.DB.Do(ctx, Read, "read a log", func(t Tx) error {
		pieces, err := all(t, func(p *store.LogPiece) []any { return []any{&p.Attempt, &p.Start, &p.Stop, &p.Text} }, ReadLog, run, namespace, q.Attempt, q.Offset)
		if err == nil && len(pieces) == 0 {
			_, err = RunOf(t, namespace, run)
		}
		log = store.JoinLog(pieces, run, q)
		return err
	})
	return log, err
}

func (s Store) ReadyRuns(ctx context.Context, lane string, shards []int, limit int) ([]belfry.ID, error) {
	return list(ctx, s, Read, "list ready runs", idField, `/* list ready */ SELECT id FROM belfry.runs WHERE state = 'ready' AND lane = $1 AND shard = ANY($2::integer[]) ORDER BY rank LIMIT $3`, lane, shards, limit)
}

// CountRunningOf counts the running runs of namespaces.
const CountRunningOf = `/* count running */ SELECT namespace, count(*) FROM belfry.runs WHERE state = 'running' AND namespace = ANY($1::text[]) GROUP BY namespace`

func (s Store) CountRunning(ctx context.Context, namespaces []string) (map[string]int, error) {
	return toMap(list(ctx, s, Duty, "count running runs", pairFields[string, int], CountRunningOf, namespaces))
}
