package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// sight is a job with what its status is derived from.
type jobStatusRow struct {
	job                    belfry.Job
	liveRuns               belfry.LiveRuns
	runCount               int64     // runs of it that were ever decided on, scheduled or asked for
	firedFor               time.Time // the plan's high-water mark
	lastLiveAt, lastDeadAt time.Time // scheduled instants of the latest live run and of the latest dead letter

	// Of the latest record in history that tells of an occurrence, and of the latest
	// that is a run.
	lastSettledAt time.Time
	lastSettled   belfry.RunStatus
	lastRanAt     time.Time
}

// telling leaves out what is only noted beside the occurrences of a job: that the
// clock skipped a wall time, that a plan was moved. Such notes may lie before or
// after the mark, and say nothing about how the job ended. The note that the job
// was cancelled before an occurrence does, and lies after the mark, until a run of
// it is fired after that: see lookAtAll.
const excludeNotes = ` AND NOT (state = 'skipped' AND reason IN ('dst_gap', 'zone_change'))`

// selectSights reads jobs as far as that is possible without their history,
// which has a partition a day and is looked at only where something is to be
// found. The caller adds a WHERE on j.
const selectJobStatus = `
SELECT j.id, j.namespace, j.name, j.tags, j.revision, j.state, j.spec, j.payload, j.created_at, j.updated_at,
       p.next_at, p.parked, p.fired_for, p.runs_made + p.runs_asked, r.running, r.waiting, r.last, d.last
  FROM belfry.jobs j
  JOIN belfry.plans p ON p.job_id = j.id
  CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state <> 'running') AS waiting,
                             max(scheduled_at) AS last FROM belfry.runs WHERE job_id = j.id) r
  LEFT JOIN LATERAL (SELECT scheduled_at AS last FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d ON true
`

// readJobs reads the jobs that a WHERE on j picks, in no order.
func (s *Store) readJobs(ctx context.Context, q querier, where string, args ...any) ([]belfry.Job, error) {
	rows, err := q.Query(ctx, selectJobStatus+where, args...)
	if err != nil {
		return nil, err
	}
	sights, err := pgx.CollectRows(rows, s.scanJobStatus)
	if err != nil {
		return nil, err
	}
	if err := loadLastSettled(ctx, q, sights); err != nil {
		return nil, err
	}
	jobs := make([]belfry.Job, len(sights))
	for i, v := range sights {
		jobs[i] = v.result()
	}
	return jobs, nil
}

func (s *Store) scanJobStatus(row pgx.CollectableRow) (*jobStatusRow, error) {
	var (
		v                      jobStatusRow
		job                    = &v.job
		id                     pgtype.UUID
		name, payload, parked  pgtype.Text
		spec                   string
		next, mark, live, dead pgtype.Timestamptz
	)
	err := row.Scan(&id, &job.Namespace, &name, &job.Tags, &job.Revision, &job.State, &spec, &payload, &job.CreatedAt, &job.UpdatedAt,
		&next, &parked, &mark, &v.runCount, &v.liveRuns.Running, &v.liveRuns.Waiting, &live, &dead)
	if err != nil {
		return nil, err
	}
	if job.Spec, err = s.specs.Decode(spec); err != nil {
		return nil, fmt.Errorf("job %s: read its spec: %w", belfry.ID(id.Bytes), err)
	}
	job.ID, job.Name, job.Quarantined = id.Bytes, name.String, parked.String
	if payload.Valid {
		job.Payload = json.RawMessage(payload.String)
	}
	job.CreatedAt, job.UpdatedAt = job.CreatedAt.UTC(), job.UpdatedAt.UTC()
	job.NextRunAt = timeOrNil(next)
	v.firedFor, v.lastLiveAt, v.lastDeadAt = timeOrZero(mark), timeOrZero(live), timeOrZero(dead)
	return &v, nil
}

// derive completes the job.
func (v *jobStatusRow) result() belfry.Job {
	job, last := v.job, v.lastSettled
	if !v.lastDeadAt.IsZero() && !v.lastDeadAt.Before(v.lastSettledAt) {
		last = belfry.RunDead
	}
	job.Status = belfry.StatusOf(job.State, job.NextRunAt != nil, v.liveRuns, last)
	at := v.lastLiveAt
	for _, other := range []time.Time{v.lastDeadAt, v.lastRanAt} {
		if other.After(at) {
			at = other
		}
	}
	if !at.IsZero() {
		job.LastRunAt = &at
	}
	return job
}

// settledWithin is how far behind the instant of an occurrence the record of its
// settlement may seem to be, after the server's clock was set back. Most runs are
// settled no later than that either.
const settleWindow = 24 * time.Hour

// lookBack finds the latest records in history, in as few of its partitions as
// possible. Without a run there is nothing that matters. Whatever came of an
// occurrence at a plan's high-water mark was settled after that instant, and no
// other is later; if it is the only run that there ever was, none is. The whole of
// history is for jobs that skipped something last, and those of which nothing is
// known at their mark or after it: an edit may have put it there. Only an edit
// notes that a job was cancelled, and a job remembers when it was last edited.
func loadLastSettled(ctx context.Context, q querier, sights []*jobStatusRow) error {
	var single, recent, deep []*jobStatusRow
	for _, v := range sights {
		switch {
		case v.runCount == 0:
		case v.firedFor.IsZero():
			deep = append(deep, v)
		case v.runCount == 1 && v.lastLiveAt.Equal(v.firedFor): // known without history
		case v.runCount == 1 && v.lastDeadAt.Equal(v.firedFor) && !v.maybeCancelledAfter(v.firedFor): // so is this
		case v.runCount == 1 && !v.maybeCancelledAfter(v.firedFor.Add(settleWindow-time.Minute)):
			single = append(single, v)
		default:
			recent = append(recent, v)
		}
	}
	if err := loadSettledSince(ctx, q, single, settleWindow); err != nil {
		return err
	}
	for _, v := range single {
		if !v.lastRanAt.Equal(v.firedFor) {
			recent = append(recent, v)
		}
	}
	if err := loadSettledSince(ctx, q, recent, unlimitedWindow); err != nil {
		return err
	}
	for _, v := range recent {
		switch {
		case v.lastSettled == belfry.RunSkipped:
			deep = append(deep, v)
		case v.lastSettledAt.Before(v.firedFor) && v.lastLiveAt.Before(v.firedFor) && v.lastDeadAt.Before(v.firedFor):
			deep = append(deep, v)
		}
	}
	return loadAllSettled(ctx, q, deep)
}

// stoppedAfter tells whether somebody may have cancelled the job after an instant.
func (v *jobStatusRow) maybeCancelledAfter(at time.Time) bool {
	return v.job.State == belfry.JobActive && v.job.NextRunAt == nil && v.job.UpdatedAt.After(v.job.CreatedAt) && v.job.UpdatedAt.After(at)
}

const unlimitedWindow = 100 * 365 * 24 * time.Hour

// lookSince finds the latest record that was settled since each plan's mark, but
// no later after it than that.
func loadSettledSince(ctx context.Context, q querier, sights []*jobStatusRow, within time.Duration) error {
	if len(sights) == 0 {
		return nil
	}
	byID := make(map[belfry.ID]*jobStatusRow, len(sights))
	ids, marks := make([]pgtype.UUID, len(sights)), make([]time.Time, len(sights))
	for i, v := range sights {
		byID[v.job.ID], ids[i], marks[i] = v, uuid(v.job.ID), v.firedFor
	}
	// The bounds of all jobs together let most partitions be left out for good.
	first, last := slices.MinFunc(marks, time.Time.Compare), slices.MaxFunc(marks, time.Time.Compare)
	rows, err := q.Query(ctx, `
SELECT w.id, n.scheduled_at, n.state
  FROM unnest($1::uuid[], $2::timestamptz[]) AS w (id, mark)
 CROSS JOIN LATERAL (SELECT scheduled_at, state FROM belfry.history
                      WHERE job_id = w.id AND settled_at BETWEEN $5 AND $6
                        AND settled_at BETWEEN w.mark - $3 * interval '1 second' AND w.mark + $4 * interval '1 second'`+excludeNotes+`
                      ORDER BY scheduled_at DESC, id DESC LIMIT 1) n`,
		ids, marks, settleWindow.Seconds(), within.Seconds(), first.Add(-settleWindow), last.Add(within))
	if err != nil {
		return err
	}
	var (
		id    pgtype.UUID
		at    time.Time
		state belfry.RunStatus
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at, &state}, func() error {
		v := byID[id.Bytes]
		v.lastSettledAt, v.lastSettled = at.UTC(), state
		if state != belfry.RunSkipped {
			v.lastRanAt = v.lastSettledAt
		}
		return nil
	})
	return err
}

// lookAtAll finds the latest record, and the latest that is a run, in all of
// history. That the job was cancelled tells no more once a later run of it was
// fired, though the occurrence that it was cancelled before is still to come.
func loadAllSettled(ctx context.Context, q querier, sights []*jobStatusRow) error {
	if len(sights) == 0 {
		return nil
	}
	byID := make(map[belfry.ID]*jobStatusRow, len(sights))
	ids := make([]pgtype.UUID, len(sights))
	for i, v := range sights {
		byID[v.job.ID], ids[i] = v, uuid(v.job.ID)
		v.lastSettledAt, v.lastSettled, v.lastRanAt = time.Time{}, "", time.Time{}
	}
	rows, err := q.Query(ctx, `
SELECT w.id, s.scheduled_at, s.state, h.scheduled_at
  FROM unnest($1::uuid[]) AS w (id)
  LEFT JOIN LATERAL (SELECT scheduled_at, fired_at FROM belfry.history WHERE job_id = w.id AND state <> 'skipped' ORDER BY scheduled_at DESC, id DESC LIMIT 1) h ON true
  LEFT JOIN LATERAL (SELECT fired_at FROM belfry.dead WHERE job_id = w.id ORDER BY scheduled_at DESC LIMIT 1) d ON true
 CROSS JOIN LATERAL (SELECT scheduled_at, state FROM belfry.history WHERE job_id = w.id`+excludeNotes+`
                        AND NOT (state = 'skipped' AND reason = 'cancelled' AND settled_at < coalesce(greatest(h.fired_at, d.fired_at), '-infinity'))
                      ORDER BY scheduled_at DESC, id DESC LIMIT 1) s`, ids)
	if err != nil {
		return err
	}
	var (
		id    pgtype.UUID
		at    time.Time
		state belfry.RunStatus
		ran   pgtype.Timestamptz
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &at, &state, &ran}, func() error {
		v := byID[id.Bytes]
		v.lastSettledAt, v.lastSettled, v.lastRanAt = at.UTC(), state, timeOrZero(ran)
		return nil
	})
	return err
}
