package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
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
	index string // where to walk
	first string // the table of the index, with its conditions
	id    string // of the job in that table
	rest  string // joins from there to the jobs j and plans p
	group string // for a table that may have several rows of a job
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
	}
	alongEnded = walk{
		index: `plans_ended`, first: `plans p INDEXED BY plans_ended WHERE p.next_at IS NULL`, id: `p.job_id`,
		rest: `plans p INDEXED BY plans_ended CROSS JOIN jobs j ON j.id = p.job_id WHERE p.next_at IS NULL AND ` + inNamespace,
	}
)

const inNamespace = `j.namespace = @namespace AND j.state <> 'deleted'`

func walkJobs(index, where string) walk {
	from := `jobs j INDEXED BY ` + index
	where = ` WHERE j.namespace = @namespace AND ` + where
	return walk{index: index, first: from + where, id: `j.id`, rest: from + ` CROSS JOIN plans p ON p.job_id = j.id` + where}
}

// walkFor chooses the walk that passes the fewest jobs in vain.
func walkFor(f store.JobFilter) walk {
	switch {
	case f.Status == belfry.StatusRunning || f.Status == belfry.StatusQueued:
		return alongRuns
	case f.Status == belfry.StatusPaused:
		return alongPaused
	case f.Handler != "":
		return alongHandler
	case f.Status == belfry.StatusCompleted || f.Status == belfry.StatusFailed || f.Status == belfry.StatusCancelled:
		return alongEnded
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
	return selectJob + `FROM ` + w.rest + ` AND ` + w.id + ` < @after AND ` + w.id + ` >= @floor` + passes + w.group +
		` ORDER BY ` + w.id + ` DESC LIMIT @limit`
}

// passes is a filter. Its status is what belfry.StatusOf derives from what
// selectJob reads.
const passes = `
  AND (@queue = '' OR j.queue = @queue) AND (@type = '' OR j.type = @type) AND (@handler = '' OR j.handler = @handler)
  AND (@tags IS NULL OR instr(j.tags, @tag) > 0 AND NOT EXISTS
    (SELECT 1 FROM json_each(@tags) asked WHERE asked.value NOT IN (SELECT has.value FROM json_each(j.tags) has)))
  AND (@search = '' OR belfry_contains(j.name, @search))
  AND (@status = '' OR @status = CASE
    WHEN j.state = 'paused' THEN 'paused'
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id AND r.state = 'running') THEN 'running'
    WHEN EXISTS (SELECT 1 FROM runs r WHERE r.job_id = j.id) THEN 'queued'
    WHEN p.next_at IS NOT NULL THEN 'scheduled'
    WHEN (SELECT max(scheduled_at) FROM dead d WHERE d.job_id = j.id) >= ` + lastSettled + ` THEN 'failed'
    ELSE coalesce((SELECT CASE h.state WHEN 'dead' THEN 'failed' WHEN 'succeeded' THEN 'completed' END
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

// ListJobs gives the jobs that are not deleted and pass the filter, newest first.
func (s *Store) ListJobs(ctx context.Context, namespace string, filter store.JobFilter, page store.Page) (out store.JobList, err error) {
	limit := int(atMost(page.Limit))
	if limit == 0 {
		return store.JobList{Next: page.After}, ctx.Err()
	}
	err = s.read(ctx, "list jobs", func(t *tx) error {
		out, err = t.listJobs(namespace, filter, firstID(page.After), limit, s.look)
		return err
	})
	if err != nil {
		return store.JobList{}, err
	}
	return out, nil
}

func (t *tx) listJobs(namespace string, filter store.JobFilter, after belfry.ID, limit, look int) (out store.JobList, err error) {
	way := walkFor(filter)
	args, err := filterArgs(namespace, filter)
	if err != nil {
		return out, err
	}
	args = append(args, sql.Named("after", after[:]))
	var floor belfry.ID
	err = t.get([]any{key{floor[:]}}, way.floor(), append(args, sql.Named("look", look-1))...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return out, err
	}
	args = append(args, sql.Named("floor", floor[:]), sql.Named("limit", int64(limit)+1)) // one more tells whether there are more
	if out.Jobs, err = all(t, t.scanJob, way.page(), args...); err != nil {
		return out, err
	}
	out.Next = floor
	if len(out.Jobs) > limit {
		out.Jobs = out.Jobs[:limit]
		out.Next = out.Jobs[limit-1].ID
	}
	return out, nil
}

// filterArgs are the parameters of passes and of the walks.
func filterArgs(namespace string, f store.JobFilter) ([]any, error) {
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
