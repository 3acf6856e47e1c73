package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Bounds of the search for a page, so that none takes long however few jobs pass
// the filter, and whatever the planner believes of them.
const (
	firstScanLimit = 1000                  // jobs looked at one by one before the indexes are asked
	nextScanLimit  = 8000                  // jobs looked at, time after time, if the indexes do not answer
	maxReadJobs    = 250                   // jobs read at a time to find out how they ended
	indexTimeout   = 15 * time.Millisecond // what the indexes may take
	searchTime     = 16 * time.Millisecond // when no further look is begun
)

// beyond comes after every id, as nothing comes after it in a list.
var maxUUID = pgtype.UUID{Valid: true, Bytes: [16]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}

// after is where a page begins.
func startAfter(id belfry.ID) pgtype.UUID {
	if id.IsZero() {
		return maxUUID
	}
	return uuid(id)
}

// ListJobs gives the jobs that pass the filter, newest first. Everything is read
// from one snapshot, so that a look and its end belong together.
func (s *Store) ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page store.Page) (list store.JobList, err error) {
	if page.Limit < 1 {
		return store.JobList{}, nil
	}
	err = pgx.BeginTxFunc(ctx, s.pool, snapshotOptions, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, restrictPlanner); err != nil {
			return err
		}
		for _, from := range sourcesFor(filter.Status) {
			p, err := s.newJobSearch(ctx, tx, namespace, filter, from)
			if err != nil {
				return err
			}
			part, err := s.listJobs(ctx, tx, p, page)
			if err != nil {
				return err
			}
			list = mergeJobLists(list, part, page.Limit)
		}
		return nil
	})
	if err != nil {
		return store.JobList{}, wrapError("list jobs", err)
	}
	return list, nil
}

// listJobs picks jobs and reads them until the page is full. A status that only
// history tells is found by reading more of them than fit on the page.
func (s *Store) listJobs(ctx context.Context, tx pgx.Tx, p *jobSearch, page store.Page) (list store.JobList, err error) {
	from := startAfter(page.After.ID)
	for want := page.Limit + 1; ; want = max(min(2*want, maxReadJobs), page.Limit+1-len(list.Jobs)) {
		picked, err := p.next(ctx, from, want)
		if err != nil {
			return list, err
		}
		jobs, err := s.readFound(ctx, tx, p.source, picked.ids)
		if err != nil {
			return list, err
		}
		for _, job := range jobs {
			if p.filter.Status != "" && job.Status != p.filter.Status {
				continue
			}
			if len(list.Jobs) == page.Limit {
				list.Next = list.Jobs[page.Limit-1].ID
				return list, nil
			}
			list.Jobs = append(list.Jobs, job)
		}
		if picked.end {
			return list, nil
		}
		from = picked.next
		if p.source == sourceLive || p.timeUp() {
			list.Next = from.Bytes
			return list, nil
		}
	}
}

// readPicked reads jobs in the order of their ids.
func (s *Store) readFound(ctx context.Context, tx pgx.Tx, from jobSource, ids []pgtype.UUID) (jobs []belfry.Job, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if from == sourceEnded {
		jobs, err = s.readEnded(ctx, tx, `WHERE id = ANY($1)`, ids)
	} else {
		jobs, err = s.readJobs(ctx, tx, `WHERE j.id = ANY($1)`, ids)
	}
	slices.SortFunc(jobs, func(a, b belfry.Job) int { return b.ID.Compare(a.ID) })
	return jobs, err
}

// merged makes one page of two. Each has all jobs down to where it goes on, and so
// has the page.
func mergeJobLists(a, b store.JobList, limit int) (page store.JobList) {
	page.Next = a.Next
	if b.Next.Compare(a.Next) > 0 {
		page.Next = b.Next
	}
	all := slices.Concat(a.Jobs, b.Jobs)
	slices.SortFunc(all, func(a, b belfry.Job) int { return b.ID.Compare(a.ID) })
	all = slices.CompactFunc(all, func(a, b belfry.Job) bool { return a.ID == b.ID })
	page.Jobs = slices.DeleteFunc(all, func(job belfry.Job) bool { return job.ID.Compare(page.Next) < 0 })
	if len(page.Jobs) > limit {
		page.Jobs = page.Jobs[:limit]
		page.Next = page.Jobs[limit-1].ID
	}
	return page
}

// attributes says the filter in SQL, about a job j, but for its status.
func (p *jobSearch) attributeConditions() string {
	var b strings.Builder
	and := func(format string, args ...any) { fmt.Fprintf(&b, " AND "+format, args...) }
	f := p.filter
	if f.Queue != "" {
		and("j.queue = %s", p.arg(storable(f.Queue)))
	}
	if f.Type != "" {
		and("j.type = %s", p.arg(storable(f.Type)))
	}
	// Only jobs of type worker have a handler: to say so makes an index useful.
	if f.Handler != "" && f.Type != "" && f.Type != belfry.TypeWorker {
		and("false")
	} else if f.Handler != "" {
		and("j.type = 'worker' AND j.handler = %s", p.arg(storable(f.Handler)))
	} else if f.Type != "" && f.Type != belfry.TypeWorker {
		and("j.handler IS NULL")
	}
	if len(f.Tags) > 0 {
		and("j.tags @> %s::text[]", p.arg(storables(f.Tags)))
	}
	if f.Search != "" {
		and("%s", p.nameCondition(storable(f.Search)))
	}
	return b.String()
}

// status says in SQL what the filter asks for of the status of a live job j.
func (p *jobSearch) statusCondition() string {
	if p.source == sourceEnded {
		return "" // the walk asks for it
	}
	const live, running = `EXISTS (SELECT 1 FROM belfry.runs r WHERE r.job_id = j.id)`, `EXISTS (SELECT 1 FROM belfry.runs r WHERE r.job_id = j.id AND r.state = 'running')`
	switch p.filter.Status {
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
		return ` AND j.state <> 'paused' AND NOT ` + live + p.source.statusCondition(p.filter.Status)
	}
	return ` AND false`
}

// search says that a name has a part, whatever the case of its letters. Plain
// letters are folded without asking the collation, which takes a third of the
// time.
func (p *jobSearch) nameCondition(part string) string {
	collation, pattern := containsPattern(part)
	return fmt.Sprintf(`j.name%s ILIKE %s`, collation, p.arg(pattern))
}

// partly is the pattern of texts that have a part, and how to compare by it.
func containsPattern(part string) (collation, pattern string) {
	if !strings.ContainsFunc(part, func(r rune) bool { return r > unicode.MaxASCII }) {
		collation = ` COLLATE "C"`
	}
	return collation, "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part) + "%"
}

// condition says in SQL what else the jobs of a source have that ended so.
func (s jobSource) statusCondition(status belfry.JobStatus) string {
	switch {
	case s == sourceUnplanned && status == belfry.StatusFailed:
		return ` AND EXISTS (SELECT 1 FROM belfry.dead d WHERE d.job_id = j.id)`
	case s == sourceDiscarded:
		return ` AND EXISTS (SELECT 1 FROM belfry.plans p WHERE p.job_id = j.id AND p.next_at IS NULL)`
	}
	return ""
}
