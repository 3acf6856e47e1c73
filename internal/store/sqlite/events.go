package sqlite

import (
	"context"
	"database/sql"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	insertEvent = `INSERT INTO events (id, shard, namespace, job_id, kind, at, message, count) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

	selectEvents = `SELECT id, namespace, job_id, kind, at, message, count FROM events WHERE namespace = ? AND id < ? ORDER BY id DESC LIMIT ?`
)

// raise records an event; nil is none.
func (t *tx) raise(shard int, e *belfry.Event) error {
	if e == nil {
		return nil
	}
	var job any
	if !e.JobID.IsZero() {
		job = e.JobID[:]
	}
	_, err := t.exec(insertEvent, e.ID[:], int64(shard), e.Namespace, job, string(e.Kind), micro(e.At), sanitize.Text(e.Message, maxError), e.Count)
	return err
}

// Events gives what was told of in a namespace, latest first.
func (s *Store) ListEvents(ctx context.Context, namespace string, page store.Page) (events []belfry.Event, err error) {
	before := firstID(page.After.ID)
	err = s.read(ctx, "list events", func(t *tx) error {
		events, err = all(t, func(rows *sql.Rows, e *belfry.Event) error {
			return rows.Scan(key{e.ID[:]}, &e.Namespace, key{e.JobID[:]}, &e.Kind, moment{&e.At}, &e.Message, &e.Count)
		}, selectEvents, namespace, before[:], atMost(page.Limit))
		return err
	})
	return events, err
}
