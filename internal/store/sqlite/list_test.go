package sqlite

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// fillJobs writes many jobs behind the store's back. The nth one, from 1, is the
// nth by age and named after its number.
func fillJobs(tb testing.TB, s *Store, n int) {
	tb.Helper()
	model := newJob(tb, s, s.Now(), "* * * * *")
	create(tb, s, model)
	fill(tb, s, n, `INSERT INTO jobs (id, shard, namespace, name, revision, state, spec, payload, created_at, updated_at, tags, queue, type, handler)
SELECT unhex(printf('%032x', i)), shard, namespace, 'job number ' || i, 1, state, spec, payload, created_at, updated_at, '["all"]', queue, type, ''
FROM jobs, n`)
	fill(tb, s, n, `INSERT INTO plans (job_id, shard, version, next_at, nominal_at, fired_for, runs_made, zone_version) SELECT unhex(printf('%032x', i)), shard, 1, next_at, nominal_at, NULL, 0, zone_version FROM plans, n`)
	fill(tb, s, 0, `DELETE FROM jobs WHERE name IS NULL`)
	fill(tb, s, 0, `DELETE FROM plans WHERE job_id = ?`, model.Job.ID[:])
}

// nth is the id of the nth row that was filled in.
func nth(n int) (id belfry.ID) {
	for i := len(id) - 1; n > 0; i, n = i-1, n>>8 {
		id[i] = byte(n)
	}
	return id
}

// TestAPageReadsABoundedNumberOfJobs searches for few among many: every page ends after
// as many rows as it may read, and none is lost.
func TestAPageReadsABoundedNumberOfJobs(t *testing.T) {
	s := openStore(t)
	const perPage, jobs = 800, 2000
	s.ScanLimit = perPage
	fillJobs(t, s, jobs)
	fill(t, s, 0, `UPDATE jobs SET name = 'Nadel ' || id, tags = '["all","needle"]' WHERE id IN (?, ?)`, slice(nth(1)), slice(nth(perPage+7)))
	for _, tt := range []struct {
		name   string
		filter belfry.JobFilter
		want   []belfry.ID
		pages  int
	}{
		{"by name", belfry.JobFilter{Search: "nADEL"}, []belfry.ID{nth(perPage + 7), nth(1)}, 3},
		{"by tags", belfry.JobFilter{Tags: []string{"needle", "all"}}, []belfry.ID{nth(perPage + 7), nth(1)}, 3},
		{"by name in a queue", belfry.JobFilter{Search: "nadel", Queue: belfry.DefaultQueue}, []belfry.ID{nth(perPage + 7), nth(1)}, 3},
		{"by name in a type", belfry.JobFilter{Search: "nadel", Type: "echo"}, []belfry.ID{nth(perPage + 7), nth(1)}, 3},
		{"by name and status", belfry.JobFilter{Search: "nadel", Status: belfry.StatusScheduled}, []belfry.ID{nth(perPage + 7), nth(1)}, 3},
		{"in a queue that is empty", belfry.JobFilter{Queue: "empty"}, nil, 1},
		{"of a status that none has", belfry.JobFilter{Status: belfry.StatusRunning}, nil, 1},
		{"of another", belfry.JobFilter{Status: belfry.StatusFailed}, nil, 1},
		{"paused", belfry.JobFilter{Status: belfry.StatusPaused}, nil, 1},
	} {
		var got []belfry.ID
		pages, page := 0, store.Page{Limit: 10}
		for next := (belfry.ID{1}); !next.IsZero(); page.After.ID = next {
			list, err := s.ListJobs(ctx, belfry.DefaultNamespace, tt.filter, page)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			for _, job := range list.Jobs {
				got = append(got, job.ID)
			}
			pages, next = pages+1, list.Next
		}
		if !slices.Equal(got, tt.want) || pages != tt.pages {
			t.Errorf("%s: %v on %d pages, wants %v on %d", tt.name, got, pages, tt.want, tt.pages)
		}
	}
}

func slice(id belfry.ID) []byte { return id[:] }

const (
	fillRuns = `INSERT INTO runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms,
  attempt, failures, lost)
SELECT unhex(printf('%032x', i + 1)), 0, 'theirs', zeroblob(16), 1, 'scheduled', 'l', 'ready', 0, 0, 0, 0, zeroblob(16), 1, 1, 0, 0, 0 FROM n`

	fillHistory = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, attempt,
  settled_at, http_status, error, output, skipped_count)
SELECT unhex(printf('%032x', i + 1000000)), 0, 'default', zeroblob(16), 1, 'scheduled', 'succeeded', '', 0, 0, 0, zeroblob(16), 1, 1, 0, 0, '', '', 0 FROM n`
)

// TestAPageReadsABoundedNumberOfRuns searches few runs among many, in several tables.
func TestAPageReadsABoundedNumberOfRuns(t *testing.T) {
	s := openStore(t)
	const perPage = 800
	s.ScanLimit = perPage
	fill(t, s, perPage+100, fillRuns)
	fill(t, s, perPage+100, fillHistory)
	fill(t, s, 0, `UPDATE runs SET namespace = 'default' WHERE id IN (?, ?)`, slice(nth(2)), slice(nth(perPage)))
	fill(t, s, 0, `UPDATE history SET state = 'skipped' WHERE id IN (?, ?)`, slice(nth(1_000_001)), slice(nth(1_000_000+perPage)))
	for _, tt := range []struct {
		state belfry.RunStatus
		want  []belfry.ID
		pages int
	}{
		{belfry.RunReady, []belfry.ID{nth(perPage), nth(2)}, 2},
		{belfry.RunSkipped, []belfry.ID{nth(1_000_000 + perPage), nth(1_000_001)}, 2},
		{belfry.RunRunning, nil, 1},
		{belfry.RunDead, nil, 1},
		{belfry.RunWaiting, nil, 2},
	} {
		var got []belfry.ID
		pages, page := 0, store.Page{Limit: 10}
		for next := (belfry.ID{1}); !next.IsZero(); page.After.ID = next {
			list, err := s.ListRuns(ctx, belfry.DefaultNamespace, belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: tt.state}}, page)
			if err != nil {
				t.Fatalf("%s: %v", tt.state, err)
			}
			for _, run := range list.Runs {
				got = append(got, run.ID)
			}
			pages, next = pages+1, list.Next
		}
		if !slices.Equal(got, tt.want) || pages != tt.pages {
			t.Errorf("%s: %v on %d pages, wants %v on %d", tt.state, got, pages, tt.want, tt.pages)
		}
	}
	// All states at once: the tables are merged without a gap.
	seen, page := map[belfry.ID]bool{}, store.Page{Limit: 100}
	for next := (belfry.ID{1}); !next.IsZero(); page.After.ID = next {
		list, err := s.ListRuns(ctx, belfry.DefaultNamespace, belfry.RunFilter{}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range list.Runs {
			if seen[run.ID] || !page.After.ID.IsZero() && run.ID.Compare(page.After.ID) >= 0 {
				t.Fatalf("the run %s is out of order after %s", run.ID, page.After.ID)
			}
			seen[run.ID] = true
		}
		next = list.Next
	}
	if want := perPage + 102; len(seen) != want {
		t.Errorf("%d runs are listed, wants %d", len(seen), want)
	}
}

// TestARunWithSeveralRowsIsListedOnce has one id in several places, as a
// database does that was restored.
func TestARunWithSeveralRowsIsListedOnce(t *testing.T) {
	s := openStore(t)
	fill(t, s, 3, fillHistory)
	for i := range 3 {
		fill(t, s, 0, fmt.Sprintf(`INSERT INTO history SELECT * FROM history WHERE id = ? AND settled_at = %d`, i), slice(nth(1_000_002)))
		fill(t, s, 0, `UPDATE history SET settled_at = (SELECT max(settled_at) + 1 FROM history) WHERE rowid = (SELECT max(rowid) FROM history)`)
	}
	for limit := 1; limit <= 7; limit++ {
		var got []belfry.ID
		page := store.Page{Limit: limit}
		for next := (belfry.ID{1}); !next.IsZero(); page.After.ID = next {
			list, err := s.ListRuns(ctx, belfry.DefaultNamespace, belfry.RunFilter{}, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range list.Runs {
				got = append(got, run.ID)
				if run.ID == nth(1_000_002) && !run.FinishedAt.Equal(time.UnixMicro(3)) {
					t.Errorf("listed is the one of %v, wants the latest", run.FinishedAt)
				}
			}
			next = list.Next
		}
		if want := []belfry.ID{nth(1_000_003), nth(1_000_002), nth(1_000_001)}; !slices.Equal(got, want) {
			t.Errorf("pages of %d have %v, wants %v", limit, got, want)
		}
	}
}

// BenchmarkList asks for pages of a fleet of jobs through filters that let hardly
// anything pass, and says how long the slowest in a hundred takes.
func BenchmarkList(b *testing.B) {
	s := openStore(b)
	fillJobs(b, s, 200_000)
	fill(b, s, 0, `UPDATE jobs SET state = 'paused' WHERE id = ?`, slice(nth(3)))
	for _, bb := range []struct {
		name   string
		filter belfry.JobFilter
	}{
		{"everything", belfry.JobFilter{}},
		{"search in vain", belfry.JobFilter{Search: "Nadel"}},
		{"search for most", belfry.JobFilter{Search: "NUMBER"}},
		{"tag in vain", belfry.JobFilter{Tags: []string{"needle"}}},
		{"queue and search", belfry.JobFilter{Queue: belfry.DefaultQueue, Search: "Nadel"}},
		{"scheduled and search", belfry.JobFilter{Status: belfry.StatusScheduled, Search: "Nadel"}},
		{"paused", belfry.JobFilter{Status: belfry.StatusPaused}},
		{"running", belfry.JobFilter{Status: belfry.StatusRunning}},
		{"failed", belfry.JobFilter{Status: belfry.StatusFailed}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var took []time.Duration
			page := store.Page{Limit: 100}
			for b.Loop() {
				start := time.Now()
				list, err := s.ListJobs(ctx, belfry.DefaultNamespace, bb.filter, page)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				page.After.ID = list.Next
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// TestZoneUpdateReadsABoundedNumberOfPlans looks for few among many: every call ends after as
// many plans as it may read, and none is lost.
func TestZoneUpdateReadsABoundedNumberOfPlans(t *testing.T) {
	s := openStore(t)
	const perPage, jobs = 800, 2400
	s.ScanLimit = perPage
	fillJobs(t, s, jobs)
	fill(t, s, 0, `UPDATE plans SET zone_version = '1999a' WHERE job_id IN (?, ?, ?)`, slice(nth(perPage)), slice(nth(perPage+1)), slice(nth(jobs)))
	var got []belfry.ID
	var after belfry.ID
	calls := 0
	for {
		due, next, err := s.PlansForZoneUpdate(ctx, s.allShards(), "2000a", after, 10)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		for _, d := range due {
			got = append(got, d.Plan.JobID)
		}
		if after = next; next.IsZero() {
			break
		}
	}
	if want := []belfry.ID{nth(perPage), nth(perPage + 1), nth(jobs)}; !slices.Equal(got, want) || calls != 4 { // the last finds that there are no more
		t.Errorf("in %d calls there were %v, wants %v", calls, got, want)
	}
}
