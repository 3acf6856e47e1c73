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
)

// arg adds an argument and gives its placeholder.
func (p *jobSearch) arg(value any) string {
	p.args = append(p.args, value)
	return fmt.Sprintf("$%d", len(p.args))
}

// source is where jobs are picked from.
type jobSource int

const (
	sourceLive      jobSource = iota // all that are alive
	sourceUnplanned                  // those without a plan, of which only history tells how they ended
	sourceDiscarded                  // the same, if they had a dead letter that somebody gave up
	sourceEnded                      // those that have left the live tables
)

// sourcesOf gives the sources that together have all jobs of a status.
func sourcesFor(status belfry.JobStatus) []jobSource {
	switch status {
	case belfry.StatusCompleted, belfry.StatusCancelled:
		return []jobSource{sourceUnplanned, sourceEnded}
	case belfry.StatusFailed:
		return []jobSource{sourceUnplanned, sourceDiscarded, sourceEnded}
	}
	return []jobSource{sourceLive}
}

// picking finds the ids of jobs that pass a filter, as far as a statement can
// tell: of a job without a plan it is left open how it ended.
type jobSearch struct {
	tx           pgx.Tx
	filter       belfry.JobFilter
	source       jobSource
	started      time.Time
	indexTimeout time.Duration
	args         []any     // the namespace first
	where        string    // the filter, about a job j
	trigrams     [][]int64 // of which a name has all, for one of the lists
}

// picked is a part of a list: ids in its order. Unless that was the end of the
// list, it goes on after next.
type searchResult struct {
	ids  []pgtype.UUID
	end  bool
	next pgtype.UUID
}

func (s *Store) newJobSearch(ctx context.Context, tx pgx.Tx, namespace string, filter belfry.JobFilter, from jobSource) (*jobSearch, error) {
	p := &jobSearch{tx: tx, filter: filter, source: from, started: time.Now(), indexTimeout: indexTimeout, args: []any{namespace}}
	p.where = p.attributeConditions() + p.statusCondition()
	if sought := searchTrigrams(storable(filter.Search)); sought != nil && p.hasIndexes() {
		common, err := s.trigrams.get(ctx, tx)
		if err != nil {
			return nil, err
		}
		p.trigrams = common.selective(sought)
	}
	return p, nil
}

// late tells that no further look should begin.
func (p *jobSearch) timeUp() bool { return time.Since(p.started) > searchTime }

// pick gives up to so many ids from somewhere on. It looks at some jobs one by
// one, which finds what is common; asks the indexes for what is rare; and if
// they do not answer in time, looks at as many jobs as it has time for.
func (p *jobSearch) next(ctx context.Context, from pgtype.UUID, want int) (searchResult, error) {
	var found searchResult
	found.next = from
	if !p.wantsLiveRuns() && p.hasIndexes() {
		enough, err := p.scan(ctx, &found, firstScanLimit, want)
		if !enough && err == nil && len(found.ids)*nextScanLimit/firstScanLimit >= want { // the next look will most likely do
			enough, err = p.scan(ctx, &found, nextScanLimit, want)
		}
		if enough || err != nil {
			return found, err
		}
	}
	if p.indexable() && time.Since(p.started) < p.indexTimeout {
		rest, inTime, err := p.indexQuery(ctx, found.next, want-len(found.ids))
		if err != nil {
			return found, err
		}
		if inTime {
			rest.ids = append(found.ids, rest.ids...)
			return rest, nil
		}
	}
	for {
		if enough, err := p.scan(ctx, &found, nextScanLimit, want); enough || err != nil || p.timeUp() {
			return found, err
		}
	}
}

// indexed tells whether there is more to ask the indexes for than a search that
// they cannot help with.
func (p *jobSearch) indexable() bool {
	f := p.filter
	return p.hasIndexes() && (p.trigrams != nil || f.Queue != "" || f.Type != "" || f.Handler != "" || f.Status != "" || len(f.Tags) > 0)
}

// jumps tells whether the source has indexes for anything but its own order.
func (p *jobSearch) hasIndexes() bool { return p.source == sourceLive || p.source == sourceUnplanned }

// live tells that the filter asks for jobs with live runs, of which there are so
// few that looking at jobs one by one is not worth it.
func (p *jobSearch) wantsLiveRuns() bool {
	return p.filter.Status == belfry.StatusRunning || p.filter.Status == belfry.StatusQueued
}

// walk gives jobs in the order of the list, from somewhere on. The order names
// the namespace too, which leaves one index to do it by: that of all jobs would
// have to pass by those of other namespaces.
func (p *jobSearch) scanSQL(namespace, from, n string) string {
	switch p.source {
	case sourceUnplanned:
		return fmt.Sprintf(`SELECT job_id AS id FROM belfry.plans WHERE next_at IS NULL AND job_id < %s ORDER BY job_id DESC LIMIT %s`, from, n)
	case sourceDiscarded:
		return fmt.Sprintf(`SELECT job_id AS id FROM belfry.history WHERE state = 'discarded' AND job_id < %s ORDER BY job_id DESC LIMIT %s`, from, n)
	case sourceEnded:
		return fmt.Sprintf(`SELECT * FROM belfry.ended WHERE (namespace, status, id) < (%[1]s, '%[2]s', %[3]s) AND (namespace, status) >= (%[1]s, '%[2]s')
			ORDER BY namespace DESC, status DESC, id DESC LIMIT %[4]s`, namespace, p.filter.Status, from, n)
	}
	return fmt.Sprintf(`SELECT * FROM belfry.jobs WHERE (namespace, id) < (%s, %s) AND namespace >= %s AND state <> 'deleted'
		ORDER BY namespace DESC, id DESC LIMIT %s`, namespace, from, namespace, n)
}

// passing gives those that pass the filter of the jobs of a walk.
func (p *jobSearch) filteredSQL(walk string, limit int) string {
	switch p.source {
	case sourceUnplanned, sourceDiscarded: // the OFFSET keeps an index of jobs from coming first
		return fmt.Sprintf(`SELECT j.id FROM (%s) e CROSS JOIN LATERAL (SELECT * FROM belfry.jobs WHERE id = e.id OFFSET 0) j
			WHERE j.namespace = $1 AND j.state <> 'deleted'%s ORDER BY e.id DESC LIMIT %d`, walk, p.where, limit)
	case sourceEnded:
		return fmt.Sprintf(`SELECT j.id FROM (%s) j WHERE true%s ORDER BY j.namespace DESC, j.status DESC, j.id DESC LIMIT %d`, walk, p.where, limit)
	}
	return fmt.Sprintf(`SELECT j.id FROM (%s) j WHERE true%s ORDER BY j.namespace DESC, j.id DESC LIMIT %d`, walk, p.where, limit)
}

// look walks over the next n jobs. It tells whether that was enough: there are
// as many ids as wanted, or no more jobs.
func (p *jobSearch) scan(ctx context.Context, found *searchResult, n, want int) (enough bool, err error) {
	from, size := fmt.Sprintf("$%d::uuid", len(p.args)+1), fmt.Sprintf("$%d::bigint", len(p.args)+2)
	sql := `/* list */ ` + p.filteredSQL(p.scanSQL("$1", from, size), want-len(found.ids))
	ids, err := p.queryIDs(ctx, sql, append(slices.Clip(p.args), found.next, n)...)
	if err != nil {
		return false, err
	}
	found.ids = append(found.ids, ids...)
	if len(found.ids) == want {
		found.next = found.ids[want-1]
		return true, nil
	}
	// Where the walk ended. Not every walk names the namespace, whose type must be known.
	last, err := p.queryIDs(ctx, fmt.Sprintf(`/* list */ SELECT id FROM (%s OFFSET $3::bigint - 1) w WHERE $1::text IS NOT NULL`, p.scanSQL("$1", "$2::uuid", "1")),
		p.args[0], found.next, n)
	if err != nil {
		return false, err
	}
	if len(last) == 0 {
		found.end = true
		return true, nil
	}
	found.next = last[0]
	return false, nil
}

// jump asks for the rest of the page at once. The planner sees the values and
// may use any index, for a limited time.
func (p *jobSearch) indexQuery(ctx context.Context, from pgtype.UUID, want int) (rest searchResult, inTime bool, err error) {
	if _, err := p.tx.Exec(ctx, `SAVEPOINT jump`); err != nil {
		return rest, false, err
	}
	defer func() {
		if undo := p.resetPlanner(ctx); undo != nil && err == nil {
			err = undo
		}
	}()
	if _, err = p.tx.Exec(ctx, freePlanner, fmt.Sprint(p.indexTimeout.Milliseconds())); err != nil {
		return rest, false, err
	}
	sql, args := p.indexSQL(from)
	rest.ids, err = p.queryIDs(ctx, fmt.Sprintf(`/* list */ %s ORDER BY j.id DESC LIMIT %d`, sql, want), args...)
	if sqlState(err) == "57014" && ctx.Err() == nil {
		return searchResult{}, false, nil
	}
	if err != nil {
		return rest, false, err
	}
	if rest.end = len(rest.ids) < want; !rest.end {
		rest.next = rest.ids[want-1]
	}
	return rest, true, nil
}

// land puts the settings back that a jump had, whatever came of it. Until then its
// time limit holds for this too, which on a busy machine may not be enough.
func (p *jobSearch) resetPlanner(ctx context.Context) (err error) {
	for range 10 {
		if _, err = p.tx.Exec(ctx, `ROLLBACK TO SAVEPOINT jump`); sqlState(err) != "57014" {
			break
		}
	}
	return err
}

// statement finds all jobs from somewhere on that pass the filter, in no order.
func (p *jobSearch) indexSQL(from pgtype.UUID) (sql string, args []any) {
	sql, args = `SELECT j.id FROM belfry.jobs j`, append(slices.Clip(p.args), from)
	if p.source == sourceUnplanned {
		sql += ` JOIN belfry.plans e ON e.job_id = j.id AND e.next_at IS NULL`
	}
	sql += fmt.Sprintf(` WHERE j.namespace = $1 AND j.state <> 'deleted' AND j.id < $%d%s`, len(args), p.where)
	if p.trigrams != nil {
		var some []string
		for _, grams := range p.trigrams {
			args = append(args, grams)
			some = append(some, fmt.Sprintf(`j.grams @> $%d::bigint[]`, len(args)))
		}
		sql += ` AND (` + strings.Join(some, ` OR `) + `)`
	}
	if len(p.filter.Tags) > 0 || p.filter.Search != "" {
		// The planner knows little of what these have in common with each other and
		// with the order. Left alone it would walk, hoping to find enough soon.
		sql = `WITH j AS MATERIALIZED (` + sql + `) SELECT j.id FROM j`
	}
	return sql, args
}

// ids asks for ids. There are many forms of such statements, and the values in
// them matter to the planner, so none of them is prepared.
func (p *jobSearch) queryIDs(ctx context.Context, sql string, args ...any) ([]pgtype.UUID, error) {
	rows, err := p.tx.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
}
