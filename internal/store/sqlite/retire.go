package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/belfry-sh/belfry"
)

const (
	selectEnded = `
SELECT j.id, j.namespace, coalesce(j.name, ''), j.revision, j.status, j.spec, j.payload, j.created_at, j.updated_at, j.tags, j.last_run_at, j.ended_at
`
	selectOneEnded   = selectEnded + `FROM ended j WHERE j.id = ? AND j.namespace = ?`
	selectNamedEnded = `SELECT id FROM ended WHERE namespace = ? AND name = ? ORDER BY ended_at DESC LIMIT 1`

	// A one-off that is over: nothing is planned, alive, dead or wished for.
	isOver = `p.one_off AND p.next_at IS NULL AND p.nominal_at IS NULL AND j.state = 'active'
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM dead d WHERE d.job_id = j.id)
  AND NOT EXISTS (SELECT 1 FROM triggers w WHERE w.job_id = j.id AND w.fired_at IS NULL)`

	selectOver = `SELECT j.spec FROM plans p CROSS JOIN jobs j ON j.id = p.job_id WHERE p.job_id = ? AND ` + isOver

	insertEnded = `INSERT OR REPLACE INTO ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler,
  created_at, updated_at, last_run_at, ended_at, retain_until)
SELECT j.id, j.shard, j.namespace, j.name, j.tags, j.revision,
  coalesce((SELECT CASE h.state WHEN 'succeeded' THEN 'completed' WHEN 'discarded' THEN 'failed' END
    FROM history h WHERE h.job_id = j.id` + telling + `ORDER BY scheduled_at DESC, id DESC LIMIT 1), 'cancelled'),
  j.spec, j.payload, j.queue, j.type, j.handler, j.created_at, j.updated_at,
  (SELECT scheduled_at FROM history h WHERE h.job_id = j.id AND h.state <> 'skipped' ORDER BY scheduled_at DESC LIMIT 1), ?, ?
FROM jobs j WHERE j.id = ?`

	selectPerhapsOver = `SELECT job_id FROM plans WHERE one_off AND next_at IS NULL AND nominal_at IS NULL AND job_id > ? AND` + inShards + `ORDER BY job_id LIMIT ?`
)

// retire has a job leave the live tables if it is a one-off that is over. Its
// earlier revisions stay as long as it can be looked up.
func (t *tx) retire(job belfry.ID) (retired bool, err error) {
	var spec string
	err = t.get([]any{&spec}, selectOver, job[:])
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := t.exec(insertEnded, micro(t.now), keepUntil(t.now, t.specs.OrZero(spec).RetentionDays), job[:]); err != nil {
		return false, err
	}
	for _, query := range []string{`DELETE FROM jobs WHERE id = ?`, `DELETE FROM plans WHERE job_id = ?`} {
		if _, err := t.exec(query, job[:]); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Retire has one-offs leave the live tables that are over.
func (s *Store) Archive(ctx context.Context, shards []int, after belfry.ID, limit int) (retired int, next belfry.ID, err error) {
	if limit < 1 {
		return 0, after, ctx.Err()
	}
	err = s.write(ctx, "retire jobs", func(t *tx) error {
		jobs, err := all(t, scanID, selectPerhapsOver, after[:], list(shards), atMost(limit))
		if err != nil {
			return err
		}
		for _, job := range jobs {
			over, err := t.retire(job)
			if err != nil {
				return err
			}
			if over {
				retired++
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
	return retired, next, nil
}

func (t *tx) scanEnded(rows *sql.Rows, job *belfry.Job) error {
	var spec string
	err := rows.Scan(key{job.ID[:]}, &job.Namespace, &job.Name, &job.Revision, &job.Status, &spec, payload{&job.Payload},
		moment{&job.CreatedAt}, moment{&job.UpdatedAt}, tags{&job.Tags}, maybe{&job.LastRunAt}, maybe{&job.EndedAt})
	if err != nil {
		return err
	}
	job.State = belfry.JobEnded
	if job.Spec, err = t.specs.Decode(spec); err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	return nil
}

// endedJob finds a job that has ended.
func (t *tx) endedJob(namespace string, id belfry.ID) (belfry.Job, error) {
	jobs, err := all(t, t.scanEnded, selectOneEnded, id[:], namespace)
	if err != nil {
		return belfry.Job{}, err
	}
	if len(jobs) == 0 {
		return belfry.Job{}, noSuchJob(id)
	}
	return jobs[0], nil
}
