package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectJob       = selectJobStatus + `FROM jobs j CROSS JOIN plans p ON p.job_id = j.id WHERE j.namespace = ? AND j.id = ?`
	selectJobByName = `SELECT id FROM jobs WHERE namespace = ? AND name = ? AND state <> 'deleted'`

	selectRevisions = `SELECT revision, spec, payload, replaced_at FROM revisions
WHERE job_id = ? AND revision < ? ORDER BY revision DESC LIMIT ?`

	// Prune deletes the history of this deleted job.
	insertPurge = `INSERT INTO jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type, purge)
SELECT id, shard, namespace, revision, 'deleted', spec, created_at, ?, queue, type, 1 FROM ended WHERE id = ?`
	insertPurgePlan = `INSERT INTO plans (job_id, shard, version, runs_made, zone_version, one_off) VALUES (?, ?, 1, 0, '', 1)`
)

// job returns a job that is not archived, even a deleted one.
func (t *tx) job(namespace string, id belfry.ID) (belfry.Job, error) {
	return one(t, t.scanJobStatus, store.NoSuchJob(id), selectJob, namespace, id[:])
}

// visibleJob returns a job that is not deleted, archived or not.
func (t *tx) visibleJob(namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := t.job(namespace, id)
	if belfry.CodeOf(err) == belfry.NotFound {
		return t.endedJob(namespace, id)
	}
	if err == nil && job.State == belfry.JobDeleted {
		return belfry.Job{}, store.NoSuchJob(id)
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
	return readValue(ctx, s, "look up a job", func(t *tx) (belfry.Job, error) { return t.visibleJob(namespace, id) })
}

func (s *Store) JobIDByName(ctx context.Context, namespace, name string) (belfry.ID, error) {
	return readValue(ctx, s, "look up a name", func(t *tx) (id belfry.ID, err error) {
		found, err := t.find([]any{bytesColumn{id[:]}}, selectJobByName, namespace, name)
		if err == nil && !found {
			found, err = t.find([]any{bytesColumn{id[:]}}, selectEndedByName, namespace, name)
		}
		if err == nil && !found {
			err = store.NoSuchName(name)
		}
		return id, err
	})
}

func (s *Store) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error) {
	below := int64(before)
	if before == 0 {
		below = afterAll
	}
	return readValue(ctx, s, "list the revisions of a job", func(t *tx) ([]belfry.Revision, error) {
		if _, err := t.visibleJob(namespace, id); err != nil {
			return nil, err
		}
		return all(t, t.scanRevision, selectRevisions, id[:], below, atMost(limit))
	})
}

func (t *tx) scanRevision(rows *sql.Rows, r *belfry.Revision) error {
	var spec string
	err := rows.Scan(&r.Number, &spec, jsonColumn{&r.Payload}, nullTimeColumn{&r.ReplacedAt})
	if err != nil {
		return err
	}
	if r.Spec, err = t.specs.Decode(spec); err != nil {
		return fmt.Errorf("revision %d: %w", r.Number, err)
	}
	return nil
}

func (s *Store) DeleteEnded(ctx context.Context, namespace string, id belfry.ID, history bool) error {
	return s.write(ctx, "delete an archived job", func(t *tx) error {
		if _, err := t.endedJob(namespace, id); err != nil {
			return err
		}
		if history {
			if _, err := t.exec(insertPurge, micro(t.now), id[:]); err != nil {
				return err
			}
			if _, err := t.exec(insertPurgePlan, id[:], int64(belfry.ShardOf(id, s.Shards()))); err != nil {
				return err
			}
		}
		return t.deleteEnded(id)
	})
}

func (t *tx) deleteEnded(id belfry.ID) error {
	return t.execEach([]any{id[:]}, `DELETE FROM ended WHERE id = ?`, `DELETE FROM revisions WHERE job_id = ?`)
}
