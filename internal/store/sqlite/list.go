package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	sqlite "modernc.org/sqlite"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// look is how many rows one page of a list may look at.
const look = 20_000

// walk is a way through jobs in descending order of ids, along an index that
// holds all that a filter can let pass.
type walk struct {
	index  string // where to walk
	first  string // the table of the index, with its conditions
	id     string // of the job in that table
	fields string // what is read of a job
	rest   string // joins from there to the jobs j and plans p
	passes string // the filter
	group  string // for a table that may have several rows of a job
	scan   func(*tx, *sql.Rows, *belfry.Job) error
}

// The walks. An index is named where SQLite, which knows nothing of how many
// jobs share a queue or a status, might take another.
var (
	alongJobs    = walkJobs(`jobs_list`, `j.state <> 'deleted'`)
	alongPaused  = walkJobs(`jobs_paused`, `j.state = 'paused'`)
	alongQueue   = walkJobs(`jobs_queue`, `j.queue = @queue AND j.state <> 'deleted'`)
	alongType    = walkJobs(`jobs_type`, `j.type = @type AND j.state <> 'deleted'`)
	alongHandler = walkJobs(`jobs_handler`, `j.handler = @handler AND j.handler <> '' AND j.state <> 'deleted'`)

	alongRuns = walk{
		index: `runs_job`, first: `runs r INDEXED BY runs_job WHERE true`, id: `r.job_id`,
		rest:  `runs r INDEXED BY runs_job CROSS JOIN jobs j ON j.id = r.job_id CROSS JOIN plans p ON p.job_id = r.job_id WHERE ` + inNamespace,
		group: ` GROUP BY r.job_id`,
	}.ofJobs()
	alongUnplanned = walk{
		index: `plans_unplanned`, first: `plans p INDEXED BY plans_unplanned WHERE p.next_at IS NULL`, id: `p.job_id`,
		rest: `plans p INDEXED BY plans_unplanned CROSS JOIN jobs j ON j.id = p.job_id WHERE p.next_at IS NULL AND ` + inNamespace,
	}.ofJobs()

	// Those that have left the live tables.
	alongEnded = walk{
		index: `ended_list`, first: `ended j INDEXED BY ended_list WHERE j.namespace = @namespace`, id: `j.id`, fields: selectEnded,
		rest: `ended j INDEXED BY ended_list WHERE j.namespace = @namespace`, passes: passesSpec + ` AND j.status = @status`,
		scan: (*tx).scanEnded,
	}
)

const inNamespace = `j.namespace = @namespace AND j.state <> 'deleted'`

func walkJobs(index, where string) walk {
	from := `jobs j INDEXED BY ` + index
	where = ` WHERE j.namespace = @namespace AND ` + where
	return walk{index: index, first: from + where, id: `j.id`, rest: from + ` CROSS JOIN plans p ON p.job_id = j.id` + where}.ofJobs()
}

// ofJobs completes a walk through jobs that are in the live tables.
func (w walk) ofJobs() walk {
	w.fields, w.passes, w.scan = selectJob, passesSpec+passesStatus, (*tx).scanJob
	return w
}

// walksFor gives the walks on which all jobs are found that pass a filter.
func walksFor(f belfry.JobFilter) []walk {
	switch f.Status {
	case belfry.StatusCompleted, belfry.StatusFailed, belfry.StatusCancelled:
		return []walk{walkFor(f), alongEnded}
	}
	return []walk{walkFor(f)}
}

// walkFor chooses the walk that passes the fewest jobs in vain.
func walkFor(f belfry.JobFilter) walk {
	switch {
	case f.Status == belfry.StatusRunning || f.Status == belfry.StatusQueued:
		return alongRuns
	case f.Status == belfry.StatusPaused:
		return alongPaused
	case f.Handler != "":
		return alongHandler
	case f.Status == belfry.StatusCompleted || f.Status == belfry.StatusFailed || f.Status == belfry.StatusCancelled:
		return alongUnplanned
	case f.Queue != "":
		return alongQueue
	case f.Type != "":
		return alongType
	default:
		return alongJobs
	}
}

// floor finds the last row that a page may look at, if there are so many.
func (w walk) floor() string {
	return `SELECT ` + w.id + ` FROM ` + w.first + ` AND ` + w.id + ` < @after ORDER BY ` + w.id + ` DESC LIMIT 1 OFFSET @look`
}

// page reads the jobs from there up that pass the filter.
func (w walk) page() string {
	return w.fields + `FROM ` + w.rest + ` AND ` + w.id + ` < @after AND ` + w.id + ` >= @floor` + w.passes + w.group +
		` ORDER BY ` + w.id + ` DESC LIMIT @limit`
}

// passesSpec is a filter of jobs by what they are.
const passesSpec = `
  AND (@queue = '' OR j.queue = @queue) AND (@type = '' OR j.type = @type) AND (@handler = '' OR j.handler = @handler)
  AND (@tags IS NULL OR instr(j.tags, @tag) > 0 AND NOT EXISTS
    (SELECT 1 FROM json_each(@tags) asked WHERE asked.value NOT IN (SELECT has.value FROM json_each(j.tags) has)))
  AND (@search = '' OR belfry_contains(j.name, @search))`

// passesStatus is a filter of jobs by what belfry.StatusOf derives from what
// selectJob reads.
const passesStatus = `
  AND (@status = '' OR @status = CASE
    WHEN j.state = 'paused' THEN 'paused'
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id AND r.state = 'running') THEN 'running'
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id) THEN 'queued'
    WHEN p.next_at IS NOT NULL THEN 'scheduled'
    WHEN (SELECT max(scheduled_at) FROM dead d WHERE d.job_id = j.id) >= ` + lastSettled + ` THEN 'failed'
    ELSE coalesce((SELECT CASE h.state WHEN 'dead' THEN 'failed' WHEN 'discarded' THEN 'failed' WHEN 'succeeded' THEN 'completed' END
      FROM history h WHERE h.job_id = j.id` + telling + `ORDER BY scheduled_at DESC, id DESC LIMIT 1), 'cancelled') END)`

// lastSettled is before everything if nothing is settled.
const lastSettled = `coalesce((SELECT scheduled_at FROM history h WHERE h.job_id = j.id` + telling + `ORDER BY scheduled_at DESC LIMIT 1), -9223372036854775808)`

func init() {
	sqlite.MustRegisterDeterministicScalarFunction("belfry_contains", 2, contains)
}

// contains tells whether a name contains a text that is in lower case already.
// SQLite itself knows the case of ASCII letters only.
func contains(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	name, _ := args[0].(string) // null: it has none
	part, ok := args[1].(string)
	if !ok {
		return nil, fmt.Errorf("%T is not a text to search for", args[1])
	}
	return strings.Contains(strings.ToLower(name), part), nil
}

// ListJobs gives the jobs that are not deleted and pass the filter, newest first,
// with those that have ended if the filter asks for how they did.
func (s *Store) ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page store.Page) (out store.JobList, err error) {
	limit := int(atMost(page.Limit))
	if limit == 0 {
		return store.JobList{Next: page.After.ID}, ctx.Err()
	}
	err = s.read(ctx, "list jobs", func(t *tx) error {
		out, err = t.listJobs(namespace, filter, firstID(page.After.ID), limit, s.look)
		return err
	})
	if err != nil {
		return store.JobList{}, err
	}
	return out, nil
}

// listJobs merges what the walks find, down to where the first of them was not
// followed any further.
func (t *tx) listJobs(namespace string, filter belfry.JobFilter, after belfry.ID, limit, look int) (out store.JobList, err error) {
	args, err := filterArgs(namespace, filter)
	if err != nil {
		return out, err
	}
	args = append(args, sql.Named("after", after[:]))
	for _, way := range walksFor(filter) {
		jobs, floor, err := t.follow(way, args, limit+1, look) // one more tells whether there are more
		if err != nil {
			return out, err
		}
		out.Jobs = append(out.Jobs, jobs...)
		if floor.Compare(out.Next) > 0 {
			out.Next = floor
		}
	}
	out.Jobs = slices.DeleteFunc(out.Jobs, func(j belfry.Job) bool { return j.ID.Compare(out.Next) < 0 })
	slices.SortFunc(out.Jobs, func(a, b belfry.Job) int { return b.ID.Compare(a.ID) })
	if len(out.Jobs) > limit {
		out.Jobs = out.Jobs[:limit]
		out.Next = out.Jobs[limit-1].ID
	}
	return out, nil
}

// follow reads at most so many jobs along a walk. The floor is the last id that was
// looked at; it is zero at the end of the walk.
func (t *tx) follow(way walk, args []any, most, look int) (jobs []belfry.Job, floor belfry.ID, err error) {
	args = slices.Clip(args)
	err = t.get([]any{key{floor[:]}}, way.floor(), append(args, sql.Named("look", look-1))...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, floor, err
	}
	scan := func(rows *sql.Rows, job *belfry.Job) error { return way.scan(t, rows, job) }
	jobs, err = all(t, scan, way.page(), append(args, sql.Named("floor", floor[:]), sql.Named("limit", int64(most)))...)
	if err == nil && len(jobs) == most {
		floor = jobs[most-1].ID
	}
	return jobs, floor, err
}

// filterArgs are the parameters of passes and of the walks.
func filterArgs(namespace string, f belfry.JobFilter) ([]any, error) {
	var tags, tag any // the list, and one of them as it stands in lists
	if len(f.Tags) > 0 {
		list, err := json.Marshal(f.Tags)
		if err != nil {
			return nil, fmt.Errorf("write a list of tags: %w", err)
		}
		one, err := json.Marshal(f.Tags[0])
		if err != nil {
			return nil, fmt.Errorf("write a tag: %w", err)
		}
		tags, tag = string(list), string(one)
	}
	return []any{
		sql.Named("namespace", namespace), sql.Named("queue", f.Queue), sql.Named("type", f.Type), sql.Named("handler", f.Handler),
		sql.Named("tags", tags), sql.Named("tag", tag), sql.Named("search", strings.ToLower(f.Search)), sql.Named("status", string(f.Status)),
	}, nil
}

// firstID is above all ids if a list starts at its beginning.
func firstID(after belfry.ID) belfry.ID {
	if after.IsZero() {
		return belfry.ID(bytes.Repeat([]byte{0xff}, len(after)))
	}
	return after
}
