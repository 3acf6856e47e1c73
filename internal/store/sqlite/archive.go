package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectEndedJobs = `
SELECT j.id, j.namespace, coalesce(j.name, ''), j.revision, j.status, j.spec, j.payload, j.created_at, j.updated_at, j.tags, j.last_run_at, j.ended_at
`
	selectEndedJob    = selectEndedJobs + `FROM ended j WHERE j.id = ? AND j.namespace = ?`
	selectEndedByName = `SELECT id FROM ended WHERE namespace = ? AND name = ? AND status <> 'deleted' ORDER BY ended_at DESC LIMIT 1`

	// oneOffFinished: nothing is planned, no run is alive or dead, no trigger pending.
	oneOffFinished = `p.one_off AND p.next_at IS NULL AND p.nominal_at IS NULL AND j.state = 'active'
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM triggers g WHERE g.job_id = j.id AND g.fired_at IS NULL)`

	selectFinishedSpec = `SELECT j.spec FROM plans p CROSS JOIN jobs j ON j.id = p.job_id WHERE p.job_id = ? AND ` + oneOffFinished

	insertEnded = `INSERT OR REPLACE INTO ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler,
  created_at, updated_at, last_run_at, ended_at, retain_until)
SELECT j.id, j.shard, j.namespace, j.name, j.tags, j.revision,
  CASE j.state WHEN 'deleted' THEN 'deleted' ELSE coalesce((SELECT CASE h.state WHEN 'succeeded' THEN 'completed' WHEN 'discarded' THEN 'failed' END
    FROM history h WHERE h.job_id = j.id` + excludeNotes + `ORDER BY scheduled_at DESC, id DESC LIMIT 1), 'cancelled') END,
  j.spec, j.payload, j.queue, j.type, j.handler, j.created_at, j.updated_at,
  (SELECT scheduled_at FROM history h WHERE h.job_id = j.id AND h.state <> 'skipped' ORDER BY scheduled_at DESC LIMIT 1), ?, ?
FROM jobs j WHERE j.id = ?`

	selectArchiveCandidates = `SELECT job_id FROM plans WHERE one_off AND next_at IS NULL AND nominal_at IS NULL AND job_id > ? AND` + inShards + `ORDER BY job_id LIMIT ?`
)

// archive moves a finished one-off to the archived jobs. Its earlier revisions stay
// as long as it can be looked up.
func (t *tx) archive(job belfry.ID) (archived bool, err error) {
	var spec string
	found, err := t.find([]any{&spec}, selectFinishedSpec, job[:])
	if err != nil || !found {
		return false, err
	}
	if err := t.run(insertEnded, micro(t.now), retainUntil(t.now, t.specs.OrZero(spec).RetentionDays), job[:]); err != nil {
		return false, err
	}
	return true, t.runEach([]any{job[:]}, `DELETE FROM jobs WHERE id = ?`, `DELETE FROM plans WHERE job_id = ?`)
}

func (s *Store) Archive(ctx context.Context, shards []int, after belfry.ID, limit int) (archived int, next belfry.ID, err error) {
	if limit < 1 {
		return 0, after, ctx.Err()
	}
	err = s.write(ctx, "archive jobs", func(t *tx) error {
		jobs, err := all(t, scanID, selectArchiveCandidates, after[:], shardsJSON(shards), atMost(limit))
		if err != nil {
			return err
		}
		for _, job := range jobs {
			done, err := t.archive(job)
			if err != nil {
				return err
			}
			if done {
				archived++
			}
		}
		if len(jobs) == limit {
			next = jobs[limit-1]
		}
		return nil
	})
	if err != nil {
		return 0, belfry.ID{}, err
	}
	return archived, next, nil
}

func (t *tx) scanEnded(rows *sql.Rows, job *belfry.Job) error {
	var spec string
	err := rows.Scan(bytesColumn{job.ID[:]}, &job.Namespace, &job.Name, &job.Revision, &job.Status, &spec, jsonColumn{&job.Payload},
		timeColumn{&job.CreatedAt}, timeColumn{&job.UpdatedAt}, stringsColumn{&job.Tags}, nullTimeColumn{&job.LastRunAt}, nullTimeColumn{&job.EndedAt})
	if err != nil {
		return err
	}
	if job.State = belfry.JobEnded; job.Status == belfry.StatusDeleted {
		job.State = belfry.JobDeleted
	}
	if job.Spec, err = t.specs.Decode(spec); err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	return nil
}

// endedJob returns an archived job that is not deleted.
func (t *tx) endedJob(namespace string, id belfry.ID) (belfry.Job, error) {
	return one(t, t.scanEnded, store.NoSuch("job", id), selectEndedJob+` AND j.status <> 'deleted'`, id[:], namespace)
}
