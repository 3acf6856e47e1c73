package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const countRunningOf = `SELECT count(*) FROM runs INDEXED BY runs_running WHERE state = 'running' AND namespace = ?`

func (s *Store) ClaimShares(ctx context.Context, c belfry.Claim, shares store.Shares) ([]*belfry.Run, error) {
	return s.claim(ctx, c, func(t *tx) (out []readyRun, err error) {
		running := map[string]int{}
		for namespace := range shares.MaxRunning {
			var n int
			if err := t.get([]any{&n}, countRunningOf, namespace); err != nil {
				return nil, err
			}
			running[namespace] = n
		}
		taken := map[string]int{}
		of, most := map[belfry.ID]string{}, map[string]int{}
		for _, l := range shares.Of(&c, running) {
			more, err := all(t, scanReady, selectReady, l.Lane, l.Below, int64(l.Most))
			if err != nil {
				return nil, err
			}
			for _, r := range more {
				of[r.id] = l.Namespace
			}
			most[l.Namespace] = l.Most
			out = append(out, more...)
		}
		slices.SortFunc(out, func(a, b readyRun) int { return cmp.Or(cmp.Compare(a.rank, b.rank), a.id.Compare(b.id)) })
		out = slices.DeleteFunc(out, func(r readyRun) bool {
			taken[of[r.id]]++
			return taken[of[r.id]] > most[of[r.id]]
		})
		return out[:min(len(out), c.Limit)], nil
	})
}
