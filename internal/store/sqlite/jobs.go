package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const selectJob = selectJobStatus + `FROM jobs j CROSS JOIN plans p ON p.job_id = j.id WHERE j.namespace = ? AND j.id = ?`

// job returns a job that is not archived, even a deleted one.
func (t *tx) job(namespace string, id belfry.ID) (belfry.Job, error) {
	return one(t, t.scanJobStatus, store.NoSuch("job", id), selectJob, namespace, id[:])
}

// visibleJob returns a job that is not deleted, archived or not.
func (t *tx) visibleJob(namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := t.job(namespace, id)
	if belfry.CodeOf(err) == belfry.NotFound {
		return t.endedJob(namespace, id)
	}
	if err == nil && job.State == belfry.JobDeleted {
		return belfry.Job{}, store.NoSuch("job", id)
	}
	return job, err
}

// editableJob returns a job that is not deleted. An archived one is a Conflict.
func (t *tx) editableJob(namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := t.visibleJob(namespace, id)
	if err == nil && job.State == belfry.JobEnded {
		return belfry.Job{}, store.JobEnded()
	}
	return job, err
}

func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return readValue(ctx, s, "look up a job", func(t *tx) (belfry.Job, error) { return t.withResult(t.visibleJob(namespace, id)) })
}

func (s *Store) DeletedJob(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return readValue(ctx, s, "look up a deleted job", func(t *tx) (belfry.Job, error) {
		job, err := t.job(namespace, id)
		if belfry.CodeOf(err) == belfry.NotFound {
			job, err = one(t, t.scanEnded, store.NoSuch("job", id), selectEndedJob, id[:], namespace)
		}
		if err == nil && job.State != belfry.JobDeleted {
			err = store.NoSuch("job", id)
		}
		return t.withResult(job, err)
	})
}

const (
	insertRevision = `INSERT INTO revisions (job_id, revision, shard, spec, payload, replaced_at)
SELECT id, revision, shard, spec, payload, ? FROM jobs WHERE id = ?`

	updateJob = `UPDATE jobs SET name = ?, state = ?, spec = ?, payload = ?, revision = ?, updated_at = ?,
  tags = ?, queue = ?, type = ?, handler = ?, purge = ? WHERE id = ?`
)

func (s *Store) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (belfry.Job, error) {
	return writeValue(ctx, s, "edit a job", func(t *tx) (belfry.Job, error) {
		job, err := t.editableJob(namespace, id)
		if err != nil {
			return job, err
		}
		var p plan.Plan
		if err := t.get(sharedColumns(sqlstore.PlanFields(&p)), `SELECT `+sqlstore.PlanColumns+` FROM plans p WHERE p.job_id = ?`, id[:]); err != nil {
			return job, err
		}
		change, err := edit(job, p, t.now)
		if err != nil {
			return job, &callerError{err}
		}
		if change == nil {
			return t.withResult(job, nil)
		}
		if err := sqlstore.ReserveGrowth(sharedTx{t}, job, change.Job, 0); err != nil {
			return job, err
		}
		if err := t.applyChange(&job, change); err != nil {
			return job, err
		}
		job, err = t.job(namespace, id)
		if belfry.CodeOf(err) == belfry.NotFound { // it was archived
			job, err = t.endedJob(namespace, id)
		}
		return t.withResult(job, err)
	})
}

func (t *tx) applyChange(old *belfry.Job, c *store.Change) error {
	if err := t.updateJob(old, c); err != nil {
		return err
	}
	f := fireTx{tx: t}
	err := f.fire([]plan.Step{c.Step})
	if err != nil {
		return err
	}
	if !f.Applied[0] {
		return belfry.Errorf(belfry.Internal, "the step for job %s does not fit its plan", old.ID)
	}
	t.changes.planWritten(old.ID)
	if c.Cancel {
		err = t.cancelJob(old.ID)
	} else if c.Job.State == belfry.JobDeleted {
		_, err = t.cancelTriggers(triggersOfJob, old.ID[:])
	}
	if err != nil {
		return err
	}
	if old.Serial() && !c.Job.Serial() {
		if err := t.run(promoteAllWaiting, sql.Named("now", micro(t.now)), sql.Named("job", old.ID[:])); err != nil {
			return err
		}
		t.changes.ready = true
	}
	return nil
}

func (t *tx) updateJob(old *belfry.Job, c *store.Change) error {
	job := &c.Job
	if job.Revision > old.Revision {
		if err := t.run(insertRevision, micro(t.now), old.ID[:]); err != nil {
			return err
		}
	}
	spec, err := new(store.SpecEncoder).Encode(job.Spec)
	if err != nil {
		return err
	}
	digest := store.DigestOf(job, spec)
	if err := t.run(`UPDATE plans SET digest = ? WHERE job_id = ?`, digest[:], old.ID[:]); err != nil {
		return err
	}
	err = t.run(updateJob, nullText(job.Name), string(job.State), spec, nullText(job.Payload), job.Revision, micro(t.now),
		tagsJSON(job.Tags), job.Queue, job.Type, job.Handler, c.Purge && job.State == belfry.JobDeleted, old.ID[:])
	return orTaken(err, store.NameTaken("job", job.Name))
}

const insertRequest = `INSERT INTO requests (namespace, key, hash, response, created_at) VALUES (?, ?, ?, ?, ?)`

// writeRequest is write for a request, whose response it stores. A duplicate request
// writes nothing. A nil request has no key.
func (s *Store) writeRequest(ctx context.Context, doing string, r *store.Request, f func(*tx) error) error {
	return s.write(ctx, doing, func(t *tx) error {
		if r == nil {
			return f(t)
		}
		duplicate, err := sqlstore.DuplicateOf(sharedTx{t}, r.Namespace, r.Key)
		if err != nil {
			return err
		}
		if duplicate != nil {
			return duplicate
		}
		if err := f(t); err != nil {
			return err
		}
		response, err := r.Response()
		if err != nil {
			return &callerError{err}
		}
		return t.run(insertRequest, r.Namespace, r.Key, r.Hash[:], append([]byte{}, response...), micro(t.now))
	})
}
