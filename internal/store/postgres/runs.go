package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// atRevision finds spec and payload of the revision that a run r was fired from.
const atRevision = `
  JOIN belfry.jobs j ON j.id = r.job_id
  LEFT JOIN belfry.revisions v ON v.job_id = r.job_id AND v.revision = r.revision AND r.revision <> j.revision`

const claimSQL = `/* claim */
WITH pick AS MATERIALIZED (
  SELECT x.id, x.rank FROM unnest($2::text[]) AS l (lane)
   CROSS JOIN LATERAL (SELECT r.id, r.rank FROM belfry.runs r WHERE r.lane = l.lane AND r.state = 'ready' ORDER BY r.rank LIMIT $3 FOR UPDATE SKIP LOCKED) x
   WHERE EXISTS (SELECT 1 FROM belfry.workers w WHERE w.id = $1)
   ORDER BY x.rank LIMIT $3
), given AS (
  SELECT id, ($4::uuid[])[row_number() OVER (ORDER BY rank)] AS token FROM pick
), taken AS (
  UPDATE belfry.runs r
     SET state = 'running', attempt = r.attempt + 1, worker = $1, token = given.token, started_at = clock_timestamp(),
         deadline_at = clock_timestamp() + (r.timeout_ms + $5) * interval '1 millisecond'
    FROM given WHERE r.id = given.id
  RETURNING r.*
)
SELECT r.id, r.job_id, r.namespace, r.revision, r.kind, r.scheduled_at, r.ready_at, r.fired_at, r.attempt, r.token, r.started_at, r.deadline_at,
       coalesce(v.spec, j.spec), coalesce(r.payload, CASE WHEN v.job_id IS NULL THEN j.payload ELSE v.payload END),
       coalesce(r.key, ''), coalesce(j.name, '')
  FROM taken r` + atRevision + `
 ORDER BY r.rank`

// Claim hands ready runs to a registered worker, lowest rank first.
func (s *Store) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	if c.Limit < 1 || len(c.Lanes) == 0 {
		return nil, nil
	}
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	tokens := make([]belfry.Token, c.Limit)
	for i := range tokens {
		tokens[i] = belfry.NewToken()
	}
	rows, err := s.pool.Query(ctx, claimSQL, uuid(c.WorkerID), storables(c.Lanes), c.Limit, uuids(tokens), store.DeadlineGrace.Milliseconds())
	if err != nil {
		return nil, wrapError("claim", err)
	}
	runs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (claimedRun, error) { return s.scanClaimed(row, c.WorkerID) })
	if err != nil {
		return nil, wrapError("claim", err)
	}
	good := make([]*belfry.Run, 0, len(runs))
	var bad []belfry.Result
	for _, r := range runs {
		if r.err == nil {
			good = append(good, r.run)
			continue
		}
		bad = append(bad, belfry.Result{Namespace: r.run.Namespace, RunID: r.run.ID, Attempt: r.run.Attempt, Token: r.run.Token,
			Outcome: belfry.OutcomeFailed, Error: "the job's spec cannot be read"})
		s.log.Error("a claimed run cannot be read", "run", r.run.ID, "error", r.err)
	}
	if _, err := s.settle(ctx, bad); err != nil {
		s.log.Warn("a run that cannot be read was not settled; its deadline will", "error", err)
	}
	return good, nil
}

// claimed is a run that was handed over, or why it cannot be read.
type claimedRun struct {
	run *belfry.Run
	err error
}

func (s *Store) scanClaimed(row pgx.CollectableRow, worker belfry.ID) (claimedRun, error) {
	run := &belfry.Run{Status: belfry.RunRunning, WorkerID: worker}
	var (
		id, job, token pgtype.UUID
		started        pgtype.Timestamptz
		spec           string
		payload        pgtype.Text
	)
	err := row.Scan(&id, &job, &run.Namespace, &run.Revision, &run.Kind, &run.ScheduledAt, &run.ReadyAt, &run.FiredAt, &run.Attempt, &token,
		&started, &run.DeadlineAt, &spec, &payload, &run.TemplateKey, &run.JobName)
	if err != nil {
		return claimedRun{}, err
	}
	run.ID, run.JobID, run.Token, run.StartedAt = id.Bytes, job.Bytes, token.Bytes, timeOrNil(started)
	run.ScheduledAt, run.ReadyAt, run.FiredAt, run.DeadlineAt = run.ScheduledAt.UTC(), run.ReadyAt.UTC(), run.FiredAt.UTC(), run.DeadlineAt.UTC()
	if payload.Valid {
		run.Payload = json.RawMessage(payload.String)
	}
	run.Spec, err = s.specs.Decode(spec)
	return claimedRun{run, err}, nil
}

// Heartbeat notes that a worker is alive and answers with what it lost and what is
// cancelled.
func (s *Store) Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	if b.Leave {
		_, err := s.priorityPool.Exec(ctx, `/* heartbeat */ DELETE FROM belfry.workers WHERE id = $1`, uuid(b.WorkerID))
		if err == nil { // what it still has it never learned of, since it says that it holds nothing
			err = s.confirmClaims(ctx, belfry.Heartbeat{WorkerID: b.WorkerID}, 0, &belfry.HeartbeatReply{})
		}
		return belfry.HeartbeatReply{}, wrapError("heartbeat", err)
	}
	lanes, err := json.Marshal(b.Lanes)
	if err != nil {
		return belfry.HeartbeatReply{}, err
	}
	sql := `UPDATE belfry.workers SET node = $2, slots = $3, lanes = $4, last_seen = clock_timestamp() WHERE id = $1`
	if b.Register {
		sql = `INSERT INTO belfry.workers (id, node, slots, lanes, started_at, last_seen)
			VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
			ON CONFLICT (id) DO UPDATE SET last_seen = clock_timestamp()`
	}
	// A worker that is known makes one row at least.
	rows, err := s.priorityPool.Query(ctx, `/* heartbeat */ WITH beat AS (`+sql+` RETURNING 1)
		SELECT r.id, r.attempt FROM beat LEFT JOIN (SELECT id, attempt FROM belfry.runs WHERE worker = $1 AND cancel_at IS NOT NULL) r ON true`,
		uuid(b.WorkerID), b.Node, b.Slots, string(lanes))
	if err != nil {
		return belfry.HeartbeatReply{}, wrapError("heartbeat", err)
	}
	orders := belfry.HeartbeatReply{Unknown: true}
	var run pgtype.UUID
	var attempt pgtype.Int4
	_, err = pgx.ForEachRow(rows, []any{&run, &attempt}, func() error {
		orders.Unknown = false
		if run.Valid {
			orders.Cancel = append(orders.Cancel, belfry.HeldAttempt{RunID: run.Bytes, Attempt: int(attempt.Int32)})
		}
		return nil
	})
	if err != nil {
		return belfry.HeartbeatReply{}, wrapError("heartbeat", err)
	}
	if b.Complete && !orders.Unknown {
		err = s.confirmClaims(ctx, b, store.ConfirmAfter, &orders)
	}
	return orders, wrapError("confirm claims", err)
}

// confirm compares what a worker says it holds with what it was given so long ago,
// and adds to its orders what it lost. What it does not know of it need not cancel.
func (s *Store) confirmClaims(ctx context.Context, b belfry.Heartbeat, age time.Duration, orders *belfry.HeartbeatReply) error {
	rows, err := s.priorityPool.Query(ctx, `SELECT id, namespace, attempt, token, started_at <= clock_timestamp() - $2 * interval '1 millisecond'
		FROM belfry.runs WHERE worker = $1 AND state = 'running'`, uuid(b.WorkerID), age.Milliseconds())
	if err != nil {
		return err
	}
	given := map[belfry.HeldAttempt]belfry.Result{}
	var (
		id, token pgtype.UUID
		result    belfry.Result
		old       bool
	)
	settled := map[belfry.HeldAttempt]bool{}
	_, err = pgx.ForEachRow(rows, []any{&id, &result.Namespace, &result.Attempt, &token, &old}, func() error {
		result.RunID, result.Token, result.Outcome = id.Bytes, token.Bytes, belfry.OutcomeUnconfirmed
		result.Error = "the worker never learned that it was given this run"
		held := belfry.HeldAttempt{RunID: result.RunID, Attempt: result.Attempt}
		given[held], settled[held] = result, old
		return nil
	})
	if err != nil {
		return err
	}
	for _, held := range b.Held {
		if _, ok := given[held]; !ok {
			orders.Lost = append(orders.Lost, held)
		}
		delete(given, held)
	}
	var forgotten []belfry.Result
	for held, result := range given {
		if settled[held] {
			forgotten = append(forgotten, result)
			orders.Cancel = slices.DeleteFunc(orders.Cancel, func(h belfry.HeldAttempt) bool { return h == held })
		}
	}
	_, err = s.settle(ctx, forgotten)
	return err
}

// Workers lists the workers that are registered.
func (s *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	rows, err := s.priorityPool.Query(ctx, `SELECT id, node, slots, lanes, last_seen FROM belfry.workers ORDER BY node, id`)
	if err != nil {
		return nil, wrapError("list workers", err)
	}
	workers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Worker, error) {
		var w store.Worker
		var id pgtype.UUID
		var lanes string
		err := row.Scan(&id, &w.Node, &w.Slots, &lanes, &w.LastSeen)
		w.ID, w.LastSeen = id.Bytes, w.LastSeen.UTC()
		return w, errors.Join(err, json.Unmarshal([]byte(lanes), &w.Lanes))
	})
	return workers, wrapError("list workers", err)
}
