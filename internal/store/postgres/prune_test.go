package postgres

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// insertSettled inserts a run that was settled some days ago, after a failed attempt, and
// is retained for keep days; 0: as long as others.
func insertSettled(t *testing.T, s *Store, job belfry.ID, daysAgo, keep int) belfry.ID {
	t.Helper()
	at := s.Now().AddDate(0, 0, -daysAgo)
	if err := makePartitions(t.Context(), s.pool, at); err != nil {
		t.Fatal(err)
	}
	id := belfry.NewID(at)
	execSQL(t, s, `INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
		attempt, settled_at, http_status, error, output, skipped_count, retain_until)
		VALUES ($1, 0, 'default', $2, 1, 'scheduled', 'succeeded', '', $3::timestamptz, $3, $3, $1, 1, 2, $3, 200, '', '', 0, $3::timestamptz + nullif($4::integer, 0) * interval '24 hours')`, uuid(id), uuid(job), at, keep)
	execSQL(t, s, `INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
		VALUES ($1, 1, 0, 'default', 'failed', $1, $1, $2, $2, 500, 'x', '')`, uuid(id), at)
	return id
}

// checkHistory checks that these runs are left with their attempts, and no others.
func checkHistory(t *testing.T, s *Store, runs ...belfry.ID) {
	t.Helper()
	for _, table := range []string{"history WHERE id", "attempts WHERE run_id"} {
		all, retained := countRows(t, s, table+` IS NOT NULL`), countRows(t, s, table+` = ANY($1)`, uuids(runs))
		if all != len(runs) || retained != len(runs) {
			t.Errorf("%s: %d are left, %d of those to retain, want %d", table, all, retained, len(runs))
		}
	}
}

func prune(t *testing.T, s *Store, keep time.Duration, want int) {
	t.Helper()
	if n, err := s.Prune(t.Context(), keep); n != want || err != nil {
		t.Errorf("pruned %d, want %d: %v", n, want, err)
	}
}

// A job's own retention may be longer or shorter than that of the others. A partition is
// dropped once nothing in it is to be retained.
func TestPruneHistoryRetention(t *testing.T) {
	s := openEmpty(t)
	job := belfry.NewID(s.Now())
	const keep = 30 * 24 * time.Hour
	for _, days := range []int{40, 41, 60} {
		insertSettled(t, s, job, days, 0)
	}
	insertSettled(t, s, job, 10, 5) // shorter
	insertSettled(t, s, job, 45, 44)
	longer, usual, young := insertSettled(t, s, job, 40, 100), insertSettled(t, s, job, 10, 0), insertSettled(t, s, job, 2, 5)
	prune(t, s, keep, 5)
	checkHistory(t, s, longer, usual, young)
	prune(t, s, keep, 0)
	names, err := partitionNames(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int]bool{60: false, 45: false, 40: true, 10: true} {
		if name := s.Now().AddDate(0, 0, -days).Format(partitionName); slices.Contains(names, name) != want {
			t.Errorf("partition %s of %d days ago is there: %v, want %v", name, days, slices.Contains(names, name), want)
		}
	}
	execSQL(t, s, `UPDATE belfry.history SET retain_until = clock_timestamp() - interval '1 second' WHERE id = $1`, uuid(longer))
	prune(t, s, keep, 1)
	checkHistory(t, s, usual, young)
	if names, err = partitionNames(t.Context(), s.pool); err != nil || slices.Contains(names, s.Now().AddDate(0, 0, -40).Format(partitionName)) {
		t.Errorf("the partition of the last one is there: %v, %v", names, err)
	}
}

// While shards move, two nodes prune for a moment. Each finds partitions that the other
// one drops.
func TestPruneByTwoNodes(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	stores := []*Store{open(t, Options{URL: url}), open(t, Options{URL: url})}
	for range 3 {
		for days := 100; days < 200; days += daysAhead {
			if err := makePartitions(t.Context(), stores[0].pool, time.Now().AddDate(0, 0, -days)); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for _, s := range stores {
			wg.Go(func() { prune(t, s, 90*24*time.Hour, 0) })
		}
		wg.Wait()
	}
}

// Rows go with the day that they were settled on, never before the cutoff. In the
// default partition, and if the retention is shorter than a day, they go one by one.
func TestPruneCutoff(t *testing.T) {
	for _, tt := range []struct {
		name string
		keep time.Duration
	}{{"days", 30*time.Hour + 30*time.Minute}, {"hours", 5*time.Hour + 30*time.Minute}} {
		t.Run(tt.name, func(t *testing.T) {
			s := openEmpty(t)
			job := belfry.NewID(s.Now())
			cutoff := s.Now().Add(-tt.keep)
			day := cutoff.UTC().Truncate(24 * time.Hour)
			if err := makePartitions(t.Context(), s.pool, cutoff); err != nil { // early in the morning it is two days ago
				t.Fatal(err)
			}
			var kept []belfry.ID
			pruned := 0
			for hour := range 80 {
				id := insertSettled(t, s, job, 0, 0)
				execSQL(t, s, `UPDATE belfry.history SET settled_at = settled_at - $2 * interval '1 hour' WHERE id = $1`, uuid(id), hour)
				execSQL(t, s, `UPDATE belfry.attempts SET finished_at = finished_at - $2 * interval '1 hour' WHERE run_id = $1`, uuid(id), hour)
				at := s.Now().Add(-time.Duration(hour) * time.Hour)
				if at.After(cutoff) || tt.keep > 24*time.Hour && !at.Before(day) {
					kept = append(kept, id)
				} else {
					pruned++
				}
			}
			far := insertSettled(t, s, job, 0, 0) // a day without a partition
			execSQL(t, s, `UPDATE belfry.history SET settled_at = settled_at + interval '100 days' WHERE id = $1`, uuid(far))
			old := insertSettled(t, s, job, 0, 0)
			execSQL(t, s, `UPDATE belfry.history SET settled_at = settled_at - interval '100 days' WHERE id = $1`, uuid(old))
			long := insertSettled(t, s, job, 0, 0)
			execSQL(t, s, `UPDATE belfry.history SET settled_at = settled_at - interval '100 days', retain_until = clock_timestamp() + interval '1 day' WHERE id = $1`, uuid(long))
			if n := countRows(t, s, `history_default`); n < 3 {
				t.Fatalf("%d rows are in the default partition", n)
			}
			prune(t, s, tt.keep, pruned+1)
			checkHistory(t, s, append(kept, far, long)...)
		})
	}
}

// A partition with more rows than one statement scans is scanned to its end.
func TestPruneLargePartition(t *testing.T) {
	const large = 60_000
	s := openEmpty(t)
	job := belfry.NewID(s.Now())
	for _, days := range []int{40, 50} {
		insertSettled(t, s, job, days, 0)
		execSQL(t, s, `ALTER TABLE belfry.`+s.Now().AddDate(0, 0, -days).Format(partitionName)+` SET (autovacuum_enabled = off)`) // it would hold a lock
		execSQL(t, s, `INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
			attempt, settled_at, http_status, error, output, skipped_count)
			SELECT gen_random_uuid(), 0, 'default', $1, 1, 'scheduled', 'succeeded', '', $2, $2, $2, $1, 1, 1, $2, 200, '', '', 0 FROM generate_series(1, $3::integer)`,
			uuid(job), s.Now().AddDate(0, 0, -days), large)
	}
	kept := insertSettled(t, s, job, 50, 100)
	prune(t, s, 30*24*time.Hour, 2*(large+1))
	checkHistory(t, s, kept)
}

// The history of a purged job is deleted once it has no live run.
func TestPurgeDeletedJob(t *testing.T) {
	s := openEmpty(t)
	purged, deleted := createDue(t, s, withSchedule("0 0 1 1 *"), withoutRetries), createDue(t, s, withSchedule("0 0 1 1 *"), withoutRetries)
	var kept []belfry.ID
	for _, job := range []belfry.Job{purged, deleted} {
		for _, days := range []int{0, 5} {
			if id := insertSettled(t, s, job.ID, days, 100*days); job.ID == deleted.ID {
				kept = append(kept, id)
			}
		}
		createDeadLetter(t, s, job)
		execSQL(t, s, `INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at) VALUES ($1, 'x', 0, $1, clock_timestamp())`, uuid(job.ID))
	}
	fireTrigger(t, s, purged)
	execSQL(t, s, `UPDATE belfry.jobs SET state = 'deleted', purge = (id = $1), updated_at = clock_timestamp() - interval '2 hours'`, uuid(purged.ID))
	prune(t, s, 30*24*time.Hour, 0)
	finishNext(t, s, belfry.OutcomeSucceeded)
	prune(t, s, 30*24*time.Hour, 3)
	for table, want := range map[string]int{"history": 2, "attempts": 3, "dead": 1, "keys": 1, "jobs": 1, "plans": 1, "runs": 0} {
		if n := countRows(t, s, table); n != want {
			t.Errorf("%d rows are left in %s, want %d", n, table, want)
		}
	}
	if n := countRows(t, s, `history WHERE id = ANY($1)`, uuids(kept)); n != len(kept) {
		t.Errorf("%d of another job's runs are left, want %d", n, len(kept))
	}
}

func TestPruneEndedJobsEventsAndKeys(t *testing.T) {
	s := openEmpty(t)
	var jobs []belfry.Job
	for i := range 4 {
		job := createDue(t, s, withName(fmt.Sprint(i)), func(j *belfry.Job) { j.RetentionDays = []int{0, 0, 5, 100}[i] })
		execSQL(t, s, `INSERT INTO belfry.revisions (job_id, revision, shard, spec, replaced_at) VALUES ($1, 0, 0, '{}', clock_timestamp())`, uuid(job.ID))
		fireNext(t, s, job)
		finishNext(t, s, belfry.OutcomeSucceeded)
		jobs = append(jobs, job)
	}
	age := func(job belfry.Job, days int) {
		execSQL(t, s, `UPDATE belfry.ended SET ended_at = ended_at - $2 * interval '24 hours', retain_until = retain_until - $2 * interval '24 hours' WHERE id = $1`, uuid(job.ID), days)
	}
	age(jobs[0], 31)
	age(jobs[1], 29)
	age(jobs[2], 6)
	age(jobs[3], 60)
	execSQL(t, s, `INSERT INTO belfry.events (id, shard, namespace, kind, at, message, count)
		SELECT gen_random_uuid(), 0, 'default', 'x', clock_timestamp() - d * interval '24 hours', '', 1 FROM unnest(ARRAY[1, 29, 31, 99]) d`)
	live := createDue(t, s)
	fireNext(t, s, live)
	run := claimOne(t, s)
	execSQL(t, s, `INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at, succeeded_at)
		SELECT $1, key, 0, run, clock_timestamp() - created * interval '24 hours', clock_timestamp() - succeeded * interval '24 hours'
		  FROM (VALUES ('old', gen_random_uuid(), 9, NULL::integer), ('succeeded', gen_random_uuid(), 20, 8), ('recent', gen_random_uuid(), 20, 6), ('young', gen_random_uuid(), 6, NULL), ('live', $2::uuid, 20, NULL)) v (key, run, created, succeeded)`,
		uuid(live.ID), uuid(run.ID))
	prune(t, s, 30*24*time.Hour, 0)
	for i, want := range []bool{false, true, false, true} {
		_, err := s.Job(t.Context(), "default", jobs[i].ID)
		if revisions := countRows(t, s, `revisions WHERE job_id = $1`, uuid(jobs[i].ID)); (err == nil) != want || (revisions == 1) != want {
			t.Errorf("job %d has %d revisions left, want it there: %v (%v)", i, revisions, want, err)
		}
	}
	if n := countRows(t, s, `events`); n != 2 {
		t.Errorf("%d events are left, want 2", n)
	}
	if n := countRows(t, s, `keys WHERE key IN ('recent', 'young', 'live')`); n != 3 || countRows(t, s, `keys`) != 3 {
		t.Errorf("%d of the keys that are needed are left, want these 3 only", n)
	}
}

func TestHistoryPartitionPerDay(t *testing.T) {
	url := pgtest.Database(t, Migrate)
	s := open(t, Options{URL: url})
	names, err := partitionNames(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	today := time.Now().UTC()
	for d := -1; d <= daysAhead; d++ {
		if name := today.AddDate(0, 0, d).Format(partitionName); !slices.Contains(names, name) {
			t.Errorf("partition %s is missing; there are %v", name, names)
		}
	}
	old := today.AddDate(0, 0, -200)
	if err := makePartitions(t.Context(), s.pool, old); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context(), 90*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if names, _ = partitionNames(t.Context(), s.pool); slices.Contains(names, old.Format(partitionName)) || !slices.Contains(names, today.Format(partitionName)) {
		t.Errorf("after pruning 90 days there are %v", names)
	}
}
