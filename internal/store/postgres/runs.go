package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// joinRevision joins the revision v that a run r was fired from, if it is not the
// current one of the job j.
const joinRevision = `
  CROSS JOIN LATERAL (SELECT * FROM belfry.jobs WHERE id = r.job_id LIMIT 1) j
  LEFT JOIN LATERAL (SELECT * FROM belfry.revisions v WHERE v.job_id = r.job_id AND v.revision = r.revision AND r.revision <> j.revision LIMIT 1) v ON true`

const (
	// claimSQL claims the runs of lowest rank of each lane, below a rank.
	claimSQL = `/* claim */
WITH locked AS MATERIALIZED (
  SELECT x.run, x.rank FROM unnest($2::text[]) AS l (lane)
   CROSS JOIN LATERAL (SELECT r.ctid AS run, r.rank FROM belfry.runs r WHERE r.lane = l.lane AND r.state = 'ready' AND r.rank < $6 ORDER BY r.rank LIMIT $3 FOR UPDATE SKIP LOCKED) x
   WHERE EXISTS (SELECT 1 FROM belfry.workers w WHERE w.id = $1)
   ORDER BY x.rank LIMIT $3
), ` + claimLocked

	// claimRunsSQL claims runs by their ids.
	claimRunsSQL = `/* claim runs */
WITH locked AS MATERIALIZED (
  SELECT r.ctid AS run, r.rank FROM belfry.runs r
   WHERE r.id = ANY($6::uuid[]) AND r.lane = ANY($2::text[]) AND r.state = 'ready' AND EXISTS (SELECT 1 FROM belfry.workers w WHERE w.id = $1)
   ORDER BY r.rank LIMIT $3 FOR UPDATE SKIP LOCKED
), ` + claimLocked

	claimLocked = `assigned AS (
  SELECT run, ($4::uuid[])[row_number() OVER (ORDER BY rank)] AS token FROM locked
), claimed AS (
  UPDATE belfry.runs r
     SET state = 'running', attempt = r.attempt + 1, worker = $1, token = assigned.token, started_at = clock_timestamp(),
         deadline_at = clock_timestamp() + (r.timeout_ms + $5) * interval '1 millisecond'
    FROM assigned WHERE r.ctid = assigned.run
  RETURNING r.*
)
SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, r.scheduled_at, r.ready_at, r.fired_at, r.attempt, r.token, r.started_at, r.deadline_at,
       coalesce(v.spec, j.spec), coalesce(r.payload, CASE WHEN v.job_id IS NULL THEN j.payload ELSE v.payload END),
       coalesce(r.key, ''), coalesce(j.name, '')
  FROM claimed r` + joinRevision + `
 ORDER BY r.rank`
)

func (s *Store) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	return s.ClaimBelow(ctx, c, plan.MaxRank)
}

func (s *Store) ReadyRank(ctx context.Context, lanes []string) (rank int64, err error) {
	err = s.pool.QueryRow(ctx, `/* ready rank */
SELECT coalesce(min(x.rank), $2) FROM unnest($1::text[]) AS l (lane)
 CROSS JOIN LATERAL (SELECT r.rank FROM belfry.runs r WHERE r.lane = l.lane AND r.state = 'ready' ORDER BY r.rank LIMIT 1) x`, storables(lanes), int64(plan.MaxRank)).Scan(&rank)
	return rank, wrapError("read the lowest rank", err)
}

func (s *Store) ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error) {
	return s.claim(ctx, c, claimSQL, rank)
}

func (s *Store) ClaimRuns(ctx context.Context, c belfry.Claim, runs []belfry.ID) ([]*belfry.Run, error) {
	c.Limit = min(c.Limit, len(runs))
	return s.claim(ctx, c, claimRunsSQL, column(runs, func(id *belfry.ID) pgtype.UUID { return notNull(*id) }))
}

func (s *Store) claim(ctx context.Context, c belfry.Claim, sql string, which ...any) ([]*belfry.Run, error) {
	ctx, cancel := detach(ctx, fireTimeout)
	defer cancel()
	claimed, err := s.collectClaimed(ctx, s.pool, c, sql, which...)
	if err != nil {
		return nil, wrapError("claim", err)
	}
	return s.startClaimed(ctx, claimed), nil
}

func (s *Store) collectClaimed(ctx context.Context, q querier, c belfry.Claim, sql string, which ...any) ([]claimedRun, error) {
	if c.Limit < 1 || len(c.Lanes) == 0 {
		return nil, nil
	}
	args := append([]any{uuid(c.WorkerID), storables(c.Lanes), c.Limit, newTokens(c.Limit), store.DeadlineGrace.Milliseconds()}, which...)
	return collect(ctx, q, func(row pgx.CollectableRow) (claimedRun, error) { return s.scanClaimed(row, c.WorkerID) }, sql, args...)
}

// startClaimed returns the runs of a claim. It fails a run whose spec cannot be read at once.
func (s *Store) startClaimed(ctx context.Context, claimed []claimedRun) []*belfry.Run {
	runs := make([]*belfry.Run, 0, len(claimed))
	var failed []belfry.Result
	for _, r := range claimed {
		if r.err == nil {
			runs = append(runs, r.run)
			continue
		}
		failed = append(failed, belfry.Result{Namespace: r.run.Namespace, RunID: r.run.ID, Attempt: r.run.Attempt, Token: r.run.Token,
			Outcome: belfry.OutcomeFailed, Error: "the job's spec cannot be read"})
		s.log.Error("a claimed run cannot be read", "run", r.run.ID, "trace_id", belfry.RunTraceID(r.run.ID), "error", r.err)
	}
	if _, err := s.settle(ctx, failed); err != nil {
		s.log.Warn("a run that cannot be read was not settled; its deadline will", "error", err)
	}
	s.metrics.Started(runs)
	return runs
}

// claimedRun is a run, or why its spec cannot be read.
type claimedRun struct {
	run *belfry.Run
	err error
}

func (s *Store) scanClaimed(row pgx.CollectableRow, worker belfry.ID) (claimedRun, error) {
	run := &belfry.Run{Status: belfry.RunRunning, WorkerID: worker}
	var spec string
	err := row.Scan(idColumn(&run.ID), idColumn(&run.JobID), &run.Namespace, &run.Revision, &run.Kind, timeColumn{&run.ScheduledAt}, timeColumn{&run.ReadyAt},
		timeColumn{&run.FiredAt}, &run.Attempt, idColumn(&run.Token), nullTimeColumn{&run.StartedAt}, timeColumn{&run.DeadlineAt}, &spec, jsonColumn{&run.Payload},
		&run.TemplateKey, &run.JobName)
	if err != nil {
		return claimedRun{}, err
	}
	run.Spec, err = s.specs.Decode(spec)
	return claimedRun{run, err}, nil
}

func (s *Store) Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	if b.Leave {
		_, err := s.priorityPool.Exec(ctx, `/* heartbeat */ DELETE FROM belfry.workers WHERE id = $1`, uuid(b.WorkerID))
		if err == nil { // it says that it holds nothing, so it never learned of what it still has
			err = s.confirmClaims(ctx, belfry.Heartbeat{WorkerID: b.WorkerID}, 0, &belfry.HeartbeatReply{})
		}
		return belfry.HeartbeatReply{}, wrapError("heartbeat", err)
	}
	lanes, err := json.Marshal(b.Lanes)
	if err != nil {
		return belfry.HeartbeatReply{}, err
	}
	const seen = `last_seen = clock_timestamp(), sequence = greatest(w.sequence, $5),
		since = CASE WHEN clock_timestamp() BETWEEN w.last_seen - interval '1 second' AND w.last_seen + $6 * interval '1 millisecond' THEN w.since ELSE clock_timestamp() END`
	sql := `UPDATE belfry.workers w SET node = $2, slots = $3, lanes = $4, ` + seen + ` WHERE id = $1`
	if b.Register {
		sql = `INSERT INTO belfry.workers AS w (id, node, slots, lanes, started_at, last_seen, since, sequence)
			VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp(), clock_timestamp(), $5)
			ON CONFLICT (id) DO UPDATE SET ` + seen
	}
	reply := belfry.HeartbeatReply{Unknown: true}
	var run pgtype.UUID
	var attempt pgtype.Int4
	var late bool // after a heartbeat that was sent later
	// A known worker makes one row at least.
	err = forEach(ctx, s.priorityPool, []any{&run, &attempt, &late}, func() error {
		reply.Unknown = false
		if run.Valid {
			reply.Cancel = append(reply.Cancel, belfry.HeldAttempt{RunID: run.Bytes, Attempt: int(attempt.Int32)})
		}
		return nil
	}, `/* heartbeat */ WITH worker AS (`+sql+` RETURNING sequence > $5 AS late)
		SELECT r.id, r.attempt, worker.late
		  FROM worker LEFT JOIN (SELECT id, attempt FROM belfry.runs WHERE worker = $1 AND cancel_requested_at IS NOT NULL) r ON true`,
		uuid(b.WorkerID), b.Node, b.Slots, string(lanes), b.Sequence, store.HeartbeatGap.Milliseconds())
	if err != nil {
		return belfry.HeartbeatReply{}, wrapError("heartbeat", err)
	}
	if b.Complete && !reply.Unknown && !(late && b.Sequence > 0) {
		err = s.confirmClaims(ctx, b, store.ConfirmAfter, &reply)
	}
	if err == nil && !reply.Unknown {
		err = s.writeLogs(ctx, b.Logs)
	}
	return reply, wrapError("confirm claims and keep logs", err)
}

// heldSQL finds the runs that a worker holds according to the store.
const heldSQL = `/* heartbeat */ SELECT id, namespace, attempt, token, started_at <= clock_timestamp() - $2 * interval '1 millisecond'
  FROM belfry.runs WHERE worker = $1 AND state = 'running'`

// confirmClaims compares what a worker holds with what it claimed, adds to the reply
// what it lost, and settles claims of that age that it does not know. Those it need not
// cancel.
func (s *Store) confirmClaims(ctx context.Context, b belfry.Heartbeat, age time.Duration, reply *belfry.HeartbeatReply) error {
	var (
		result    belfry.Result
		old       bool
		claims    = map[belfry.HeldAttempt]belfry.Result{}
		oldClaims = map[belfry.HeldAttempt]bool{}
	)
	err := forEach(ctx, s.priorityPool, []any{idColumn(&result.RunID), &result.Namespace, &result.Attempt, idColumn(&result.Token), &old}, func() error {
		result.Outcome, result.Error = belfry.OutcomeUnconfirmed, store.ErrorUnconfirmed
		held := belfry.HeldAttempt{RunID: result.RunID, Attempt: result.Attempt}
		claims[held], oldClaims[held] = result, old
		return nil
	}, heldSQL, uuid(b.WorkerID), age.Milliseconds())
	if err != nil {
		return err
	}
	for _, held := range b.Held {
		if _, ok := claims[held]; !ok {
			reply.Lost = append(reply.Lost, held)
		}
		delete(claims, held)
	}
	var unconfirmed []belfry.Result
	for held, result := range claims {
		if oldClaims[held] {
			unconfirmed = append(unconfirmed, result)
			reply.Cancel = slices.DeleteFunc(reply.Cancel, func(h belfry.HeldAttempt) bool { return h == held })
		}
	}
	_, err = s.settle(ctx, unconfirmed)
	return err
}

// reapSQL finds the attempts that their workers will not finish, by the index of the running
// runs. The condition on started_at is for the planner, which may prefer another index without it.
const reapSQL = `/* reap */
SELECT r.id, r.namespace, r.attempt, r.token, w.id IS NULL, r.deadline_at < clock_timestamp()
  FROM belfry.runs r LEFT JOIN belfry.workers w ON w.id = r.worker
 WHERE r.state = 'running' AND r.started_at > '-infinity'
   AND (w.id IS NULL
     OR $3 AND r.deadline_at < least(clock_timestamp(), $4::timestamptz) AND w.last_seen > r.deadline_at AND w.since <= r.started_at
     OR $3 AND r.cancel_requested_at < least(clock_timestamp(), $4::timestamptz) - $2 * interval '1 millisecond')
 ORDER BY r.started_at LIMIT $1`

// Reap removes silent workers and settles attempts that nobody will finish. Every
// running run whose worker is not registered counts, not only those that a worker had
// when it was removed: a claim may commit after that.
func (s *Store) Reap(ctx context.Context, silence time.Duration, limit int) ([]belfry.Result, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	clockSettled := s.clockWatch.Settled()
	expected := s.Now() // The clock may be set at this very moment.
	if silence > 0 && clockSettled {
		_, err := s.priorityPool.Exec(ctx, `DELETE FROM belfry.workers
			WHERE NOT last_seen BETWEEN clock_timestamp() - $1 * interval '1 millisecond' AND clock_timestamp() + $1 * interval '1 millisecond'
			  AND clock_timestamp() BETWEEN $2::timestamptz - interval '2 seconds' AND $2::timestamptz + interval '2 seconds'`, silence.Milliseconds(), expected)
		if err != nil {
			return nil, wrapError("remove silent workers", err)
		}
	}
	results, err := collect(ctx, s.priorityPool, scanAbandoned, reapSQL, limit, store.CancelGrace.Milliseconds(), clockSettled, expected)
	if err != nil {
		return nil, wrapError("reap", err)
	}
	settled, err := s.settle(ctx, results)
	var reaped []belfry.Result
	for i, ok := range settled {
		if ok {
			reaped = append(reaped, results[i])
		}
	}
	return reaped, wrapError("reap", err)
}

func scanAbandoned(row pgx.CollectableRow) (r belfry.Result, err error) {
	var workerLost, timedOut bool
	err = row.Scan(idColumn(&r.RunID), &r.Namespace, &r.Attempt, idColumn(&r.Token), &workerLost, &timedOut)
	switch {
	case workerLost:
		r.Outcome, r.Error = belfry.OutcomeLost, store.ErrorWorkerLost
	case timedOut:
		r.Outcome, r.Error = belfry.OutcomeTimedOut, store.ErrorDeadline
	default:
		r.Outcome, r.Error = belfry.OutcomeCancelled, store.ErrorNotStopped
	}
	return r, err
}

// lateVerdicts judges results whose runs are not held by their attempts. One was accepted
// if it is the repetition of a result that settled the attempt; otherwise it is kept as
// evidence. It returns those whose runs are held after all.
func (s *Store) lateVerdicts(ctx context.Context, results []belfry.Result, late []int, verdicts []belfry.Verdict) (held []int, err error) {
	var i int
	var known, isHeld bool
	err = forEach(ctx, s.orMain(s.finishPool), []any{&i, &known, &isHeld}, func() error {
		if !known {
			verdicts[i] = belfry.VerdictLate
		}
		if isHeld {
			held = append(held, i)
		}
		return nil
	}, `/* late */
WITH result AS MATERIALIZED (
  SELECT f.*, EXISTS (SELECT 1 FROM belfry.history h WHERE h.id = f.id AND h.namespace = f.namespace AND h.attempt = f.attempt AND h.token = f.token
                         AND h.state = 'succeeded' AND f.outcome = 'succeeded')
           OR EXISTS (SELECT 1 FROM belfry.attempts a WHERE a.run_id = f.id AND a.namespace = f.namespace AND a.attempt = f.attempt AND a.token = f.token
                         AND a.outcome = f.outcome) AS known,
         EXISTS (SELECT 1 FROM belfry.runs r WHERE r.id = f.id AND r.namespace = f.namespace AND r.state = 'running' AND r.attempt = f.attempt AND r.token = f.token) AS held
    FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::integer[], $5::uuid[], $6::text[]) AS f (n, id, namespace, attempt, token, outcome)
), evidence AS (
  UPDATE belfry.attempts a SET late_outcome = f.outcome, late_at = clock_timestamp()
    FROM result f
   WHERE NOT f.known AND NOT f.held AND a.run_id = f.id AND a.namespace = f.namespace AND a.attempt = f.attempt AND a.token = f.token AND a.late_outcome IS NULL
)
SELECT n, known, held FROM result`,
		column(late, func(i *int) int64 { return int64(*i) }),
		column(late, func(i *int) pgtype.UUID { return uuid(results[*i].RunID) }),
		column(late, func(i *int) string { return storable(results[*i].Namespace) }),
		column(late, func(i *int) int32 { return int32(results[*i].Attempt) }),
		column(late, func(i *int) pgtype.UUID { return uuid(results[*i].Token) }),
		column(late, func(i *int) string { return string(results[*i].Outcome) }))
	return held, err
}

const writeLogsSQL = `/* log */
WITH piece AS MATERIALIZED (
  SELECT p.*, r.shard
    FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::uuid[], $5::bigint[], $6::bigint[], $7::text[]) AS p (id, namespace, attempt, token, start, stop, text)
    JOIN belfry.runs r ON r.id = p.id AND r.namespace = p.namespace AND r.state = 'running' AND r.attempt = p.attempt AND r.token = p.token
   WHERE NOT EXISTS (SELECT 1 FROM belfry.attempt_logs l WHERE l.run_id = p.id AND l.attempt = p.attempt AND l.stop > p.stop)
), covered AS (
  DELETE FROM belfry.attempt_logs l USING piece p
   WHERE l.run_id = p.id AND l.attempt = p.attempt AND (l.start > p.start OR l.stop <= p.stop - $8 AND l.start < p.start)
)
INSERT INTO belfry.attempt_logs (run_id, attempt, start, stop, shard, namespace, updated_at, text)
SELECT id, attempt, start, stop, shard, namespace, clock_timestamp(), text FROM piece
ON CONFLICT (run_id, attempt, start) DO UPDATE SET stop = excluded.stop, text = excluded.text, updated_at = excluded.updated_at`

// writeLogs keeps what workers wrote to the logs of attempts that they hold.
func (s *Store) writeLogs(ctx context.Context, chunks []belfry.LogChunk) error {
	pieces := store.LogPieces(chunks)
	if len(pieces) == 0 {
		return nil
	}
	return retryDeadlock(func() error {
		_, err := s.pool.Exec(ctx, writeLogsSQL,
			column(pieces, func(p *store.LogPiece) pgtype.UUID { return notNull(p.RunID) }),
			column(pieces, func(p *store.LogPiece) string { return storable(p.Namespace) }),
			column(pieces, func(p *store.LogPiece) int32 { return int32(p.Attempt) }),
			column(pieces, func(p *store.LogPiece) pgtype.UUID { return notNull(p.Token) }),
			column(pieces, func(p *store.LogPiece) int64 { return p.Start }),
			column(pieces, func(p *store.LogPiece) int64 { return p.Stop }),
			column(pieces, func(p *store.LogPiece) string { return p.Text }), int64(belfry.MaxLog))
		return err
	})
}

// claimSharesSQL claims the runs of lowest rank of each lane, below a rank of its own, and
// no more of a namespace than its share.
const claimSharesSQL = `/* claim shares */
WITH locked AS MATERIALIZED (
  SELECT y.run, y.rank FROM (
    SELECT x.run, x.rank, l.most, row_number() OVER (PARTITION BY l.namespace ORDER BY x.rank) AS n
      FROM unnest($2::text[], $6::text[], $7::integer[], $8::bigint[]) AS l (lane, namespace, most, below)
     CROSS JOIN LATERAL (SELECT r.ctid AS run, r.rank FROM belfry.runs r WHERE r.lane = l.lane AND r.state = 'ready' AND r.rank < l.below ORDER BY r.rank LIMIT l.most FOR UPDATE SKIP LOCKED) x
     WHERE EXISTS (SELECT 1 FROM belfry.workers w WHERE w.id = $1)) y
   WHERE y.n <= y.most ORDER BY y.rank LIMIT $3
), ` + claimLocked

func (s *Store) ClaimShares(ctx context.Context, c belfry.Claim, shares store.Shares) (runs []*belfry.Run, err error) {
	if len(shares.MaxRunning) == 0 {
		return s.claim(ctx, c, claimSharesSQL, shareArgs(shares.Of(&c, nil))...)
	}
	ctx, cancel := detach(ctx, fireTimeout)
	defer cancel()
	var claimed []claimedRun
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		running, err := countRunning(ctx, tx, slices.Sorted(maps.Keys(shares.MaxRunning)))
		if err != nil {
			return err
		}
		args := shareArgs(shares.Of(&c, running))
		claimed, err = s.collectClaimed(ctx, tx, c, claimSharesSQL, args...)
		return err
	})
	if err != nil {
		return nil, wrapError("claim", err)
	}
	return s.startClaimed(ctx, claimed), nil
}

// countRunning counts the running runs of namespaces. Until the end of the transaction nobody
// else counts them, so that no two claims take what is left; a namespace has no other way to
// start a run while it is limited.
func countRunning(ctx context.Context, tx pgx.Tx, namespaces []string) (map[string]int, error) {
	for _, namespace := range namespaces {
		if _, err := tx.Exec(ctx, `/* lock namespace */ SELECT pg_advisory_xact_lock(hashtextextended('belfry running ' || $1, 0))`, storable(namespace)); err != nil {
			return nil, err
		}
	}
	return collectMap[string, int](ctx, tx, sqlstore.CountRunningOf, storables(namespaces))
}

func shareArgs(shares []store.LaneShare) []any {
	return []any{
		column(shares, func(l *store.LaneShare) string { return storable(l.Namespace) }),
		column(shares, func(l *store.LaneShare) int32 { return int32(l.Most) }),
		column(shares, func(l *store.LaneShare) int64 { return l.Below }),
	}
}
