package sqlite

import (
	"context"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const (
	selectCancelled = `SELECT id, attempt FROM runs WHERE worker = ? AND state = 'running' AND cancel_requested_at IS NOT NULL ORDER BY id`

	requestCancel = `UPDATE runs SET cancel_requested_at = ? WHERE id = ? AND cancel_requested_at IS NULL`

	// The runs of a job that no worker holds, and those that one holds.
	cancelJobUnheld  = settleRuns + `WHERE r.job_id = ? AND r.state IN ('ready', 'retry', 'waiting')`
	deleteJobUnheld  = `DELETE FROM runs WHERE job_id = ? AND state IN ('ready', 'retry', 'waiting')`
	requestJobCancel = `UPDATE runs SET cancel_requested_at = ? WHERE job_id = ? AND state = 'running' AND cancel_requested_at IS NULL`

	// A cancelled trigger becomes the run that it would have been.
	cancelTrigger = insertHistory + `SELECT g.run_id, g.shard, g.namespace, g.job_id, j.revision, g.kind, 'cancelled', '', g.at, max(g.at, g.created_at), ?1, zeroblob(16),
  0, 0, NULL, NULL, NULL, ?1, 0, '', '', 0, NULL, ?1 + json_extract(CASE WHEN json_valid(j.spec) THEN j.spec END, '$.retention_days') * 86400000000
FROM triggers g CROSS JOIN jobs j ON j.id = g.job_id WHERE g.fired_at IS NULL AND `

	markTriggerFired = `UPDATE triggers AS g SET fired_at = ? WHERE g.fired_at IS NULL AND `

	triggerOfRun  = `g.run_id = ? AND g.namespace = ?`
	triggersOfJob = `g.job_id = ?`
)

func (s *Store) Cancel(ctx context.Context, namespace string, run belfry.ID) error {
	return s.write(ctx, "cancel a run", func(t *tx) error {
		cancelled, err := t.cancel(namespace, run)
		if cancelled {
			store.AuditOf(ctx).Done(run)
		}
		return err
	})
}

func (t *tx) cancel(namespace string, id belfry.ID) (cancelled bool, err error) {
	n, err := t.cancelTriggers(triggerOfRun, id[:], namespace)
	if err != nil || n > 0 {
		return n > 0, err
	}
	run, err := sqlstore.RunOf(sharedTx{t}, namespace, id)
	if err != nil {
		return false, err
	}
	switch run.Status {
	case belfry.RunRunning:
		return run.CancelRequestedAt == nil, t.run(requestCancel, micro(t.now), id[:])
	case belfry.RunReady, belfry.RunRetry, belfry.RunWaiting:
		if err := t.run(settleCancelled, append(t.historyArgs(belfry.RunCancelled, &belfry.Result{}), id[:])...); err != nil {
			return false, err
		}
		d, err := t.deleteRun(id)
		if err != nil {
			return false, err
		}
		return true, t.followUps(&d)
	default:
		return false, store.CancelSettled(id, run.Status)
	}
}

// cancelTriggers turns pending triggers into cancelled runs. It says how many.
func (t *tx) cancelTriggers(which string, args ...any) (int, error) {
	args = append([]any{micro(t.now)}, args...)
	n, err := t.exec(cancelTrigger+which, args...)
	if err != nil || n == 0 {
		return 0, err
	}
	return t.exec(markTriggerFired+which, args...)
}

func (t *tx) cancelJob(job belfry.ID) error {
	if _, err := t.cancelTriggers(triggersOfJob, job[:]); err != nil {
		return err
	}
	if err := t.run(requestJobCancel, micro(t.now), job[:]); err != nil {
		return err
	}
	if err := t.run(cancelJobUnheld, append(t.historyArgs(belfry.RunCancelled, &belfry.Result{}), job[:])...); err != nil {
		return err
	}
	if err := t.run(deleteJobUnheld, job[:]); err != nil {
		return err
	}
	_, err := t.archive(job)
	return err
}
