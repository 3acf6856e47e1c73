package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	insertEvent  = `INSERT INTO events (id, shard, namespace, job_id, kind, at, message, count) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	selectEvents = `SELECT id, namespace, job_id, kind, at, message, count FROM events WHERE namespace = ? AND id < ? ORDER BY id DESC LIMIT ?`
)

// addEvent records an event; nil is none.
func (t *tx) addEvent(shard int, e *belfry.Event) error {
	if e == nil {
		return nil
	}
	_, err := t.exec(insertEvent, e.ID[:], int64(shard), e.Namespace, nullID(e.JobID), string(e.Kind), micro(e.At), sanitize.Text(e.Message, store.MaxError), e.Count)
	return err
}

func (s *Store) ListEvents(ctx context.Context, namespace string, page store.Page) ([]belfry.Event, error) {
	before := idOrMax(page.After.ID)
	return readValue(ctx, s, "list events", func(t *tx) ([]belfry.Event, error) {
		return all(t, func(rows *sql.Rows, e *belfry.Event) error {
			return rows.Scan(bytesColumn{e.ID[:]}, &e.Namespace, bytesColumn{e.JobID[:]}, &e.Kind, timeColumn{&e.At}, &e.Message, &e.Count)
		}, selectEvents, namespace, before[:], atMost(page.Limit))
	})
}
