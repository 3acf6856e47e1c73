package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// past writes a settled run of so many days ago, with an attempt that failed before,
// and says what the run is called. It is kept for so many days more than that; 0: as
// long as others.
func past(t *testing.T, s *Store, job belfry.ID, daysAgo, keep int) belfry.ID {
	t.Helper()
	at := s.Now().AddDate(0, 0, -daysAgo)
	if err := makePartitions(t.Context(), s.pool, at); err != nil {
		t.Fatal(err)
	}
	id := belfry.NewID(at)
	change(t, s, `INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
		attempt, settled_at, http_status, error, output, skipped_count, retain_until)
		VALUES ($1, 0, 'default', $2, 1, 'scheduled', 'succeeded', '', $3::timestamptz, $3, $3, $1, 1, 2, $3, 200, '', '', 0, $3::timestamptz + nullif($4::integer, 0) * interval '24 hours')`, uuid(id), uuid(job), at, keep)
	change(t, s, `INSERT INTO belfry.attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
		VALUES ($1, 1, 0, 'default', 'failed', $1, $1, $2, $2, 500, 'x', '')`, uuid(id), at)
	return id
}

// wantRuns expects these runs to be left with their attempts, and no others.
func wantRuns(t *testing.T, s *Store, runs ...belfry.ID) {
	t.Helper()
	for _, table := range []string{"history WHERE id", "attempts WHERE run_id"} {
		all, ours := count(t, s, `SELECT count(*) FROM belfry.`+table+` IS NOT NULL`), count(t, s, `SELECT count(*) FROM belfry.`+table+` = ANY($1)`, uuids(runs))
		if all != len(runs) || ours != len(runs) {
			t.Errorf("%s: %d are left, %d of those that are to be kept, wants %d", table, all, ours, len(runs))
		}
	}
}

func prune(t *testing.T, s *Store, keep time.Duration, want int) {
	t.Helper()
	if n, err := s.Prune(t.Context(), keep); n != want || err != nil {
		t.Errorf("pruned %d, wants %d: %v", n, want, err)
	}
}

// A retention of a job's own may be longer or shorter than that of the others. A
// partition is dropped once nothing in it is to be kept.
func TestHistoryIsKeptForItsOwnRetention(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := belfry.NewID(s.Now())
	const keep = 30 * 24 * time.Hour
	for _, days := range []int{40, 41, 60} {
		past(t, s, job, days, 0)
	}
	past(t, s, job, 10, 5) // shorter
	past(t, s, job, 45, 44)
	longer, usual, young := past(t, s, job, 40, 100), past(t, s, job, 10, 0), past(t, s, job, 2, 5)
	prune(t, s, keep, 5)
	wantRuns(t, s, longer, usual, young)
	prune(t, s, keep, 0)
	names, err := partitionNames(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int]bool{60: false, 45: false, 40: true, 10: true} {
		if name := s.Now().AddDate(0, 0, -days).Format(partitionName); names[name] != want {
			t.Errorf("partition %s of %d days ago is there: %v, wants %v", name, days, names[name], want)
		}
	}
	change(t, s, `UPDATE belfry.history SET retain_until = clock_timestamp() - interval '1 second' WHERE id = $1`, uuid(longer))
	prune(t, s, keep, 1)
	wantRuns(t, s, usual, young)
	if names, err = partitionNames(t.Context(), s.pool); err != nil || names[s.Now().AddDate(0, 0, -40).Format(partitionName)] {
		t.Errorf("the partition of the last one is there: %v, %v", names, err)
	}
}

// Whatever the retention, nothing goes before its time: not with a day that has only
// partly passed, nor out of the default partition.
func TestPruneKeepsToTheInstant(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := belfry.NewID(s.Now())
	var kept []belfry.ID
	for hour := range 60 {
		id := past(t, s, job, 0, 0)
		change(t, s, `UPDATE belfry.history SET settled_at = settled_at - $2 * interval '1 hour' WHERE id = $1`, uuid(id), hour)
		if hour <= 30 {
			kept = append(kept, id)
		}
	}
	far := past(t, s, job, 0, 0) // a day without a partition
	change(t, s, `UPDATE belfry.history SET settled_at = settled_at + interval '100 days' WHERE id = $1`, uuid(far))
	long := past(t, s, job, 0, 0)
	change(t, s, `UPDATE belfry.history SET settled_at = settled_at - interval '100 days', retain_until = clock_timestamp() + interval '1 day' WHERE id = $1`, uuid(long))
	if n := count(t, s, `SELECT count(*) FROM belfry.history_default`); n < 2 {
		t.Fatalf("%d rows are in the default partition", n)
	}
	prune(t, s, 30*time.Hour+30*time.Minute, 29)
	wantRuns(t, s, append(kept, far, long)...)
}

// A partition that has more than one statement looks at is gone through to its end.
func TestALargePartitionIsGoneThrough(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	job := belfry.NewID(s.Now())
	for _, days := range []int{40, 50} {
		past(t, s, job, days, 0)
		change(t, s, `INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
			attempt, settled_at, http_status, error, output, skipped_count)
			SELECT gen_random_uuid(), 0, 'default', $1, 1, 'scheduled', 'succeeded', '', $2, $2, $2, $1, 1, 1, $2, 200, '', '', 0 FROM generate_series(1, $3::integer)`,
			uuid(job), s.Now().AddDate(0, 0, -days), pruneScanLimit+pruneScanLimit/2)
	}
	kept := past(t, s, job, 50, 100)
	prune(t, s, 30*24*time.Hour, 2*(pruneScanLimit+pruneScanLimit/2+1))
	wantRuns(t, s, kept)
}

// A deleted job whose history was to go too loses it once no run of it is alive.
func TestPurgeTakesAllOfADeletedJob(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	purged, deleted := due(t, s, every("0 0 1 1 *"), withoutRetries), due(t, s, every("0 0 1 1 *"), withoutRetries)
	var kept []belfry.ID
	for _, job := range []belfry.Job{purged, deleted} {
		for _, days := range []int{0, 5} {
			if id := past(t, s, job.ID, days, 100*days); job.ID == deleted.ID {
				kept = append(kept, id)
			}
		}
		dies(t, s, job)
		change(t, s, `INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at) VALUES ($1, 'x', 0, $1, clock_timestamp())`, uuid(job.ID))
	}
	ask(t, s, purged)
	change(t, s, `UPDATE belfry.jobs SET state = 'deleted', purge = (id = $1), updated_at = clock_timestamp() - interval '2 hours'`, uuid(purged.ID))
	prune(t, s, 30*24*time.Hour, 0)
	finish(t, s, belfry.OutcomeSucceeded)
	prune(t, s, 30*24*time.Hour, 3)
	for table, want := range map[string]int{"history": 2, "attempts": 3, "dead": 1, "keys": 1, "jobs": 1, "plans": 1, "runs": 0} {
		if n := count(t, s, `SELECT count(*) FROM belfry.`+table); n != want {
			t.Errorf("%d rows are left in %s, wants %d", n, table, want)
		}
	}
	if n := count(t, s, `SELECT count(*) FROM belfry.history WHERE id = ANY($1)`, uuids(kept)); n != len(kept) {
		t.Errorf("%d of another job's runs are left, wants %d", n, len(kept))
	}
}

func TestPruneForgetsEndedJobsEventsAndKeys(t *testing.T) {
	s := open(t, Options{URL: pgtest.Database(t, Migrate)})
	var jobs []belfry.Job
	for i := range 4 {
		job := due(t, s, called(fmt.Sprint(i)), func(j *belfry.Job) { j.RetentionDays = []int{0, 0, 5, 100}[i] })
		change(t, s, `INSERT INTO belfry.revisions (job_id, revision, shard, spec, replaced_at) VALUES ($1, 0, 0, '{}', clock_timestamp())`, uuid(job.ID))
		fire(t, s, job)
		finish(t, s, belfry.OutcomeSucceeded)
		jobs = append(jobs, job)
	}
	age := func(job belfry.Job, days int) {
		change(t, s, `UPDATE belfry.ended SET ended_at = ended_at - $2 * interval '24 hours', retain_until = retain_until - $2 * interval '24 hours' WHERE id = $1`, uuid(job.ID), days)
	}
	age(jobs[0], 31)
	age(jobs[1], 29)
	age(jobs[2], 6)
	age(jobs[3], 60)
	change(t, s, `INSERT INTO belfry.events (id, shard, namespace, kind, at, message, count)
		SELECT gen_random_uuid(), 0, 'default', 'x', clock_timestamp() - d * interval '24 hours', '', 1 FROM unnest(ARRAY[1, 29, 31, 99]) d`)
	live := due(t, s)
	fire(t, s, live)
	run := claimOne(t, s)
	change(t, s, `INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at, succeeded_at)
		SELECT $1, key, 0, run, clock_timestamp() - made * interval '24 hours', clock_timestamp() - done * interval '24 hours'
		  FROM (VALUES ('old', gen_random_uuid(), 9, NULL::integer), ('done', gen_random_uuid(), 20, 8), ('lately', gen_random_uuid(), 20, 6), ('young', gen_random_uuid(), 6, NULL), ('alive', $2::uuid, 20, NULL)) v (key, run, made, done)`,
		uuid(live.ID), uuid(run.ID))
	prune(t, s, 30*24*time.Hour, 0)
	for i, want := range []bool{false, true, false, true} {
		_, err := s.Job(t.Context(), "default", jobs[i].ID)
		if revisions := count(t, s, `SELECT count(*) FROM belfry.revisions WHERE job_id = $1`, uuid(jobs[i].ID)); (err == nil) != want || (revisions == 1) != want {
			t.Errorf("job %d has %d revisions left, wants it there: %v (%v)", i, revisions, want, err)
		}
	}
	if n := count(t, s, `SELECT count(*) FROM belfry.events`); n != 2 {
		t.Errorf("%d events are left, wants 2", n)
	}
	if n := count(t, s, `SELECT count(*) FROM belfry.keys WHERE key IN ('lately', 'young', 'alive')`); n != 3 || count(t, s, `SELECT count(*) FROM belfry.keys`) != 3 {
		t.Errorf("%d of the keys that are needed are left, wants 3 alone", n)
	}
}
