package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// maxError bounds the text kept of an error.
const maxError = 8 << 10

// Finish settles attempts. A result that fits no live attempt was accepted
// before or is late.
func (s *Store) Finish(ctx context.Context, results []belfry.Result) ([]belfry.Verdict, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	settled, err := s.settle(ctx, results)
	for tries := 0; sqlState(err) == deadlockDetected && tries < 3; tries++ {
		settled, err = s.settle(ctx, results)
	}
	if err != nil {
		return nil, wrapError("finish", err)
	}
	verdicts := make([]belfry.Verdict, len(results))
	for i := range results {
		verdicts[i] = belfry.VerdictAccepted
		if settled[i] {
			continue
		}
		if verdicts[i], err = s.lateVerdict(ctx, results[i]); err != nil {
			return nil, wrapError("finish", err)
		}
	}
	return verdicts, nil
}

// settle applies results to the runs that are held by exactly their attempts,
// and says which: first those that need nothing but the run itself, then those
// whose retry policy has to be asked. What comes after the runs that are over is
// seen to as well, or else by the sweeps.
func (s *Store) settle(ctx context.Context, results []belfry.Result) (settled []bool, err error) {
	settled = make([]bool, len(results))
	order := make([]int, len(results)) // by id, in which most plans lock the runs
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return results[i].RunID.Compare(results[j].RunID) })
	var good, bad []int
	for _, i := range order {
		if results[i].Outcome == belfry.OutcomeSucceeded {
			good = append(good, i)
		} else {
			bad = append(bad, i)
		}
	}
	var rest followUps
	if err = s.finishSucceeded(ctx, results, good, settled, &rest); err == nil {
		err = s.finishFailed(ctx, results, bad, settled, &rest)
	}
	s.runFollowUps(ctx, rest)
	return settled, err
}

// fenceArgs is the columns that every result has.
type resultColumns struct {
	n          []int64
	ids        []pgtype.UUID
	namespaces []string
	attempts   []int32
	tokens     []pgtype.UUID
	statuses   []int32
	errors     []string
	outputs    []string
}

func newResultColumns(results []belfry.Result, which []int) *resultColumns {
	a := &resultColumns{}
	for _, i := range which {
		r := &results[i]
		a.n = append(a.n, int64(i))
		a.ids = append(a.ids, uuid(r.RunID))
		a.namespaces = append(a.namespaces, storable(r.Namespace))
		a.attempts = append(a.attempts, int32(r.Attempt))
		a.tokens = append(a.tokens, pgtype.UUID{Bytes: r.Token, Valid: true})
		a.statuses = append(a.statuses, int32(r.HTTPStatus))
		a.errors = append(a.errors, sanitize.Text(r.Error, maxError))
		a.outputs = append(a.outputs, sanitize.Text(string(r.Output), belfry.MaxOutput))
	}
	return a
}

// aftermathSQL are the columns of an answer about runs r that tell what comes after
// them, with the job if anything does.
const followUpColumns = `CASE WHEN r.once OR r.waits THEN r.job_id END, r.once, r.waits`

// waitsSQL tells whether another run of the job of r waits. Mostly none does of any
// job, which one look tells for all.
const hasWaitingRun = `CASE WHEN (SELECT 1 FROM belfry.runs WHERE state = 'waiting' LIMIT 1) IS NULL THEN false
         ELSE (SELECT 1 FROM belfry.runs w WHERE w.job_id = r.job_id AND w.state = 'waiting' LIMIT 1) IS NOT NULL END`

const succeedSQL = `/* finish */
WITH done AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output)
), gone AS (
  DELETE FROM belfry.runs r USING done
   WHERE r.id = done.id AND r.namespace = done.namespace AND r.state = 'running' AND r.attempt = done.attempt AND r.token = done.token
  RETURNING r.*, done.n, done.http_status, done.error, done.output, clock_timestamp() AS now, ` + hasWaitingRun + ` AS waits
), kept AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, keep_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'succeeded', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, http_status, error, output, 0, key, now + keep_days * interval '24 hours'
    FROM gone
), keyed AS (
  INSERT INTO belfry.keys (job_id, key, shard, run_id, made_at, succeeded_at)
  SELECT DISTINCT ON (job_id, key) job_id, key, shard, id, now, now FROM gone WHERE key IS NOT NULL AND kind = 'scheduled' ORDER BY job_id, key, id
  ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, succeeded_at = excluded.succeeded_at
)
SELECT r.n, ` + followUpColumns + ` FROM gone r`

func (s *Store) finishSucceeded(ctx context.Context, results []belfry.Result, which []int, settled []bool, rest *followUps) error {
	if len(which) == 0 {
		return nil
	}
	a := newResultColumns(results, which)
	rows, err := s.pool.Query(ctx, succeedSQL, a.n, a.ids, a.namespaces, a.attempts, a.tokens, a.statuses, a.errors, a.outputs)
	return rest.collectSettled(rows, err, settled)
}

// lateOrKnown says whether a result that fits no live attempt was accepted
// before. If not it is late, and noted beside the attempt that was given up.
func (s *Store) lateVerdict(ctx context.Context, r belfry.Result) (belfry.Verdict, error) {
	var known bool
	err := s.pool.QueryRow(ctx, `/* late */
SELECT EXISTS (SELECT 1 FROM belfry.history WHERE id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND state = 'succeeded' AND $5 = 'succeeded')
    OR EXISTS (SELECT 1 FROM belfry.attempts WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND outcome = $5)`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome)).Scan(&known)
	if err != nil {
		return "", err
	}
	if known {
		return belfry.VerdictAccepted, nil
	}
	_, err = s.pool.Exec(ctx, `/* late */ UPDATE belfry.attempts SET late_outcome = $5, late_at = clock_timestamp()
		WHERE run_id = $1 AND namespace = $2 AND attempt = $3 AND token = $4 AND late_outcome IS NULL`,
		uuid(r.RunID), storable(r.Namespace), r.Attempt, uuid(r.Token), string(r.Outcome))
	return belfry.VerdictLate, err
}

// failSQL settles attempts as it is told, but a run that was cancelled meanwhile is
// not tried again.
const failSQL = `/* finish */
WITH done AS (
  SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::integer[], $7::text[], $8::text[],
                       $9::text[], $10::text[], $11::bigint[], $12::integer[], $13::integer[], $14::text[], $15::text[])
    AS f (n, id, namespace, attempt, token, http_status, error, output,
          outcome, next_state, delay_ms, failures_now, lost_now, reason, fingerprint)
), held AS MATERIALIZED (
  SELECT r.*, done.n, done.http_status, done.error, done.output, done.outcome, done.failures_now, done.lost_now, done.reason,
         done.fingerprint, clock_timestamp() AS now, clock_timestamp() + done.delay_ms * interval '1 millisecond' AS again_at,
         CASE WHEN r.cancel_at IS NULL THEN done.next_state ELSE 'cancelled' END AS next_state
    FROM belfry.runs r JOIN done USING (id)
   WHERE r.namespace = done.namespace AND r.state = 'running' AND r.attempt = done.attempt AND r.token = done.token
   ORDER BY r.id FOR UPDATE OF r
), noted AS (
  INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
  SELECT id, attempt, shard, namespace, outcome, worker, token, started_at, now, http_status, error, output FROM held
  ON CONFLICT DO NOTHING
), again AS (
  UPDATE belfry.runs r
     SET state = held.next_state, ready_at = held.again_at, rank = (extract(epoch FROM held.again_at) * 1000000)::bigint + r.weight,
         failures = held.failures_now, lost = held.lost_now, worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL
    FROM held WHERE r.id = held.id AND held.next_state NOT IN ('dead', 'cancelled')
), gone AS (
  DELETE FROM belfry.runs r USING held WHERE r.id = held.id AND held.next_state IN ('dead', 'cancelled')
), buried AS (
  INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                           timeout_ms, attempt, failures, lost, started_at, died_at, payload, trace, fingerprint, key, weight, once, keep_days)
  SELECT id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
         timeout_ms, attempt, failures_now, lost_now, started_at, now, payload, trace, fingerprint, key, weight, once, keep_days
    FROM held WHERE next_state = 'dead'
), kept AS (
  INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                              attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, keep_until)
  SELECT id, shard, namespace, job_id, revision, kind, 'cancelled', '', scheduled_at, ready_at, fired_at, fired_by, epoch,
         attempt, worker, token, started_at, now, http_status, error, output, 0, key, now + keep_days * interval '24 hours'
    FROM held WHERE next_state = 'cancelled'
)
SELECT r.n, ` + followUpColumns + `
  FROM (SELECT n, job_id, once AND next_state = 'cancelled' AS once, next_state IN ('dead', 'cancelled') AND ` + hasWaitingRun + ` AS waits FROM held r) r`

// fail settles attempts that did not succeed, as the job's policy says.
func (s *Store) finishFailed(ctx context.Context, results []belfry.Result, which []int, settled []bool, rest *followUps) error {
	if len(which) == 0 {
		return nil
	}
	ids := make([]belfry.ID, len(which))
	for k, i := range which {
		ids[k] = results[i].RunID
	}
	policies, err := s.attemptStates(ctx, ids)
	if err != nil {
		return err
	}
	var known []int
	var outcomes, states, reasons, prints []string
	var delays []int64
	var failures, lost []int32
	again, retry := false, false
	for _, i := range which {
		r := results[i]
		p, ok := policies[r.RunID]
		if !ok || p.attempt != r.Attempt || p.token != r.Token {
			continue
		}
		delete(policies, r.RunID) // another result of this attempt in the batch is a repetition
		next := belfry.Settle(r.RunID, p.counts, p.retry, r)
		known = append(known, i)
		outcomes, states = append(outcomes, string(r.Outcome)), append(states, string(next.State))
		delays = append(delays, next.Delay.Milliseconds())
		failures, lost = append(failures, int32(next.Counts.Failures)), append(lost, int32(next.Counts.Lost))
		reasons, prints = append(reasons, string(next.Reason)), append(prints, belfry.Fingerprint(r))
		again = again || next.State == belfry.RunReady
		retry = retry || next.State == belfry.RunRetry
	}
	if len(known) == 0 {
		return nil
	}
	a := newResultColumns(results, known)
	rows, err := s.pool.Query(ctx, failSQL, a.n, a.ids, a.namespaces, a.attempts, a.tokens, a.statuses, a.errors, a.outputs,
		outcomes, states, delays, failures, lost, reasons, prints)
	if err := rest.collectSettled(rows, err, settled); err != nil {
		return err
	}
	if again {
		s.notifier.notifyReady()
	}
	if retry {
		s.notifier.notifyPlans(false)
	}
	return nil
}

type attemptState struct {
	attempt int
	token   belfry.Token
	counts  belfry.AttemptCounts
	retry   belfry.Retry
}

// policies reads what settling a run that failed depends on.
func (s *Store) attemptStates(ctx context.Context, ids []belfry.ID) (map[belfry.ID]attemptState, error) {
	rows, err := s.pool.Query(ctx, `SELECT r.id, r.attempt, r.token, r.failures, r.lost, r.cancel_at IS NOT NULL, coalesce(v.spec, j.spec)
		FROM belfry.runs r`+atRevision+` WHERE r.id = ANY($1) AND r.state = 'running'`, uuids(ids))
	if err != nil {
		return nil, err
	}
	out := make(map[belfry.ID]attemptState, len(ids))
	var (
		id, token pgtype.UUID
		p         attemptState
		text      string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &p.attempt, &token, &p.counts.Failures, &p.counts.Lost, &p.counts.Cancelled, &text}, func() error {
		p.retry, p.token = s.specs.OrZero(text).Retry(), token.Bytes
		out[id.Bytes] = p
		return nil
	})
	return out, err
}

// aftermath is the jobs of runs that are over and that something comes after.
type followUps struct {
	waiting []belfry.ID // another run waits
	oneOffs []belfry.ID // it may have been the last that a one-off had
}

// mark notes the results whose index was returned, and what comes after their
// runs: see aftermathSQL.
func (a *followUps) collectSettled(rows pgx.Rows, err error, settled []bool) error {
	if err != nil {
		return err
	}
	var (
		n           int64
		job         pgtype.UUID
		once, waits bool
	)
	_, err = pgx.ForEachRow(rows, []any{&n, &job, &once, &waits}, func() error {
		settled[n] = true
		a.add(job.Bytes, once, waits)
		return nil
	})
	return err
}

func (a *followUps) add(job belfry.ID, once, waits bool) {
	if waits {
		a.waiting = append(a.waiting, job)
	}
	if once {
		a.oneOffs = append(a.oneOffs, job)
	}
}

// follow sees to what comes after runs that are over. They are settled in any case:
// what goes wrong here is left to Promote and Retire.
func (s *Store) runFollowUps(ctx context.Context, a followUps) {
	if _, err := s.advance(ctx, a.waiting); err != nil {
		s.log.Warn("runs that wait for others will go ahead a little later", "jobs", len(a.waiting), "error", err)
	}
	if len(a.oneOffs) == 0 {
		return
	}
	if err := s.archive(ctx, s.pool, a.oneOffs); err != nil {
		s.log.Warn("one-offs that are over will leave a little later", "jobs", len(a.oneOffs), "error", err)
	}
}
