package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// EditJob locks a job and its plan, calls edit and stores the change that it returns.
func (s *Store) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (belfry.Job, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var (
		job     belfry.Job
		next    followUps
		editErr error // returned as it is
	)
	keepErr := func(j belfry.Job, p plan.Plan, now time.Time) (change *store.Change, err error) {
		change, editErr = edit(j, p, now)
		return change, editErr
	}
	err := retryDeadlock(func() error {
		next = followUps{}
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			job, err = s.edit(ctx, tx, namespace, id, keepErr, &next)
			return err
		})
	})
	if editErr != nil {
		return belfry.Job{}, editErr
	}
	if err != nil {
		return belfry.Job{}, wrapError("edit a job", nameConflict(err, job.Name))
	}
	s.notifier.notifyPlans(false, id)
	s.notifier.notifyReady()
	s.runFollowUps(ctx, next)
	return job, nil
}

func (s *Store) edit(ctx context.Context, tx pgx.Tx, namespace string, id belfry.ID, edit store.Edit, next *followUps) (belfry.Job, error) {
	p, err := lockPlan(ctx, tx, namespace, id)
	if err != nil {
		return belfry.Job{}, err
	}
	old, err := s.job(ctx, tx, namespace, id)
	if err != nil {
		return old, err
	}
	change, err := edit(old, p, s.Now())
	if err != nil || change == nil {
		return old, err
	}
	job := change.Job
	if err := updateJob(ctx, tx, &old, change); err != nil {
		return job, err
	}
	fired, err := s.fire(ctx, tx, belfry.ID{}, []plan.Step{change.Step}, store.FreeSlots{})
	if err != nil {
		return job, err
	}
	if !fired.Applied[0] {
		return job, belfry.Errorf(belfry.Conflict, "the job's plan could not be changed; try again")
	}
	if change.Cancel {
		if err := cancelAll(ctx, tx, &job, next); err != nil {
			return job, err
		}
	}
	if old.Serial() && !job.Serial() {
		if _, err := tx.Exec(ctx, releaseWaitingSQL, uuid(id)); err != nil {
			return job, err
		}
	}
	if job.State == belfry.JobDeleted {
		return job, nil
	}
	return s.job(ctx, tx, namespace, id)
}

func updateJob(ctx context.Context, tx pgx.Tx, old *belfry.Job, change *store.Change) error {
	job := &change.Job
	if job.Revision > old.Revision {
		if _, err := tx.Exec(ctx, `INSERT INTO belfry.revisions (job_id, revision, shard, spec, payload, replaced_at)
			SELECT id, revision, shard, spec, payload, clock_timestamp() FROM belfry.jobs WHERE id = $1`, uuid(old.ID)); err != nil {
			return err
		}
	}
	spec, err := json.Marshal(job.Spec)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `/* edit */ UPDATE belfry.jobs SET name = $2, revision = $3, state = $4, spec = $5, payload = $6, updated_at = clock_timestamp(),
		tags = $7, queue = $8, type = $9, handler = $10, trigrams = $11, purge = $12 WHERE id = $1`,
		uuid(old.ID), text(job.Name), job.Revision, string(job.State), string(spec), text(string(job.Payload)),
		tagsColumn(job), storable(job.Queue), storable(job.Type), handlerColumn(job.Spec), jobTrigrams(job), change.Purge)
	return err
}

// lockPlan locks a job and its plan against fires and other edits.
func lockPlan(ctx context.Context, tx pgx.Tx, namespace string, id belfry.ID) (plan.Plan, error) {
	missing := func() error { return noLiveJobError(ctx, tx, namespace, id) }
	return collectOne(ctx, tx, func(row pgx.CollectableRow) (plan.Plan, error) {
		var scan planScan
		err := row.Scan(scan.fields()...)
		return scan.plan(), err
	}, missing, `/* edit */ SELECT `+planColumnsSQL+`
		FROM belfry.jobs j JOIN belfry.plans p ON p.job_id = j.id
		WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted' FOR UPDATE`, namespace, uuid(id))
}
