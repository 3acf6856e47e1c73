package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const selectEvents = `/* events */ SELECT id, namespace, job_id, run_id, kind, at, message, count FROM belfry.events `

func eventFields(e *belfry.Event) []any {
	return []any{idColumn(&e.ID), &e.Namespace, idColumn(&e.JobID), idColumn(&e.RunID), &e.Kind, timeColumn{&e.At}, &e.Message, &e.Count}
}

func (s *Store) ListEvents(ctx context.Context, namespace string, f belfry.EventFilter, page store.Page) ([]belfry.Event, error) {
	where, order := `namespace = $1 AND id < $2 AND ($4 = '' OR kind = $4) AND ($5::uuid IS NULL OR job_id = $5)`, `namespace DESC, id DESC`
	if !f.JobID.IsZero() {
		where, order = `namespace = $1 AND id < $2 AND ($4 = '' OR kind = $4) AND job_id = $5`, `job_id DESC, id DESC`
	}
	events, err := collect(ctx, s.readPool, scanInto(eventFields), selectEvents+`WHERE `+where+` ORDER BY `+order+` LIMIT $3`,
		namespace, startAfter(page.After.ID), max(page.Limit, 0), string(f.Kind), uuid(f.JobID))
	return events, wrapError("list events", err)
}

func (s *Store) EventsAfter(ctx context.Context, after belfry.ID, limit int) ([]belfry.Event, error) {
	events, err := collect(ctx, s.readPool, scanInto(eventFields), selectEvents+`WHERE id > $1 ORDER BY id LIMIT $2`, notNull(after), limit)
	return events, wrapError("follow events", err)
}

func (s *Store) AddEvents(ctx context.Context, events []store.NewEvent) (added []belfry.ID, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	var n int64
	err = forEach(ctx, s.pool, []any{&n}, func() error {
		added = append(added, events[n-1].ID)
		return nil
	}, `/* add events */
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::timestamptz[], $7::text[], $8::bigint[], $9::uuid[])
    WITH ORDINALITY AS e (id, namespace, job_id, run_id, kind, at, message, count, dedup_id, n)
), added AS (
  INSERT INTO belfry.events (id, shard, namespace, job_id, run_id, kind, at, message, count, dedup_id)
  SELECT id, coalesce((SELECT j.shard FROM belfry.jobs j WHERE j.id = e.job_id), 0), namespace, job_id, run_id, kind, at, message, count, dedup_id FROM given e ORDER BY dedup_id
  ON CONFLICT (dedup_id) DO NOTHING RETURNING id
)
SELECT given.n FROM given JOIN added USING (id) ORDER BY given.n`,
		column(events, func(e *store.NewEvent) pgtype.UUID { return uuid(e.ID) }),
		column(events, func(e *store.NewEvent) string { return e.Namespace }),
		column(events, func(e *store.NewEvent) pgtype.UUID { return uuid(e.JobID) }),
		column(events, func(e *store.NewEvent) pgtype.UUID { return uuid(e.RunID) }),
		column(events, func(e *store.NewEvent) string { return string(e.Kind) }),
		column(events, func(e *store.NewEvent) time.Time { return e.At }),
		column(events, func(e *store.NewEvent) string { return storable(e.Message) }),
		column(events, func(e *store.NewEvent) int64 { return e.Count }),
		column(events, func(e *store.NewEvent) pgtype.UUID { return uuid(e.Dedup) }))
	return added, wrapError("record events", err)
}

// KeepNode uses a connection that waits behind no other work, like a heartbeat.
func (s *Store) KeepNode(ctx context.Context, n store.Node) error {
	_, err := s.priorityPool.Exec(ctx, `/* keep node */
INSERT INTO belfry.nodes AS n (id, name, version, roles, address, clock_offset, started_at, seen_at) VALUES ($1, $2, $3, $4, $6, $7, clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, left_at = NULL, clock_offset = excluded.clock_offset,
  started_at = CASE WHEN n.seen_at < excluded.seen_at - $5 * interval '1 second' THEN excluded.started_at ELSE n.started_at END`,
		notNull(n.ID), storable(n.Name), storable(n.Version), n.Roles, store.NodeTimeout.Seconds(), storable(n.Address), n.Offset.Microseconds())
	return wrapError("record a node", err)
}

func (s *Store) EndNode(ctx context.Context, id belfry.ID) error {
	_, err := s.priorityPool.Exec(ctx, `/* end node */ UPDATE belfry.nodes SET left_at = clock_timestamp() WHERE id = $1`, notNull(id))
	return wrapError("record the end of a node", err)
}

func (s *Store) Nodes(ctx context.Context) ([]store.Node, error) {
	nodes, err := collect(ctx, s.readPool, scanInto(func(n *store.Node) []any {
		return []any{idColumn(&n.ID), &n.Name, &n.Version, &n.Roles, &n.Address, &n.Offset, timeColumn{&n.StartedAt}, timeColumn{&n.SeenAt}, &n.LeftAt}
	}), `/* nodes */ SELECT id, name, version, roles, address, clock_offset * 1000, started_at, seen_at, left_at FROM belfry.nodes WHERE seen_at > clock_timestamp() - $1 * interval '1 second' ORDER BY id`, store.NodeRetention.Seconds())
	return nodes, wrapError("list nodes", err)
}
