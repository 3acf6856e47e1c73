package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// Job finds a job that is not deleted, or has ended.
func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	job, err := s.job(ctx, s.work, namespace, id)
	if belfry.CodeOf(err) != belfry.NotFound {
		return job, err
	}
	ended, err := s.readEnded(ctx, s.work, `WHERE namespace = $1 AND id = $2`, namespace, uuid(id))
	if err != nil {
		return belfry.Job{}, failed("look up a job that ended", err)
	}
	if len(ended) == 0 {
		return belfry.Job{}, noSuchJob(id)
	}
	return ended[0], nil
}

// job finds a job that is neither deleted nor over.
func (s *Store) job(ctx context.Context, q querier, namespace string, id belfry.ID) (belfry.Job, error) {
	jobs, err := s.readJobs(ctx, q, `WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted'`, namespace, uuid(id))
	if err != nil {
		return belfry.Job{}, failed("look up a job", err)
	}
	if len(jobs) == 0 {
		return belfry.Job{}, noSuchJob(id)
	}
	return jobs[0], nil
}

func noSuchJob(id belfry.ID) error {
	return belfry.Errorf(belfry.NotFound, "there is no job %s", id)
}

// JobNamed finds the id of the job that has the name, or else of the one that had
// it and ended last.
func (s *Store) JobIDByName(ctx context.Context, namespace, name string) (belfry.ID, error) {
	var id pgtype.UUID
	err := s.work.QueryRow(ctx, `
SELECT id FROM (
  SELECT id, NULL::timestamptz AS ended_at FROM belfry.jobs WHERE namespace = $1 AND name = $2 AND state <> 'deleted'
   UNION ALL
  (SELECT id, ended_at FROM belfry.ended WHERE namespace = $1 AND name = $2 ORDER BY ended_at DESC LIMIT 1)) x
 ORDER BY ended_at NULLS FIRST LIMIT 1`, namespace, storable(name)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return belfry.ID{}, belfry.Errorf(belfry.NotFound, "there is no job named %q", name)
	}
	return id.Bytes, failed("look up a job by its name", err)
}

// Revisions gives what a job was before its edits, latest first.
func (s *Store) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]belfry.Revision, error) {
	rows, err := s.work.Query(ctx, `
SELECT v.revision, v.spec, v.payload, v.replaced_at
  FROM (SELECT id FROM belfry.jobs WHERE namespace = $1 AND id = $2 AND state <> 'deleted'
         UNION ALL SELECT id FROM belfry.ended WHERE namespace = $1 AND id = $2) j
  LEFT JOIN LATERAL (SELECT * FROM belfry.revisions WHERE job_id = j.id AND ($3 = 0 OR revision < $3) ORDER BY revision DESC LIMIT $4) v ON true
 ORDER BY v.revision DESC`, namespace, uuid(id), before, limit)
	if err != nil {
		return nil, failed("list revisions", err)
	}
	found := false
	var (
		revisions     []belfry.Revision
		number        pgtype.Int4
		spec, payload pgtype.Text
		replaced      pgtype.Timestamptz
	)
	_, err = pgx.ForEachRow(rows, []any{&number, &spec, &payload, &replaced}, func() (err error) {
		found = true
		if !number.Valid { // the job has none
			return nil
		}
		v := belfry.Revision{Number: int(number.Int32), ReplacedAt: new(moment(replaced))}
		if v.Spec, err = s.specs.Decode(spec.String); err != nil {
			return fmt.Errorf("revision %d of job %s: %w", v.Number, id, err)
		}
		if payload.Valid {
			v.Payload = json.RawMessage(payload.String)
		}
		revisions = append(revisions, v)
		return nil
	})
	if err == nil && !found {
		return nil, noSuchJob(id)
	}
	return revisions, failed("list revisions", err)
}
