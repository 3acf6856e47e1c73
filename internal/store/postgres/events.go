package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Events gives what was told of in a namespace, latest first. Their ids are in the
// order of what they tell of.
func (s *Store) ListEvents(ctx context.Context, namespace string, page store.Page) ([]belfry.Event, error) {
	if page.Limit < 1 {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, `SELECT id, namespace, job_id, kind, at, message, count FROM belfry.events
		WHERE namespace = $1 AND id < $2 ORDER BY namespace DESC, id DESC LIMIT $3`, namespace, startAfter(page.After.ID), page.Limit)
	if err != nil {
		return nil, wrapError("list events", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (belfry.Event, error) {
		var e belfry.Event
		var id, job pgtype.UUID
		err := row.Scan(&id, &e.Namespace, &job, &e.Kind, &e.At, &e.Message, &e.Count)
		e.ID, e.JobID, e.At = id.Bytes, job.Bytes, e.At.UTC()
		return e, err
	})
	return events, wrapError("list events", err)
}
