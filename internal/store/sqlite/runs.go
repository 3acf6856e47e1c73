package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectReady = `SELECT id, rank FROM runs WHERE state = 'ready' AND lane = ? AND rank < ? ORDER BY rank, id LIMIT ?`

	selectReadyRuns = `SELECT id, rank FROM runs WHERE id IN (SELECT unhex(value, '-') FROM json_each(?)) AND lane IN (SELECT value FROM json_each(?)) AND state = 'ready'
ORDER BY rank, id LIMIT ?`

	// The spec and the payload are those of the revision that the run was fired
	// from, unless the run has a payload of its own.
	selectClaimed = `SELECT r.job_id, r.namespace, r.revision, r.kind, r.scheduled_at, r.ready_at, r.fired_at, r.attempt, r.timeout_ms,
  CASE WHEN r.payload IS NOT NULL THEN r.payload WHEN j.revision = r.revision THEN j.payload ELSE v.payload END,
  coalesce(CASE WHEN j.revision = r.revision THEN j.spec ELSE v.spec END, ''), coalesce(j.name, ''), coalesce(r.key, '')
FROM runs r
LEFT JOIN jobs j ON j.id = r.job_id
LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision
WHERE r.id = ?`

	claimRun = `UPDATE runs SET state = 'running', attempt = ?, worker = ?, token = ?, started_at = ?, deadline_at = ? WHERE id = ?`

	workerIsKnown = `SELECT EXISTS (SELECT 1 FROM workers WHERE id = ?)`

	workerSeen     = `last_seen = ?4, sequence = max(sequence, ?6), since = CASE WHEN ?4 BETWEEN last_seen - 1000000 AND last_seen + ?7 THEN since ELSE ?4 END`
	registerWorker = `INSERT INTO workers (node, slots, lanes, last_seen, id, started_at, since, sequence) VALUES (?1, ?2, ?3, ?4, ?5, ?4, ?4, ?6)
ON CONFLICT (id) DO UPDATE SET node = ?1, slots = ?2, lanes = ?3, ` + workerSeen
	updateWorker = `UPDATE workers SET node = ?1, slots = ?2, lanes = ?3, ` + workerSeen + ` WHERE id = ?5`
)

func (s *Store) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	return s.ClaimBelow(ctx, c, plan.MaxRank)
}

func (s *Store) ReadyRank(ctx context.Context, lanes []string) (int64, error) {
	return readValue(ctx, s, "read the lowest rank", func(t *tx) (int64, error) {
		next, err := t.nextReady(lanes, plan.MaxRank, 1)
		if err != nil || len(next) == 0 {
			return plan.MaxRank, err
		}
		return next[0].rank, nil
	})
}

func (s *Store) ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error) {
	return s.claim(ctx, c, func(t *tx) ([]readyRun, error) { return t.nextReady(c.Lanes, rank, c.Limit) })
}

func (s *Store) ClaimRuns(ctx context.Context, c belfry.Claim, runs []belfry.ID) ([]*belfry.Run, error) {
	return s.claim(ctx, c, func(t *tx) ([]readyRun, error) {
		return all(t, scanReady, selectReadyRuns, idsJSON(runs), string(belfry.MustJSON(c.Lanes)), int64(c.Limit))
	})
}

// claim claims the runs that next returns.
func (s *Store) claim(ctx context.Context, c belfry.Claim, next func(t *tx) ([]readyRun, error)) ([]*belfry.Run, error) {
	if c.Limit <= 0 || len(c.Lanes) == 0 {
		return nil, ctx.Err()
	}
	runs, err := writeValue(ctx, s, "claim", func(t *tx) ([]*belfry.Run, error) {
		if known, err := t.exists(workerIsKnown, c.WorkerID[:]); err != nil || !known {
			return nil, err
		}
		ready, err := next(t)
		if err != nil {
			return nil, err
		}
		runs := make([]*belfry.Run, len(ready))
		for i, r := range ready {
			if runs[i], err = t.claim(r.id, c.WorkerID); err != nil {
				return nil, err
			}
		}
		return runs, nil
	})
	s.metrics.Started(runs)
	return runs, err
}

type readyRun struct {
	id   belfry.ID
	rank int64
}

func scanReady(rows *sql.Rows, r *readyRun) error { return rows.Scan(bytesColumn{r.id[:]}, &r.rank) }

// nextReady returns the runs of lowest rank over all the lanes, below the given one.
func (t *tx) nextReady(lanes []string, rank int64, limit int) ([]readyRun, error) {
	var out []readyRun
	lanes = slices.Compact(slices.Sorted(slices.Values(lanes)))
	for _, lane := range lanes {
		more, err := all(t, scanReady, selectReady, lane, rank, int64(limit))
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if len(lanes) > 1 {
		slices.SortFunc(out, func(a, b readyRun) int { return cmp.Or(cmp.Compare(a.rank, b.rank), a.id.Compare(b.id)) })
	}
	return out[:min(len(out), limit)], nil
}

func (t *tx) claim(id, worker belfry.ID) (*belfry.Run, error) {
	started := t.now
	run := &belfry.Run{ID: id, Status: belfry.RunRunning, WorkerID: worker, Token: belfry.NewToken(), StartedAt: &started}
	var spec string
	var timeout int64
	err := t.get([]any{bytesColumn{run.JobID[:]}, &run.Namespace, &run.Revision, &run.Kind, timeColumn{&run.ScheduledAt}, timeColumn{&run.ReadyAt},
		timeColumn{&run.FiredAt}, &run.Attempt, &timeout, jsonColumn{&run.Payload}, &spec, &run.JobName, &run.TemplateKey}, selectClaimed, id[:])
	if err != nil {
		return nil, err
	}
	run.Attempt++
	run.Spec = t.specs.OrZero(spec)
	run.DeadlineAt = deadline(t.now, time.Duration(timeout)*time.Millisecond)
	err = t.run(claimRun, int64(run.Attempt), worker[:], run.Token[:], micro(t.now), micro(run.DeadlineAt), id[:])
	return run, err
}

func (s *Store) Heartbeat(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
	return writeValue(ctx, s, "record a heartbeat", func(t *tx) (belfry.HeartbeatReply, error) { return t.heartbeat(&b) })
}

func (t *tx) heartbeat(b *belfry.Heartbeat) (reply belfry.HeartbeatReply, err error) {
	if b.Leave {
		return reply, t.unregister(b.WorkerID)
	}
	query := updateWorker
	if b.Register {
		query = registerWorker
	}
	n, err := t.exec(query, b.Node, b.Slots, string(belfry.MustJSON(b.Lanes)), micro(t.now), b.WorkerID[:], b.Sequence, store.HeartbeatGap.Microseconds())
	if err != nil || n == 0 {
		reply.Unknown = err == nil
		return reply, err
	}
	if err := t.writeLogs(b.Logs); err != nil {
		return reply, err
	}
	late, err := t.exists(`SELECT EXISTS (SELECT 1 FROM workers WHERE id = ? AND sequence > ?)`, b.WorkerID[:], b.Sequence)
	if err != nil {
		return reply, err
	}
	if b.Complete && !(late && b.Sequence > 0) {
		if reply.Lost, err = t.confirmHeld(b); err != nil {
			return reply, err
		}
	}
	reply.Cancel, err = all(t, func(rows *sql.Rows, h *belfry.HeldAttempt) error {
		return rows.Scan(bytesColumn{h.RunID[:]}, &h.Attempt)
	}, selectCancelled, b.WorkerID[:])
	return reply, err
}

// unregister removes a worker that leaves and says that it holds nothing: what is
// left in its name it never learned of.
func (t *tx) unregister(worker belfry.ID) error {
	if err := t.run(`DELETE FROM workers WHERE id = ?`, worker[:]); err != nil {
		return err
	}
	runs, err := all(t, scanHeld, selectHeld+whereWorker, worker[:])
	if err != nil {
		return err
	}
	return t.settleAll(runs, belfry.OutcomeUnconfirmed, store.ErrorUnconfirmed)
}

// confirmHeld compares the attempts that a worker lists with those it claimed. It
// returns those that it lost, and releases those that it never learned of.
func (t *tx) confirmHeld(b *belfry.Heartbeat) (lost []belfry.HeldAttempt, err error) {
	claimed, err := all(t, scanHeld, selectHeld+whereWorker, b.WorkerID[:])
	if err != nil {
		return nil, err
	}
	confirmed := map[belfry.HeldAttempt]bool{} // by claimed attempt
	for i := range claimed {
		confirmed[belfry.HeldAttempt{RunID: claimed[i].id, Attempt: claimed[i].attempt}] = false
	}
	for _, h := range b.Held {
		if _, ok := confirmed[h]; ok {
			confirmed[h] = true
		} else {
			lost = append(lost, h)
		}
	}
	for i := range claimed {
		h := &claimed[i]
		if confirmed[belfry.HeldAttempt{RunID: h.id, Attempt: h.attempt}] || t.now.Sub(h.startedAt) < store.ConfirmAfter {
			continue
		}
		if err := t.settle(h, h.result(belfry.OutcomeUnconfirmed, store.ErrorUnconfirmed)); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// The condition on r.worker is for the planner, which may prefer another index without it.
const (
	whereWorkerLost     = `WHERE r.state = 'running' AND r.worker > x'' AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = r.worker) LIMIT ?`
	whereCancelOverdue  = `WHERE r.state = 'running' AND r.cancel_requested_at <= ? LIMIT ?`
	whereDeadlinePassed = `WHERE r.state = 'running' AND r.worker > x'' AND r.deadline_at < ?
AND EXISTS (SELECT 1 FROM workers w WHERE w.id = r.worker AND w.last_seen > r.deadline_at AND w.since <= r.started_at) LIMIT ?`
)

func (s *Store) Reap(ctx context.Context, silence time.Duration, limit int) ([]belfry.Result, error) {
	return writeValue(ctx, s, "reap", func(t *tx) (reaped []belfry.Result, err error) {
		local := time.Now() // with both clocks of this machine
		if step := s.clock.Observe(local, local); step != 0 {
			s.log.Warn("the clock of this machine was set, or the machine slept", "by", step.Round(time.Millisecond))
		}
		clockSettled := s.clock.Settled()
		if silence > 0 && clockSettled {
			if err := t.run(`DELETE FROM workers WHERE last_seen NOT BETWEEN ? AND ?`, micro(t.now.Add(-silence)), micro(t.now.Add(silence))); err != nil {
				return nil, err
			}
		}
		for _, c := range []struct {
			where   string
			args    []any
			outcome belfry.Outcome
			why     string
		}{
			{whereWorkerLost, nil, belfry.OutcomeLost, store.ErrorWorkerLost},
			{whereCancelOverdue, []any{micro(t.now.Add(-store.CancelGrace))}, belfry.OutcomeCancelled, store.ErrorNotStopped},
			{whereDeadlinePassed, []any{micro(t.now)}, belfry.OutcomeTimedOut, store.ErrorDeadline},
		} {
			if !clockSettled && c.outcome != belfry.OutcomeLost {
				continue
			}
			runs, err := all(t, scanHeld, selectHeld+c.where, append(c.args, atMost(limit-len(reaped)))...)
			if err != nil {
				return reaped, err
			}
			if err := t.settleAll(runs, c.outcome, c.why); err != nil {
				return reaped, err
			}
			for i := range runs {
				reaped = append(reaped, runs[i].result(c.outcome, c.why))
			}
		}
		return reaped, nil
	})
}

const (
	selectLogShard = `SELECT r.shard FROM runs r ` + fence + ` AND NOT EXISTS (SELECT 1 FROM attempt_logs l WHERE l.run_id = r.id AND l.attempt = r.attempt AND l.stop > ?)`

	deleteCoveredLogs = `DELETE FROM attempt_logs WHERE run_id = ? AND attempt = ? AND (start >= ? OR stop <= ?)`
	insertLog         = `INSERT INTO attempt_logs (run_id, attempt, start, stop, shard, namespace, updated_at, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
)

// writeLogs keeps what workers wrote to the logs of attempts that they hold.
func (t *tx) writeLogs(chunks []belfry.LogChunk) error {
	for _, p := range store.LogPieces(chunks) {
		run, attempt := p.RunID[:], int64(p.Attempt)
		var shard int64
		held, err := t.find([]any{&shard}, selectLogShard, run, p.Namespace, attempt, p.Token[:], p.Stop)
		if err == nil && held {
			err = t.run(deleteCoveredLogs, run, attempt, p.Start, p.Stop-belfry.MaxLog)
		}
		if err == nil && held {
			err = t.run(insertLog, run, attempt, p.Start, p.Stop, shard, p.Namespace, micro(t.now), p.Text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const countRunningOf = `SELECT count(*) FROM runs INDEXED BY runs_running WHERE state = 'running' AND namespace = ?`

func (s *Store) ClaimShares(ctx context.Context, c belfry.Claim, shares store.Shares) ([]*belfry.Run, error) {
	return s.claim(ctx, c, func(t *tx) (out []readyRun, err error) {
		running := map[string]int{}
		for namespace := range shares.MaxRunning {
			var n int
			if err := t.get([]any{&n}, countRunningOf, namespace); err != nil {
				return nil, err
			}
			running[namespace] = n
		}
		taken := map[string]int{}
		of, most := map[belfry.ID]string{}, map[string]int{}
		for _, l := range shares.Of(&c, running) {
			more, err := all(t, scanReady, selectReady, l.Lane, l.Below, int64(l.Most))
			if err != nil {
				return nil, err
			}
			for _, r := range more {
				of[r.id] = l.Namespace
			}
			most[l.Namespace] = l.Most
			out = append(out, more...)
		}
		slices.SortFunc(out, func(a, b readyRun) int { return cmp.Or(cmp.Compare(a.rank, b.rank), a.id.Compare(b.id)) })
		out = slices.DeleteFunc(out, func(r readyRun) bool {
			taken[of[r.id]]++
			return taken[of[r.id]] > most[of[r.id]]
		})
		return out[:min(len(out), c.Limit)], nil
	})
}
