package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/belfry-sh/belfry/internal/store"
)

func (s *Store) RecordOutages(ctx context.Context, outages []store.Outage) error {
	shards, from, to := make([]int32, len(outages)), make([]*time.Time, len(outages)), make([]time.Time, len(outages))
	for i, o := range outages {
		shards[i], to[i] = int32(o.Shard), o.To
		if !o.From.IsZero() {
			from[i] = &o.From
		}
	}
	_, err := s.pool.Exec(ctx, `/* record outages */
INSERT INTO belfry.outages (shard, began_at, ended_at) SELECT * FROM unnest($1::int[], $2::timestamptz[], $3::timestamptz[]) ON CONFLICT DO NOTHING`, shards, from, to)
	return wrapError("record outages", err)
}

func (s *Store) Outages(ctx context.Context, shards []int) ([]store.Outage, error) {
	outages, err := collect(ctx, s.pool, scanInto(func(o *store.Outage) []any { return []any{&o.Shard, timeColumn{&o.From}, timeColumn{&o.To}} }), `/* list outages */
SELECT shard, began_at, ended_at FROM belfry.outages WHERE shard = ANY($1::int[]) ORDER BY ended_at DESC LIMIT $2`, int32s(shards), store.MaxOutages)
	slices.Reverse(outages)
	return outages, wrapError("list outages", err)
}
