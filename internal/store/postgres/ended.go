package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// readEnded reads the jobs that have ended and that a WHERE picks, in no order.
func (s *Store) readEnded(ctx context.Context, q querier, where string, args ...any) ([]belfry.Job, error) {
	rows, err := q.Query(ctx, `SELECT id, namespace, name, tags, revision, status, spec, payload, created_at, updated_at, last_run_at, ended_at FROM belfry.ended `+where, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, s.scanEnded)
}

func (s *Store) scanEnded(row pgx.CollectableRow) (belfry.Job, error) {
	var (
		job           = belfry.Job{State: belfry.JobEnded}
		id            pgtype.UUID
		name, payload pgtype.Text
		spec          string
		last, ended   pgtype.Timestamptz
	)
	err := row.Scan(&id, &job.Namespace, &name, &job.Tags, &job.Revision, &job.Status, &spec, &payload, &job.CreatedAt, &job.UpdatedAt, &last, &ended)
	if err != nil {
		return job, err
	}
	if job.Spec, err = s.specs.Decode(spec); err != nil {
		return job, fmt.Errorf("job %s: read its spec: %w", belfry.ID(id.Bytes), err)
	}
	job.ID, job.Name = id.Bytes, name.String
	if payload.Valid {
		job.Payload = json.RawMessage(payload.String)
	}
	job.CreatedAt, job.UpdatedAt, job.LastRunAt = job.CreatedAt.UTC(), job.UpdatedAt.UTC(), momentOrNil(last)
	job.EndedAt = momentOrNil(ended)
	return job, nil
}
