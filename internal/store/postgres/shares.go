package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// claimSharesSQL claims the runs of lowest rank of each lane, below a rank of its own, and
// no more of a namespace than its share.
const claimSharesSQL = `/* claim shares */
WITH locked AS MATERIALIZED (
  SELECT y.run, y.rank FROM (
    SELECT x.run, x.rank, l.most, row_number() OVER (PARTITION BY l.namespace ORDER BY x.rank) AS n
      FROM unnest($2::text[], $6::text[], $7::integer[], $8::bigint[]) AS l (lane, namespace, most, below)
     CROSS JOIN LATERAL (SELECT r.ctid AS run, r.rank FROM belfry.runs r WHERE r.lane = l.lane AND r.state = 'ready' AND r.rank < l.below ORDER BY r.rank LIMIT l.most FOR UPDATE SKIP LOCKED) x
     WHERE EXISTS (SELECT 1 FROM belfry.workers w WHERE w.id = $1)) y
   WHERE y.n <= y.most ORDER BY y.rank LIMIT $3
), ` + claimLocked

func (s *Store) ClaimShares(ctx context.Context, c belfry.Claim, shares store.Shares) (runs []*belfry.Run, err error) {
	if len(shares.MaxRunning) == 0 {
		return s.claim(ctx, c, claimSharesSQL, shareArgs(shares.Of(&c, nil))...)
	}
	ctx, cancel := detach(ctx, fireTimeout)
	defer cancel()
	var claimed []claimedRun
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		running, err := countRunning(ctx, tx, slices.Sorted(maps.Keys(shares.MaxRunning)))
		if err != nil {
			return err
		}
		args := shareArgs(shares.Of(&c, running))
		claimed, err = s.collectClaimed(ctx, tx, c, claimSharesSQL, args...)
		return err
	})
	if err != nil {
		return nil, wrapError("claim", err)
	}
	return s.startClaimed(ctx, claimed), nil
}

// countRunning counts the running runs of namespaces. Until the end of the transaction nobody
// else counts them, so that no two claims take what is left; a namespace has no other way to
// start a run while it is limited.
func countRunning(ctx context.Context, tx pgx.Tx, namespaces []string) (map[string]int, error) {
	for _, namespace := range namespaces {
		if _, err := tx.Exec(ctx, `/* lock namespace */ SELECT pg_advisory_xact_lock(hashtextextended('belfry running ' || $1, 0))`, storable(namespace)); err != nil {
			return nil, err
		}
	}
	return collectMap[string, int](ctx, tx, sqlstore.CountRunningOf, storables(namespaces))
}

func shareArgs(shares []store.LaneShare) []any {
	return []any{
		column(shares, func(l *store.LaneShare) string { return storable(l.Namespace) }),
		column(shares, func(l *store.LaneShare) int32 { return int32(l.Most) }),
		column(shares, func(l *store.LaneShare) int64 { return l.Below }),
	}
}
