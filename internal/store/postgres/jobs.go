package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Job finds a job that is not deleted.
func (s *Store) Job(ctx context.Context, namespace string, id belfry.ID) (belfry.Job, error) {
	return s.job(ctx, s.work, namespace, id)
}

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

// JobNamed finds the id of the job that is not deleted and has the name.
func (s *Store) JobNamed(ctx context.Context, namespace, name string) (belfry.ID, error) {
	var id pgtype.UUID
	err := s.work.QueryRow(ctx, `SELECT id FROM belfry.jobs WHERE namespace = $1 AND name = $2 AND state <> 'deleted'`, namespace, storable(name)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return belfry.ID{}, belfry.Errorf(belfry.NotFound, "there is no job named %q", name)
	}
	return id.Bytes, failed("look up a job by its name", err)
}

// Revisions gives what a job was before its edits, latest first.
func (s *Store) Revisions(ctx context.Context, namespace string, id belfry.ID, before, limit int) ([]store.Revision, error) {
	rows, err := s.work.Query(ctx, `
SELECT v.revision, v.spec, v.payload, v.replaced_at
  FROM belfry.jobs j
  LEFT JOIN LATERAL (SELECT * FROM belfry.revisions WHERE job_id = j.id AND ($3 = 0 OR revision < $3) ORDER BY revision DESC LIMIT $4) v ON true
 WHERE j.namespace = $1 AND j.id = $2 AND j.state <> 'deleted'
 ORDER BY v.revision DESC`, namespace, uuid(id), before, limit)
	if err != nil {
		return nil, failed("list revisions", err)
	}
	found := false
	var (
		revisions     []store.Revision
		number        pgtype.Int4
		spec, payload pgtype.Text
		replaced      pgtype.Timestamptz
	)
	_, err = pgx.ForEachRow(rows, []any{&number, &spec, &payload, &replaced}, func() (err error) {
		found = true
		if !number.Valid { // the job has none
			return nil
		}
		v := store.Revision{Number: int(number.Int32), ReplacedAt: moment(replaced)}
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

// Trigger records a wish for a run.
func (s *Store) Trigger(ctx context.Context, t plan.Trigger, r *store.Request) error {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return err
	}
	defer cancel()
	if r == nil {
		err = wish(ctx, s.work, t)
	} else {
		err = pgx.BeginFunc(ctx, s.work, func(tx pgx.Tx) error {
			return keyed(ctx, tx, r, func() error { return wish(ctx, tx, t) })
		})
	}
	if err != nil {
		return failed("record a trigger", err)
	}
	s.hints.tellChanged(false, t.JobID)
	return nil
}

func wish(ctx context.Context, q querier, t plan.Trigger) error {
	var found bool
	err := q.QueryRow(ctx, `/* trigger */
WITH job AS (SELECT id, shard, namespace FROM belfry.jobs WHERE namespace = $1 AND id = $2 AND state <> 'deleted'),
wish AS (
  INSERT INTO belfry.triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
  SELECT $3, job.shard, job.namespace, job.id, $7, $4, $5, $6, clock_timestamp() FROM job
  ON CONFLICT (id) DO NOTHING)
SELECT EXISTS (SELECT 1 FROM job)`,
		t.Namespace, uuid(t.JobID), uuid(t.ID), string(t.Kind), t.At, text(string(t.Payload)), uuid(t.RunID())).Scan(&found)
	if err == nil && !found {
		return noSuchJob(t.JobID)
	}
	return err
}
