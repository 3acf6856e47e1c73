package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// maxGenericPlanSteps is the size of the largest batch that is fired with a prepared
// statement. Its plan soon becomes generic, which suits small batches.
const maxGenericPlanSteps = 100

func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	ctx, cancel := detach(ctx, fireTimeout)
	defer cancel()
	fired, err := store.FireResult{}, error(nil)
	if slices.ContainsFunc(steps, isLimited) {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			fired, err = s.fire(ctx, tx, owner, steps, slots)
			return err
		})
	} else {
		fired, err = s.fire(ctx, s.pool, owner, steps, slots)
	}
	if err == nil && len(fired.Ready) > 0 {
		s.notifier.notifyReady()
	}
	return fired, wrapError("fire", err)
}

// isLimited reports whether the plan after a step depends on which runs are made.
func isLimited(s plan.Step) bool { return s.NextIfSkipped != nil }

func (s *Store) fire(ctx context.Context, q querier, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	fired := store.FireResult{Applied: make([]bool, len(steps))}
	if len(steps) == 0 {
		return fired, nil
	}
	a := newFireArgs(steps)
	variant, args := a.list(owner, slots)
	if len(steps) > maxGenericPlanSteps && !s.behindPooler {
		args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	}
	var (
		step         int64
		state        belfry.RunStatus
		run          belfry.ID
		token        belfry.Token
		at, deadline time.Time
		payload      json.RawMessage
	)
	err := forEach(ctx, q, []any{&step, idColumn(&run), &state, idColumn(&token), timeColumn{&at}, timeColumn{&deadline}, jsonColumn{&payload}}, func() error {
		switch {
		case step > 0:
			fired.Applied[step-1] = true
		case state == belfry.RunRunning:
			fired.Claimed = append(fired.Claimed, a.claimed(run, slots.Worker, token, at, deadline, payload))
		case state == belfry.RunReady:
			fired.AddReady(a.stepOf(run).Lane())
		case state == belfry.RunSkipped && a.stepOf(run).NextIfSkipped != nil:
			fired.AddSkipped(int(a.runs[a.index[run]].step-1), 1)
		}
		return nil
	}, fireSQL[variant], args...)
	if err != nil {
		return fired, err
	}
	return fired, replanSkipped(ctx, q, steps, fired.Skipped)
}

func (a *fireArgs) stepOf(run belfry.ID) *plan.Step { return &a.steps[a.runs[a.index[run]].step-1] }

func (a *fireArgs) claimed(id, worker belfry.ID, token belfry.Token, at, deadline time.Time, payload json.RawMessage) *belfry.Run {
	run := a.runs[a.index[id]]
	step, r := &a.steps[run.step-1], run.of
	return &belfry.Run{
		ID: r.ID, JobID: step.Seen.JobID, Namespace: step.Namespace, Revision: step.Revision, Kind: r.Kind,
		Status: belfry.RunRunning, ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: at, Attempt: 1,
		StartedAt: &at, WorkerID: worker, Token: token, Spec: step.Policy.Spec, DeadlineAt: deadline, TemplateKey: r.Key,
		Payload: payload,
	}
}

// fireArgs is a batch of steps with what all of them make.
type fireArgs struct {
	steps    []plan.Step
	runs     []ofStep[plan.Run]
	triggers []ofStep[plan.Run] // those of runs with a trigger
	skips    []ofStep[plan.Skip]
	events   []ofStep[belfry.Event]
	index    map[belfry.ID]int // of runs
}

type ofStep[T any] struct {
	step int64 // from 1
	of   *T
}

func newFireArgs(steps []plan.Step) *fireArgs {
	a := &fireArgs{steps: steps, runs: make([]ofStep[plan.Run], 0, len(steps)), index: make(map[belfry.ID]int, len(steps))}
	for i := range steps {
		s, step := &steps[i], int64(i+1)
		for k := range s.Runs {
			run := ofStep[plan.Run]{step, &s.Runs[k]}
			a.index[run.of.ID] = len(a.runs)
			a.runs = append(a.runs, run)
			if !run.of.Trigger.IsZero() {
				a.triggers = append(a.triggers, run)
			}
		}
		for k := range s.Skips {
			a.skips = append(a.skips, ofStep[plan.Skip]{step, &s.Skips[k]})
		}
		if s.Event != nil {
			a.events = append(a.events, ofStep[belfry.Event]{step, s.Event})
		}
	}
	return a
}

// list returns the variant of the statement that the batch needs, and its arguments.
func (a *fireArgs) list(owner belfry.ID, slots store.FreeSlots) (fireVariant, []any) {
	type run = ofStep[plan.Run]
	type skip = ofStep[plan.Skip]
	keys := sparseColumn(a.runs, func(r *run) pgtype.Text { return text(r.of.Key) })
	args := []any{
		column(a.steps, func(s *plan.Step) pgtype.UUID { return uuid(s.Seen.JobID) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Seen.Version }),
		column(a.steps, func(s *plan.Step) bool { return s.Due }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.First()) }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.Next.NextAt) }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.Next.NominalAt) }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.Next.FiredFor) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Next.RunsMade }),
		column(a.steps, func(s *plan.Step) string { return s.Next.ZoneVersion }),
		column(a.steps, func(s *plan.Step) string { return storable(s.Namespace) }),
		column(a.steps, func(s *plan.Step) int32 { return int32(s.Revision) }),
		column(a.steps, func(s *plan.Step) int32 { return int32(s.Seen.Shard) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Epoch }),
		column(a.steps, func(s *plan.Step) string { return storable(s.Lane()) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Policy.Timeout().Milliseconds() }),
		sparseColumn(a.steps, triggerCount),
		sparseColumn(a.steps, func(s *plan.Step) bool { return s.Next.Once }),
		sparseColumn(a.steps, func(s *plan.Step) int64 { return s.Policy.Weight() }),
		sparseColumn(a.steps, func(s *plan.Step) pgtype.Int4 { return retentionDays(s.Policy.RetentionDays) }),

		column(a.runs, func(r *run) int64 { return r.step }),
		column(a.runs, func(r *run) pgtype.UUID { return uuid(r.of.ID) }),
		column(a.runs, func(r *run) string { return string(r.of.Kind) }),
		column(a.runs, func(r *run) pgtype.UUID { return uuid(r.of.Trigger) }),
		column(a.runs, func(r *run) time.Time { return r.of.ScheduledAt }),
		column(a.runs, func(r *run) time.Time { return r.of.ReadyAt }),
		column(a.runs, func(r *run) int64 { return plan.Rank(r.of.ReadyAt, a.steps[r.step-1].Policy.Weight()) }),
		column(a.runs, func(r *run) int32 { return queueColumn(r.of) }),
		column(a.runs, func(r *run) pgtype.Text { return text(string(r.of.Payload)) }),
		keys,

		column(a.triggers, func(r *run) int64 { return r.step }),
		column(a.triggers, func(r *run) pgtype.UUID { return uuid(r.of.Trigger) }),

		column(a.skips, func(s *skip) int64 { return s.step }),
		column(a.skips, func(s *skip) pgtype.UUID { return uuid(s.of.ID) }),
		column(a.skips, func(s *skip) time.Time { return s.of.From }),
		column(a.skips, func(s *skip) time.Time { return s.of.To }),
		column(a.skips, func(s *skip) int64 { return s.of.Count }),
		column(a.skips, func(s *skip) string { return string(s.of.Reason) }),

		newTokens(min(slots.Free, len(a.runs))), notNull(owner), uuid(slots.Worker), storables(slots.Lanes), store.DeadlineGrace.Milliseconds(),

		column(a.skips, func(s *skip) string { return storable(s.of.Detail) }),
		sparseColumn(a.runs, func(r *run) int32 { return a.ownBefore(r) }),
	}
	if len(a.events) > 0 {
		type event = ofStep[belfry.Event]
		args = append(args,
			column(a.events, func(e *event) int64 { return e.step }),
			column(a.events, func(e *event) pgtype.UUID { return uuid(e.of.ID) }),
			column(a.events, func(e *event) string { return storable(e.of.Namespace) }),
			column(a.events, func(e *event) pgtype.UUID { return uuid(e.of.JobID) }),
			column(a.events, func(e *event) string { return storable(string(e.of.Kind)) }),
			column(a.events, func(e *event) time.Time { return e.of.At }),
			column(a.events, func(e *event) string { return storable(e.of.Message) }),
			column(a.events, func(e *event) int64 { return e.of.Count }))
	}
	return fireVariant{keys: len(keys) > 0, events: len(a.events) > 0, limited: slices.ContainsFunc(a.steps, isLimited)}, args
}

// ownBefore is twice how many runs of the step before a run are not backfills, plus one if
// the first of them is the first of the step, which does not wait if no run is live.
func (a *fireArgs) ownBefore(r *ofStep[plan.Run]) (n int32) {
	runs := a.steps[r.step-1].Runs
	for i := 0; &runs[i] != r.of; i++ {
		if runs[i].Kind != belfry.KindBackfill {
			n += 2
		}
	}
	if n > 0 && runs[0].Kind != belfry.KindBackfill {
		n++
	}
	return n
}

func triggerCount(s *plan.Step) (n int64) {
	for i := range s.Runs {
		if !s.Runs[i].Trigger.IsZero() {
			n++
		}
	}
	return n
}

// queueColumn is below zero for a run that does not wait.
func queueColumn(r *plan.Run) int32 {
	if !r.Serial {
		return -1
	}
	return int32(r.Queue)
}

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
// the batch.
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
  SELECT s.* FROM step s JOIN belfry.plans p ON p.job_id = s.job_id
   WHERE p.version = s.version
     AND (s.first_at IS NULL OR p.fired_for IS NULL OR p.fired_for < s.first_at)
     AND (NOT s.due OR p.next_at <= clock_timestamp())
     FOR UPDATE OF p SKIP LOCKED
), advanced AS (
  UPDATE belfry.plans p
     SET version = p.version + 1, next_at = s.next_at, nominal_at = s.nominal_at, fired_for = s.fired_for,
         runs_made = s.runs_made, runs_triggered = p.runs_triggered + coalesce(s.triggered, 0), zone_version = s.zone_version,
         one_off = coalesce(s.one_off, false), quarantined = NULL
    FROM locked s
   WHERE p.job_id = s.job_id AND p.version = s.version
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
