package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

// variety makes n jobs in two namespaces that differ in everything a filter asks
// for, a fifth of them without a plan.
func variety(t *testing.T, s *Store, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(n)))
	err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
		for i := range n {
			job := newJob(t, s)
			j := &job.Job
			j.ID = belfry.NewID(j.CreatedAt.Add(time.Duration(i/3) * time.Millisecond))
			job.Plan.JobID = j.ID
			j.Name = fmt.Sprintf("Tenant-%d-invoice-%d_100%%", random.IntN(20), i)
			j.Queue = []string{"default", "mail", "rare"}[min(random.IntN(20), 2)]
			if random.IntN(2) == 0 {
				j.Type, j.Handler = belfry.TypeWorker, fmt.Sprint("handler-", random.IntN(5))
			}
			for _, tag := range []string{"a", "b", "c"} {
				if random.IntN(4) == 0 {
					j.Tags = append(j.Tags, tag)
				}
			}
			if random.IntN(10) == 0 {
				j.Namespace = "other"
			}
			switch random.IntN(10) {
			case 0:
				j.State, job.Plan.NextAt = belfry.JobPaused, time.Time{}
			case 1, 2:
				job.Plan.NextAt, job.Plan.NominalAt = time.Time{}, time.Time{}
			}
			if !yield(job, nil) {
				return
			}
		}
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// variousFilters are filters of every kind, alone and together.
var variousFilters = []store.JobFilter{
	{},
	{Queue: "mail"},
	{Queue: "none"},
	{Type: belfry.TypeHTTP},
	{Type: belfry.TypeWorker},
	{Type: "message"},
	{Handler: "handler-1"},
	{Type: belfry.TypeHTTP, Handler: "handler-1"},
	{Tags: []string{"a"}},
	{Tags: []string{"c", "a"}},
	{Tags: []string{"none"}},
	{Search: "TENANT-1"},
	{Search: "-1"},
	{Search: "-Invoice-77_100%"},
	{Search: "nothing like it"},
	{Status: belfry.StatusPaused},
	{Status: belfry.StatusScheduled},
	{Status: belfry.StatusRunning},
	{Status: belfry.StatusQueued},
	{Status: belfry.StatusCancelled},
	{Status: belfry.StatusCompleted},
	{Status: "unheard of"},
	{Queue: "rare", Type: belfry.TypeWorker, Tags: []string{"b"}, Search: "tenant-1", Status: belfry.StatusCancelled},
}

// inSnapshot runs a test of the picking that a list is made of.
func inSnapshot(t *testing.T, s *Store, test func(ctx context.Context, tx pgx.Tx) error) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), s.work, snapshot, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), holdPlanner); err != nil {
			return err
		}
		return test(t.Context(), tx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLookingAndJumpingFindTheSame(t *testing.T) {
	for _, mode := range []string{"", "&default_query_exec_mode=exec"} {
		url := pgtest.Database(t, Migrate)
		s := open(t, Options{URL: url + mode})
		variety(t, s, 2000)
		for _, filter := range variousFilters {
			inSnapshot(t, s, func(ctx context.Context, tx pgx.Tx) error {
				p, err := s.newPicking(ctx, tx, "default", filter)
				if err != nil {
					return err
				}
				jumped, inTime, err := p.patiently().jump(ctx, beyond, 10_000)
				if err != nil || !inTime || !jumped.end {
					return fmt.Errorf("jump for %+v: in time %v, at the end %v: %w", filter, inTime, jumped.end, err)
				}
				for _, size := range []int{7, 333, 2000, 5000} {
					looked := picked{next: beyond}
					for looks := 0; ; looks++ {
						enough, err := p.look(ctx, &looked, size, 10_000)
						if err != nil {
							return fmt.Errorf("look for %+v: %w", filter, err)
						}
						if enough {
							break
						}
						if looks > 2000/size {
							return fmt.Errorf("look for %+v: no end after %d looks at %d jobs", filter, looks, size)
						}
					}
					if !slices.Equal(looked.ids, jumped.ids) {
						t.Errorf("%+v: looking at %d at a time finds %d jobs, jumping %d", filter, size, len(looked.ids), len(jumped.ids))
					}
				}
				return nil
			})
		}
	}
}

// patiently is a picking whose jumps may take as long as they need.
func (p *picking) patiently() *picking {
	q := *p
	q.jumpTime = time.Minute
	return &q
}

// A jump that takes too long is given up, and looking goes on where it was. The
// condition sleeps only where the planner is free, which it is in a jump.
func TestAListGoesOnWithoutTheIndexes(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	variety(t, s, 3*firstLook)
	inSnapshot(t, s, func(ctx context.Context, tx pgx.Tx) error {
		p, err := s.newPicking(ctx, tx, "default", store.JobFilter{Queue: "rare", Tags: []string{"a", "b", "c"}})
		if err != nil {
			return err
		}
		want, _, err := p.patiently().jump(ctx, beyond, 10_000)
		if err != nil {
			return err
		}
		p.where += ` AND (current_setting('enable_sort') = 'off' OR pg_sleep(10) IS NOT NULL)`
		p.started = time.Now()
		var got []pgtype.UUID
		for part := (picked{next: beyond}); !part.end; {
			if part, err = p.pick(ctx, part.next, 10_000); err != nil {
				return err
			}
			got = append(got, part.ids...)
		}
		if len(got) == 0 || !slices.Equal(got, want.ids) {
			t.Errorf("found %d jobs, wants %d", len(got), len(want.ids))
		}
		if took := time.Since(p.started); took > 8*time.Second {
			t.Errorf("that took %v", took)
		}
		return nil
	})
}

func TestPagesOfEverySizeGiveTheSameList(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	variety(t, s, 300)
	for _, filter := range variousFilters {
		whole, err := s.ListJobs(t.Context(), "default", filter, store.Page{Limit: 1000})
		if err != nil || !whole.Next.IsZero() {
			t.Fatalf("%+v: %v, next %v", filter, err, whole.Next)
		}
		for _, limit := range []int{1, 7, 100, max(len(whole.Jobs), 1), len(whole.Jobs) + 1} {
			var got []belfry.ID
			page := store.Page{Limit: limit}
			for pages := 0; pages == 0 || !page.After.IsZero(); pages++ {
				list, err := s.ListJobs(t.Context(), "default", filter, page)
				if err != nil || len(list.Jobs) > limit || pages > len(whole.Jobs)+1 {
					t.Fatalf("%+v, page %d of %d: %d jobs, %v", filter, pages, limit, len(list.Jobs), err)
				}
				for _, job := range list.Jobs {
					got = append(got, job.ID)
				}
				page.After = list.Next
			}
			if !slices.EqualFunc(got, whole.Jobs, func(id belfry.ID, job belfry.Job) bool { return id == job.ID }) {
				t.Errorf("%+v: pages of %d give %d jobs, wants %d", filter, limit, len(got), len(whole.Jobs))
			}
		}
	}
}
