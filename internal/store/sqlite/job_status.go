package sqlite

import (
	"database/sql"
	"fmt"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// selectJobStatus reads jobs with everything that their status is derived from. The
// caller adds the tables of the jobs j and their plans p.
const selectJobStatus = `
SELECT j.id, j.namespace, coalesce(j.name, ''), j.revision, j.state, j.spec, j.payload, j.created_at, j.updated_at, j.tags, p.next_at, coalesce(p.quarantined, ''),
       (SELECT count(*) FROM runs r WHERE r.job_id = j.id AND r.state = 'running'),
       (SELECT count(*) FROM runs r WHERE r.job_id = j.id AND r.state <> 'running'),
       (SELECT max(scheduled_at) FROM runs r WHERE r.job_id = j.id),
       (SELECT scheduled_at FROM dead d WHERE d.job_id = j.id ORDER BY scheduled_at DESC LIMIT 1),
       (SELECT scheduled_at FROM history h WHERE h.job_id = j.id AND h.state <> 'skipped' ORDER BY scheduled_at DESC LIMIT 1),
       (SELECT scheduled_at FROM history h WHERE h.job_id = j.id` + excludeNotes + `ORDER BY scheduled_at DESC, id DESC LIMIT 1),
       (SELECT state FROM history h WHERE h.job_id = j.id` + excludeNotes + `ORDER BY scheduled_at DESC, id DESC LIMIT 1)
`

// excludeNotes leaves out skips that say nothing about how a job ended: that the
// clock skipped a wall time, that a plan was moved, or that the job was cancelled
// before an occurrence, if a run of it was fired after that.
const excludeNotes = ` AND (h.state <> 'skipped' OR h.reason NOT IN ('dst_gap', 'zone_change', 'cancelled') OR h.reason = 'cancelled'
  AND h.settled_at >= coalesce((SELECT o.fired_at FROM history o WHERE o.job_id = h.job_id AND o.state <> 'skipped' ORDER BY o.scheduled_at DESC, o.id DESC LIMIT 1), 0)
  AND h.settled_at >= coalesce((SELECT o.fired_at FROM dead o WHERE o.job_id = h.job_id ORDER BY o.scheduled_at DESC LIMIT 1), 0)) `

// whereStatus filters jobs by what belfry.StatusOf derives from a store.JobActivity.
const whereStatus = `
  AND (@status = '' OR @status = CASE
    WHEN j.state = 'paused' THEN 'paused'
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id AND r.state = 'running') THEN 'running'
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id) THEN 'queued'
    WHEN p.next_at IS NOT NULL THEN 'scheduled'
    WHEN (SELECT max(scheduled_at) FROM dead d WHERE d.job_id = j.id) >= ` + lastSettled + ` THEN 'failed'
    ELSE coalesce((SELECT CASE h.state WHEN 'dead' THEN 'failed' WHEN 'discarded' THEN 'failed' WHEN 'succeeded' THEN 'completed' END
      FROM history h WHERE h.job_id = j.id` + excludeNotes + `ORDER BY scheduled_at DESC, id DESC LIMIT 1), 'cancelled') END)`

// lastSettled is before all instants if nothing is settled.
const lastSettled = `coalesce((SELECT scheduled_at FROM history h WHERE h.job_id = j.id` + excludeNotes + `ORDER BY scheduled_at DESC LIMIT 1), -9223372036854775808)`

func (t *tx) scanJobStatus(rows *sql.Rows, job *belfry.Job) error {
	var (
		a    store.JobActivity
		last sql.Null[belfry.RunStatus]
		spec string
	)
	err := rows.Scan(bytesColumn{job.ID[:]}, &job.Namespace, &job.Name, &job.Revision, &job.State, &spec, jsonColumn{&job.Payload},
		timeColumn{&job.CreatedAt}, timeColumn{&job.UpdatedAt}, tagsColumn{&job.Tags}, nullTimeColumn{&job.NextRunAt}, &job.Quarantined, &a.Live.Running, &a.Live.Waiting,
		timeColumn{&a.LastLiveAt}, timeColumn{&a.LastDeadAt}, timeColumn{&a.LastRanAt}, timeColumn{&a.SettledAt}, &last)
	if err != nil {
		return err
	}
	if job.Spec, err = t.specs.Decode(spec); err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	a.SettledLast = last.V
	a.SetStatus(job)
	return nil
}
