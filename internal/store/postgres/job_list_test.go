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

// createVariousJobs creates n jobs in two namespaces that differ in everything that a
// filter has, a fifth of them without a plan.
func createVariousJobs(t *testing.T, s *Store, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(n)))
	err := s.CreateJobs(t.Context(), func(yield func(store.NewJob, error) bool) {
		for i := range n {
			job := newJob(t, s)
			j := &job.Job
			j.ID = belfry.NewID(j.CreatedAt.Add(time.Duration(i/3) * time.Millisecond))
			job.Plan.JobID = j.ID
			job.Plan.NextAt, job.Plan.NominalAt = job.Plan.NextAt.Add(24*time.Hour), job.Plan.NominalAt.Add(24*time.Hour) // none becomes due meanwhile
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

// jobFilters are conditions of every kind, alone and together.
var jobFilters = []belfry.JobFilter{
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

func TestJobSearchScanAndIndexQueryAgree(t *testing.T) {
	for _, mode := range []string{"", "&default_query_exec_mode=exec"} {
		url := pgtest.Database(t, Migrate)
		s := open(t, Options{URL: url + mode})
		createVariousJobs(t, s, 2000)
		for _, filter := range jobFilters {
			err := s.scanSnapshot(t.Context(), func(tx pgx.Tx) error {
				search, err := s.newJobSearch(t.Context(), tx, "default", filter, sourcesFor(filter.Status)[0])
				if err != nil {
					return err
				}
				indexed, inTime, err := search.withoutTimeout().indexQuery(t.Context(), maxUUID, 10_000)
				if err != nil || !inTime || !indexed.end {
					return fmt.Errorf("index query for %+v: in time %v, at the end %v: %w", filter, inTime, indexed.end, err)
				}
				for _, size := range []int{7, 333, 2000, 5000} {
					scanned := searchResult{next: maxUUID}
					for scans := 0; ; scans++ {
						enough, err := search.scan(t.Context(), &scanned, size, 10_000)
						if err != nil {
							return fmt.Errorf("scan for %+v: %w", filter, err)
						}
						if enough {
							break
						}
						if scans > 2000/size {
							return fmt.Errorf("scan for %+v: no end after %d scans of %d jobs", filter, scans, size)
						}
					}
					if !slices.Equal(scanned.ids, indexed.ids) {
						t.Errorf("%+v: scans of %d find %d jobs, the index query %d", filter, size, len(scanned.ids), len(indexed.ids))
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

// withoutTimeout is a search whose index queries may take as long as they need.
func (s *jobSearch) withoutTimeout() *jobSearch {
	patient := *s
	patient.indexTimeout = time.Minute
	return &patient
}

// An index query that takes too long is cancelled, and scanning continues. The condition
// sleeps only with the planner settings of an index query.
func TestJobSearchContinuesAfterIndexTimeout(t *testing.T) {
	s := openEmpty(t)
	createVariousJobs(t, s, 3*firstScanLimit)
	err := s.scanSnapshot(t.Context(), func(tx pgx.Tx) error {
		search, err := s.newJobSearch(t.Context(), tx, "default", belfry.JobFilter{Queue: "rare", Tags: []string{"a", "b", "c"}}, sourceLive)
		if err != nil {
			return err
		}
		want, _, err := search.withoutTimeout().indexQuery(t.Context(), maxUUID, 10_000)
		if err != nil {
			return err
		}
		search.where += ` AND (current_setting('enable_sort') = 'off' OR pg_sleep(10) IS NOT NULL)`
		search.started = time.Now()
		var got []pgtype.UUID
		for part := (searchResult{next: maxUUID}); !part.end; {
			if part, err = search.next(t.Context(), part.next, 10_000); err != nil {
				return err
			}
			got = append(got, part.ids...)
		}
		if len(got) == 0 || !slices.Equal(got, want.ids) {
			t.Errorf("found %d jobs, want %d", len(got), len(want.ids))
		}
		if took := time.Since(search.started); took > 8*time.Second {
			t.Errorf("that took %v", took)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// endJobs archives some of the jobs without a plan, with any status, and gives others a
// dead letter or a discarded one.
func endJobs(t *testing.T, s *Store) {
	t.Helper()
	for _, sql := range []string{
		`CREATE TABLE unplanned AS SELECT j.*, row_number() OVER (ORDER BY j.id) AS n FROM belfry.jobs j JOIN belfry.plans p ON p.job_id = j.id
			WHERE p.next_at IS NULL AND j.state = 'active'`,
		`INSERT INTO belfry.ended (id, shard, namespace, name, tags, revision, status, spec, payload, queue, type, handler, created_at, updated_at, ended_at)
			SELECT id, shard, namespace, name, tags, revision, (ARRAY['completed', 'failed', 'cancelled'])[1 + n % 3], spec, payload, queue, type, handler, created_at, updated_at, clock_timestamp()
			  FROM unplanned WHERE n % 5 < 2`,
		`DELETE FROM belfry.jobs WHERE id IN (SELECT id FROM unplanned WHERE n % 5 < 2)`,
		`DELETE FROM belfry.plans WHERE job_id IN (SELECT id FROM unplanned WHERE n % 5 < 2)`,
		`UPDATE belfry.plans SET runs_made = 3 WHERE job_id IN (SELECT id FROM unplanned WHERE n % 5 IN (2, 3))`,
		`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
				attempt, settled_at, http_status, error, output, skipped_count)
			SELECT gen_random_uuid(), shard, namespace, id, 1, 'scheduled', CASE WHEN n % 10 = 2 THEN 'succeeded' ELSE 'discarded' END, '', at, at, at, id, 1, 1, at, 200, '', '', 0
			  FROM unplanned CROSS JOIN (VALUES (clock_timestamp()), (clock_timestamp() - interval '1 day')) v (at) WHERE n % 5 IN (2, 3)`,
		`INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
				timeout_ms, attempt, failures, lost, died_at, fingerprint)
			SELECT gen_random_uuid(), shard, namespace, id, 1, 'scheduled', 'x', 'out_of_retries', at, at, at, id, 1, 1, 1, 1, 0, at, 'x'
			  FROM unplanned CROSS JOIN (SELECT clock_timestamp() + CASE WHEN random() < 0.5 THEN interval '1 hour' ELSE interval '-1 hour' END AS at) v WHERE n % 5 = 3 AND n % 2 = 0`,
	} {
		execSQL(t, s, sql)
	}
}

// A list has the jobs that pass its filter one by one: ended jobs only if the filter has
// their status.
func TestListJobsIncludesEndedByStatus(t *testing.T) {
	s := openEmpty(t)
	createVariousJobs(t, s, 400)
	endJobs(t, s)
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
	ended := 0
	for _, base := range jobFilters {
		for _, status := range []belfry.JobStatus{"", belfry.StatusCompleted, belfry.StatusFailed, belfry.StatusCancelled, belfry.StatusScheduled} {
			filter := base
			filter.Status = status
			var want []belfry.ID
			for _, job := range all {
				if matchesJobFilter(job, filter) {
					want = append(want, job.ID)
				}
				if job.State == belfry.JobEnded && matchesJobFilter(job, filter) {
					ended++
				}
			}
			for _, limit := range []int{17, 1000} {
				if got := listJobIDs(t, s, filter, limit); !slices.Equal(got, want) {
					t.Errorf("%+v: pages of %d give %d jobs, want %d", filter, limit, len(got), len(want))
				}
			}
		}
	}
	if ended < 50 {
		t.Errorf("only %d of the listed jobs had ended", ended)
	}
}

func matchesJobFilter(job belfry.Job, f belfry.JobFilter) bool {
	for _, tag := range f.Tags {
		if !slices.Contains(job.Tags, tag) {
			return false
		}
	}
	return (f.Status == job.Status || f.Status == "" && job.State != belfry.JobEnded) && (f.Type == "" || job.Type == f.Type) && (f.Handler == "" || job.Handler == f.Handler) &&
		(f.Queue == "" || job.Queue == f.Queue) && strings.Contains(strings.ToLower(job.Name), strings.ToLower(f.Search))
}

// listJobIDs reads all pages of a list.
func listJobIDs(t *testing.T, s *Store, filter belfry.JobFilter, limit int) (ids []belfry.ID) {
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

func TestListJobsPageSizes(t *testing.T) {
	s := openEmpty(t)
	createVariousJobs(t, s, 300)
	endJobs(t, s)
	for _, filter := range jobFilters {
		whole, err := s.ListJobs(t.Context(), "default", filter, store.Page{Limit: 1000})
		if err != nil || !whole.Next.IsZero() {
			t.Fatalf("%+v: %v, next %v", filter, err, whole.Next)
		}
		for _, limit := range []int{1, 7, 100, max(len(whole.Jobs), 1), len(whole.Jobs) + 1} {
			got := listJobIDs(t, s, filter, limit)
			if !slices.EqualFunc(got, whole.Jobs, func(id belfry.ID, job belfry.Job) bool { return id == job.ID }) {
				t.Errorf("%+v: pages of %d give %d jobs, want %d", filter, limit, len(got), len(whole.Jobs))
			}
		}
	}
}
