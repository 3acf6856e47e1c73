package sqlite

import (
	"context"

	"github.com/belfry-sh/belfry"
)

// buryEnded makes a deleted job of one that has ended, whose history Prune forgets.
const buryEnded = `INSERT INTO jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type, purge)
SELECT id, shard, namespace, revision, 'deleted', spec, created_at, ?, queue, type, 1 FROM ended WHERE id = ?`

// Forget has a job that has ended be found no more.
func (s *Store) DeleteEnded(ctx context.Context, namespace string, id belfry.ID, history bool) error {
	return s.write(ctx, "forget a job", func(t *tx) error {
		job, err := t.endedJob(namespace, id)
		if err != nil {
			return err
		}
		if history {
			if _, err := t.exec(buryEnded, micro(t.now), id[:]); err != nil {
				return err
			}
			_, err := t.exec(`INSERT INTO plans (job_id, shard, version, runs_made, zone_version, one_off) VALUES (?, ?, 1, 0, '', 1)`,
				id[:], int64(belfry.ShardOf(job.ID, s.Shards())))
			if err != nil {
				return err
			}
		}
		return t.forget(id)
	})
}
