package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// jobStatusRow is a job with what its status is derived from.
type jobStatusRow struct {
	job      belfry.Job
	runCount int64     // all runs of it that were ever decided, scheduled or triggered
	firedFor time.Time // the plan's high-water mark
	store.JobActivity
}

// excludeNotes leaves out notes: that the clock skipped a wall time, that a plan was
// moved. They may lie before or after the high-water mark, and do not say how the job
// ended. The note that the job was cancelled before an occurrence does, and lies after
// the mark, until a later run is fired: see loadAllSettled.
const excludeNotes = ` AND NOT (state = 'skipped' AND reason IN ('dst_gap', 'zone_change'))`

// selectJobStatus reads jobs without their history, which has a partition a day and is
// read only where something can be found. The caller adds a WHERE on j.
const selectJobStatus = `
SELECT j.id, j.namespace, j.name, j.tags, j.revision, j.state, j.spec, j.payload, j.created_at, j.updated_at,
       p.next_at, p.quarantined, p.fired_for, p.runs_made + p.runs_triggered, r.running, r.waiting, r.last, d.last
  FROM belfry.jobs j
  JOIN belfry.plans p ON p.job_id = j.id
  CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state <> 'running') AS waiting,
                             max(scheduled_at) AS last FROM belfry.runs WHERE job_id = j.id) r
  LEFT JOIN LATERAL (SELECT scheduled_at AS last FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d ON true
`

// readJobs reads the jobs that a WHERE on j selects, in no order.
func (s *Store) readJobs(ctx context.Context, q querier, where string, args ...any) ([]belfry.Job, error) {
	rows, err := collect(ctx, q, s.scanJobStatus, selectJobStatus+where, args...)
	if err != nil {
		return nil, err
	}
	if err := loadLastSettled(ctx, q, rows); err != nil {
		return nil, err
	}
	return column(rows, func(r **jobStatusRow) belfry.Job { return (*r).result() }), nil
}

func (s *Store) scanJobStatus(row pgx.CollectableRow) (*jobStatusRow, error) {
	var r jobStatusRow
	var spec string
	job := &r.job
	err := row.Scan(idColumn(&job.ID), &job.Namespace, textColumn{&job.Name}, &job.Tags, &job.Revision, &job.State, &spec, jsonColumn{&job.Payload},
		timeColumn{&job.CreatedAt}, timeColumn{&job.UpdatedAt}, nullTimeColumn{&job.NextRunAt}, textColumn{&job.Quarantined}, timeColumn{&r.firedFor}, &r.runCount,
		&r.Live.Running, &r.Live.Waiting, timeColumn{&r.LastLiveAt}, timeColumn{&r.LastDeadAt})
	if err != nil {
		return nil, err
	}
	if job.Spec, err = s.specs.Decode(spec); err != nil {
		return nil, fmt.Errorf("job %s: read its spec: %w", job.ID, err)
	}
	return &r, nil
}

// result is the job with its status.
func (r *jobStatusRow) result() belfry.Job {
	job := r.job
	r.SetStatus(&job)
	return job
}

// settleWindow is how much earlier than its occurrence a run may seem to be settled,
// after the server's clock was set back. Most runs are settled no later than that
// after it, too.
const (
	settleWindow    = 24 * time.Hour
	unlimitedWindow = 100 * 365 * 24 * time.Hour
)

// loadLastSettled finds the latest records in history, in as few partitions as
// possible. Without a run there is nothing that matters. A run of the occurrence at a
// plan's high-water mark was settled after that instant, and no occurrence is later; if
// it is the only run, no other run is. All of history is read for jobs that skipped
// something last, and for jobs without a record at their mark or after it: an edit may
// have moved the mark. Only an edit writes the note that a job was cancelled, and a job
// knows when it was last edited.
func loadLastSettled(ctx context.Context, q querier, rows []*jobStatusRow) error {
	var single, recent, all []*jobStatusRow
	for _, r := range rows {
		switch {
		case r.runCount == 0:
		case r.firedFor.IsZero():
			all = append(all, r)
		case r.runCount == 1 && r.LastLiveAt.Equal(r.firedFor): // known without history
		case r.runCount == 1 && r.LastDeadAt.Equal(r.firedFor) && !r.maybeCancelledAfter(r.firedFor): // so is this
		case r.runCount == 1 && !r.maybeCancelledAfter(r.firedFor.Add(settleWindow-time.Minute)):
			single = append(single, r)
		default:
			recent = append(recent, r)
		}
	}
	if err := loadSettledSince(ctx, q, single, settleWindow); err != nil {
		return err
	}
	for _, r := range single {
		if !r.LastRanAt.Equal(r.firedFor) {
			recent = append(recent, r)
		}
	}
	if err := loadSettledSince(ctx, q, recent, unlimitedWindow); err != nil {
		return err
	}
	for _, r := range recent {
		switch {
		case r.SettledLast == belfry.RunSkipped:
			all = append(all, r)
		case r.SettledAt.Before(r.firedFor) && r.LastLiveAt.Before(r.firedFor) && r.LastDeadAt.Before(r.firedFor):
			all = append(all, r)
		}
	}
	return loadAllSettled(ctx, q, all)
}

// maybeCancelledAfter reports whether the job may have been cancelled after an instant.
func (r *jobStatusRow) maybeCancelledAfter(at time.Time) bool {
	return r.job.State == belfry.JobActive && r.job.NextRunAt == nil && r.job.UpdatedAt.After(r.job.CreatedAt) && r.job.UpdatedAt.After(at)
}

// loadSettledSince finds the latest record that was settled in a window around each
// plan's high-water mark.
func loadSettledSince(ctx context.Context, q querier, rows []*jobStatusRow, within time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	marks := column(rows, func(r **jobStatusRow) time.Time { return (*r).firedFor })
	// The bounds of all jobs together exclude most partitions before the join.
	first, last := slices.MinFunc(marks, time.Time.Compare), slices.MaxFunc(marks, time.Time.Compare)
	return loadSettled(ctx, q, rows, `
SELECT j.id, h.scheduled_at, h.state, CASE WHEN h.state <> 'skipped' THEN h.scheduled_at END
  FROM unnest($1::uuid[], $2::timestamptz[]) AS j (id, fired_for)
 CROSS JOIN LATERAL (SELECT scheduled_at, state FROM belfry.history
                      WHERE job_id = j.id AND settled_at BETWEEN $5 AND $6
                        AND settled_at BETWEEN j.fired_for - $3 * interval '1 second' AND j.fired_for + $4 * interval '1 second'`+excludeNotes+`
                      ORDER BY scheduled_at DESC, id DESC LIMIT 1) h`,
		marks, settleWindow.Seconds(), within.Seconds(), first.Add(-settleWindow), last.Add(within))
}

// loadAllSettled finds the latest record, and the latest that is a run, in all of
// history. The note that the job was cancelled does not count once a later run was
// fired, even if the occurrence that it was cancelled before is still to come.
func loadAllSettled(ctx context.Context, q querier, rows []*jobStatusRow) error {
	if len(rows) == 0 {
		return nil
	}
	for _, r := range rows {
		r.SettledAt, r.SettledLast, r.LastRanAt = time.Time{}, "", time.Time{}
	}
	return loadSettled(ctx, q, rows, `
SELECT j.id, s.scheduled_at, s.state, h.scheduled_at
  FROM unnest($1::uuid[]) AS j (id)
  LEFT JOIN LATERAL (SELECT scheduled_at, fired_at FROM belfry.history WHERE job_id = j.id AND state <> 'skipped' ORDER BY scheduled_at DESC, id DESC LIMIT 1) h ON true
  LEFT JOIN LATERAL (SELECT fired_at FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d ON true
 CROSS JOIN LATERAL (SELECT scheduled_at, state FROM belfry.history WHERE job_id = j.id`+excludeNotes+`
                        AND NOT (state = 'skipped' AND reason = 'cancelled' AND settled_at < coalesce(greatest(h.fired_at, d.fired_at), '-infinity'))
                      ORDER BY scheduled_at DESC, id DESC LIMIT 1) s`)
}

// loadSettled runs a query on the ids of the jobs, $1.
func loadSettled(ctx context.Context, q querier, rows []*jobStatusRow, sql string, args ...any) error {
	byID := make(map[belfry.ID]*jobStatusRow, len(rows))
	for _, r := range rows {
		byID[r.job.ID] = r
	}
	var (
		id           belfry.ID
		settled, ran time.Time
		state        belfry.RunStatus
	)
	ids := column(rows, func(r **jobStatusRow) pgtype.UUID { return uuid((*r).job.ID) })
	return forEach(ctx, q, []any{idColumn(&id), timeColumn{&settled}, &state, timeColumn{&ran}}, func() error {
		r := byID[id]
		r.SettledAt, r.SettledLast, r.LastRanAt = settled, state, ran
		return nil
	}, sql, append([]any{ids}, args...)...)
}
