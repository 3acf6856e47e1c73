package postgres

import (
	"context"

	"github.com/belfry-sh/belfry"
)

// forgetSQL takes an ended job away. With history a deleted job takes its place,
// whose history Prune forgets.
const forgetSQL = `/* forget */
WITH gone AS (
  DELETE FROM belfry.ended WHERE namespace = $1 AND id = $2 RETURNING *
), old AS (
  DELETE FROM belfry.revisions v USING gone WHERE v.job_id = gone.id
), buried AS (
  INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type, purge)
  SELECT id, shard, namespace, revision, 'deleted', spec, created_at, clock_timestamp(), queue, type, true FROM gone WHERE $3
), planned AS (
  INSERT INTO belfry.plans (job_id, shard, version, runs_made, zone_version, once)
  SELECT id, shard, 1, 0, '', true FROM gone WHERE $3
)
SELECT count(*) FROM gone`

// Forget has a job that has ended be found no more.
func (s *Store) DeleteEnded(ctx context.Context, namespace string, id belfry.ID, history bool) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	var n int
	if err := s.work.QueryRow(ctx, forgetSQL, storable(namespace), uuid(id), history).Scan(&n); err != nil {
		return failed("forget a job", err)
	}
	if n == 0 {
		return noSuchJob(id)
	}
	return nil
}
