package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// Limits of the search for a page, so that none takes long however few jobs pass the
// filter, and whatever the planner estimates.
const (
	firstScanLimit = 1000                  // jobs scanned before an index query
	nextScanLimit  = 8000                  // jobs scanned at a time if the index query takes too long
	maxReadJobs    = 250                   // jobs read at a time to find out how they ended
	indexTimeout   = 15 * time.Millisecond // of an index query
	searchTime     = 16 * time.Millisecond // after which no further scan starts
)

func (s *Store) ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page store.Page) (list store.JobList, err error) {
	if page.Limit < 1 {
		return store.JobList{}, nil
	}
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		for _, source := range sourcesFor(filter.Status) {
			search, err := s.newJobSearch(ctx, tx, namespace, filter, source)
			if err != nil {
				return err
			}
			part, err := s.listJobs(ctx, tx, search, page)
			if err != nil {
				return err
			}
			next := slices.MaxFunc([]belfry.ID{list.Next, part.Next}, belfry.ID.Compare)
			list.Jobs, list.Next = store.MergePage(append(list.Jobs, part.Jobs...), func(j belfry.Job) belfry.ID { return j.ID }, next, page.Limit)
		}
		return nil
	})
	return list, wrapError("list jobs", err)
}

// listJobs searches for jobs and reads them until the page is full. To find a status
// that only history has, it reads more jobs than fit on the page.
func (s *Store) listJobs(ctx context.Context, tx pgx.Tx, search *jobSearch, page store.Page) (list store.JobList, err error) {
	after := startAfter(page.After.ID)
	for limit := page.Limit + 1; ; limit = max(min(2*limit, maxReadJobs), page.Limit+1-len(list.Jobs)) {
		found, err := search.next(ctx, after, limit)
		if err != nil {
			return list, err
		}
		jobs, err := s.readFound(ctx, tx, search.source, found.ids)
		if err != nil {
			return list, err
		}
		for _, job := range jobs {
			if !store.HasStatus(job, search.filter.Status) {
				continue
			}
			if len(list.Jobs) == page.Limit {
				list.Next = list.Jobs[page.Limit-1].ID
				return list, nil
			}
			list.Jobs = append(list.Jobs, job)
		}
		if found.end {
			return list, nil
		}
		after = found.next
		if search.source == sourceLive || search.timeUp() {
			list.Next = after.Bytes
			return list, nil
		}
	}
}

// readFound reads jobs in descending order of their ids.
func (s *Store) readFound(ctx context.Context, tx pgx.Tx, source jobSource, ids []pgtype.UUID) (jobs []belfry.Job, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if source == sourceEnded {
		jobs, err = s.readEnded(ctx, tx, `WHERE id = ANY($1)`, ids)
	} else {
		jobs, err = s.readJobs(ctx, tx, `WHERE j.id = ANY($1)`, ids)
	}
	slices.SortFunc(jobs, func(a, b belfry.Job) int { return b.ID.Compare(a.ID) })
	return jobs, err
}

// arg adds an argument and returns its placeholder.
func (s *jobSearch) arg(value any) string {
	s.args = append(s.args, value)
	return fmt.Sprintf("$%d", len(s.args))
}

// attributeConditions is the filter on a job j in SQL, except for its status.
func (s *jobSearch) attributeConditions() string {
	var b strings.Builder
	and := func(format string, args ...any) { fmt.Fprintf(&b, " AND "+format, args...) }
	f := s.filter
	if f.Queue != "" {
		and("j.queue = %s", s.arg(storable(f.Queue)))
	}
	if f.Type != "" {
		and("j.type = %s", s.arg(storable(f.Type)))
	}
	// The index is on both, and the name of a handler says which type its jobs have.
	kind := belfry.TypeWorker
	if strings.HasPrefix(f.Handler, belfry.CommandPrefix) {
		kind = belfry.TypeCommand
	}
	if f.Handler != "" && f.Type != "" && f.Type != kind {
		and("false")
	} else if f.Handler != "" {
		and("j.type = '%s' AND j.handler = %s", kind, s.arg(storable(f.Handler)))
	} else if f.Type != "" && f.Type != belfry.TypeWorker && f.Type != belfry.TypeCommand {
		and("j.handler IS NULL")
	}
	if len(f.Tags) > 0 {
		and("j.tags @> %s::text[]", s.arg(storables(f.Tags)))
	}
	if f.Search != "" {
		and("%s", s.searchCondition())
	}
	return b.String()
}

// searchCondition is the condition that a text by which a job is found contains the
// text to search for. jobTrigrams are the trigrams of those texts.
func (s *jobSearch) searchCondition() string {
	collation, pattern := containsPattern(storable(s.filter.Search))
	quoted := string(belfry.MustJSON(s.filter.Search)) // as the spec has it
	_, inSpec := containsPattern(storable(quoted[1 : len(quoted)-1]))
	return fmt.Sprintf(`(j.name%[1]s ILIKE %[2]s OR substring(j.spec FROM '"description":"((?:[^"\\]|\\.)*)"')%[1]s ILIKE %[3]s)`, collation, s.arg(pattern), s.arg(inSpec))
}

func jobTrigrams(name, description string) []int64 {
	if description == "" {
		return textTrigrams(name)
	}
	return textTrigrams(name + "\n" + description)
}

// statusCondition is the filter on the status of a live job j in SQL.
func (s *jobSearch) statusCondition() string {
	if s.source == sourceEnded {
		return "" // scanSQL has it
	}
	if s.source == sourceFailing {
		return "" // listJobs leaves out what has succeeded since
	}
	const live, running = `EXISTS (SELECT 1 FROM belfry.runs r WHERE r.job_id = j.id)`, `EXISTS (SELECT 1 FROM belfry.runs r WHERE r.job_id = j.id AND r.state = 'running')`
	switch s.filter.Status {
	case "":
		return ""
	case belfry.StatusPaused:
		return ` AND j.state = 'paused'`
	case belfry.StatusRunning:
		return ` AND j.state <> 'paused' AND ` + running
	case belfry.StatusQueued:
		if s.source == sourceDue {
			return ` AND j.state <> 'paused' AND NOT ` + live
		}
		return ` AND j.state <> 'paused' AND ` + live + ` AND NOT ` + running
	case belfry.StatusScheduled:
		return ` AND j.state <> 'paused' AND EXISTS (SELECT 1 FROM belfry.plans p WHERE p.job_id = j.id AND p.next_at > clock_timestamp()) AND NOT ` + live
	case belfry.StatusFailed, belfry.StatusCompleted, belfry.StatusCancelled:
		return ` AND j.state <> 'paused' AND NOT ` + live + s.source.statusCondition(s.filter.Status)
	}
	return ` AND false`
}

// statusCondition is what else jobs of a source have that ended with a status.
func (s jobSource) statusCondition(status belfry.JobStatus) string {
	switch {
	case s == sourceUnplanned && status == belfry.StatusFailed:
		return ` AND EXISTS (SELECT 1 FROM belfry.dead d WHERE d.job_id = j.id)`
	case s == sourceDiscarded:
		return ` AND EXISTS (SELECT 1 FROM belfry.plans p WHERE p.job_id = j.id AND p.next_at IS NULL)`
	}
	return ""
}

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
       p.next_at, p.quarantined, p.fired_for, p.runs_made + p.runs_triggered, r.running, r.waiting, r.last, d.last,
       r.failed, coalesce(r.failures, 0), a.finished_at, coalesce(a.error, ''), d.id, coalesce(d.failures, 0), d.died_at, coalesce(d.error, ''),
       coalesce(f.failures, 0), f.latest_at
  FROM belfry.jobs j
  JOIN belfry.plans p ON p.job_id = j.id
  CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state <> 'running') AS waiting,
                             max(scheduled_at) AS last, sum(failures + lost) AS failures,
                             (array_agg(id ORDER BY scheduled_at DESC) FILTER (WHERE failures + lost > 0))[1] AS failed FROM belfry.runs WHERE job_id = j.id) r
  LEFT JOIN LATERAL (SELECT finished_at, error FROM belfry.attempts
                      WHERE run_id = r.failed AND outcome IN ('failed', 'timed_out', 'lost') ORDER BY attempt DESC LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT x.scheduled_at AS last, x.id, x.died_at, greatest(x.failures + x.lost, 1) AS failures, a.error
                       FROM (SELECT * FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) x` + sqlstore.JoinLastAttempt + ` LIMIT 1) d ON true
  LEFT JOIN LATERAL (SELECT failures, latest_at FROM belfry.failing WHERE job_id = j.id LIMIT 1) f ON true
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
	now := s.Now()
	return column(rows, func(r **jobStatusRow) belfry.Job { return (*r).result(now) }), nil
}

func (s *Store) scanJobStatus(row pgx.CollectableRow) (*jobStatusRow, error) {
	var r jobStatusRow
	var spec string
	job := &r.job
	err := row.Scan(idColumn(&job.ID), &job.Namespace, textColumn{&job.Name}, &job.Tags, &job.Revision, &job.State, &spec, jsonColumn{&job.Payload},
		timeColumn{&job.CreatedAt}, timeColumn{&job.UpdatedAt}, nullTimeColumn{&job.NextRunAt}, textColumn{&job.Quarantined}, timeColumn{&r.firedFor}, &r.runCount,
		&r.Live.Running, &r.Live.Waiting, timeColumn{&r.LastLiveAt}, timeColumn{&r.LastDeadAt},
		idColumn(&r.Failed.RunID), &r.Failed.Failures, timeColumn{&r.Failed.At}, &r.Failed.Error, idColumn(&r.Dead.RunID), &r.Dead.Failures, timeColumn{&r.Dead.At}, &r.Dead.Error,
		&r.Failing.Count, timeColumn{&r.Failing.LatestAt})
	r.Failed.Status, r.Dead.Status = belfry.ResultFailed, belfry.ResultDead
	if err != nil {
		return nil, err
	}
	if job.Spec, err = s.specs.Decode(spec); err != nil {
		return nil, fmt.Errorf("job %s: read its spec: %w", job.ID, err)
	}
	return &r, nil
}

func (r *jobStatusRow) result(now time.Time) belfry.Job {
	job := r.job
	r.SetStatus(&job, now)
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
// possible. Without a run and a decided occurrence there is nothing that matters. A run of the occurrence at a
// plan's high-water mark was settled after that instant, and no occurrence is later; if
// it is the only run, no other run is. All of history is read for jobs that skipped
// something last, for jobs without a record at their mark or after it, because an edit may
// have moved the mark, and for the last result of jobs whose run at the mark is live, if
// they run less than daily. Only an edit writes the note that a job was cancelled, and a job
// knows when it was last edited.
func loadLastSettled(ctx context.Context, q querier, rows []*jobStatusRow) error {
	var single, recent, all []*jobStatusRow
	for _, r := range rows {
		switch {
		case r.runCount == 0 && r.firedFor.IsZero():
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
		case r.runCount == 0 && !r.SettledAt.IsZero(): // there are only skips
		case r.SettledLast == belfry.RunSkipped:
			all = append(all, r)
		case r.SettledAt.Before(r.firedFor) && r.LastDeadAt.Before(r.firedFor) && (r.LastLiveAt.Before(r.firedFor) || r.SettledAt.IsZero()):
			all = append(all, r)
		}
	}
	return loadAllSettled(ctx, q, all)
}

func (r *jobStatusRow) maybeCancelledAfter(at time.Time) bool {
	return r.job.State == belfry.JobActive && r.job.NextRunAt == nil && r.job.UpdatedAt.After(r.job.CreatedAt) && r.job.UpdatedAt.After(at)
}

const settledSinceSQL = `
SELECT j.id, h.scheduled_at, h.state, CASE WHEN h.state <> 'skipped' THEN h.scheduled_at END, h.id, h.settled_at, h.error
  FROM unnest($1::uuid[], $2::timestamptz[]) AS j (id, fired_for)
 CROSS JOIN LATERAL (SELECT id, scheduled_at, state, settled_at, error FROM belfry.history
                      WHERE job_id = j.id AND settled_at BETWEEN $5 AND $6
                        AND settled_at BETWEEN j.fired_for - $3 * interval '1 second' AND j.fired_for + $4 * interval '1 second'` + excludeNotes + `
                      ORDER BY scheduled_at DESC, id DESC LIMIT 1) h`

// loadSettledSince finds the latest record that was settled in a window around each
// plan's high-water mark.
func loadSettledSince(ctx context.Context, q querier, rows []*jobStatusRow, within time.Duration) error {
	if len(rows) == 0 {
		return nil
	}
	marks := column(rows, func(r **jobStatusRow) time.Time { return (*r).firedFor })
	// The bounds of all jobs together exclude most partitions before the join.
	first, last := slices.MinFunc(marks, time.Time.Compare), slices.MaxFunc(marks, time.Time.Compare)
	return loadSettled(ctx, q, rows, settledSinceSQL,
		marks, settleWindow.Seconds(), within.Seconds(), first.Add(-settleWindow), last.Add(within))
}

const allSettledSQL = `
SELECT j.id, s.scheduled_at, s.state, h.scheduled_at, s.id, s.settled_at, s.error
  FROM unnest($1::uuid[]) AS j (id)
  LEFT JOIN LATERAL (SELECT scheduled_at, fired_at FROM belfry.history WHERE job_id = j.id AND state <> 'skipped' ORDER BY scheduled_at DESC, id DESC LIMIT 1) h ON true
  LEFT JOIN LATERAL (SELECT fired_at FROM belfry.dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1) d ON true
 CROSS JOIN LATERAL (SELECT id, scheduled_at, state, settled_at, error FROM belfry.history WHERE job_id = j.id` + excludeNotes + `
                        AND NOT (state = 'skipped' AND reason = 'cancelled' AND settled_at < coalesce(greatest(h.fired_at, d.fired_at), '-infinity'))
                      ORDER BY scheduled_at DESC, id DESC LIMIT 1) s`

// loadAllSettled finds the latest record, and the latest that is a run, in all of
// history. The note that the job was cancelled does not count once a later run was
// fired, even if the occurrence that it was cancelled before is still to come.
func loadAllSettled(ctx context.Context, q querier, rows []*jobStatusRow) error {
	if len(rows) == 0 {
		return nil
	}
	for _, r := range rows {
		r.SettledAt, r.SettledLast, r.LastRanAt, r.Settled = time.Time{}, "", time.Time{}, belfry.LastResult{}
	}
	return loadSettled(ctx, q, rows, allSettledSQL)
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
		result       belfry.LastResult
	)
	ids := column(rows, func(r **jobStatusRow) pgtype.UUID { return uuid((*r).job.ID) })
	return forEach(ctx, q, []any{idColumn(&id), timeColumn{&settled}, &state, timeColumn{&ran}, idColumn(&result.RunID), timeColumn{&result.At}, &result.Error}, func() error {
		r := byID[id]
		result.Status = belfry.ResultStatus(state)
		r.SettledAt, r.SettledLast, r.LastRanAt, r.Settled = settled, state, ran, result
		return nil
	}, sql, append([]any{ids}, args...)...)
}
