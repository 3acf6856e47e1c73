package sqlite

import (
	"context"
	"database/sql"
	"math/rand/v2"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const (
	scanNamespace = ` FROM jobs WHERE namespace = ? AND state <> 'deleted' LIMIT ?`
	scanQueue     = ` FROM jobs WHERE namespace = ? AND queue = ? AND state <> 'deleted' LIMIT ?`

	selectPlanned = `SELECT ` + sqlstore.PlanColumns + `, p.digest FROM `
	plannedOf     = selectPlanned + `plans p WHERE p.next_at IS NOT NULL AND p.job_id IN (SELECT id`

	selectRowids = `SELECT coalesce((SELECT min(rowid) FROM jobs), 0), coalesce((SELECT max(rowid) FROM jobs), -1)`
	samplePlans  = selectPlanned + `json_each(?) CROSS JOIN jobs j ON j.rowid >= json_each.value AND j.rowid < json_each.value + ?
CROSS JOIN plans p ON p.job_id = j.id WHERE p.next_at IS NOT NULL LIMIT ?`
)

func scanPlanned(rows *sql.Rows, p *store.Planned) error {
	return rows.Scan(sharedColumns(sqlstore.PlannedFields(p))...)
}

// NamespacePlans counts first, which reads an index alone.
func (s *Store) NamespacePlans(ctx context.Context, namespace, queue string, limit int) (plans []store.Planned, complete bool, err error) {
	scan, args := scanNamespace, []any{namespace, limit + 1}
	if queue != "" {
		scan, args = scanQueue, []any{namespace, queue, limit + 1}
	}
	err = s.read(ctx, "read the plans of a namespace", func(t *tx) error {
		jobs := 0
		if err := t.get([]any{&jobs}, `SELECT count(*) FROM (SELECT 1`+scan+`)`, args...); err != nil || jobs > limit {
			return err
		}
		complete = true
		plans, err = all(t, scanPlanned, plannedOf+scan+`)`, args...)
		return err
	})
	return plans, complete && err == nil, err
}

// SamplePlans reads jobs at random rowids, which are consecutive. If most of those that were
// given out are gone, it reads stretches of them.
func (s *Store) SamplePlans(ctx context.Context, n int) (plans []store.Planned, weight float64, err error) {
	err = s.read(ctx, "sample plans", func(t *tx) error {
		var low, high int64
		if err := t.get([]any{&low, &high}, selectRowids); err != nil {
			return err
		}
		for length := int64(1); len(plans) < n/4 && length < 2*(high-low+1); length *= 8 {
			places := high - low + length // where a stretch may begin that has a rowid
			starts := make([]int64, n)
			for i := range starts {
				starts[i] = low - length + 1 + rand.Int64N(places)
			}
			weight = float64(places) / (float64(n) * float64(length))
			if plans, err = all(t, scanPlanned, samplePlans, string(belfry.MustJSON(starts)), length, 8*n); err != nil {
				return err
			}
		}
		return nil
	})
	return plans, weight, err
}
