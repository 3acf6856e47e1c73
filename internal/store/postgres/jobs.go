package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := s.job(ctx, s.readPool, namespace, id)
	if belfry.CodeOf(err) != belfry.NotFound {
		return job, err
	}
	ended, err := s.readEnded(ctx, s.readPool, `WHERE namespace = $1 AND id = $2 AND status <> 'deleted'`, namespace, uuid(id))
	return firstJob(ended, id, err)
}

func (s *Store) DeletedJob(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	jobs, err := s.readJobs(ctx, s.readPool, `WHERE j.namespace = $1 AND j.id = $2 AND j.state = 'deleted'`, namespace, uuid(id))
	if err == nil && len(jobs) == 0 {
		jobs, err = s.readEnded(ctx, s.readPool, `WHERE namespace = $1 AND id = $2 AND status = 'deleted'`, namespace, uuid(id))
	}
	return firstJob(jobs, id, err)
}

// job finds a live job.
func (s *Store) job(ctx context.Context, q querier, namespace string, id belfry.ID) (belfry.Job, error) {
	jobs, err := s.readJobs(ctx, q, `WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted'`, namespace, uuid(id))
	return firstJob(jobs, id, err)
}

func firstJob(jobs []belfry.Job, id belfry.ID, err error) (belfry.Job, error) {
	switch {
	case err != nil:
		return belfry.Job{}, wrapError("look up a job", err)
	case len(jobs) == 0:
		return belfry.Job{}, store.NoSuch("job", id)
	}
	return jobs[0], nil
}

func noLiveJobError(ctx context.Context, q querier, namespace string, id belfry.ID) error {
	var ended bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM belfry.ended WHERE namespace = $1 AND id = $2 AND status <> 'deleted')`, namespace, uuid(id)).Scan(&ended)
	switch {
	case err != nil:
		return err
	case ended:
		return store.JobEnded()
	}
	return store.NoSuch("job", id)
}

func (s *Store) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (belfry.Job, error) {
	quota, err := s.Quota(ctx, namespace)
	if err != nil {
		return belfry.Job{}, err
	}
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
	err = retryDeadlock(func() error {
		next = followUps{}
		return s.change(ctx, func(tx pgx.Tx) (err error) {
			job, err = s.edit(ctx, tx, namespace, id, quota, keepErr, &next)
			return err
		})
	})
	if editErr != nil {
		return belfry.Job{}, editErr
	}
	if err != nil {
		return belfry.Job{}, wrapError("edit a job", orTaken(err, store.NameTaken("job", job.Name)))
	}
	s.notifier.notifyPlans(false, id)
	s.notifier.notifyReady()
	s.runFollowUps(ctx, next)
	return job, nil
}

func (s *Store) edit(ctx context.Context, tx pgx.Tx, namespace string, id belfry.ID, quota belfry.Quota, edit store.Edit, next *followUps) (belfry.Job, error) {
	p, now, err := lockPlan(ctx, tx, namespace, id)
	if err != nil {
		return belfry.Job{}, err
	}
	old, err := s.job(ctx, tx, namespace, id)
	if err != nil {
		return old, err
	}
	change, err := edit(old, p, now)
	if err != nil || change == nil {
		return old, err
	}
	job := change.Job
	if quota.MaxStoredBytes > 0 {
		if err := sqlstore.ReserveGrowth(sharedTx{ctx, tx, nil}, old, job, store.QuotaSettleTime); err != nil {
			return job, err
		}
	}
	if err := updateJob(ctx, tx, &old, change); err != nil {
		return job, err
	}
	fired, err := s.fire(ctx, tx, belfry.ID{}, []plan.Step{change.Step}, nil)
	if err != nil {
		return job, err
	}
	if !fired.Applied[0] {
		return job, belfry.Errorf(belfry.Conflict, "the job's plan could not be changed; try again")
	}
	if change.Cancel {
		err = cancelAll(ctx, tx, &job, next)
	} else if job.State == belfry.JobDeleted {
		_, err = cancelTriggers(ctx, tx, id, belfry.ID{}, job.RetentionDays)
	}
	if err != nil {
		return job, err
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
	spec, err := new(store.SpecEncoder).Encode(job.Spec)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `/* edit */ UPDATE belfry.plans SET digest = $2 WHERE job_id = $1`, uuid(old.ID), uuid(store.DigestOf(job, spec))); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `/* edit */ UPDATE belfry.jobs SET name = $2, revision = $3, state = $4, spec = $5, payload = $6, updated_at = clock_timestamp(),
		tags = $7, queue = $8, type = $9, handler = $10, trigrams = $11, purge = $12 WHERE id = $1`,
		uuid(old.ID), text(job.Name), job.Revision, string(job.State), spec, text(string(job.Payload)),
		tagsColumn(job.Tags), storable(job.Queue), storable(job.Type), handlerColumn(job.Type, job.Handler), jobTrigrams(job.Name, job.Description), change.Purge)
	return err
}

// lockPlan locks a job and its plan against fires and other edits. It returns the server's
// time after that: this process may believe that clock to be ahead, and a step for an
// occurrence before its instant is not applied.
func lockPlan(ctx context.Context, tx pgx.Tx, namespace string, id belfry.ID) (p plan.Plan, now time.Time, err error) {
	err = tx.QueryRow(ctx, `/* edit */ SELECT `+sqlstore.PlanColumns+`
		FROM belfry.jobs j JOIN belfry.plans p ON p.job_id = j.id
		WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted' FOR UPDATE`, namespace, uuid(id)).Scan(sharedColumns(sqlstore.PlanFields(&p))...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = noLiveJobError(ctx, tx, namespace, id)
	}
	if err == nil {
		err = tx.QueryRow(ctx, `/* edit */ SELECT clock_timestamp()`).Scan(timeColumn{&now})
	}
	return p, now, err
}

// withRequestKey calls f and stores the key and the response of a request in the same
// transaction. A nil request has no key.
func withRequestKey(ctx context.Context, tx pgx.Tx, r *store.Request, f func() error) error {
	if r == nil {
		return f()
	}
	if err := insertRequestKey(ctx, tx, r); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	response, err := r.Response()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `/* request */ UPDATE belfry.requests SET response = $3 WHERE namespace = $1 AND key = $2`,
		storable(r.Namespace), storable(r.Key), response)
	return err
}

// insertRequestKey stores the key, after waiting for a transaction that is storing the
// same one. It returns an existing request as a *store.DuplicateRequest.
func insertRequestKey(ctx context.Context, tx pgx.Tx, r *store.Request) error {
	tag, err := tx.Exec(ctx, `/* request */
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', '8s', true))
INSERT INTO belfry.requests (namespace, key, hash, created_at) SELECT $1, $2, $3, clock_timestamp() FROM timeout
ON CONFLICT DO NOTHING`, storable(r.Namespace), storable(r.Key), r.Hash[:])
	if sqlState(err) == lockNotAvailable {
		return belfry.Errorf(belfry.Unavailable, "an earlier request with this idempotency key is still in progress; try again: %w", err)
	}
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	duplicate, err := sqlstore.DuplicateOf(sharedTx{ctx, tx, nil}, r.Namespace, r.Key)
	if err != nil {
		return err
	}
	if duplicate == nil {
		return belfry.Errorf(belfry.Unavailable, "this idempotency key has just expired; try again")
	}
	return duplicate
}
