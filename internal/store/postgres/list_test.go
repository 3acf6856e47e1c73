package postgres

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
var variousFilters = []belfry.JobFilter{
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

func TestLookingAndJumpingFindTheSame(t *testing.T) {
	for _, mode := range []string{"", "&default_query_exec_mode=exec"} {
		url := pgtest.Database(t, Migrate)
		s := open(t, Options{URL: url + mode})
		variety(t, s, 2000)
		for _, filter := range variousFilters {
			err := s.scanSnapshot(t.Context(), func(tx pgx.Tx) error {
				p, err := s.newJobSearch(t.Context(), tx, "default", filter, sourcesFor(filter.Status)[0])
				if err != nil {
					return err
				}
				jumped, inTime, err := p.patiently().indexQuery(t.Context(), maxUUID, 10_000)
				if err != nil || !inTime || !jumped.end {
					return fmt.Errorf("jump for %+v: in time %v, at the end %v: %w", filter, inTime, jumped.end, err)
				}
				for _, size := range []int{7, 333, 2000, 5000} {
					looked := searchResult{next: maxUUID}
					for looks := 0; ; looks++ {
						enough, err := p.scan(t.Context(), &looked, size, 10_000)
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
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// patiently is a picking whose jumps may take as long as they need.
func (p *jobSearch) patiently() *jobSearch {
	q := *p
	q.indexTimeout = time.Minute
	return &q
}

// A jump that takes too long is given up, and looking goes on where it was. The
// condition sleeps only where the planner is free, which it is in a jump.
func TestAListGoesOnWithoutTheIndexes(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	variety(t, s, 3*firstScanLimit)
	err := s.scanSnapshot(t.Context(), func(tx pgx.Tx) error {
		p, err := s.newJobSearch(t.Context(), tx, "default", belfry.JobFilter{Queue: "rare", Tags: []string{"a", "b", "c"}}, sourceLive)
		if err != nil {
			return err
		}
		want, _, err := p.patiently().indexQuery(t.Context(), maxUUID, 10_000)
		if err != nil {
			return err
		}
		p.where += ` AND (current_setting('enable_sort') = 'off' OR pg_sleep(10) IS NOT NULL)`
		p.started = time.Now()
		var got []pgtype.UUID
		for part := (searchResult{next: maxUUID}); !part.end; {
			if part, err = p.next(t.Context(), part.next, 10_000); err != nil {
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
	if err != nil {
		t.Fatal(err)
	}
}

// endings has some of the jobs without a plan leave the live tables, in any way, and
// gives others a dead letter, or one that somebody gave up.
func endings(t *testing.T, s *Store) {
	t.Helper()
	for _, sql := range []string{
		`CREATE TABLE fates AS SELECT j.*, row_number() OVER (ORDER BY j.id) AS n FROM belfry.jobs j JOIN belfry.plans p ON p.job_id = j.id
			WHERE p.next_at IS NULL AND j.state = 'active'`,
		`INSERT INTO belfry.ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, ended_at)
			SELECT id, shard, namespace, name, tags, revision, (ARRAY['completed', 'failed', 'cancelled'])[1 + n % 3], spec, payload, queue, type, handler, created_at, updated_at, clock_timestamp()
			  FROM fates WHERE n % 5 < 2`,
		`DELETE FROM belfry.jobs WHERE id IN (SELECT id FROM fates WHERE n % 5 < 2)`,
		`DELETE FROM belfry.plans WHERE job_id IN (SELECT id FROM fates WHERE n % 5 < 2)`,
		`UPDATE belfry.plans SET runs_made = 3 WHERE job_id IN (SELECT id FROM fates WHERE n % 5 IN (2, 3))`,
		`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
				attempt, settled_at, http_status, error, output, skipped_count)
			SELECT gen_random_uuid(), shard, namespace, id, 1, 'scheduled', CASE WHEN n % 10 = 2 THEN 'succeeded' ELSE 'discarded' END, '', at, at, at, id, 1, 1, at, 200, '', '', 0
			  FROM fates CROSS JOIN (VALUES (clock_timestamp()), (clock_timestamp() - interval '1 day')) v (at) WHERE n % 5 IN (2, 3)`,
		`INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
				timeout_ms, attempt, failures, lost, died_at, fingerprint)
			SELECT gen_random_uuid(), shard, namespace, id, 1, 'scheduled', 'x', 'out_of_retries', at, at, at, id, 1, 1, 1, 1, 0, at, 'x'
			  FROM fates CROSS JOIN (SELECT clock_timestamp() + CASE WHEN random() < 0.5 THEN interval '1 hour' ELSE interval '-1 hour' END AS at) v WHERE n % 5 = 3 AND n % 2 = 0`,
	} {
		change(t, s, sql)
	}
}

// A list has the jobs that pass its filter, looked at one by one: those that have
// ended only where their status is asked for.
func TestJobsThatEndedAreListedWithTheOthers(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	variety(t, s, 400)
	endings(t, s)
	ids, err := collectIDs(t.Context(), s.pool, `SELECT id FROM belfry.jobs WHERE namespace = 'default' UNION ALL SELECT id FROM belfry.ended WHERE namespace = 'default' ORDER BY id DESC`)
	if err != nil {
		t.Fatal(err)
	}
	var all []belfry.Job
	for _, id := range ids {
		job, err := s.Job(t.Context(), "default", id.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, job)
	}
	over := 0
	for _, base := range variousFilters {
		for _, status := range []belfry.JobStatus{"", belfry.StatusCompleted, belfry.StatusFailed, belfry.StatusCancelled, belfry.StatusScheduled} {
			filter := base
			filter.Status = status
			var want []belfry.ID
			for _, job := range all {
				if suits(job, filter) {
					want = append(want, job.ID)
				}
				if job.State == belfry.JobEnded && suits(job, filter) {
					over++
				}
			}
			for _, limit := range []int{17, 1000} {
				if got := listed(t, s, filter, limit); !slices.Equal(got, want) {
					t.Errorf("%+v: pages of %d give %d jobs, wants %d", filter, limit, len(got), len(want))
				}
			}
		}
	}
	if over < 50 {
		t.Errorf("only %d of what was asked for had ended", over)
	}
}

// suits tells whether a job passes a filter.
func suits(job belfry.Job, f belfry.JobFilter) bool {
	for _, tag := range f.Tags {
		if !slices.Contains(job.Tags, tag) {
			return false
		}
	}
	return (f.Status == job.Status || f.Status == "" && job.State != belfry.JobEnded) && (f.Type == "" || job.Type == f.Type) && (f.Handler == "" || job.Handler == f.Handler) &&
		(f.Queue == "" || job.Queue == f.Queue) && strings.Contains(strings.ToLower(job.Name), strings.ToLower(f.Search))
}

// listed gives the ids of a list, page by page.
func listed(t *testing.T, s *Store, filter belfry.JobFilter, limit int) (ids []belfry.ID) {
	t.Helper()
	page := store.Page{Limit: limit}
	for pages := 0; pages == 0 || !page.After.ID.IsZero(); pages++ {
		list, err := s.ListJobs(t.Context(), "default", filter, page)
		if err != nil || len(list.Jobs) > limit || pages > 1000 {
			t.Fatalf("%+v, page %d of %d: %d jobs, %v", filter, pages, limit, len(list.Jobs), err)
		}
		for _, job := range list.Jobs {
			ids = append(ids, job.ID)
		}
		page.After.ID = list.Next
	}
	return ids
}

func TestPagesOfEverySizeGiveTheSameList(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	variety(t, s, 300)
	endings(t, s)
	for _, filter := range variousFilters {
		whole, err := s.ListJobs(t.Context(), "default", filter, store.Page{Limit: 1000})
		if err != nil || !whole.Next.IsZero() {
			t.Fatalf("%+v: %v, next %v", filter, err, whole.Next)
		}
		for _, limit := range []int{1, 7, 100, max(len(whole.Jobs), 1), len(whole.Jobs) + 1} {
			got := listed(t, s, filter, limit)
			if !slices.EqualFunc(got, whole.Jobs, func(id belfry.ID, job belfry.Job) bool { return id == job.ID }) {
				t.Errorf("%+v: pages of %d give %d jobs, wants %d", filter, limit, len(got), len(whole.Jobs))
			}
		}
	}
}
