package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

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
		var p planRow
		if err := t.get(p.fields(), `SELECT `+planColumns+` FROM plans p WHERE p.job_id = ?`, id[:]); err != nil {
			return job, err
		}
		change, err := edit(job, p.Plan, t.now)
		if err != nil {
			return job, &callerError{err}
		}
		if change == nil {
			return job, nil
		}
		if err := t.applyChange(&job, change); err != nil {
			return job, err
		}
		job, err = t.job(namespace, id)
		if belfry.CodeOf(err) == belfry.NotFound { // it was archived
			return t.endedJob(namespace, id)
		}
		return job, err
	})
}

// applyChange writes an edited job and moves its plan.
func (t *tx) applyChange(old *belfry.Job, c *store.Change) error {
	if err := t.updateJob(old, c); err != nil {
		return err
	}
	fired, err := t.fire(belfry.ID{}, []plan.Step{c.Step}, store.FreeSlots{})
	if err != nil {
		return err
	}
	if !fired.Applied[0] {
		return belfry.Errorf(belfry.Internal, "the step for job %s does not fit its plan", old.ID)
	}
	t.changes.planWritten(old.ID)
	if c.Cancel {
		if err := t.cancelJob(old.ID); err != nil {
			return err
		}
	}
	if old.Serial() && !c.Job.Serial() {
		if _, err := t.exec(promoteAllWaiting, sql.Named("now", micro(t.now)), sql.Named("job", old.ID[:])); err != nil {
			return err
		}
		t.changes.ready = true
	}
	return nil
}

func (t *tx) updateJob(old *belfry.Job, c *store.Change) error {
	job := &c.Job
	if job.Revision > old.Revision {
		if _, err := t.exec(insertRevision, micro(t.now), old.ID[:]); err != nil {
			return err
		}
	}
	spec, err := new(store.SpecEncoder).Encode(job.Spec)
	if err != nil {
		return err
	}
	_, err = t.exec(updateJob, nullText(job.Name), string(job.State), spec, nullText(job.Payload), job.Revision, micro(t.now),
		tagsJSON(job.Tags), job.Queue, job.Type, job.Handler, c.Purge && job.State == belfry.JobDeleted, old.ID[:])
	return nameTaken(err, job.Name)
}
