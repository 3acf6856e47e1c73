package postgres

import (
	"fmt"

	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// The statement that applies steps. All that keeps an occurrence from being fired twice
// is here: the version, the high-water mark, the database's clock and the run's key.
//
//   - step: what was decided, one row a plan
//   - locked: the steps whose plan has the version that was seen and is not locked by
//     somebody else
//   - advanced: the same, with their plans written
//   - clock: when they were, the same for all
//   - consumed: the triggers that are fired
//   - candidate: the runs to make
//   - keyed: with whether another run has the same idempotency key
//   - queued: with how many runs of the job are ahead, of which only the first may be
//     anything but waiting; none for a run that may overlap others
//   - decided: with the outcome, which is the state of the run or the reason of a skip
//   - assigned: with the token, if the local worker takes it at once
//   - inserted, skipped, inserted_keys, inserted_events: what is written
//
// Each part passes on what the next one needs. The planner cannot estimate how many
// rows such parts have, and a join of two of them may become a loop over the square of
// the batch. Plans are looked up, whatever it believes of their number.
//
// Live runs are counted as of the statement's snapshot, which is older than the locks.
// A run that was made since then has raised the version of the plan, and the step is
// left out. A run that was settled since then still counts, so that a new one may wait
// for nothing: see advance.
const (
	fireSteps = `/* fire */
WITH step AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::boolean[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::timestamptz[], $8::bigint[],
                       $9::text[], $10::text[], $11::integer[], $12::integer[], $13::bigint[], $14::text[], $15::bigint[],
                       $16::bigint[], $17::boolean[], $18::bigint[], $19::integer[])
    WITH ORDINALITY AS s (job_id, version, due, first_at, next_at, nominal_at, fired_for, runs_made,
                          zone_version, namespace, revision, shard, epoch, lane, timeout_ms, triggered, one_off, weight, retention_days, n)
), locked AS MATERIALIZED (
  SELECT s.* FROM step s CROSS JOIN LATERAL (
      SELECT 1 FROM belfry.plans p
       WHERE p.job_id = s.job_id AND p.version = s.version
         AND (s.first_at IS NULL OR p.fired_for IS NULL OR p.fired_for < s.first_at)
         AND (NOT s.due OR p.next_at <= clock_timestamp())
         FOR UPDATE SKIP LOCKED) p
), advanced AS (
  UPDATE belfry.plans p
     SET version = p.version + 1, next_at = s.next_at, nominal_at = s.nominal_at, fired_for = s.fired_for,
         runs_made = s.runs_made, runs_triggered = p.runs_triggered + coalesce(s.triggered, 0), zone_version = s.zone_version,
         one_off = coalesce(s.one_off, false), quarantined = NULL
    FROM locked s
   WHERE p.job_id = s.job_id AND p.version = s.version AND p.job_id = ANY(ARRAY(SELECT job_id FROM locked))
  RETURNING s.n, s.job_id, s.namespace, s.revision, s.shard, s.epoch, s.lane, s.timeout_ms, s.one_off, s.weight, s.retention_days
), clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM locked) l), consumed AS (
  UPDATE belfry.triggers t SET fired_at = clock_timestamp()
    FROM unnest($30::bigint[], $31::uuid[]) AS c (n, trigger_id) JOIN advanced USING (n)
   WHERE t.id = c.trigger_id AND t.fired_at IS NULL
  RETURNING t.id
), candidate AS MATERIALIZED (
  SELECT r.*, advanced.job_id, advanced.namespace, advanced.revision, advanced.shard, advanced.epoch, advanced.lane, advanced.timeout_ms, advanced.one_off, advanced.weight, advanced.retention_days
    FROM unnest($20::bigint[], $21::uuid[], $22::text[], $23::uuid[], $24::timestamptz[], $25::timestamptz[], $26::bigint[], $27::integer[], $28::text[],
                $29::text[], $44::integer[])
      WITH ORDINALITY AS r (n, id, kind, trigger_id, scheduled_at, ready_at, rank, queue, payload, key, own_before, i)
    JOIN advanced USING (n)
   WHERE r.trigger_id IS NULL OR r.trigger_id IN (SELECT id FROM consumed)
), `

	fireUnkeyed = `keyed AS (
  SELECT *, false AS duplicate FROM candidate
), `

	// Runs that are not scheduled have keys of their own. Of a batch with equal keys the
	// earliest run has it.
	fireKeyed = `keyed AS MATERIALIZED (
  SELECT *, key IS NOT NULL AND kind = 'scheduled' AND (
              row_number() OVER (PARTITION BY job_id, kind, key ORDER BY i) > 1
           OR (SELECT 1 FROM belfry.keys k WHERE k.job_id = w.job_id AND k.key = w.key AND k.run_id <> w.id
                  AND k.succeeded_at > clock_timestamp() - %d * interval '1 second' LIMIT 1) IS NOT NULL
           OR (SELECT 1 FROM belfry.runs x WHERE x.job_id = w.job_id AND x.key = w.key AND x.kind = 'scheduled' AND x.id <> w.id LIMIT 1) IS NOT NULL) AS duplicate
    FROM candidate w
), `

	// A run whose queue is below zero does not wait for others. If no run is live, all of
	// a batch wait for its first; and if one of them finds the queue full, so do all that
	// follow. A backfill takes no place of the queue: the first run behind backfills alone
	// waits, whatever the queue.
	fireRuns = `queued AS (
  SELECT *, CASE WHEN queue < 0 OR duplicate THEN 0 ELSE coalesce((SELECT 1 FROM belfry.runs x WHERE x.job_id = w.job_id LIMIT 1), 0) END AS live,
         row_number() OVER (PARTITION BY job_id, duplicate ORDER BY i) - 1 AS before
    FROM keyed w
), decided AS MATERIALIZED (
  SELECT *, (SELECT now FROM clock) AS now,
         CASE WHEN duplicate THEN 'duplicate_key'
              WHEN queue < 0 OR live + before = 0 THEN 'ready'
              WHEN kind <> 'backfill' AND coalesce(own_before, 0) = 0
                   AND (SELECT 1 FROM belfry.runs x WHERE x.job_id = w.job_id AND x.kind <> 'backfill' LIMIT 1) IS NULL THEN 'waiting'
              WHEN queue = 0 THEN 'overlap'
              WHEN queue = %d THEN 'waiting'
              WHEN coalesce(own_before / 2 - CASE live WHEN 0 THEN own_before %% 2 ELSE 0 END, 0) + 1 + (SELECT count(*) FROM (
                     SELECT 1 FROM belfry.runs x WHERE x.job_id = w.job_id AND x.state = 'waiting' AND x.kind <> 'backfill' LIMIT w.queue) y) <= queue THEN 'waiting'
              ELSE 'queue_full' END AS outcome
    FROM queued w
), assigned AS MATERIALIZED (
  SELECT *, CASE WHEN outcome = 'ready' AND lane = ANY($41) THEN ($38::uuid[])[row_number() OVER (PARTITION BY outcome = 'ready' AND lane = ANY($41) ORDER BY i)] END AS token
    FROM decided
), inserted AS (
  INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, worker, token, started_at, deadline_at, payload, key, weight, one_off, retention_days)
  SELECT id, shard, namespace, job_id, revision, kind, lane, CASE WHEN token IS NULL THEN outcome ELSE 'running' END, rank, scheduled_at, ready_at, now, $39, epoch,
         timeout_ms, CASE WHEN token IS NULL THEN 0 ELSE 1 END, 0, 0, CASE WHEN token IS NULL THEN NULL ELSE $40::uuid END, token,
         CASE WHEN token IS NULL THEN NULL ELSE now END, CASE WHEN token IS NULL THEN NULL ELSE now + (timeout_ms + $42) * interval '1 millisecond' END, payload, key,
         coalesce(weight, 0), coalesce(one_off, false), retention_days
    FROM assigned WHERE outcome IN ('ready', 'waiting')
  ON CONFLICT (id) DO NOTHING
  RETURNING id, job_id, state, token, fired_at, deadline_at, payload
), skipped AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, settled_at, http_status, error, output, skipped_to, skipped_count, retain_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'skipped', outcome, scheduled_at, ready_at, now, $39, epoch,
         0, now, 0, '', '', scheduled_at, 1, now + retention_days * interval '24 hours'
    FROM decided WHERE outcome NOT IN ('ready', 'waiting')
   UNION ALL
  SELECT k.id, advanced.shard, advanced.namespace, advanced.job_id, advanced.revision, 'scheduled', 'skipped', k.reason, k.from_at, k.from_at, clock.now, $39, advanced.epoch,
         0, clock.now, 0, k.detail, '', k.to_at, k.count, clock.now + advanced.retention_days * interval '24 hours'
    FROM unnest($32::bigint[], $33::uuid[], $34::timestamptz[], $35::timestamptz[], $36::bigint[], $37::text[], $43::text[]) AS k (n, id, from_at, to_at, count, reason, detail)
    JOIN advanced USING (n) CROSS JOIN clock
)`

	fireKeys = `, inserted_keys AS (
  INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at)
  SELECT job_id, key, shard, id, now FROM assigned WHERE outcome IN ('ready', 'waiting') AND key IS NOT NULL AND kind = 'scheduled'
  ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at, succeeded_at = NULL
)`

	fireEvents = `, inserted_events AS (
  INSERT INTO belfry.events (id, shard, namespace, job_id, kind, at, message, count)
  SELECT e.id, advanced.shard, e.namespace, e.job_id, e.kind, e.at, e.message, e.count
    FROM unnest($45::bigint[], $46::uuid[], $47::text[], $48::uuid[], $49::text[], $50::timestamptz[], $51::text[], $52::bigint[])
      AS e (n, id, namespace, job_id, kind, at, message, count)
    JOIN advanced USING (n)
  ON CONFLICT (id) DO NOTHING
)`

	fireResult = `
SELECT n, NULL, '', NULL, NULL, NULL, NULL FROM advanced
 UNION ALL
SELECT 0, id, state, token, fired_at, deadline_at,
       CASE WHEN state = 'running' THEN coalesce(payload, (SELECT j.payload FROM belfry.jobs j WHERE j.id = inserted.job_id)) END
  FROM inserted`

	fireSkipped = `
 UNION ALL
SELECT 0, id, 'skipped', NULL, NULL, NULL, NULL FROM decided WHERE outcome NOT IN ('ready', 'waiting') AND kind = 'scheduled'`
)

// fireVariant is what a batch has. Most have nothing of it, and a simpler statement.
type fireVariant struct{ keys, events, limited bool }

var fireSQL = fireStatements()

func fireStatements() map[fireVariant]string {
	out := map[fireVariant]string{}
	for i := range 8 {
		v := fireVariant{keys: i&1 != 0, events: i&2 != 0, limited: i&4 != 0}
		keyed, keys, events, skipped := fireUnkeyed, "", "", ""
		if v.keys {
			keyed, keys = fmt.Sprintf(fireKeyed, int64(store.KeyRetention.Seconds())), fireKeys
		}
		if v.events {
			events = fireEvents
		}
		if v.limited {
			skipped = fireSkipped
		}
		out[v] = fireSteps + keyed + fmt.Sprintf(fireRuns, plan.NoQueueLimit) + keys + events + fireResult + skipped
	}
	return out
}

// fireSimpleSQL applies simple steps like the general statement, which describes it. In
// advanced are the steps whose plan has the version that was seen, with their plans
// written, and with the state of the run, or 'overlap' for a skip. It waits for a plan that
// is locked by somebody else, and then looks at it again.
//
// The steps are sorted by job, so that what belongs to a plan is found in the arguments by
// a binary search. There is no join with the plans: an update makes a copy of every row
// that it joins, and the planner, which may believe that there are few plans if an import
// was analysed before its commit, can only look them up; a condition in a coalesce fits no
// partial index. What many steps have in common is their class. A lookup in an array
// without nulls costs the same wherever it is, so that these have none: no instant is
// infinity.
//
// It takes a run that exists already for an error, and so does a plan that stays locked:
// then the general statement decides.
const fireSimpleSQL = `/* fire */
WITH advanced AS (
  UPDATE belfry.plans p
     SET version = p.version + 1, next_at = nullif(($17::timestamptz[])[width_bucket(p.job_id, $11::uuid[])], 'infinity'),
         nominal_at = nullif(($18::timestamptz[])[width_bucket(p.job_id, $11::uuid[])], 'infinity'),
         fired_for = ($15::timestamptz[])[width_bucket(p.job_id, $11::uuid[])], runs_made = ($19::bigint[])[width_bucket(p.job_id, $11::uuid[])], zone_version = $10, quarantined = NULL
   WHERE p.job_id = ANY($11::uuid[]) AND p.version = ($12::bigint[])[width_bucket(p.job_id, $11::uuid[])]
     AND (p.fired_for IS NULL OR p.fired_for < ($15::timestamptz[])[width_bucket(p.job_id, $11::uuid[])])
     AND coalesce(p.next_at <= clock_timestamp(), false)
  RETURNING width_bucket(p.job_id, $11::uuid[]) AS n, ($13::integer[])[width_bucket(p.job_id, $11::uuid[])] AS class, p.job_id, p.shard, p.fired_for AS scheduled_at,
         CASE WHEN NOT ($7::boolean[])[($13::integer[])[width_bucket(p.job_id, $11::uuid[])]] OR (SELECT 1 FROM belfry.runs x WHERE x.job_id = p.job_id LIMIT 1) IS NULL
              THEN CASE WHEN ($20::uuid[])[width_bucket(p.job_id, $11::uuid[])] = $25 THEN 'ready' ELSE 'running' END
              WHEN (SELECT 1 FROM belfry.runs x WHERE x.job_id = p.job_id AND x.kind <> 'backfill' LIMIT 1) IS NULL THEN 'waiting'
              ELSE 'overlap' END AS state
), clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM advanced) a), inserted AS (
  INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, worker, token, started_at, deadline_at, weight, one_off, retention_days)
  SELECT ($14::uuid[])[n], shard, ($1::text[])[class], job_id, ($3::integer[])[class], 'scheduled', ($2::text[])[class], state,
         ($24::bigint[])[n], scheduled_at, ($16::timestamptz[])[n], now, $21, ($9::bigint[])[n],
         ($4::bigint[])[class], CASE state WHEN 'running' THEN 1 ELSE 0 END, 0, 0,
         CASE state WHEN 'running' THEN ($22::uuid[])[class] END, CASE state WHEN 'running' THEN ($20::uuid[])[n] END,
         CASE state WHEN 'running' THEN now END, CASE state WHEN 'running' THEN now + (($4::bigint[])[class] + $23) * interval '1 millisecond' END,
         ($5::bigint[])[class], ($8::boolean[])[class], nullif(($6::integer[])[class], 0)
    FROM clock CROSS JOIN advanced WHERE state <> 'overlap'
), skipped AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, settled_at, http_status, error, output, skipped_to, skipped_count, retain_until)
  SELECT ($14::uuid[])[n], shard, ($1::text[])[class], job_id, ($3::integer[])[class], 'scheduled', 'skipped', 'overlap', scheduled_at, ($16::timestamptz[])[n],
         now, $21, ($9::bigint[])[n], 0, now, 0, '', '', scheduled_at, 1, now + nullif(($6::integer[])[class], 0) * interval '24 hours'
    FROM clock CROSS JOIN advanced WHERE state = 'overlap'
)
SELECT n, state, now, CASE state WHEN 'running' THEN (SELECT payload FROM belfry.jobs j WHERE j.id = advanced.job_id) END
  FROM clock CROSS JOIN advanced`
