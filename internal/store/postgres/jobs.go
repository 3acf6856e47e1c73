package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Job finds a job that is live or has ended.
func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := s.job(ctx, s.pool, namespace, id)
	if belfry.CodeOf(err) != belfry.NotFound {
		return job, err
	}
	ended, err := s.readEnded(ctx, s.pool, `WHERE namespace = $1 AND id = $2`, namespace, uuid(id))
	return firstJob(ended, id, err)
}

// job finds a live job.
func (s *Store) job(ctx context.Context, q querier, namespace string, id belfry.ID) (belfry.Job, error) {
	jobs, err := s.readJobs(ctx, q, `WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted'`, namespace, uuid(id))
	return firstJob(jobs, id, err)
}

func firstJob(jobs []belfry.Job, id belfry.ID, err error) (belfry.Job, error) {
	switch {
	case err != nil:
		return belfry.Job{}, wrapError("look up a job", err)
	case len(jobs) == 0:
		return belfry.Job{}, store.NoSuchJob(id)
	}
	return jobs[0], nil
}

// noLiveJobError explains why there is no live job of this id.
func noLiveJobError(ctx context.Context, q querier, namespace string, id belfry.ID) error {
	var ended bool
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM belfry.ended WHERE namespace = $1 AND id = $2)`, namespace, uuid(id)).Scan(&ended)
	switch {
	case err != nil:
		return err
	case ended:
		return store.JobEnded()
	}
	return store.NoSuchJob(id)
}

// JobIDByName finds the live job with the name, or else the one that ended last.
func (s *Store) JobIDByName(ctx context.Context, namespace, name string) (belfry.ID, error) {
	var id pgtype.UUID
	err := s.pool.QueryRow(ctx, `
SELECT id FROM (
  SELECT id, NULL::timestamptz AS ended_at FROM belfry.jobs WHERE namespace = $1 AND name = $2 AND state <> 'deleted'
   UNION ALL
  (SELECT id, ended_at FROM belfry.ended WHERE namespace = $1 AND name = $2 ORDER BY ended_at DESC LIMIT 1)) x
 ORDER BY ended_at NULLS FIRST LIMIT 1`, namespace, storable(name)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return belfry.ID{}, store.NoSuchName(name)
	}
	return id.Bytes, wrapError("look up a job by its name", err)
}

// Revisions returns the replaced revisions of a job, latest first.
func (s *Store) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error) {
	var (
		found         bool
		revisions     []belfry.Revision
		number        pgtype.Int4
		spec, payload pgtype.Text
		replaced      pgtype.Timestamptz
	)
	err := forEach(ctx, s.pool, []any{&number, &spec, &payload, &replaced}, func() (err error) {
		found = true
		if !number.Valid { // the job has none
			return nil
		}
		v := belfry.Revision{Number: int(number.Int32), ReplacedAt: timeOrNil(replaced), Payload: rawJSON(payload)}
		if v.Spec, err = s.specs.Decode(spec.String); err != nil {
			return fmt.Errorf("revision %d of job %s: %w", v.Number, id, err)
		}
		revisions = append(revisions, v)
		return nil
	}, `
SELECT v.revision, v.spec, v.payload, v.replaced_at
  FROM (SELECT id FROM belfry.jobs WHERE namespace = $1 AND id = $2 AND state <> 'deleted'
         UNION ALL SELECT id FROM belfry.ended WHERE namespace = $1 AND id = $2) j
  LEFT JOIN LATERAL (SELECT * FROM belfry.revisions WHERE job_id = j.id AND ($3 = 0 OR revision < $3) ORDER BY revision DESC LIMIT $4) v ON true
 ORDER BY v.revision DESC`, namespace, uuid(id), before, limit)
	if err == nil && !found {
		return nil, store.NoSuchJob(id)
	}
	return revisions, wrapError("list revisions", err)
}

// deleteEndedSQL deletes an ended job. To purge its history too, a deleted job takes
// its place, which Prune purges.
const deleteEndedSQL = `/* delete ended */
WITH deleted AS (
  DELETE FROM belfry.ended WHERE namespace = $1 AND id = $2 RETURNING *
), deleted_revisions AS (
  DELETE FROM belfry.revisions v USING deleted WHERE v.job_id = deleted.id
), purge_job AS (
  INSERT INTO belfry.jobs (id, shard, namespace, revision, state, spec, created_at, updated_at, queue, type, purge)
  SELECT id, shard, namespace, revision, 'deleted', spec, created_at, clock_timestamp(), queue, type, true FROM deleted WHERE $3
), purge_plan AS (
  INSERT INTO belfry.plans (job_id, shard, version, runs_made, zone_version, one_off)
  SELECT id, shard, 1, 0, '', true FROM deleted WHERE $3
)
SELECT count(*) FROM deleted`

// DeleteEnded deletes a job that has ended, and its history if asked to.
func (s *Store) DeleteEnded(ctx context.Context, namespace string, id belfry.ID, history bool) error {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	var n int
	if err := s.pool.QueryRow(ctx, deleteEndedSQL, storable(namespace), uuid(id), history).Scan(&n); err != nil {
		return wrapError("delete an ended job", err)
	}
	if n == 0 {
		return store.NoSuchJob(id)
	}
	return nil
}
