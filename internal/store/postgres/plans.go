package postgres

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const zoneUpdateScanLimit = 8000 // plans that one call of PlansForZoneUpdate reads

// upcomingSQL reads each shard in the order of an index, so that a page costs what it
// returns, whatever the other shards have.
const upcomingSQL = `/* plans */ SELECT ` + sqlstore.PlanColumns + `, p.digest
  FROM unnest($1::integer[], $2::timestamptz[], $3::uuid[]) AS w (shard, next_at, job_id)
 CROSS JOIN LATERAL (
   SELECT * FROM belfry.plans p WHERE p.shard = w.shard AND p.next_at <= $4 AND (p.next_at, p.job_id) > (w.next_at, w.job_id)
    ORDER BY p.next_at, p.job_id LIMIT $5) p`

func upcomingArgs(w store.Window) []any {
	var (
		shards []int32
		at     []pgtype.Timestamptz
		jobs   []pgtype.UUID
	)
	for shard, after := range w.After {
		start := timestamptz(after.At)
		if after.At.IsZero() {
			start = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
		}
		shards, at, jobs = append(shards, int32(shard)), append(at, start), append(jobs, notNull(after.ID))
	}
	return []any{shards, at, jobs, w.Until, w.Limit}
}

func (s *Store) Upcoming(ctx context.Context, w store.Window) (plans []store.Planned, err error) {
	batch := &pgx.Batch{} // one round trip, and a transaction of its own
	batch.Queue(restrictPlanner)
	batch.Queue(upcomingSQL, upcomingArgs(w)...).Query(func(rows pgx.Rows) error {
		var p store.Planned
		_, err := pgx.ForEachRow(rows, sharedColumns(sqlstore.PlannedFields(&p)), func() error {
			plans = append(plans, p)
			return nil
		})
		return err
	})
	return plans, wrapError("read plans", s.pool.SendBatch(ctx, batch).Close())
}

func (s *Store) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) ([]store.Due, belfry.ID, error) {
	return s.ZoneUpdate(ctx, zoneUpdateScanLimit, shards, release, after, limit)
}

func (s *Store) Trigger(ctx context.Context, triggers []plan.Trigger, r *store.Request) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var err error
	if r == nil && store.AuditOf(ctx) == nil {
		err = insertTriggers(ctx, s.pool, triggers)
	} else {
		err = s.change(ctx, func(tx pgx.Tx) error {
			return withRequestKey(ctx, tx, r, func() error { return insertTriggers(ctx, tx, triggers) })
		})
	}
	if err != nil {
		return wrapError("store triggers", err)
	}
	if len(triggers) > 0 {
		s.notifier.notifyPlans(false, triggers[0].JobID)
	}
	return nil
}

// insertTriggers locks the job, so that either the triggers see that it was archived or
// the archiver sees the triggers.
func insertTriggers(ctx context.Context, q querier, triggers []plan.Trigger) error {
	if len(triggers) == 0 {
		return nil
	}
	job, namespace := triggers[0].JobID, triggers[0].Namespace
	var found, known bool
	err := q.QueryRow(ctx, `/* trigger */
WITH job AS MATERIALIZED (SELECT id, shard, namespace FROM belfry.jobs WHERE namespace = $1 AND id = $2 AND state <> 'deleted' FOR KEY SHARE),
inserted AS (
  INSERT INTO belfry.triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
  SELECT t.id, job.shard, job.namespace, job.id, t.run_id, t.kind, t.at, t.payload, clock_timestamp()
    FROM job CROSS JOIN unnest($3::uuid[], $4::uuid[], $5::text[], $6::timestamptz[], $7::text[]) AS t (id, run_id, kind, at, payload)
  ON CONFLICT (id) DO NOTHING)
SELECT EXISTS (SELECT 1 FROM job), EXISTS (SELECT 1 FROM belfry.triggers WHERE id = ($3::uuid[])[1])`, namespace, uuid(job),
		column(triggers, func(t *plan.Trigger) pgtype.UUID { return uuid(t.ID) }),
		column(triggers, func(t *plan.Trigger) pgtype.UUID { return uuid(t.RunID()) }),
		column(triggers, func(t *plan.Trigger) string { return string(t.Kind) }),
		column(triggers, func(t *plan.Trigger) time.Time { return t.At }),
		column(triggers, func(t *plan.Trigger) pgtype.Text { return text(string(t.Payload)) })).Scan(&found, &known)
	if err == nil && !found && !known { // the run of a known trigger may have been the last one of the job
		return noLiveJobError(ctx, q, namespace, job)
	}
	return err
}

func (s *Store) Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error) {
	ctx, cancel := detach(ctx, fireTimeout)
	defer cancel()
	tag, err := s.pool.Exec(ctx, `/* promote */
UPDATE belfry.runs SET state = 'ready'
 WHERE id IN (SELECT id FROM belfry.runs WHERE state = 'retry' AND ready_at <= clock_timestamp() AND shard = ANY($1)
               ORDER BY ready_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, int32s(shards), limit)
	if err != nil {
		return 0, time.Time{}, wrapError("promote", err)
	}
	promoted = int(tag.RowsAffected())
	if promoted > 0 {
		s.notifier.notifyReady()
	}
	waiting, err := s.promoteWaiting(ctx, shards)
	if err != nil {
		return promoted, time.Time{}, wrapError("promote waiting runs", err)
	}
	promoted += waiting
	err = s.pool.QueryRow(ctx, `SELECT min(ready_at) FROM belfry.runs WHERE state = 'retry' AND shard = ANY($1)`, int32s(shards)).Scan(timeColumn{&next})
	return promoted, next, wrapError("promote", err)
}

// advance promotes the first waiting run of each of the jobs that has no other live
// run, and returns how many are ready.
//
// The plans are locked first, and the runs read in a statement of its own, so that its
// snapshot is younger than the locks. Two calls for one job are then serialized, and
// the second sees what the first did. Every transaction that makes runs of the job
// takes the same lock and raises the version. A fire that took its snapshot before us
// and gets the lock after us still sees the promoted run as waiting, and makes nothing
// beside it, since every live run counts. So such a job never has more than one live
// run that does not wait.
//
// The other way round a run may wait for nothing: a fire still sees a run that is
// settled, and makes one that waits for it, which the settling transaction did not see.
// Nor does anybody come here if the process dies after settling. Promote looks for such
// runs.
func (s *Store) advance(ctx context.Context, jobs []belfry.ID) (ready int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	ids := uuids(jobs)
	batch := &pgx.Batch{} // a transaction of its own
	batch.Queue(`/* advance */ SELECT count(*) FROM (SELECT 1 FROM belfry.plans WHERE job_id = ANY($1) ORDER BY job_id FOR UPDATE) p`, ids)
	retries := 0
	batch.Queue(`/* advance */
WITH head AS MATERIALIZED (
  SELECT x.id, greatest(x.ready_at, c.now) AS ready_at, CASE WHEN x.ready_at > c.now THEN 'retry' ELSE 'ready' END AS state
    FROM (SELECT DISTINCT unnest($1::uuid[])) AS j (job_id)
   CROSS JOIN (SELECT clock_timestamp() AS now) c
   CROSS JOIN LATERAL (SELECT r.id, r.ready_at FROM belfry.runs r WHERE r.job_id = j.job_id AND r.state = 'waiting' ORDER BY r.kind = 'backfill', r.scheduled_at, r.id LIMIT 1) x
   WHERE `+onlyWaitingRuns+`)
UPDATE belfry.runs r SET state = head.state, ready_at = head.ready_at, rank = (extract(epoch FROM head.ready_at) * 1000000)::bigint + r.weight
  FROM head WHERE r.id = head.id AND r.state = 'waiting'
RETURNING r.state`, ids).Query(func(rows pgx.Rows) error {
		var state belfry.RunStatus
		_, err := pgx.ForEachRow(rows, []any{&state}, func() error {
			if state == belfry.RunReady {
				ready++
			} else {
				retries++
			}
			return nil
		})
		return err
	})
	if err := s.orMain(s.finishPool).SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}
	if ready > 0 {
		s.notifier.notifyReady()
	}
	if retries > 0 {
		s.notifier.notifyPlans(false)
	}
	return ready, nil
}

// releaseWaitingSQL promotes all waiting runs of a job that is no longer serial.
const releaseWaitingSQL = `/* advance */
UPDATE belfry.runs SET state = CASE WHEN ready_at > c.now THEN 'retry' ELSE 'ready' END, ready_at = greatest(ready_at, c.now),
       rank = (extract(epoch FROM greatest(ready_at, c.now)) * 1000000)::bigint + weight
  FROM (SELECT clock_timestamp() AS now) c WHERE job_id = $1 AND state = 'waiting'`

// onlyWaitingRuns is a condition on a job j whose live runs all wait.
const onlyWaitingRuns = `(SELECT 1 FROM belfry.runs y WHERE y.job_id = j.job_id AND y.state IN ('ready', 'running', 'retry') LIMIT 1) IS NULL`

// waitingScanLimit is how many jobs with waiting runs one call of promoteWaiting reads.
const waitingScanLimit = 1000

// waitingScanInterval is the least time until the next call after one that read so many for
// nothing.
const waitingScanInterval = time.Second

// promoteWaiting promotes runs of the shards that wait for nothing. It scans a bounded
// number of jobs, and the next call continues where this one ended.
func (s *Store) promoteWaiting(ctx context.Context, shards []int) (ready int, err error) {
	s.waitingScan.Lock()
	defer s.waitingScan.Unlock()
	if !s.waitingScan.after.IsZero() && time.Since(s.waitingScan.at) < waitingScanInterval {
		return 0, nil
	}
	var (
		next, job      belfry.ID
		jobs           []belfry.ID
		last, promoted bool
	)
	err = forEach(ctx, s.pool, []any{idColumn(&job), &last, &promoted}, func() error {
		if last {
			next = job
		}
		if promoted {
			jobs = append(jobs, job)
		}
		return nil
	}, `/* advance */
WITH RECURSIVE j (job_id, shard, n) AS (
  (SELECT job_id, shard, 1 FROM belfry.runs WHERE state = 'waiting' AND job_id > $2 ORDER BY job_id LIMIT 1)
   UNION ALL
  SELECT r.job_id, r.shard, j.n + 1 FROM j
   CROSS JOIN LATERAL (SELECT job_id, shard FROM belfry.runs WHERE state = 'waiting' AND job_id > j.job_id ORDER BY job_id LIMIT 1) r
   WHERE j.n < $3)
SELECT job_id, n = $3, shard = ANY($1) AND `+onlyWaitingRuns+` FROM j`, int32s(shards), notNull(s.waitingScan.after), waitingScanLimit)
	if err != nil {
		return 0, err
	}
	s.waitingScan.after, s.waitingScan.at = next, time.Now()
	if len(jobs) > 0 {
		s.waitingScan.at = time.Time{}
	}
	return s.advance(ctx, jobs)
}

// replanSkipped gives jobs with max_runs the plans that they have after some of the runs
// of their steps became skips.
func replanSkipped(ctx context.Context, q querier, steps []plan.Step, skipped map[int]int) error {
	for i, n := range skipped {
		next := steps[i].NextIfSkipped
		if _, err := q.Exec(ctx, `/* fire */ UPDATE belfry.plans SET next_at = $2, nominal_at = $3, runs_made = runs_made - $4 WHERE job_id = $1`,
			uuid(next.JobID), timestamptz(next.NextAt), timestamptz(next.NominalAt), n); err != nil {
			return err
		}
	}
	return nil
}

const (
	scanNamespaceSQL = ` FROM belfry.jobs WHERE namespace = $1 AND state <> 'deleted' ORDER BY namespace, id LIMIT $2`
	scanQueueSQL     = ` FROM belfry.jobs WHERE namespace = $1 AND queue = $3 AND queue <> 'default' AND state <> 'deleted' ORDER BY namespace, queue, id LIMIT $2`

	selectPlannedSQL = `/* forecast */ SELECT ` + sqlstore.PlanColumns + `, p.digest FROM `
	joinPlannedSQL   = ` CROSS JOIN LATERAL (SELECT * FROM belfry.plans WHERE job_id = j.id AND next_at IS NOT NULL LIMIT 1) p`
	samplePlansSQL   = selectPlannedSQL + `belfry.plans p WHERE p.ctid = ANY($1::text[]::tid[]) AND p.next_at IS NOT NULL`

	// Pages as they are now. The planner is kept from reading all of them.
	planPagesSQL = `/* forecast */ SELECT pg_relation_size('belfry.plans') / b.size, b.size
  FROM (SELECT current_setting('block_size')::bigint AS size, set_config('enable_seqscan', 'off', true)) b`
)

var scanPlanned = scanInto(func(p *store.Planned) []any { return sharedColumns(sqlstore.PlannedFields(p)) })

// NamespacePlans counts first, which reads an index alone. Jobs in the default queue have
// none of their own: the caller gets those of all queues.
func (s *Store) NamespacePlans(ctx context.Context, namespace, queue string, limit int) (plans []store.Planned, complete bool, err error) {
	scan, args := scanNamespaceSQL, []any{namespace, limit + 1}
	if queue != "" && queue != belfry.DefaultQueue {
		scan, args = scanQueueSQL, append(args, storable(queue))
	}
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		jobs := 0
		err := tx.QueryRow(ctx, `/* forecast */ SELECT count(*) FROM (SELECT 1`+scan+`) j`, args...).Scan(&jobs)
		if complete = jobs <= limit; err != nil || !complete {
			return err
		}
		plans, err = collect(ctx, tx, scanPlanned, selectPlannedSQL+`(SELECT id`+scan+`) j`+joinPlannedSQL, args...)
		return err
	})
	return plans, complete && err == nil, wrapError("read the plans of a namespace", err)
}

const (
	probesPerPlan = 4 // places of the table that are looked at for each plan: a page has room for more rows than those of plans
	probesPerPage = 8 // which find about two plans
)

// SamplePlans looks at random places of the table, of which some have a row. They are on
// many pages: rows of a page were often created together and are alike.
func (s *Store) SamplePlans(ctx context.Context, n int) (plans []store.Planned, weight float64, err error) {
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		var pages, size int64
		if err := tx.QueryRow(ctx, planPagesSQL).Scan(&pages, &size); err != nil || pages == 0 {
			return err
		}
		var places []string
		places, weight = samplePlaces(pages, size, n)
		plans, err = collect(ctx, tx, scanPlanned, samplePlansSQL, places)
		return err
	})
	return plans, weight, wrapError("sample plans", err)
}

// samplePlaces draws places of a table with so many pages of a size, each at most once, and
// returns how many places each stands for.
func samplePlaces(pages, size int64, n int) (places []string, weight float64) {
	most := (size - 24) / 28 // rows of a page: without its header, the least that a row takes
	drawn := make([]int64, 0, n*probesPerPlan)
	for len(drawn) < cap(drawn) {
		page := rand.Int64N(pages)
		for range probesPerPage {
			drawn = append(drawn, page*most+rand.Int64N(most))
		}
	}
	slices.Sort(drawn)
	drawn = slices.Compact(drawn)
	return column(drawn, func(p *int64) string {
		return "(" + strconv.FormatInt(*p/most, 10) + "," + strconv.FormatInt(*p%most+1, 10) + ")"
	}), float64(pages*most) / float64(len(drawn))
}

// RunTimes reads the latest rows of each job and table along their indexes. A run is settled
// after its instant, or shortly before it, so that old partitions are left out.
func (s *Store) RunTimes(ctx context.Context, namespace string, jobs []belfry.ID, since time.Time, limit int) ([]store.RunTime, error) {
	table := func(name, state, finished, skipped, more string) string {
		return `(SELECT x.job_id, x.id, ` + state + `, x.scheduled_at, x.started_at, ` + finished + `, ` + skipped + ` FROM belfry.` + name + ` x
  WHERE x.job_id = j.id AND x.namespace = $2 AND x.scheduled_at >= $3` + more + ` ORDER BY x.scheduled_at DESC, x.id DESC LIMIT $4)`
	}
	times, err := collect(ctx, s.readPool, scanInto(func(r *store.RunTime) []any {
		return []any{idColumn(&r.JobID), idColumn(&r.RunID), &r.Status, timeColumn{&r.ScheduledAt}, nullTimeColumn{&r.StartedAt}, nullTimeColumn{&r.FinishedAt}, &r.Skipped}
	}), `/* run times */ SELECT t.* FROM unnest($1::uuid[]) AS j (id) CROSS JOIN LATERAL (`+
		table("runs", "x.state", "NULL::timestamptz", "0::bigint", "")+` UNION ALL `+table("dead", "'dead'", "x.died_at", "0::bigint", "")+` UNION ALL `+
		table("history", "x.state", "x.settled_at", "x.skipped_count", " AND x.settled_at >= $3::timestamptz - interval '1 day'")+`) t`, uuids(jobs), namespace, since, limit)
	return times, wrapError("read the times of runs", err)
}
