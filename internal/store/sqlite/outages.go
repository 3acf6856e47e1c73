package sqlite

import (
	"context"
	"slices"

	"github.com/belfry-sh/belfry/internal/store"
)

const (
	insertOutage  = `INSERT INTO outages (shard, began_at, ended_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	selectOutages = `SELECT shard, began_at, ended_at FROM outages WHERE` + inShards + `ORDER BY ended_at DESC LIMIT ?`
)

func (s *Store) RecordOutages(ctx context.Context, outages []store.Outage) error {
	return s.write(ctx, "record outages", func(t *tx) error {
		for _, o := range outages {
			if err := t.run(insertOutage, o.Shard, nullTime(o.From), micro(o.To)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) Outages(ctx context.Context, shards []int) ([]store.Outage, error) {
	outages, err := readValue(ctx, s, "list outages", func(t *tx) ([]store.Outage, error) {
		return all(t, scanInto(func(o *store.Outage) []any { return []any{&o.Shard, timeColumn{&o.From}, timeColumn{&o.To}} }), selectOutages, shardsJSON(shards), store.MaxOutages)
	})
	slices.Reverse(outages)
	return outages, err
}
