package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	insertEvent = `INSERT INTO events (id, shard, namespace, job_id, run_id, kind, at, message, count, dedup_id)
VALUES (?1, coalesce(?2, (SELECT shard FROM jobs WHERE id = ?4), 0), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING`
	selectEvents    = `SELECT id, namespace, job_id, run_id, kind, at, message, count FROM events WHERE namespace = ?1 AND id < ?2 AND (?4 = '' OR kind = ?4) ORDER BY id DESC LIMIT ?3`
	selectJobEvents = `SELECT id, namespace, job_id, run_id, kind, at, message, count FROM events WHERE namespace = ?1 AND id < ?2 AND (?4 = '' OR kind = ?4) AND job_id = ?5 ORDER BY id DESC LIMIT ?3`
	followEvents    = `SELECT id, namespace, job_id, run_id, kind, at, message, count FROM events WHERE id > ? ORDER BY id LIMIT ?`

	keepNode = `INSERT INTO nodes (id, name, version, roles, started_at, seen_at, address, clock_offset) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?7, ?8)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, left_at = NULL, clock_offset = excluded.clock_offset, started_at = CASE WHEN seen_at < excluded.seen_at - ?6 THEN excluded.started_at ELSE started_at END`
	endNode     = `UPDATE nodes SET left_at = ? WHERE id = ?`
	selectNodes = `SELECT id, name, version, roles, address, clock_offset * 1000, started_at, seen_at, left_at FROM nodes WHERE seen_at > ? ORDER BY id`
)

func scanEvent(rows *sql.Rows, e *belfry.Event) error {
	return rows.Scan(bytesColumn{e.ID[:]}, &e.Namespace, bytesColumn{e.JobID[:]}, bytesColumn{e.RunID[:]}, &e.Kind, timeColumn{&e.At}, &e.Message, &e.Count)
}

func eventValues(e *belfry.Event, shard any, dedup belfry.ID) []any {
	return []any{e.ID[:], shard, e.Namespace, nullID(e.JobID), nullID(e.RunID), string(e.Kind), micro(e.At), sanitize.Text(e.Message, store.MaxError), e.Count, nullID(dedup)}
}

// addEvent records an event; nil is none.
func (t *tx) addEvent(shard int, e *belfry.Event) error {
	if e == nil {
		return nil
	}
	return t.run(insertEvent, eventValues(e, int64(shard), belfry.ID{})...)
}

func (s *Store) AddEvents(ctx context.Context, events []store.NewEvent) ([]belfry.ID, error) {
	if len(events) == 0 {
		return nil, nil
	}
	return writeValue(ctx, s, "record events", func(t *tx) (added []belfry.ID, err error) {
		for i := range events {
			n, err := t.exec(insertEvent, eventValues(&events[i].Event, nil, events[i].Dedup)...)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				added = append(added, events[i].ID)
			}
		}
		return added, nil
	})
}

func (s *Store) ListEvents(ctx context.Context, namespace string, f belfry.EventFilter, page store.Page) ([]belfry.Event, error) {
	before := idOrMax(page.After.ID)
	args := []any{namespace, before[:], atMost(page.Limit), string(f.Kind)}
	if f.JobID.IsZero() {
		return readAll(ctx, s, "list events", scanEvent, selectEvents, args...)
	}
	return readAll(ctx, s, "list events", scanEvent, selectJobEvents, append(args, f.JobID[:])...)
}

func (s *Store) EventsAfter(ctx context.Context, after belfry.ID, limit int) ([]belfry.Event, error) {
	return readAll(ctx, s, "follow events", scanEvent, followEvents, after[:], atMost(limit))
}

func (s *Store) KeepNode(ctx context.Context, n store.Node) error {
	return s.write(ctx, "record a node", func(t *tx) error {
		return t.run(keepNode, n.ID[:], n.Name, n.Version, string(belfry.MustJSON(n.Roles)), micro(t.now), store.NodeTimeout.Microseconds(), n.Address, n.Offset.Microseconds())
	})
}

func (s *Store) EndNode(ctx context.Context, id belfry.ID) error {
	return s.write(ctx, "record the end of a node", func(t *tx) error { return t.run(endNode, micro(t.now), id[:]) })
}

func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	return readAll(ctx, s, "list nodes", func(rows *sql.Rows, n *store.Node) error {
		var roles []byte
		if err := rows.Scan(bytesColumn{n.ID[:]}, &n.Name, &n.Version, &roles, &n.Address, &n.Offset, timeColumn{&n.StartedAt}, timeColumn{&n.SeenAt}, nullTimeColumn{&n.LeftAt}); err != nil {
			return err
		}
		return json.Unmarshal(roles, &n.Roles)
	}, selectNodes, micro(s.Now().Add(-store.NodeRetention)))
}
