package sqlstore

import (
	"context"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

// SelectEvents reads events: the caller adds a condition and the order.
const SelectEvents = `/* events */ SELECT id, namespace, job_id, run_id, kind, at, message, count FROM belfry.events `

func eventFields(e *belfry.Event) []any {
	return []any{&e.ID, &e.Namespace, &e.JobID, &e.RunID, &e.Kind, &e.At, &e.Message, &e.Count}
}

func (s Store) ListEvents(ctx context.Context, namespace string, f belfry.EventFilter, page store.Page) ([]belfry.Event, error) {
	where, order, args := ``, `namespace DESC, id DESC`, []any{namespace, startAfter(page), max(page.Limit, 0), string(f.Kind)}
	if !f.JobID.IsZero() {
		where, order, args = ` AND job_id = $5`, `job_id DESC, id DESC`, append(args, f.JobID)
	}
	return list(ctx, s, Read, "list events", eventFields, SelectEvents+`WHERE namespace = $1 AND id < $2 AND ($4 = '' OR kind = $4)`+where+` ORDER BY `+order+` LIMIT $3`, args...)
}

func (s Store) EventsAfter(ctx context.Context, after belfry.ID, limit int) ([]belfry.Event, error) {
	return list(ctx, s, Read, "follow events", eventFields, SelectEvents+`WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

func (s Store) AddEvents(ctx context.Context, events []store.NewEvent) (added []belfry.ID, err error) {
	// In one order, so that two nodes that record the same ones do not wait for each other.
	sorted := slices.SortedFunc(slices.Values(events), func(a, b store.NewEvent) int { return a.Dedup.Compare(b.Dedup) })
	known := map[belfry.ID]bool{}
	err = s.DB.Do(ctx, Change, "record events", func(t Tx) error {
		inserted, err := t.ExecEach(`/* add events */
INSERT INTO belfry.events (id, shard, namespace, job_id, run_id, kind, at, message, count, dedup_id)
VALUES ($1, coalesce((SELECT shard FROM belfry.jobs WHERE id = $3), 0), $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`, argsOf(sorted, func(e *store.NewEvent) []any {
			return []any{e.ID, e.Namespace, orNull(e.JobID), orNull(e.RunID), string(e.Kind), e.At, sanitize.Text(e.Message, store.MaxError), e.Count, orNull(e.Dedup)}
		}))
		for i, n := range inserted {
			if n == 0 {
				known[sorted[i].ID] = true
			}
		}
		return err
	})
	for _, e := range events {
		if err == nil && !known[e.ID] {
			added = append(added, e.ID)
		}
	}
	return added, err
}

// KeepNode waits behind no other work, like a heartbeat.
func (s Store) KeepNode(ctx context.Context, n store.Node) error {
	_, err := s.exec(ctx, Urgent, "record a node", `/* keep node */
INSERT INTO belfry.nodes AS n (id, name, version, roles, address, clock_offset, started_at, seen_at) SELECT $1, $2, $3, $4, $6, $7, now, now FROM (SELECT clock_timestamp() AS now) c WHERE true
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, left_at = NULL, clock_offset = excluded.clock_offset,
  started_at = CASE WHEN n.seen_at < excluded.seen_at - $5::interval THEN excluded.started_at ELSE n.started_at END`, n.ID, n.Name, n.Version, n.Roles, store.NodeTimeout, n.Address, n.Offset.Microseconds())
	return err
}

func (s Store) EndNode(ctx context.Context, id belfry.ID) error {
	_, err := s.exec(ctx, Urgent, "record the end of a node", `/* end node */ UPDATE belfry.nodes SET left_at = clock_timestamp() WHERE id = $1`, id)
	return err
}

func (s Store) Nodes(ctx context.Context) ([]store.Node, error) {
	return list(ctx, s, Read, "list nodes", func(n *store.Node) []any {
		return []any{&n.ID, &n.Name, &n.Version, &n.Roles, &n.Address, (*int64)(&n.Offset), &n.StartedAt, &n.SeenAt, &n.LeftAt}
	}, `/* nodes */ SELECT id, name, version, roles, address, clock_offset * 1000, started_at, seen_at, left_at FROM belfry.nodes WHERE seen_at > clock_timestamp() - $1::interval ORDER BY id`, store.NodeRetention)
}
