package sqlite

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	whereLost = `WHERE r.state = 'running' AND r.` + inShards + `AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = r.worker) LIMIT ?`
	whereLate = `WHERE r.state = 'running' AND r.` + inShards + `AND r.deadline_at < ? LIMIT ?`

	whereCancelled = `WHERE r.state = 'running' AND r.` + inShards + `AND r.cancel_requested_at <= ? LIMIT ?`
)

// Reap gives silent workers up and settles what they, attempts past their
// deadline and attempts that nobody lets go of leave behind.
func (s *Store) Reap(ctx context.Context, shards []int, silence time.Duration, limit int) (reaped int, err error) {
	mine := list(shards)
	err = s.write(ctx, "reap", func(t *tx) error {
		if silence > 0 {
			if _, err := t.exec(`DELETE FROM workers WHERE last_seen < ?`, micro(t.now.Add(-silence))); err != nil {
				return err
			}
		}
		reaped, err = t.reap(mine, limit)
		return err
	})
	if err != nil {
		return 0, err
	}
	return reaped, nil
}

func (t *tx) reap(shards string, limit int) (reaped int, err error) {
	for _, why := range []struct {
		where   string
		args    []any
		outcome belfry.Outcome
		text    string
	}{
		{whereLost, []any{shards}, belfry.OutcomeLost, "the worker fell silent"},
		{whereCancelled, []any{shards, micro(t.now.Add(-store.CancelGrace))}, belfry.OutcomeCancelled, "the worker did not let go of the cancelled run in time"},
		{whereLate, []any{shards, micro(t.now)}, belfry.OutcomeTimedOut, "no result by the deadline"},
	} {
		runs, err := all(t, scanHeld, selectHeld+why.where, append(why.args, atMost(limit-reaped))...)
		if err != nil {
			return reaped, err
		}
		if err := t.settleAll(runs, why.outcome, why.text); err != nil {
			return reaped, err
		}
		reaped += len(runs)
	}
	return reaped, nil
}

func (t *tx) settleAll(runs []held, outcome belfry.Outcome, why string) error {
	for i := range runs {
		if err := t.settle(&runs[i], runs[i].result(outcome, why)); err != nil {
			return err
		}
	}
	return nil
}

// releaseBatch bounds the transactions in which Open releases runs.
const releaseBatch = 1000

// release ends what an earlier process left behind. The lock on the directory
// proves that it is gone, and its worker and terms of office with it. Users' own
// workers are other processes and may well be alive: their lanes tell them apart,
// see belfry.OwnLane, and they are given up only if they stay silent.
func (s *Store) release(ctx context.Context) error {
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
