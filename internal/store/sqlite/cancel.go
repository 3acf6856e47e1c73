package sqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/belfry-sh/belfry"
)

const (
	selectCancelled = `SELECT id, attempt FROM runs WHERE worker = ? AND state = 'running' AND cancel_requested_at IS NOT NULL ORDER BY id`

	markCancelled = `UPDATE runs SET cancel_requested_at = ? WHERE id = ? AND cancel_requested_at IS NULL`

	// The runs of a job that no worker holds, and those that one does.
	cancelUnheld = intoHistory + `WHERE r.job_id = ? AND r.state IN ('ready', 'retry', 'waiting')`
	deleteUnheld = `DELETE FROM runs WHERE job_id = ? AND state IN ('ready', 'retry', 'waiting') RETURNING one_off`
	markHeld     = `UPDATE runs SET cancel_requested_at = ? WHERE job_id = ? AND state = 'running' AND cancel_requested_at IS NULL`

	// A wish that is cancelled becomes the run that it would have been.
	cancelWish = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, settled_at, http_status, error, output, skipped_count, retain_until)
SELECT w.run_id, w.shard, w.namespace, w.job_id, j.revision, w.kind, 'cancelled', '', w.at, max(w.at, w.created_at), ?, zeroblob(16),
  0, 0, ?, 0, '', '', 0, ? + json_extract(CASE WHEN json_valid(j.spec) THEN j.spec END, '$.retention_days') * 86400000000
FROM triggers w CROSS JOIN jobs j ON j.id = w.job_id WHERE w.fired_at IS NULL AND `

	ofWish      = `w.run_id = ? AND w.namespace = ?`
	ofJobWishes = `w.job_id = ?`
)

// Cancel ends a run: one that no worker holds at once, and one that is running when
// its worker has let go of it.
func (s *Store) Cancel(ctx context.Context, namespace string, run belfry.ID) error {
	return s.write(ctx, "cancel a run", func(t *tx) error { return t.cancel(namespace, run) })
}

func (t *tx) cancel(namespace string, id belfry.ID) error {
	wished, err := t.cancelWishes(ofWish, id[:], namespace)
	if err != nil || wished > 0 {
		return err
	}
	var run belfry.Run
	if err := t.findRun(&run, namespace, id); err != nil {
		return err
	}
	switch run.Status {
	case belfry.RunRunning:
		_, err := t.exec(markCancelled, micro(t.now), id[:])
		return err
	case belfry.RunReady, belfry.RunRetry, belfry.RunWaiting:
		if _, err := t.exec(settleCancelled, append(t.settled(belfry.RunCancelled, &belfry.Result{}), id[:])...); err != nil {
			return err
		}
		g, err := t.remove(id)
		if err != nil {
			return err
		}
		return t.left(&g)
	case belfry.RunCancelled:
		return nil
	case belfry.RunDead:
		return belfry.Errorf(belfry.Conflict, "run %s is a dead letter: discard it instead", id)
	default:
		return belfry.Errorf(belfry.Conflict, "run %s is over already: it is %s", id, run.Status)
	}
}

// cancelWishes turns wishes that were not fired into cancelled runs. It says how
// many.
func (t *tx) cancelWishes(which string, args ...any) (int, error) {
	now := micro(t.now)
	n, err := t.exec(cancelWish+which, append([]any{now, now, now}, args...)...)
	if err != nil || n == 0 {
		return 0, err
	}
	return t.exec(`UPDATE triggers AS w SET fired_at = ? WHERE w.fired_at IS NULL AND `+which, append([]any{now}, args...)...)
}

// cancelAll cancels the live runs of a job, and what was wished for.
func (t *tx) cancelAll(job belfry.ID) error {
	if _, err := t.cancelWishes(ofJobWishes, job[:]); err != nil {
		return err
	}
	if _, err := t.exec(markHeld, micro(t.now), job[:]); err != nil {
		return err
	}
	if _, err := t.exec(cancelUnheld, append(t.settled(belfry.RunCancelled, &belfry.Result{}), job[:])...); err != nil {
		return err
	}
	once, err := all(t, func(rows *sql.Rows, once *bool) error { return rows.Scan(once) }, deleteUnheld, job[:])
	if err != nil || !slices.Contains(once, true) {
		return err
	}
	_, err = t.retire(job)
	return err
}
