package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

// finishTimeout is short, because results may be reported again, and a worker that shuts
// down waits ten seconds for them: a call on a silent connection must leave time for a
// second one.
const finishTimeout = 8 * time.Second

func (s *Store) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	ctx, cancel := detach(ctx, finishTimeout)
	defer cancel()
	if err := s.writeLogs(ctx, store.ResultLogs(results)); err != nil { // before, since a result counts once
		return nil, wrapError("keep the logs", err)
	}
	verdicts, held, err := s.finish(ctx, results)
	for tries := 0; err == nil && len(held) > 0 && tries < 3; tries++ {
		var again []belfry.Verdict
		var still []int
		again, still, err = s.finish(ctx, column(held, func(i *int) belfry.Result { return results[*i] }))
		for n, verdict := range again {
			verdicts[held[n]] = verdict
		}
		held = column(still, func(n *int) int { return held[*n] })
	}
	return verdicts, wrapError("finish", err)
}

// finish settles results. It also returns those whose runs are held by their attempts and
// were not settled: they were changed at the same time, such as by a request to cancel.
func (s *Store) finish(ctx context.Context, results []belfry.Result) (verdicts []belfry.Verdict, held []int, err error) {
	var settled []bool
	err = retryDeadlock(func() (err error) {
		settled, err = s.settle(ctx, results)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	verdicts = make([]belfry.Verdict, len(results))
	var late []int
	for i := range results {
		if verdicts[i] = belfry.VerdictAccepted; !settled[i] {
			late = append(late, i)
		}
	}
	if len(late) > 0 {
		err = retryDeadlock(func() error {
			held, err = s.lateVerdicts(ctx, results, late, verdicts)
			return err
		})
	}
	return verdicts, held, err
}

// settle applies results to the runs that are held by exactly their attempts, and
// reports which: first those that need nothing but the run itself, then those that
// depend on the retry policy. Then it promotes and archives what the runs leave behind.
func (s *Store) settle(ctx context.Context, results []belfry.Result) (settled []bool, err error) {
	settled = make([]bool, len(results))
	order := make([]int, len(results)) // by id, in which most plans lock the runs
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(results[i].RunID.Compare(results[j].RunID), i-j) })
	var succeeded, failed []int
	for _, i := range order {
		if results[i].Outcome == belfry.OutcomeSucceeded {
			succeeded = append(succeeded, i)
		} else {
			failed = append(failed, i)
		}
	}
	next := followUps{attempts: make([]metrics.Attempt, 0, len(results))}
	if len(succeeded) > 0 {
		err = next.succeed(ctx, s.orMain(s.finishPool), results, settled, succeeded)
	}
	if err == nil {
		err = s.finishFailed(ctx, results, failed, settled, &next)
	}
	s.metrics.Settled(next.attempts)
	s.runFollowUps(ctx, next)
	return settled, err
}

func resultArgs(results []belfry.Result, which []int) []any {
	return []any{
		column(which, func(i *int) int64 { return int64(*i) }),
		column(which, func(i *int) pgtype.UUID { return uuid(results[*i].RunID) }),
		column(which, func(i *int) string { return storable(results[*i].Namespace) }),
		column(which, func(i *int) int32 { return int32(results[*i].Attempt) }),
		column(which, func(i *int) pgtype.UUID { return notNull(results[*i].Token) }),
		column(which, func(i *int) int32 { return int32(results[*i].HTTPStatus) }),
		column(which, func(i *int) string { return sanitize.Text(results[*i].Error, store.MaxError) }),
		column(which, func(i *int) string { return sanitize.Text(results[*i].Output, belfry.MaxOutput) }),
	}
}

// succeedArgs are the arguments of succeedSQL. The texts are one argument, with where each
// ends, because an element of an array of texts is found by reading all before it.
func succeedArgs(results []belfry.Result, which []int) []any {
	var namespaces []string
	numbers := map[string]int32{}
	texts, ends := []byte{}, append(make([]int32, 0, 2*len(which)+1), 0)
	for _, i := range which {
		r := &results[i]
		if numbers[r.Namespace] == 0 {
			namespaces = append(namespaces, storable(r.Namespace))
			numbers[r.Namespace] = int32(len(namespaces))
		}
		texts = append(texts, sanitize.Text(r.Error, store.MaxError)...)
		ends = append(ends, int32(len(texts)))
		texts = append(texts, sanitize.Text(r.Output, belfry.MaxOutput)...)
		ends = append(ends, int32(len(texts)))
	}
	return []any{
		column(which, func(i *int) pgtype.UUID { return notNull(results[*i].RunID) }),
		namespaces,
		column(which, func(i *int) int32 { return numbers[results[*i].Namespace] }),
		column(which, func(i *int) int32 { return int32(results[*i].Attempt) }),
		column(which, func(i *int) pgtype.UUID { return notNull(results[*i].Token) }),
		column(which, func(i *int) int32 { return int32(results[*i].HTTPStatus) }),
		ends, texts,
	}
}

// settledColumns are the columns of a row about a settled run r that followUps.settled
// reads: the job is null if nothing follows.
const settledColumns = `r.n, CASE WHEN r.one_off OR r.has_waiting THEN r.job_id END, r.one_off, r.has_waiting`

// hasWaitingRun is whether another run of the job of r waits. Mostly no job has one,
// which one lookup shows for all.
const hasWaitingRun = `CASE WHEN (SELECT 1 FROM belfry.runs WHERE state = 'waiting' LIMIT 1) IS NULL THEN false
         ELSE (SELECT 1 FROM belfry.runs w WHERE w.job_id = r.job_id AND w.state = 'waiting' LIMIT 1) IS NOT NULL END`

// The results are sorted by run, so that what belongs to one is found by a binary search.
// There is no join with the runs, which would copy each of them once more, and whatever
// the planner believes of their number, it can only look them up: conditions in a coalesce
// fit no partial index.
const succeedSQL = `/* finish */
WITH deleted AS (
  DELETE FROM belfry.runs r
   WHERE r.id = ANY($1::uuid[])
     AND coalesce(r.state = 'running' AND r.token = ($5::uuid[])[width_bucket(r.id, $1)] AND r.attempt = ($4::integer[])[width_bucket(r.id, $1)]
                  AND r.namespace = ($2::text[])[($3::integer[])[width_bucket(r.id, $1)]], false)
  RETURNING r.id, r.shard, r.namespace, r.job_id, r.revision, r.kind, r.scheduled_at, r.ready_at, r.fired_at, r.fired_by, r.epoch, r.attempt, r.worker, r.token,
            r.started_at, r.key, r.one_off, r.retention_days, r.lane, width_bucket(r.id, $1) AS n, clock_timestamp() AS now, ` + hasWaitingRun + ` AS has_waiting
), settled AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'succeeded', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, ($6::integer[])[n],
         convert_from(substr($8::bytea, ($7::integer[])[2 * n - 1] + 1, ($7)[2 * n] - ($7)[2 * n - 1]), 'UTF8'),
         convert_from(substr($8, ($7)[2 * n] + 1, ($7)[2 * n + 1] - ($7)[2 * n]), 'UTF8'), 0, key, now + retention_days * interval '24 hours'
    FROM deleted
), updated_keys AS (
  INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at, succeeded_at)
  SELECT DISTINCT ON (job_id, key) job_id, key, shard, id, now, now FROM deleted WHERE key IS NOT NULL AND kind = 'scheduled' ORDER BY job_id, key, id
  ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, succeeded_at = excluded.succeeded_at
)
SELECT ` + settledColumns + `, CASE WHEN r.one_off THEN r.scheduled_at END, r.retention_days, r.lane,
       (extract(epoch FROM r.now - r.started_at) * 1000000)::bigint FROM deleted r`

// failSQL settles attempts as decided, except that a run that was cancelled meanwhile
// is not retried. The results are sorted by run, so that runs are locked in this order,
// and what belongs to one is found by a binary search. Like succeedSQL, it reads no other
// runs: there is no join with them that the planner could turn into a loop over all.
const failSQL = `/* finish */
WITH result AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[],
                       $9::text[], $10::text[], $11::bigint[], $12::integer[], $13::integer[], $14::text[], $15::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output,
          outcome, next_state, delay_ms, new_failures, new_lost, reason, fingerprint)
), locked AS MATERIALIZED (
  SELECT r.*, result.n, result.http_status, result.error, result.output, result.outcome, result.new_failures, result.new_lost, result.reason,
         result.fingerprint, clock_timestamp() AS now,
         CASE WHEN r.cancel_requested_at IS NULL THEN result.next_state ELSE 'cancelled' END AS next_state
    FROM result CROSS JOIN LATERAL (
      SELECT * FROM belfry.runs
       WHERE id = result.id AND coalesce(namespace = result.namespace AND state = 'running' AND attempt = result.attempt AND token = result.token, false) FOR UPDATE) r
), inserted_attempts AS (
  INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
  SELECT id, attempt, shard, namespace, outcome, worker, token, started_at, now, http_status, error, output FROM locked
  ON CONFLICT DO NOTHING
), clock AS MATERIALIZED (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM locked) l), retried AS (
  UPDATE belfry.runs r
     SET state = ($10)[width_bucket(r.id, $2)], ready_at = now + ($11)[width_bucket(r.id, $2)] * interval '1 millisecond',
         rank = (extract(epoch FROM now) * 1000000)::bigint + ($11)[width_bucket(r.id, $2)] * 1000 + r.weight,
         failures = ($12)[width_bucket(r.id, $2)], lost = ($13)[width_bucket(r.id, $2)], worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL
    FROM clock WHERE r.id = ANY(ARRAY(SELECT id FROM locked WHERE next_state NOT IN ('dead', 'cancelled')))
), deleted AS (
  DELETE FROM belfry.runs WHERE id = ANY(ARRAY(SELECT id FROM locked WHERE next_state IN ('dead', 'cancelled')))
), inserted_dead AS (
  INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, started_at, died_at, payload, fingerprint, key, weight, one_off, retention_days)
  SELECT id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
         timeout_ms, attempt, new_failures, new_lost, started_at, now, payload, fingerprint, key, weight, one_off, retention_days
    FROM locked WHERE next_state = 'dead'
), settled AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'cancelled', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, http_status, error, output, 0, key, now + retention_days * interval '24 hours'
    FROM locked WHERE next_state = 'cancelled'
)
SELECT ` + settledColumns + `
  FROM (SELECT n, job_id, one_off AND next_state = 'cancelled' AS one_off, next_state IN ('dead', 'cancelled') AND ` + hasWaitingRun + ` AS has_waiting FROM locked r) r`

// finishFailed settles results that are no success, sorted by run.
func (s *Store) finishFailed(ctx context.Context, results []belfry.Result, which []int, settled []bool, next *followUps) error {
	if len(which) == 0 {
		return nil
	}
	held, err := s.heldAttempts(ctx, results, which)
	if err != nil {
		return err
	}
	var known []int
	var runs []heldAttempt
	var settlements []belfry.Settlement
	for _, i := range which {
		r := results[i]
		h, ok := held[r.RunID]
		if !ok || h.attempt != r.Attempt || h.token != r.Token {
			continue
		}
		delete(held, r.RunID) // another result of this attempt in the batch is a repetition
		known, runs, settlements = append(known, i), append(runs, h), append(settlements, belfry.Settle(r.RunID, h.counts, h.retry, r))
	}
	if len(known) == 0 {
		return nil
	}
	states := column(settlements, func(s *belfry.Settlement) string { return string(s.State) })
	err = next.settled(ctx, s.orMain(s.finishPool), settled, failSQL, append(resultArgs(results, known),
		column(known, func(i *int) string { return string(results[*i].Outcome) }), states,
		column(settlements, func(s *belfry.Settlement) int64 { return s.Delay.Milliseconds() }),
		column(settlements, func(s *belfry.Settlement) int32 { return int32(s.Counts.Failures) }),
		column(settlements, func(s *belfry.Settlement) int32 { return int32(s.Counts.Lost) }),
		column(settlements, func(s *belfry.Settlement) string { return string(s.Reason) }),
		column(known, func(i *int) string { return belfry.Fingerprint(results[*i]) }))...)
	if err != nil {
		return err
	}
	for n, i := range known {
		if h := runs[n]; settled[i] {
			next.attempts = append(next.attempts, metrics.Attempt{Namespace: results[i].Namespace, Lane: h.lane, Outcome: results[i].Outcome, Duration: s.Now().Sub(h.startedAt), Dead: settlements[n].Reason})
		}
	}
	if slices.Contains(states, string(belfry.RunReady)) {
		s.notifier.notifyReady()
	}
	if slices.Contains(states, string(belfry.RunRetry)) {
		s.notifier.notifyPlans(false)
	}
	return nil
}

type heldAttempt struct {
	attempt int
	token   belfry.Token
	counts  belfry.AttemptCounts
	retry   belfry.Retry

	lane      string
	startedAt time.Time
}

func (s *Store) heldAttempts(ctx context.Context, results []belfry.Result, which []int) (map[belfry.ID]heldAttempt, error) {
	ids := column(which, func(i *int) pgtype.UUID { return notNull(results[*i].RunID) })
	held := make(map[belfry.ID]heldAttempt, len(ids))
	var (
		id   belfry.ID
		h    heldAttempt
		spec string
	)
	err := forEach(ctx, s.orMain(s.finishPool), []any{idColumn(&id), &h.attempt, idColumn(&h.token), &h.counts.Failures, &h.counts.Lost, &h.counts.Cancelled, &spec, &h.lane, timeColumn{&h.startedAt}}, func() error {
		h.retry = s.specs.OrZero(spec).Retry()
		held[id] = h
		return nil
	}, `/* finish */ SELECT r.id, r.attempt, r.token, r.failures, r.lost, r.cancel_requested_at IS NOT NULL, coalesce(v.spec, j.spec), r.lane, r.started_at
		FROM belfry.runs r`+joinRevision+` WHERE r.id = ANY($1) AND r.state = 'running'`, ids)
	return held, err
}
