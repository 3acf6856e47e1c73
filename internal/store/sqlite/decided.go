package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	ofInstant = `WHERE r.job_id = @job AND r.namespace = @namespace AND r.scheduled_at = @at `

	selectDecided = fromRuns + ofInstant + `UNION ALL ` + fromDead + ofInstant + `UNION ALL ` + fromHistory + ofInstant + `UNION ALL ` + fromHistory +
		`WHERE r.job_id = @job AND r.namespace = @namespace AND r.skipped_count > 1 AND r.scheduled_at < @at AND r.skipped_to >= @at`

	selectWaiting = `SELECT state, ready_at, lane, job_id, rank, scheduled_at, cancel_requested_at IS NOT NULL,
  (SELECT count(*) FROM runs o WHERE o.state = 'running' AND o.lane = r.lane)
FROM runs r WHERE r.id = ? AND r.namespace = ?`

	countAhead = `SELECT count(*) FROM runs WHERE state = 'ready' AND lane = ? AND (rank, id) < (?, ?)`

	// Those that are not waiting come first, and then those that wait for longer.
	selectBefore = `SELECT id FROM runs WHERE job_id = @job AND id <> @id AND (state <> 'waiting' OR (scheduled_at, id) < (@at, @id))
ORDER BY state = 'waiting', scheduled_at, id LIMIT 10`
)

// Decided gives the runs and skips of a job whose scheduled instant is this one, or
// that cover it.
func (s *Store) RunsAt(ctx context.Context, namespace string, job belfry.ID, at time.Time) (runs []belfry.Run, err error) {
	err = s.read(ctx, "look up an instant", func(t *tx) error {
		runs, err = all(t, scanRun, selectDecided, sql.Named("job", job[:]), sql.Named("namespace", namespace), sql.Named("at", micro(at)))
		return err
	})
	return runs, err
}

// Wait tells what a live run waits for.
func (s *Store) RunWait(ctx context.Context, namespace string, run belfry.ID) (wait store.RunWait, err error) {
	err = s.read(ctx, "look at what a run waits for", func(t *tx) error {
		wait, err = t.wait(namespace, run)
		return err
	})
	if err != nil {
		return store.RunWait{}, err
	}
	return wait, nil
}

func (t *tx) wait(namespace string, run belfry.ID) (w store.RunWait, err error) {
	var job belfry.ID
	var rank, at int64
	err = t.get([]any{&w.State, moment{&w.ReadyAt}, &w.Lane, key{job[:]}, &rank, &at, &w.Cancel, &w.Running}, selectWaiting, run[:], namespace)
	if errors.Is(err, sql.ErrNoRows) {
		return w, noSuchRun(run)
	}
	if err != nil {
		return w, err
	}
	switch w.State {
	case belfry.RunReady:
		err = t.get([]any{&w.Ahead}, countAhead, w.Lane, rank, run[:])
	case belfry.RunWaiting:
		w.Before, err = all(t, scanID, selectBefore, sql.Named("job", job[:]), sql.Named("id", run[:]), sql.Named("at", at))
	}
	return w, err
}
