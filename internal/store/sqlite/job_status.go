package sqlite

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
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

// whereStatus filters jobs by what belfry.StatusOf derives from a jobStatusRow.
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

// jobStatusRow is a row of selectJobStatus beside the job itself.
type jobStatusRow struct {
	spec        string
	nextAt      *time.Time
	live        belfry.LiveRuns
	lastLiveAt  time.Time // latest live run
	lastDeadAt  time.Time // latest dead letter
	lastRunAt   time.Time // latest settled run that was not skipped
	settledAt   time.Time // latest settled run or skip that is not a note
	settledLast sql.Null[belfry.RunStatus]
}

func (t *tx) scanJobStatus(rows *sql.Rows, job *belfry.Job) error {
	var r jobStatusRow
	err := rows.Scan(bytesColumn{job.ID[:]}, &job.Namespace, &job.Name, &job.Revision, &job.State, &r.spec, jsonColumn{&job.Payload},
		timeColumn{&job.CreatedAt}, timeColumn{&job.UpdatedAt}, tagsColumn{&job.Tags}, nullTimeColumn{&r.nextAt}, &job.Quarantined, &r.live.Running, &r.live.Waiting,
		timeColumn{&r.lastLiveAt}, timeColumn{&r.lastDeadAt}, timeColumn{&r.lastRunAt}, timeColumn{&r.settledAt}, &r.settledLast)
	if err != nil {
		return err
	}
	if job.Spec, err = t.specs.Decode(r.spec); err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	job.NextRunAt = r.nextAt
	if at := slices.MaxFunc([]time.Time{r.lastLiveAt, r.lastDeadAt, r.lastRunAt}, time.Time.Compare); !at.IsZero() {
		job.LastRunAt = &at
	}
	last := r.settledLast.V
	if !r.lastDeadAt.IsZero() && !r.lastDeadAt.Before(r.settledAt) {
		last = belfry.RunDead
	}
	job.Status = belfry.StatusOf(job.State, r.nextAt != nil, r.live, last)
	return nil
}
