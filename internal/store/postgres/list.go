package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Bounds of the search for a page, so that none takes long however few jobs pass
// the filter, and whatever the planner believes of them.
const (
	firstLook = 1000                  // jobs looked at one by one before the indexes are asked
	nextLook  = 8000                  // jobs looked at, time after time, if the indexes do not answer
	mostRead  = 250                   // jobs read at a time to find out how they ended
	jumpTime  = 15 * time.Millisecond // what the indexes may take
	lookTime  = 16 * time.Millisecond // when no further look is begun
)

// beyond comes after every id, as nothing comes after it in a list.
var beyond = pgtype.UUID{Valid: true, Bytes: [16]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}

// after is where a page begins.
func after(id belfry.ID) pgtype.UUID {
	if id.IsZero() {
		return beyond
	}
	return uuid(id)
}

// ListJobs gives the jobs that pass the filter, newest first. Everything is read
// from one snapshot, so that a look and its end belong together.
func (s *Store) ListJobs(ctx context.Context, namespace string, filter belfry.JobFilter, page store.Page) (list store.JobList, err error) {
	if page.Limit < 1 {
		return store.JobList{}, nil
	}
	err = pgx.BeginTxFunc(ctx, s.work, snapshot, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, holdPlanner); err != nil {
			return err
		}
		for _, from := range sourcesOf(filter.Status) {
			p, err := s.newPicking(ctx, tx, namespace, filter, from)
			if err != nil {
				return err
			}
			part, err := s.listJobs(ctx, tx, p, page)
			if err != nil {
				return err
			}
			list = merged(list, part, page.Limit)
		}
		return nil
	})
	if err != nil {
		return store.JobList{}, failed("list jobs", err)
	}
	return list, nil
}

var snapshot = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// holdPlanner leaves the planner one way for the length of a transaction: to
// walk in the order of the list and look up what belongs to each row. A look
// that stops early must not sort or hash first, whatever the planner believes of
// a table that was never analysed. With letPlanner it is free again, for a time.
const (
	holdPlanner = `SELECT set_config(name, 'off', true) FROM unnest(ARRAY['enable_sort', 'enable_incremental_sort', 'enable_hashjoin', 'enable_mergejoin', 'jit']) name`
	letPlanner  = `SELECT set_config(name, 'on', true), set_config('statement_timeout', $1, true) FROM unnest(ARRAY['enable_sort', 'enable_incremental_sort', 'enable_hashjoin', 'enable_mergejoin']) name`
)

// listJobs picks jobs and reads them until the page is full. A status that only
// history tells is found by reading more of them than fit on the page.
func (s *Store) listJobs(ctx context.Context, tx pgx.Tx, p *picking, page store.Page) (list store.JobList, err error) {
	from := after(page.After.ID)
	for want := page.Limit + 1; ; want = max(min(2*want, mostRead), page.Limit+1-len(list.Jobs)) {
		picked, err := p.pick(ctx, from, want)
		if err != nil {
			return list, err
		}
		jobs, err := s.readPicked(ctx, tx, p.from, picked.ids)
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
		if p.from == ofJobs || p.late() {
			list.Next = from.Bytes
			return list, nil
		}
	}
}

// readPicked reads jobs in the order of their ids.
func (s *Store) readPicked(ctx context.Context, tx pgx.Tx, from source, ids []pgtype.UUID) (jobs []belfry.Job, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if from == ofEnded {
		jobs, err = s.readEnded(ctx, tx, `WHERE id = ANY($1)`, ids)
	} else {
		jobs, err = s.readJobs(ctx, tx, `WHERE j.id = ANY($1)`, ids)
	}
	slices.SortFunc(jobs, func(a, b belfry.Job) int { return b.ID.Compare(a.ID) })
	return jobs, err
}

// merged makes one page of two. Each has all jobs down to where it goes on, and so
// has the page.
func merged(a, b store.JobList, limit int) (page store.JobList) {
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
