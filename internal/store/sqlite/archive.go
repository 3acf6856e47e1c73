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
	selectEndedJob = selectEndedJobs + `FROM ended j WHERE j.id = ? AND j.namespace = ?`

	// oneOffFinished: nothing is planned, no run is alive or dead, no trigger pending.
	oneOffFinished = `p.one_off AND p.next_at IS NULL AND p.nominal_at IS NULL AND j.state = 'active'
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM triggers g WHERE g.job_id = j.id AND g.fired_at IS NULL)`

	insertEnded = `INSERT OR REPLACE INTO ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler,
  created_at, updated_at, last_run_at, ended_at, retain_until)
SELECT j.id, j.shard, j.namespace, j.name, j.tags, j.revision,
  CASE j.state WHEN 'deleted' THEN 'deleted' ELSE coalesce((SELECT CASE h.state WHEN 'succeeded' THEN 'completed' WHEN 'discarded' THEN 'failed' END
    FROM history h WHERE h.job_id = j.id` + excludeNotes + `ORDER BY scheduled_at DESC, id DESC LIMIT 1), 'cancelled') END,
  j.spec, j.payload, j.queue, j.type, j.handler, j.created_at, j.updated_at,
  (SELECT scheduled_at FROM history h WHERE h.job_id = j.id AND h.state <> 'skipped' ORDER BY scheduled_at DESC LIMIT 1),
  ?1, ?1 + CASE WHEN instr(j.spec, 'retention_days') AND json_valid(j.spec) THEN json_extract(j.spec, '$.retention_days') END * 86400000000
`
	archiveDeleted = insertEnded + `FROM jobs j WHERE j.id = ?`

	selectArchiveCandidates = `SELECT job_id FROM plans WHERE one_off AND next_at IS NULL AND nominal_at IS NULL AND job_id > ? AND` + inShards + `ORDER BY job_id LIMIT ?`
)

var (
	archiveFinished = newBatchStatement(insertEnded+`FROM plans p CROSS JOIN jobs j ON j.id = p.job_id WHERE p.job_id IN (`, `?`, `) AND `+oneOffFinished)

	deleteJobs  = newBatchStatement(`DELETE FROM jobs WHERE id IN (`, `?`, `)`)
	deletePlans = newBatchStatement(`DELETE FROM plans WHERE job_id IN (`, `?`, `)`)
)

// archive moves those of the jobs that are finished one-offs to the archived jobs, and says
// how many. Their earlier revisions stay as long as they can be looked up.
func (t *tx) archive(jobs ...belfry.ID) (archived int, err error) {
	err = forBatches(jobs, func(batch []belfry.ID) error {
		args := append(t.args[:0], micro(t.now))
		for i := range batch {
			args = append(args, batch[i][:])
		}
		t.args = args
		n, err := t.exec(archiveFinished[len(batch)], args...)
		if err != nil || n == 0 {
			return err
		}
		if n < len(batch) { // Which ones? To archive a job again changes nothing.
			for _, job := range batch {
				n, err := t.archive(job)
				if archived += n; err != nil {
					return err
				}
			}
			return nil
		}
		archived += n
		return t.runEach(args[1:], deleteJobs[n], deletePlans[n])
	})
	return archived, err
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
		if archived, err = t.archive(jobs...); err != nil {
			return err
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
