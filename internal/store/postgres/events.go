package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// ListEvents returns the events of a namespace, latest first: their ids are in the
// order of their instants.
func (s *Store) ListEvents(ctx context.Context, namespace string, page store.Page) ([]belfry.Event, error) {
	if page.Limit < 1 {
		return nil, nil
	}
	events, err := collect(ctx, s.pool, scanEvent, `SELECT id, namespace, job_id, kind, at, message, count FROM belfry.events
		WHERE namespace = $1 AND id < $2 ORDER BY namespace DESC, id DESC LIMIT $3`, namespace, startAfter(page.After.ID), page.Limit)
	return events, wrapError("list events", err)
}

func scanEvent(row pgx.CollectableRow) (e belfry.Event, err error) {
	var id, job pgtype.UUID
	err = row.Scan(&id, &e.Namespace, &job, &e.Kind, &e.At, &e.Message, &e.Count)
	e.ID, e.JobID, e.At = id.Bytes, job.Bytes, e.At.UTC()
	return e, err
}
