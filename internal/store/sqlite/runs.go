package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// ready is a run that may be claimed.
type ready struct {
	id   belfry.ID
	rank int64
}

const (
	selectReady = `SELECT id, rank FROM runs WHERE state = 'ready' AND lane = ? ORDER BY rank, id LIMIT ?`

	// The spec and the payload are those of the revision that the run was fired
	// from, unless the run brings a payload of its own.
	selectWork = `SELECT r.job_id, r.namespace, r.revision, r.kind, r.scheduled_at, r.ready_at, r.fired_at, r.attempt, r.timeout_ms,
  CASE WHEN r.payload IS NOT NULL THEN r.payload WHEN j.revision = r.revision THEN j.payload ELSE v.payload END,
  coalesce(CASE WHEN j.revision = r.revision THEN j.spec ELSE v.spec END, ''), coalesce(j.name, ''), coalesce(r.key, '')
FROM runs r
LEFT JOIN jobs j ON j.id = r.job_id
LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision
WHERE r.id = ?`

	takeRun = `UPDATE runs SET state = 'running', attempt = ?, worker = ?, token = ?, started_at = ?, deadline_at = ? WHERE id = ?`
)

// Claim hands ready runs to a registered worker, lowest rank first.
func (s *Store) Claim(ctx context.Context, c belfry.Claim) (runs []*belfry.Run, err error) {
	if c.Limit <= 0 || len(c.Lanes) == 0 {
		return nil, ctx.Err()
	}
	err = s.write(ctx, "claim", func(t *tx) error {
		if known, err := t.knows(c.WorkerID); err != nil || !known {
			return err
		}
		next, err := t.nextReady(c.Lanes, c.Limit)
		if err != nil {
			return err
		}
		runs = make([]*belfry.Run, len(next))
		for i, r := range next {
			if runs[i], err = t.claim(r.id, c.WorkerID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

func (t *tx) knows(worker belfry.ID) (known bool, err error) {
	err = t.get([]any{&known}, `SELECT EXISTS (SELECT 1 FROM workers WHERE id = ?)`, worker[:])
	return known, err
}

// nextReady finds the runs of lowest rank over all the lanes.
func (t *tx) nextReady(lanes []string, limit int) ([]ready, error) {
	var out []ready
	lanes = slices.Compact(slices.Sorted(slices.Values(lanes)))
	for _, lane := range lanes {
		more, err := all(t, func(rows *sql.Rows, r *ready) error { return rows.Scan(key{r.id[:]}, &r.rank) }, selectReady, lane, int64(limit))
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if len(lanes) > 1 {
		slices.SortFunc(out, func(a, b ready) int {
			if a.rank != b.rank {
				return int(min(max(a.rank-b.rank, -1), 1))
			}
			return a.id.Compare(b.id)
		})
	}
	return out[:min(len(out), limit)], nil
}

func (t *tx) claim(id, worker belfry.ID) (*belfry.Run, error) {
	started := t.now
	run := &belfry.Run{ID: id, Status: belfry.RunRunning, WorkerID: worker, Token: belfry.NewToken(), StartedAt: &started}
	var spec string
	var timeout int64
	err := t.get([]any{key{run.JobID[:]}, &run.Namespace, &run.Revision, &run.Kind, moment{&run.ScheduledAt}, moment{&run.ReadyAt}, moment{&run.FiredAt},
		&run.Attempt, &timeout, payload{&run.Payload}, &spec, &run.JobName, &run.TemplateKey}, selectWork, id[:])
	if err != nil {
		return nil, err
	}
	run.Attempt++
	run.Spec = t.specs.OrZero(spec)
	run.DeadlineAt = deadline(t.now, time.Duration(timeout)*time.Millisecond)
	_, err = t.exec(takeRun, int64(run.Attempt), worker[:], run.Token[:], micro(t.now), micro(run.DeadlineAt), id[:])
	return run, err
}

// Heartbeat notes that a worker is alive and answers with what it lost and
// what is cancelled.
func (s *Store) Heartbeat(ctx context.Context, b belfry.Heartbeat) (orders belfry.HeartbeatReply, err error) {
	err = s.write(ctx, "note a heartbeat", func(t *tx) error {
		orders, err = t.beat(b)
		return err
	})
	if err != nil {
		return belfry.HeartbeatReply{}, err
	}
	return orders, nil
}

func (t *tx) beat(b belfry.Heartbeat) (orders belfry.HeartbeatReply, err error) {
	if b.Leave {
		return orders, t.bid(b.WorkerID)
	}
	lanes, err := json.Marshal(b.Lanes)
	if err != nil {
		return orders, err
	}
	now := micro(t.now)
	if b.Register {
		_, err = t.exec(`INSERT INTO workers (id, node, slots, lanes, started_at, last_seen) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET node = excluded.node, slots = excluded.slots, lanes = excluded.lanes, last_seen = excluded.last_seen`,
			b.WorkerID[:], b.Node, b.Slots, string(lanes), now, now)
	} else {
		var n int
		n, err = t.exec(`UPDATE workers SET node = ?, slots = ?, lanes = ?, last_seen = ? WHERE id = ?`, b.Node, b.Slots, string(lanes), now, b.WorkerID[:])
		orders.Unknown = err == nil && n == 0
	}
	if err != nil || orders.Unknown {
		return orders, err
	}
	if b.Complete {
		if orders.Lost, err = t.compare(b); err != nil {
			return orders, err
		}
	}
	orders.Cancel, err = all(t, func(rows *sql.Rows, h *belfry.HeldAttempt) error { return rows.Scan(key{h.RunID[:]}, &h.Attempt) }, selectCancelled, b.WorkerID[:])
	return orders, err
}

// bid takes leave of a worker. What it still has it never learned of, since it says
// that it holds nothing.
func (t *tx) bid(worker belfry.ID) error {
	if _, err := t.exec(`DELETE FROM workers WHERE id = ?`, worker[:]); err != nil {
		return err
	}
	left, err := all(t, scanHeld, selectHeld+`WHERE r.state = 'running' AND r.worker = ?`, worker[:])
	if err != nil {
		return err
	}
	return t.settleAll(left, belfry.OutcomeUnconfirmed, "the worker never learned of the claim")
}

// compare sets the attempts that a worker lists against those it was given. It
// returns those that are not its own, and releases those it does not know of.
func (t *tx) compare(b belfry.Heartbeat) (lost []belfry.HeldAttempt, err error) {
	given, err := all(t, scanHeld, selectHeld+`WHERE r.state = 'running' AND r.worker = ?`, b.WorkerID[:])
	if err != nil {
		return nil, err
	}
	its := map[belfry.HeldAttempt]bool{} // true: it lists it
	for i := range given {
		its[belfry.HeldAttempt{RunID: given[i].id, Attempt: given[i].attempt}] = false
	}
	for _, h := range b.Held {
		if _, ok := its[h]; ok {
			its[h] = true
		} else {
			lost = append(lost, h)
		}
	}
	for i := range given {
		h := &given[i]
		if its[belfry.HeldAttempt{RunID: h.id, Attempt: h.attempt}] || t.now.Sub(h.startedAt) < store.ConfirmAfter {
			continue
		}
		if err := t.settle(h, h.result(belfry.OutcomeUnconfirmed, "the worker never learned of the claim")); err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// Workers lists the workers that are registered.
func (s *Store) Workers(ctx context.Context) (workers []store.Worker, err error) {
	err = s.read(ctx, "list workers", func(t *tx) error {
		workers, err = all(t, func(rows *sql.Rows, w *store.Worker) error {
			var lanes string
			if err := rows.Scan(key{w.ID[:]}, &w.Node, &w.Slots, &lanes, moment{&w.LastSeen}); err != nil {
				return err
			}
			return json.Unmarshal([]byte(lanes), &w.Lanes)
		}, `SELECT id, node, slots, lanes, last_seen FROM workers ORDER BY id`)
		return err
	})
	return workers, err
}
