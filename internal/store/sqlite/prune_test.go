package sqlite

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// fill inserts n rows by a statement over the numbers i from 1.
func fill(t testing.TB, s *Store, n int, insert string, args ...any) {
	t.Helper()
	err := s.write(ctx, "fill", func(x *tx) error {
		_, err := x.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) `+insert, append([]any{n}, args...)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, s *Store, query string, args ...any) (n int) {
	t.Helper()
	if err := s.read(ctx, "count", func(x *tx) error { return x.get([]any{&n}, query, args...) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPruneGoesThroughManyBatches prunes more rows than go in one transaction,
// after more than that which have to stay.
func TestPruneGoesThroughManyBatches(t *testing.T) {
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

// TestADeletedJobGoesWithItsWishes keeps a trigger that nobody will ever fire
// from keeping its job.
func TestADeletedJobGoesWithItsWishes(t *testing.T) {
	s := openStore(t)
	job := newJob(t, s, s.Now(), "* * * * *")
	create(t, s, job)
	err := s.Trigger(ctx, []plan.Trigger{{ID: belfry.NewID(s.Now()), Namespace: job.Job.Namespace, JobID: job.Job.ID, Kind: belfry.KindManual, At: s.Now()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1, `UPDATE jobs SET state = 'deleted', updated_at = ? WHERE ? > 0`, micro(s.Now().Add(-2*time.Hour)), 1)
	if wishes, err := s.PendingTriggers(ctx, allShards(s), 10); err != nil || len(wishes) != 0 {
		t.Errorf("a deleted job has wishes %v, %v", wishes, err)
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
