package sqlite

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	whereWorkerLost     = `WHERE r.state = 'running' AND r.` + inShards + `AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = r.worker) LIMIT ?`
	whereCancelOverdue  = `WHERE r.state = 'running' AND r.` + inShards + `AND r.cancel_requested_at <= ? LIMIT ?`
	whereDeadlinePassed = `WHERE r.state = 'running' AND r.` + inShards + `AND r.deadline_at < ? LIMIT ?`
)

func (s *Store) Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (int, error) {
	owned := shardsJSON(shards)
	return writeValue(ctx, s, "reap", func(t *tx) (reaped int, err error) {
		if silence > 0 {
			if _, err := t.exec(`DELETE FROM workers WHERE last_seen < ?`, micro(t.now.Add(-silence))); err != nil {
				return 0, err
			}
		}
		for _, c := range []struct {
			where   string
			args    []any
			outcome belfry.Outcome
			why     string
		}{
			{whereWorkerLost, []any{owned}, belfry.OutcomeLost, "the worker fell silent"},
			{whereCancelOverdue, []any{owned, micro(t.now.Add(-store.CancelGrace))}, belfry.OutcomeCancelled, "the worker did not stop the cancelled run in time"},
			{whereDeadlinePassed, []any{owned, micro(t.now)}, belfry.OutcomeTimedOut, "no result by the deadline"},
		} {
			runs, err := all(t, scanHeld, selectHeld+c.where, append(c.args, atMost(limit-reaped))...)
			if err != nil {
				return reaped, err
			}
			if err := t.settleAll(runs, c.outcome, c.why); err != nil {
				return reaped, err
			}
			reaped += len(runs)
		}
		return reaped, nil
	})
}

// releaseBatch bounds the transactions in which Open releases runs.
const releaseBatch = 1000

// releaseStale releases what an earlier process held. The lock on the directory
// proves that it is gone, and its worker and leases with it. Workers of users are
// other processes and may be alive: their lanes have a namespace, see
// belfry.NamespaceLane, and they are reaped only if they stay silent.
func (s *Store) releaseStale(ctx context.Context) error {
	err := s.write(ctx, "release the leases", func(t *tx) error {
		if _, err := t.exec(`DELETE FROM workers WHERE instr(lanes, ':') = 0`); err != nil {
			return err
		}
		_, err := t.exec(`UPDATE leases SET expires_at = ? WHERE expires_at > ?`, micro(t.now), micro(t.now))
		return err
	})
	for released := releaseBatch; err == nil && released == releaseBatch; {
		err = s.write(ctx, "release the runs", func(t *tx) error {
			runs, err := all(t, scanHeld, selectHeld+`WHERE r.state = 'running' AND instr(r.lane, ':') = 0 LIMIT ?`, releaseBatch)
			if err != nil {
				return err
			}
			released = len(runs)
			return t.settleAll(runs, belfry.OutcomeLost, "the node stopped")
		})
	}
	return err
}
