package sqlite

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// cancelAll cancels runs that a worker holds, which learns of it and stops.
func cancelAll(t *testing.T, s *Store, runs []*belfry.Run) {
	t.Helper()
	for _, run := range runs {
		for range 2 { // Asking again does nothing.
			if err := s.Cancel(ctx, run.Namespace, run.ID); err != nil {
				t.Fatal(err)
			}
		}
		reply, err := s.Heartbeat(ctx, belfry.Heartbeat{WorkerID: run.WorkerID, Lanes: []string{testLane}})
		if err != nil || len(reply.Cancel) != 1 || reply.Cancel[0] != (belfry.HeldAttempt{RunID: run.ID, Attempt: run.Attempt}) {
			t.Fatalf("the worker gets %+v (%v), wants that the run is cancelled", reply, err)
		}
		finish(t, s, belfry.OutcomeCancelled, run)
	}
}

const fillSettled = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, attempt,
  settled_at, http_status, error, output, skipped_count, retain_until)
SELECT unhex(printf('%032x', i + ?)), 0, 'default', ?, 1, 'scheduled', 'cancelled', '', 0, 0, 0, zeroblob(16), 1, 1, ?, 0, '', '', 0, ? FROM n`

const fillTried = `INSERT INTO attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
SELECT unhex(printf('%032x', i + ?)), 1, 0, 'default', 'failed', zeroblob(16), zeroblob(16), 1, ?, 0, '', '' FROM n`

// TestARetentionOfItsOwnOverridesTheGeneralOne prunes runs with a shorter and a longer retention than
// the others, each with its attempts.
func TestARetentionOfItsOwnOverridesTheGeneralOne(t *testing.T) {
	s := openStore(t)
	const short, long, usual, many = 1_000_000, 2_000_000, 3_000_000, pruneBatch + 10
	now, ago := s.Now(), s.Now().Add(-48*time.Hour)
	job := slice(nth(1))
	fill(t, s, many, fillSettled, short, job, micro(now.Add(-time.Hour)), micro(now.Add(-time.Minute)))
	fill(t, s, many, fillTried, short, micro(now.Add(-time.Hour)))
	fill(t, s, 5, fillSettled, long, job, micro(ago), micro(now.Add(time.Hour)))
	fill(t, s, 5, fillTried, long, micro(ago))
	fill(t, s, 7, fillSettled, usual, job, micro(ago), nil)
	fill(t, s, 7, fillTried, usual, micro(ago))
	fill(t, s, 3, fillSettled, usual+100, job, micro(now), nil)
	fill(t, s, 3, fillTried, usual+100, micro(ago)) // tried long ago, settled just now

	pruned, err := s.Prune(ctx, 24*time.Hour)
	if err != nil || pruned != many+7 {
		t.Errorf("pruned %d (%v), wants %d", pruned, err, many+7)
	}
	for _, table := range []string{"history", "attempts"} {
		if n := count(t, s, `SELECT count(*) FROM `+table); n != 5+3 {
			t.Errorf("%d rows are left in %s, wants 8", n, table)
		}
	}
}

// TestPruneDeletesArchivedJobsEventsAndKeys prunes ended jobs with their revisions, events,
// and keys.
func TestPruneDeletesArchivedJobsEventsAndKeys(t *testing.T) {
	s := openStore(t)
	now := s.Now()
	old, young := micro(now.Add(-30*24*time.Hour)), micro(now)
	const fillEnded = `INSERT INTO ended (id, shard, namespace, revision, status, spec, queue, type, created_at, updated_at, ended_at, retain_until)
SELECT unhex(printf('%032x', i + ?)), 0, 'default', 2, 'completed', '{}', '', '', 1, 1, ?, ? FROM n`
	fill(t, s, pruneBatch+1, fillEnded, 0, old, nil)
	fill(t, s, 2, fillEnded, 10_000, old, micro(now.Add(time.Hour)))
	fill(t, s, 3, fillEnded, 20_000, young, nil)
	fill(t, s, 4, fillEnded, 30_000, young, micro(now.Add(-time.Second)))
	fill(t, s, 0, `INSERT INTO revisions (job_id, revision, shard, spec, replaced_at) SELECT id, 1, 0, '{}', 1 FROM ended`)
	const fillEvents = `INSERT INTO events (id, shard, namespace, kind, at, message, count) SELECT randomblob(16), 0, 'default', 'k', ?, '', 0 FROM n`
	fill(t, s, pruneBatch+1, fillEvents, old)
	fill(t, s, 2, fillEvents, young)
	const fillKeys = `INSERT INTO keys (job_id, key, shard, run_id, created_at, succeeded_at) SELECT randomblob(16), ?, 0, randomblob(16), ?, ? FROM n`
	fill(t, s, 5, fillKeys, "never succeeded", old, nil)
	fill(t, s, 5, fillKeys, "long ago", old, old+1)
	fill(t, s, 2, fillKeys, "lately", old, young)
	fill(t, s, 1, fillKeys, "new", young, nil)

	if _, err := s.Prune(ctx, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{
		`SELECT count(*) FROM ended`:                                   5,
		`SELECT count(*) FROM revisions`:                               5,
		`SELECT count(*) FROM events`:                                  2,
		`SELECT count(*) FROM keys WHERE key IN ('lately', 'new')`:     3,
		`SELECT count(*) FROM keys WHERE key NOT IN ('lately', 'new')`: 0,
	} {
		if n := count(t, s, query); n != want {
			t.Errorf("%s: %d, wants %d", query, n, want)
		}
	}
}

// TestPurgeDeletesHistoryOnceNoRunIsLive deletes two jobs, one with its history, of
// which a run is still alive at first.
func TestPurgeDeletesHistoryOnceNoRunIsLive(t *testing.T) {
	s := openStore(t)
	gone, kept := oneOff(t, s, nil), oneOff(t, s, nil)
	create(t, s, gone, kept)
	worker := register(t, s)
	fired := fire(t, s, steps(t, s, 10), store.FreeSlots{Worker: worker, Lanes: []string{testLane}, Free: 10})
	for i, job := range []store.NewJob{gone, kept} {
		first := (i + 1) * 1_000_000
		fill(t, s, pruneBatch+5, fillSettled, first, job.Job.ID[:], micro(s.Now()), nil)
		fill(t, s, pruneBatch+5, fillTried, first, micro(s.Now()))
		fill(t, s, 1, `INSERT INTO dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
  timeout_ms, attempt, failures, lost, died_at, fingerprint)
SELECT unhex(printf('%032x', i + ?)), 0, 'default', ?, 1, 'manual', '', 'poison', 1, 1, 1, randomblob(16), 1, 1, 1, 1, 0, 1, 'f' FROM n`, first+500_000, job.Job.ID[:])
		fill(t, s, 1, fillTried, first+500_000, micro(s.Now()))
		deleteJob(t, s, job.Job, job.Job.ID == gone.Job.ID)
	}
	left := func(doing string, pruned int, perJob map[belfry.ID]int) {
		t.Helper()
		if n, err := s.Prune(ctx, 24*time.Hour); err != nil || n != pruned {
			t.Errorf("%s: %d were pruned (%v), wants %d", doing, n, err, pruned)
		}
		attempts := 0
		for job, want := range perJob {
			attempts += want
			n := count(t, s, `SELECT (SELECT count(*) FROM history WHERE job_id = ?1) + (SELECT count(*) FROM dead WHERE job_id = ?1)`, job[:])
			if n != want {
				t.Errorf("%s: %d settled and dead runs are left of a job, wants %d", doing, n, want)
			}
		}
		if n := count(t, s, `SELECT count(*) FROM attempts`); n != attempts {
			t.Errorf("%s: %d attempts are left, wants %d", doing, n, attempts)
		}
	}
	const settled, dead = pruneBatch + 5, 1
	left("with a live run", 0, map[belfry.ID]int{gone.Job.ID: settled + dead, kept.Job.ID: settled + dead})
	cancelAll(t, s, fired.Claimed)
	left("without one", settled+1, map[belfry.ID]int{gone.Job.ID: 0, kept.Job.ID: settled + dead + 1})
}

// deleteJob deletes a job and has its runs finished, with its history or without.
func deleteJob(t *testing.T, s *Store, job belfry.Job, purge bool) {
	t.Helper()
	_, err := s.EditJob(ctx, job.Namespace, job.ID, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		job.State = belfry.JobDeleted
		subject := plan.Subject{Namespace: job.Namespace, Revision: job.Revision, Policy: compile(t, job.Spec)}
		return &store.Change{Job: job, Step: plan.Delete(subject, p, now), Purge: purge}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPruneInManyBatches prunes more rows than go in one transaction,
// after more than that which have to stay.
func TestPruneInManyBatches(t *testing.T) {
	s := openStore(t)
	const many, stay = 2*pruneBatch + 100, pruneBatch + 5
	old, kept := micro(s.Now().Add(-48*time.Hour)), micro(s.Now())
	fill(t, s, many, `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, settled_at, http_status, error, output, skipped_count)
SELECT randomblob(16), 0, 'default', randomblob(16), 1, 'scheduled', 'succeeded', '', 1, 1, 1, randomblob(16), 1, 1, ? + i, 0, '', '', 0 FROM n`, old)
	fill(t, s, 7, `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, settled_at, http_status, error, output, skipped_count)
SELECT randomblob(16), 0, 'default', randomblob(16), 1, 'scheduled', 'succeeded', '', 1, 1, 1, randomblob(16), 1, 1, ?, 0, '', '', 0 FROM n`, kept)
	fill(t, s, many, `INSERT INTO attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
SELECT randomblob(16), 1, 0, 'default', 'failed', randomblob(16), randomblob(16), 1, ? + i / 10, 0, '', '' FROM n`, old)
	fill(t, s, 1, `INSERT INTO dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
  timeout_ms, attempt, failures, lost, died_at, fingerprint)
SELECT run_id, 0, 'default', randomblob(16), 1, 'scheduled', '', 'poison', 1, 1, 1, randomblob(16), 1, 1, 1, 1, 0, 1, ''
FROM attempts, n ORDER BY finished_at, run_id LIMIT ?`, stay)
	fill(t, s, many, `INSERT INTO jobs (id, shard, namespace, revision, state, spec, created_at, updated_at)
SELECT randomblob(16), 0, 'default', 1, 'deleted', '{}', 1, ? + i / 10 FROM n`, old)
	fill(t, s, 1, `INSERT INTO jobs (id, shard, namespace, revision, state, spec, created_at, updated_at)
SELECT job_id, 0, 'default', 1, 'deleted', '{}', 1, ? FROM dead, n`, old-1)

	pruned, err := s.Prune(ctx, 24*time.Hour)
	if err != nil || pruned != many {
		t.Errorf("pruned %d (%v), wants %d", pruned, err, many)
	}
	for _, tt := range []struct {
		name, query string
		want        int
	}{
		{"history that is young enough", `SELECT count(*) FROM history`, 7},
		{"attempts of dead letters", `SELECT count(*) FROM attempts`, stay},
		{"deleted jobs of dead letters", `SELECT count(*) FROM jobs`, stay},
	} {
		if got := count(t, s, tt.query); got != tt.want {
			t.Errorf("%s: %d are left, wants %d", tt.name, got, tt.want)
		}
	}
}

// TestPruneDeletesTheTriggersOfADeletedJob keeps a trigger that is never fired
// from keeping its job.
func TestPruneDeletesTheTriggersOfADeletedJob(t *testing.T) {
	s := openStore(t)
	job := newJob(t, s, s.Now(), "* * * * *")
	create(t, s, job)
	err := s.Trigger(ctx, []plan.Trigger{{ID: belfry.NewID(s.Now()), Namespace: job.Job.Namespace, JobID: job.Job.ID, Kind: belfry.KindManual, At: s.Now()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, `UPDATE jobs SET state = 'deleted', updated_at = ? WHERE ? > 0`, micro(s.Now().Add(-2*time.Hour)), 1)
	if triggers, err := s.PendingTriggers(ctx, s.allShards(), nil, 10); err != nil || len(triggers) != 0 {
		t.Errorf("a deleted job has triggers %v, %v", triggers, err)
	}
	if _, err := s.Prune(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"jobs", "plans", "triggers"} {
		if n := count(t, s, `SELECT count(*) FROM `+table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}
