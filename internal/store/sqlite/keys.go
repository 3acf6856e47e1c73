package sqlite

import (
	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectKey = `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ? AND key = ? AND kind = 'scheduled' AND id <> ?)
OR EXISTS (SELECT 1 FROM keys WHERE job_id = ? AND key = ? AND run_id <> ? AND succeeded_at > ?)`

	insertKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at, succeeded_at = NULL`

	// A dead letter may come back after its key was forgotten, or had by another.
	reviveKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at)
SELECT job_id, key, shard, id, ? FROM runs WHERE id = ? AND key IS NOT NULL AND kind = 'scheduled' ON CONFLICT (job_id, key) DO NOTHING`

	// A run that was dead for a while may succeed after another had its key.
	succeedKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at, succeeded_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, succeeded_at = excluded.succeeded_at`
)

// keyed tells whether a run may not have the key of another.
func keyed(r *plan.Run) bool { return r.Key != "" && r.Kind == belfry.KindScheduled }

// keyTaken reports whether another scheduled run of the job has the key and is alive
// or succeeded lately.
func (t *tx) keyTaken(job belfry.ID, r *plan.Run) (taken bool, err error) {
	err = t.get([]any{&taken}, selectKey, job[:], r.Key, r.ID[:], job[:], r.Key, r.ID[:], micro(t.now.Add(-store.KeyRetention)))
	return taken, err
}

// noteKey remembers which run has a key.
func (t *tx) noteKey(s *plan.Step, r *plan.Run) error {
	_, err := t.exec(insertKey, s.Seen.JobID[:], r.Key, int64(s.Seen.Shard), r.ID[:], micro(t.now))
	return err
}

// spendKey notes that a run with a key succeeded.
func (t *tx) spendKey(run belfry.ID, g *gone) error {
	_, err := t.exec(succeedKey, g.job[:], g.key, g.shard, run[:], micro(t.now), micro(t.now))
	return err
}
