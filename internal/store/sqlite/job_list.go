package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"

	sqlite "modernc.org/sqlite"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// scanLimit is how many rows of an index one page of a list may read.
const scanLimit = 20_000

// jobScan reads the jobs of a list along an index, in descending order of ids.
type jobScan struct {
	index string // its name
	floor string // finds the last row that a page may read, if there are so many; empty: the page reads all rows
	page  string // reads the jobs down to the floor that match the filter
	scan  func(*tx, *sql.Rows, *belfry.Job) error
}

// The scans of jobs. An index is named where SQLite, which does not know how many
// jobs share a queue or a status, might choose another.
var (
	allJobs       = scanJobs(`jobs_list`, `j.state <> 'deleted'`)
	pausedJobs    = scanJobs(`jobs_paused`, `j.state = 'paused'`)
	jobsByQueue   = scanJobs(`jobs_queue`, `j.queue = @queue AND j.state <> 'deleted'`)
	jobsByType    = scanJobs(`jobs_type`, `j.type = @type AND j.state <> 'deleted'`)
	jobsByHandler = scanJobs(`jobs_handler`, `j.handler = @handler AND j.handler <> '' AND j.state <> 'deleted'`)

	jobsWithRuns = jobTable{
		index: `runs_job`, table: `runs r INDEXED BY runs_job WHERE true`, id: `r.job_id`,
		joins: `runs r INDEXED BY runs_job CROSS JOIN jobs j ON j.id = r.job_id CROSS JOIN plans p ON p.job_id = r.job_id WHERE ` + whereNamespace,
		group: ` GROUP BY r.job_id`,
	}.scan()
	dueJobs = jobTable{ // There are few, unless workers are missing: all are sorted.
		index: `plans_due`, id: `p.job_id`,
		joins: `plans p INDEXED BY plans_due CROSS JOIN jobs j ON j.id = p.job_id WHERE p.shard IN (SELECT value FROM json_each(@shards)) AND p.next_at <= @now AND ` + whereNamespace,
	}.scan()
	unplannedJobs = jobTable{
		index: `plans_unplanned`, table: `plans p INDEXED BY plans_unplanned WHERE p.next_at IS NULL`, id: `p.job_id`,
		joins: `plans p INDEXED BY plans_unplanned CROSS JOIN jobs j ON j.id = p.job_id WHERE p.next_at IS NULL AND ` + whereNamespace,
	}.scan()
	failingJobs = jobTable{ // HasStatus leaves out those that have succeeded since.
		index: `failing_list`, table: `failing f INDEXED BY failing_list WHERE f.namespace = @namespace`, id: `f.job_id`,
		joins: `failing f INDEXED BY failing_list CROSS JOIN jobs j ON j.id = f.job_id CROSS JOIN plans p ON p.job_id = f.job_id WHERE f.namespace = @namespace AND ` + whereNamespace,
	}.scanAs(selectJobStatus, ``, (*tx).scanJobStatus)

	endedJobs = jobTable{
		index: `ended_list`, table: `ended j INDEXED BY ended_list WHERE j.namespace = @namespace`, id: `j.id`,
		joins: `ended j INDEXED BY ended_list WHERE j.namespace = @namespace`,
	}.scanAs(selectEndedJobs, ` AND j.status = @status`, (*tx).scanEnded)
)

const whereNamespace = `j.namespace = @namespace AND j.state <> 'deleted'`

func scanJobs(index, where string) jobScan {
	from := `jobs j INDEXED BY ` + index
	where = ` WHERE j.namespace = @namespace AND ` + where
	return jobTable{index: index, table: from + where, id: `j.id`, joins: from + ` CROSS JOIN plans p ON p.job_id = j.id` + where}.scan()
}

// jobTable is an index that has all jobs that some filters match.
type jobTable struct {
	index string
	table string // the table of the index, with its conditions; empty: all rows are read
	id    string // of the job in that table
	joins string // from there to the jobs j and plans p
	group string // for a table that may have several rows of a job
}

func (j jobTable) scan() jobScan {
	return j.scanAs(selectJobStatus, whereStatus, (*tx).scanJobStatus)
}

func (j jobTable) scanAs(columns, status string, scan func(*tx, *sql.Rows, *belfry.Job) error) jobScan {
	s := jobScan{
		index: j.index,
		page: columns + `FROM ` + j.joins + ` AND ` + j.id + ` < @after AND ` + j.id + ` >= @floor` + whereSpec + status + j.group +
			` ORDER BY ` + j.id + ` DESC LIMIT @limit`,
		scan: scan,
	}
	if j.table != "" {
		s.floor = `SELECT ` + j.id + ` FROM ` + j.table + ` AND ` + j.id + ` < @after ORDER BY ` + j.id + ` DESC LIMIT 1 OFFSET @skip`
	}
	return s
}

// whereSpec filters jobs by everything but their status.
const whereSpec = `
  AND (@queue = '' OR j.queue = @queue) AND (@type = '' OR j.type = @type) AND (@handler = '' OR j.handler = @handler)
  AND (@tags IS NULL OR instr(j.tags, @tag) > 0 AND NOT EXISTS
    (SELECT 1 FROM json_each(@tags) wanted WHERE wanted.value NOT IN (SELECT tag.value FROM json_each(j.tags) tag)))
  AND (@search = '' OR belfry_contains(j.name, @search) OR instr(j.spec, '"description":') > 0 AND json_valid(j.spec) AND belfry_contains(j.spec ->> 'description', @search))`

// jobScans returns the scans that find all jobs that a filter matches, along the
// index that has the fewest others.
func jobScans(f belfry.JobFilter) []jobScan {
	ended := f.Status == belfry.StatusCompleted || f.Status == belfry.StatusFailed || f.Status == belfry.StatusCancelled
	scan := allJobs
	switch {
	case f.Status == belfry.StatusRunning || f.Status == belfry.StatusQueued:
		scan = jobsWithRuns
	case f.Status == belfry.StatusFailing:
		scan = failingJobs
	case f.Status == belfry.StatusPaused:
		scan = pausedJobs
	case f.Handler != "":
		scan = jobsByHandler
	case ended:
		scan = unplannedJobs
	case f.Queue != "":
		scan = jobsByQueue
	case f.Type != "":
		scan = jobsByType
	}
	switch {
	case ended:
		return []jobScan{scan, endedJobs}
	case f.Status == belfry.StatusQueued:
		return []jobScan{scan, dueJobs}
	}
	return []jobScan{scan}
}

func init() {
	sqlite.MustRegisterDeterministicScalarFunction("belfry_contains", 2, contains)
}

// contains reports whether a text contains another that is in lower case already.
// SQLite itself knows the case of ASCII letters only.
func contains(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	name, _ := args[0].(string) // null: it has none
	part, ok := args[1].(string)
	if !ok {
		return nil, fmt.Errorf("%T is not a text to search for", args[1])
	}
	return strings.Contains(strings.ToLower(name), part), nil
}

func (s *Store) ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page store.Page) (store.JobList, error) {
	if page.Limit <= 0 {
		return store.JobList{Next: page.After.ID}, ctx.Err()
	}
	return readValue(ctx, s, "list jobs", func(t *tx) (out store.JobList, err error) {
		args := append(jobFilterArgs(namespace, filter), sql.Named("now", micro(t.now)), sql.Named("shards", shardsJSON(s.allShards())))
		out.Jobs, out.Next, err = scanPage(t, jobScans(filter), args, page, s.ScanLimit)
		if err == nil {
			err = t.loadResults(out.Jobs)
		}
		out.Jobs = slices.DeleteFunc(out.Jobs, func(j belfry.Job) bool { return !store.HasStatus(j, filter.Status) })
		return out, err
	})
}

func (s *Store) allShards() []int {
	all := make([]int, s.shards)
	for i := range all {
		all[i] = i
	}
	return all
}

func jobFilterArgs(namespace string, f belfry.JobFilter) []any {
	var tags, tag any // the list, and one of them as it is stored in lists
	if len(f.Tags) > 0 {
		tags, tag = string(belfry.MustJSON(f.Tags)), string(belfry.MustJSON(f.Tags[0]))
	}
	return []any{
		sql.Named("namespace", namespace), sql.Named("queue", f.Queue), sql.Named("type", f.Type), sql.Named("handler", f.Handler),
		sql.Named("tags", tags), sql.Named("tag", tag), sql.Named("search", strings.ToLower(f.Search)), sql.Named("status", string(f.Status)),
	}
}

// scanPage merges the jobs of several scans into a page, down to where the first of
// the scans stopped.
func scanPage(t *tx, scans []jobScan, args []any, page store.Page, scanLimit int) (jobs []belfry.Job, next belfry.ID, err error) {
	after := idOrMax(page.After.ID)
	args = append(args, sql.Named("after", after[:]))
	for _, scan := range scans {
		more, floor, err := scan.read(t, args, page.Limit+1, scanLimit) // one more shows whether there are more
		if err != nil {
			return nil, belfry.ID{}, err
		}
		if len(more) > page.Limit {
			floor = more[page.Limit].ID
		}
		jobs = append(jobs, more...)
		if floor.Compare(next) > 0 {
			next = floor
		}
	}
	jobs, next = store.MergePage(jobs, func(j belfry.Job) belfry.ID { return j.ID }, next, page.Limit)
	return jobs, next, nil
}

// read returns at most limit jobs. The floor is the last id of the index that was
// read; it is zero at the end of the index.
func (s *jobScan) read(t *tx, args []any, limit, scanLimit int) (jobs []belfry.Job, floor belfry.ID, err error) {
	args = slices.Clip(args)
	if s.floor != "" {
		if _, err := t.find([]any{bytesColumn{floor[:]}}, s.floor, append(args, sql.Named("skip", scanLimit-1))...); err != nil {
			return nil, floor, err
		}
	}
	scan := func(rows *sql.Rows, job *belfry.Job) error { return s.scan(t, rows, job) }
	jobs, err = all(t, scan, s.page, append(args, sql.Named("floor", floor[:]), sql.Named("limit", int64(limit)))...)
	return jobs, floor, err
}

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
    WHEN p.next_at <= @now THEN 'queued'
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
		timeColumn{&job.CreatedAt}, timeColumn{&job.UpdatedAt}, stringsColumn{&job.Tags}, nullTimeColumn{&job.NextRunAt}, &job.Quarantined, &a.Live.Running, &a.Live.Waiting,
		timeColumn{&a.LastLiveAt}, timeColumn{&a.LastDeadAt}, timeColumn{&a.LastRanAt}, timeColumn{&a.SettledAt}, &last)
	if err != nil {
		return err
	}
	if job.Spec, err = t.specs.Decode(spec); err != nil {
		return fmt.Errorf("job %s: %w", job.ID, err)
	}
	a.SettledLast = last.V
	a.SetStatus(job, t.now)
	return nil
}

// selectResults reads what the last results of jobs are chosen from.
const selectResults = `
SELECT j.id, s.id, s.state, s.settled_at, coalesce(s.error, ''), d.id, coalesce(max(d.failures + d.lost, 1), 0), d.died_at, coalesce(b.error, ''),
       a.run_id, coalesce((SELECT sum(failures + lost) FROM runs WHERE job_id = j.id), 0), a.finished_at, coalesce(a.error, ''), coalesce(f.failures, 0), f.latest_at
FROM (SELECT unhex(value, '-') AS id FROM json_each(?)) j
LEFT JOIN history s ON s.rowid = (SELECT h.rowid FROM history h WHERE h.job_id = j.id` + excludeNotes + `ORDER BY scheduled_at DESC, id DESC LIMIT 1)
LEFT JOIN dead d ON d.id = (SELECT id FROM dead WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1)
LEFT JOIN attempts b ON b.run_id = d.id AND b.attempt = d.attempt
LEFT JOIN attempts a ON a.run_id = (SELECT id FROM runs WHERE job_id = j.id AND failures + lost > 0 ORDER BY scheduled_at DESC LIMIT 1)
  AND a.attempt = (SELECT max(attempt) FROM attempts WHERE run_id = a.run_id AND outcome IN ('failed', 'timed_out', 'lost'))
LEFT JOIN failing f ON f.job_id = j.id`

// loadResults sets the last results of jobs.
func (t *tx) loadResults(jobs []belfry.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	type row struct {
		job    belfry.ID
		status sql.Null[belfry.ResultStatus]
		store.Results
	}
	ids := make([]belfry.ID, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}
	rows, err := all(t, scanInto(func(r *row) []any {
		return []any{bytesColumn{r.job[:]}, bytesColumn{r.Settled.RunID[:]}, &r.status, timeColumn{&r.Settled.At}, &r.Settled.Error,
			bytesColumn{r.Dead.RunID[:]}, &r.Dead.Failures, timeColumn{&r.Dead.At}, &r.Dead.Error,
			bytesColumn{r.Failed.RunID[:]}, &r.Failed.Failures, timeColumn{&r.Failed.At}, &r.Failed.Error, &r.Failing.Count, timeColumn{&r.Failing.LatestAt}}
	}), selectResults, idsJSON(ids))
	last := make(map[belfry.ID]*belfry.LastResult, len(rows))
	for _, r := range rows {
		r.Settled.Status, r.Dead.Status, r.Failed.Status = r.status.V, belfry.ResultDead, belfry.ResultFailed
		last[r.job] = r.Last()
	}
	for i := range jobs {
		jobs[i].LastResult = last[jobs[i].ID]
	}
	return err
}

// withResult adds the last result to a job that was read.
func (t *tx) withResult(job belfry.Job, err error) (belfry.Job, error) {
	if err != nil {
		return job, err
	}
	jobs := []belfry.Job{job}
	err = t.loadResults(jobs)
	return jobs[0], err
}
