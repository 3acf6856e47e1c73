package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// buffersRead is how many pages a statement reads, with the planner restricted as in a scan.
func buffersRead(t *testing.T, s *Store, sql string, args ...any) int {
	t.Helper()
	pages := 0
	err := s.scanSnapshot(t.Context(), func(tx pgx.Tx) error {
		pages = buffersReadIn(t, tx, sql, args...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func buffersReadIn(t *testing.T, tx pgx.Tx, sql string, args ...any) int {
	t.Helper()
	var explained []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	var text string
	if err := tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `+sql, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan.Hit + explained[0].Plan.Read
}

// wantSameBuffers expects a statement to read at most so many pages, and as many after
// grow has made the tables much larger. Nobody has analysed them.
func wantSameBuffers(t *testing.T, s *Store, most int, read func() int, grow func()) {
	t.Helper()
	few := read()
	grow()
	many := read()
	t.Logf("%d pages, %d after growth", few, many)
	if few > most || many > few+few/10+10 { // trees become a little higher
		t.Errorf("it reads %d pages, %d after growth, wants at most %d", few, many, most)
	}
}

func insertPlans(t *testing.T, s *Store, shard string, n int, at string) {
	t.Helper()
	execSQL(t, s, fmt.Sprintf(`INSERT INTO belfry.plans (job_id, shard, version, next_at, nominal_at, runs_made, zone_version)
		SELECT gen_random_uuid(), %s, 1, %s, %s, 0, '2026a' FROM generate_series(1, %d) i`, shard, at, at, n))
}

// A shard's due scan costs what it returns, however many plans are due in other shards,
// at the same instant, before the position or later.
func TestUpcomingReadsOnlyWhatItReturns(t *testing.T) {
	s := openEmpty(t)
	execSQL(t, s, `ALTER TABLE belfry.plans SET (autovacuum_enabled = off)`)
	now := s.Now()
	insertPlans(t, s, "7", 1000, "now() - i * interval '1 millisecond'")
	for _, tt := range []struct {
		name  string
		after store.Position
		grow  func()
	}{
		{"other shards", store.Position{}, func() { insertPlans(t, s, "i % 7", 50_000, "now() - i * interval '1 millisecond'") }},
		{"one instant", store.Position{}, func() { insertPlans(t, s, "7", 20_000, "now() - interval '3 milliseconds'") }},
		{"later", store.Position{}, func() { insertPlans(t, s, "7", 20_000, "now() + i * interval '1 second'") }},
		{"before", store.Position{At: now.Add(-time.Minute)}, func() { insertPlans(t, s, "7", 20_000, "now() - i * interval '1 hour'") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := store.Window{After: map[int]store.Position{7: tt.after}, Until: now, Limit: 500}
			wantSameBuffers(t, s, 520, func() int { return buffersRead(t, s, upcomingSQL, upcomingArgs(w)...) }, tt.grow)
		})
	}
}

// insertHistory adds settled runs, one a minute, back from now.
func insertHistory(t *testing.T, s *Store, job string, n int) {
	t.Helper()
	execSQL(t, s, fmt.Sprintf(`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
			attempt, settled_at, http_status, error, output, skipped_count)
		SELECT gen_random_uuid(), 0, 'default', %s, 1, 'scheduled', 'succeeded', '', at, at, at, gen_random_uuid(), 1, 1, at, 200, '', '', 0
		  FROM generate_series(1, %d) i CROSS JOIN LATERAL (SELECT now() - i * interval '1 minute' AS at) x`, job, n))
}

// The run list of a job costs what it returns, however many runs the job and others have.
func TestJobRunsReadOnlyWhatTheyReturn(t *testing.T) {
	s := openEmpty(t)
	job := belfry.NewID(s.Now())
	quoted := `'` + job.String() + `'::uuid`
	for _, tt := range []struct {
		of string
		n  int
	}{{quoted, 200}, {`gen_random_uuid()`, 50_000}, {quoted, 20_000}} {
		insertHistory(t, s, tt.of, tt.n)
		if pages := buffersRead(t, s, sqlstore.ListJobRuns, "default", uuid(job), s.Now().Add(time.Hour), maxUUID, time.Time{}, notNull(belfry.ID{}), "", 51); pages > 51+80 { // rows, and down the indexes
			t.Errorf("a page of runs reads %d pages after %d more of %s", pages, tt.n, tt.of)
		}
	}
}

// insertAudit adds audit entries, one a minute, back from now.
func insertAudit(t *testing.T, s *Store, namespace, job, action string, n int) {
	t.Helper()
	execSQL(t, s, fmt.Sprintf(`INSERT INTO belfry.audit (id, namespace, job_id, actor_id, actor_name, action, body)
		SELECT (lpad(to_hex((extract(epoch FROM now() - i * interval '1 minute') * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 19))::uuid, '%s', %s, 'k', 'k', '%s', '{}' FROM generate_series(1, %d) i`, namespace, job, action, n))
}

// A page of audit entries costs what it returns, or as much as one scan if few of them match,
// however many entries there are.
func TestAuditListsReadOnlyWhatTheyReturn(t *testing.T) {
	s := openEmpty(t)
	job := belfry.NewID(s.Now())
	quoted := `'` + job.String() + `'::uuid`
	pages := func(f belfry.AuditFilter, limit int) int {
		return buffersRead(t, s, sqlstore.ListAudit(sqlstore.AuditScan(f)), "default", maxUUID, notNull(belfry.ID{}), runScanLimit, uuid(f.JobID), "", string(f.Action), limit)
	}
	for _, grow := range []func(){
		func() { insertAudit(t, s, "default", quoted, "edit", 200) },
		func() { insertAudit(t, s, "other", "NULL", "edit", 20_000) },
		func() { insertAudit(t, s, "default", "gen_random_uuid()", "edit", 20_000) },
	} {
		grow()
		for name, f := range map[string]belfry.AuditFilter{"namespace": {}, "all": {Scope: belfry.AuditAll}, "job": {JobID: job}} {
			if n := pages(f, 51); n > 51+80 {
				t.Errorf("%s: a page reads %d pages of the database", name, n)
			}
		}
		if n := pages(belfry.AuditFilter{Action: belfry.AuditDelete}, 51); n > runScanLimit+100 {
			t.Errorf("a page of rare entries reads %d pages of the database", n)
		}
	}
	if n := buffersRead(t, s, sqlstore.FindImport, "default", uuid(store.FirstID(job.Time().Add(time.Millisecond))), uuid(store.FirstID(job.Time())), uuid(job), "", ""); n > 30 {
		t.Errorf("finding the import of a job reads %d pages of the database", n)
	}
}

// A role that may only read and insert audit entries can record them, and change none.
func TestARoleThatCannotChangeTheAudit(t *testing.T) {
	s := openEmpty(t)
	role := "belfry_" + strings.ReplaceAll(belfry.NewID(s.Now()).String(), "-", "")
	execSQL(t, s, `CREATE ROLE `+role)
	defer func() {
		execSQL(t, s, `DROP OWNED BY `+role)
		execSQL(t, s, `DROP ROLE `+role)
	}()
	execSQL(t, s, `GRANT USAGE ON SCHEMA belfry TO `+role)
	execSQL(t, s, `GRANT ALL ON belfry.audit TO `+role)
	execSQL(t, s, `REVOKE UPDATE, DELETE, TRUNCATE ON belfry.audit FROM `+role)
	as := func(sql string) error {
		return pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+role); err != nil {
				return err
			}
			if sql == "" {
				a := &store.Audit{}
				a.Set(belfry.AuditEntry{ID: belfry.NewID(s.Now()), Action: belfry.AuditLogin})
				return sqlstore.RecordAudit(store.WithAudit(t.Context(), a), sharedTx{t.Context(), tx, nil})
			}
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
	}
	if err := as(""); err != nil {
		t.Errorf("recording: %v", err)
	}
	for _, sql := range []string{`UPDATE belfry.audit SET body = ''`, `DELETE FROM belfry.audit`, `TRUNCATE belfry.audit`} {
		if err := as(sql); sqlState(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// A page of jobs costs what it returns, with the last results of the jobs, however many
// runs they and others have. Each job has a dead letter and a run that fails.
func TestJobsWithLastResultsReadOnlyWhatTheyReturn(t *testing.T) {
	s := openEmpty(t)
	const jobs = 100

	create := func(n int) []pgtype.UUID {
		var created []store.NewJob
		for range n {
			created = append(created, newJob(t, s))
		}
		createJobs(t, s, created...)
		return column(created, func(j *store.NewJob) pgtype.UUID { return uuid(j.Job.ID) })
	}
	fail := func(jobs []pgtype.UUID) {
		execSQL(t, s, `INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost)
			SELECT gen_random_uuid(), 0, 'default', id, 1, 'scheduled', 'x', 'retry', 1, now(), now(), now(), id, 1, 1, 2, 2, 0 FROM unnest($1::uuid[]) AS j (id)`, jobs)
		execSQL(t, s, `INSERT INTO belfry.dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost, died_at, fingerprint)
			SELECT gen_random_uuid(), 0, 'default', id, 1, 'scheduled', 'x', 'out_of_retries', at, at, at, id, 1, 1, 2, 2, 0, at, 'x'
			  FROM unnest($1::uuid[]) AS j (id) CROSS JOIN LATERAL (SELECT now() - i * interval '1 minute' AS at FROM generate_series(1, 20) i) x`, jobs)
		execSQL(t, s, `INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
			SELECT r.id, n, 0, 'default', 'failed', r.id, r.id, now(), now(), 500, 'boom', '' FROM (SELECT id, job_id FROM belfry.runs UNION ALL SELECT id, job_id FROM belfry.dead) r
			  JOIN unnest($1::uuid[]) AS j (id) ON j.id = r.job_id CROSS JOIN (VALUES (1), (2)) AS n (n)`, jobs)
		execSQL(t, s, `INSERT INTO belfry.failing (job_id, namespace, since, latest_at, failures, run_id, error)
			SELECT id, 'default', now(), now(), 42, id, 'boom' FROM unnest($1::uuid[]) AS j (id)`, jobs)
	}
	ids := create(jobs)
	fail(ids)
	for _, others := range []int{0, 1000} {
		if others > 0 {
			fail(create(others))
			execSQL(t, s, `UPDATE belfry.dead SET job_id = $1 WHERE job_id <> ALL ($2)`, ids[0], ids) // one job has many
		}
		if pages := buffersRead(t, s, selectJobStatus+`WHERE j.id = ANY($1)`, ids); pages > jobs*30 { // down seven indexes, and rows
			t.Errorf("%d jobs beside %d others read %d pages", jobs, others, pages)
		}
	}
	failing, err := s.ListJobs(t.Context(), "default", belfry.JobFilter{Status: belfry.StatusFailing}, store.Page{Limit: jobs})
	if err != nil || len(failing.Jobs) != jobs || failing.Next.IsZero() {
		t.Fatalf("%d jobs are failing: %v", len(failing.Jobs), err)
	}
	for _, job := range failing.Jobs {
		if r := job.LastResult; r == nil || r.Status != belfry.ResultFailed || r.Failures != 42 || r.Error != "boom" {
			t.Fatalf("the last result is %+v", r)
		}
	}
}

// The latest records of jobs cost what there are of them, however long their history is.
func TestLastSettledReadsOnlyWhatItReturns(t *testing.T) {
	s := openEmpty(t)
	const jobs, days = 100, 28
	now := s.Now()
	for _, ago := range []int{days, days / 2} {
		if err := makePartitions(t.Context(), s.pool, now.AddDate(0, 0, -ago)); err != nil {
			t.Fatal(err)
		}
	}
	var ids []pgtype.UUID
	for range jobs {
		ids = append(ids, uuid(belfry.NewID(now)))
	}
	for _, every := range []string{"20 hours", "3 hours"} {
		execSQL(t, s, fmt.Sprintf(`INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
				attempt, settled_at, http_status, error, output, skipped_count)
			SELECT gen_random_uuid(), 0, 'default', id, 1, 'scheduled', 'succeeded', '', at, at, at, id, 1, 1, at, 200, '', '', 0
			  FROM unnest($1::uuid[]) AS j (id) CROSS JOIN generate_series($2::timestamptz - interval '%d days', $2, interval '%s') AS h (at)`, days, every), ids, now)
		marks := slices.Repeat([]time.Time{now}, jobs)
		since := buffersRead(t, s, settledSinceSQL, ids, marks, settleWindow.Seconds(), unlimitedWindow.Seconds(), now.Add(-settleWindow), now.Add(unlimitedWindow))
		all := buffersRead(t, s, allSettledSQL, ids)
		t.Logf("every %s: %d pages since a day ago, %d of all", every, since, all)
		// Down the index of each partition, of which some are made ahead; for all of them, twice.
		if since > jobs*(daysAhead+3)*3 || all > jobs*(days+daysAhead+3)*3*2 {
			t.Errorf("every %s: %d jobs read %d pages since a day ago, and %d of all", every, jobs, since, all)
		}
	}
}

// The search for failing jobs reads those of the page alone, however many others there are.
func TestFailingJobsReadOnlyWhatTheyReturn(t *testing.T) {
	s := openEmpty(t)
	insertFailing := func(namespace string, n int) {
		execSQL(t, s, `WITH j AS (
			INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type)
			SELECT gen_random_uuid(), 0, $1, 1, 'active', '{}', now(), now(), 'default', 'http' FROM generate_series(1, $2) RETURNING id)
			INSERT INTO belfry.failing (job_id, namespace, since, latest_at, failures, run_id, error) SELECT id, $1, now(), now(), 1, id, '' FROM j`, namespace, n)
	}
	insertFailing("default", 200)
	search, err := s.newJobSearch(t.Context(), nil, "default", belfry.JobFilter{Status: belfry.StatusFailing}, sourceFailing)
	if err != nil {
		t.Fatal(err)
	}
	sql := search.filteredSQL(search.scanSQL("$1", "$2::uuid", "$3::bigint"), 101)
	for _, more := range []int{0, 20_000} {
		insertFailing("another", more)
		insertFailing("default", more)
		if pages := buffersRead(t, s, sql, "default", maxUUID, nextScanLimit); pages > 101*6 { // down two indexes, and rows
			t.Errorf("101 failing jobs beside %d others read %d pages", more, pages)
		}
	}
}

// A sample reads as many pages as it looks at places, however many plans there are, and
// finding out that a namespace is too large reads an index alone.
func TestForecastReadsNoMoreOfManyPlans(t *testing.T) {
	s := openEmpty(t)
	execSQL(t, s, `ALTER TABLE belfry.plans SET (autovacuum_enabled = off)`)
	const n = 100
	for _, plans := range []int{6000, 60_000} {
		insertPlans(t, s, "i % 7", plans, "now() + i * interval '1 second'")
		err := s.scanSnapshot(t.Context(), func(tx pgx.Tx) error {
			var pages, size int64
			if err := tx.QueryRow(t.Context(), planPagesSQL).Scan(&pages, &size); err != nil {
				return err
			}
			places, _ := samplePlaces(pages, size, n)
			if read := buffersReadIn(t, tx, samplePlansSQL, places); read > n*probesPerPlan+10 {
				t.Errorf("a sample from %d more plans on %d pages reads %d of them, want one for each of %d places", plans, pages, read, len(places))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	insertJobs := func(n int) {
		execSQL(t, s, fmt.Sprintf(`INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, queue, type, created_at, updated_at)
			SELECT gen_random_uuid(), 0, 'default', 1, 'active', '{}', 'mail', 'http', now(), now() FROM generate_series(1, %d)`, n))
	}
	for _, tt := range []struct {
		scan string
		args []any
	}{{scanNamespaceSQL, []any{"default", 1001}}, {scanQueueSQL, []any{"default", 1001, "mail"}}} {
		insertJobs(20_000)
		if pages := buffersRead(t, s, `SELECT count(*) FROM (SELECT 1`+tt.scan+`) j`, tt.args...); pages > 1001+100 { // rows that no vacuum has seen, and down the index
			t.Errorf("counting a thousand jobs reads %d pages", pages)
		}
	}
}
