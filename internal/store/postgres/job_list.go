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
	if err != nil {
		return store.JobList{}, wrapError("list jobs", err)
	}
	return list, nil
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
			if search.filter.Status != "" && job.Status != search.filter.Status {
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
	// Only jobs of type worker have a handler: the index is on both.
	if f.Handler != "" && f.Type != "" && f.Type != belfry.TypeWorker {
		and("false")
	} else if f.Handler != "" {
		and("j.type = 'worker' AND j.handler = %s", s.arg(storable(f.Handler)))
	} else if f.Type != "" && f.Type != belfry.TypeWorker {
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

func jobTrigrams(job *belfry.Job) []int64 {
	if job.Description == "" {
		return textTrigrams(job.Name)
	}
	return textTrigrams(job.Name + "\n" + job.Description)
}

// statusCondition is the filter on the status of a live job j in SQL.
func (s *jobSearch) statusCondition() string {
	if s.source == sourceEnded {
		return "" // scanSQL has it
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
		return ` AND j.state <> 'paused' AND ` + live + ` AND NOT ` + running
	case belfry.StatusScheduled:
		return ` AND j.state <> 'paused' AND EXISTS (SELECT 1 FROM belfry.plans p WHERE p.job_id = j.id AND p.next_at IS NOT NULL) AND NOT ` + live
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
