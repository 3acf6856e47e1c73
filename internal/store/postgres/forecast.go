package postgres

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const (
	scanNamespaceSQL = ` FROM belfry.jobs WHERE namespace = $1 AND state <> 'deleted' ORDER BY namespace, id LIMIT $2`
	scanQueueSQL     = ` FROM belfry.jobs WHERE namespace = $1 AND queue = $3 AND queue <> 'default' AND state <> 'deleted' ORDER BY namespace, queue, id LIMIT $2`

	selectPlannedSQL = `/* forecast */ SELECT ` + sqlstore.PlanColumns + `, p.digest FROM `
	joinPlannedSQL   = ` CROSS JOIN LATERAL (SELECT * FROM belfry.plans WHERE job_id = j.id AND next_at IS NOT NULL LIMIT 1) p`
	samplePlansSQL   = selectPlannedSQL + `belfry.plans p WHERE p.ctid = ANY($1::text[]::tid[]) AND p.next_at IS NOT NULL`

	// Pages as they are now. The planner is kept from reading all of them.
	planPagesSQL = `/* forecast */ SELECT pg_relation_size('belfry.plans') / b.size, b.size
  FROM (SELECT current_setting('block_size')::bigint AS size, set_config('enable_seqscan', 'off', true)) b`
)

var scanPlanned = scanInto(func(p *store.Planned) []any { return sharedColumns(sqlstore.PlannedFields(p)) })

// NamespacePlans counts first, which reads an index alone. Jobs in the default queue have
// none of their own: the caller gets those of all queues.
func (s *Store) NamespacePlans(ctx context.Context, namespace, queue string, limit int) (plans []store.Planned, complete bool, err error) {
	scan, args := scanNamespaceSQL, []any{namespace, limit + 1}
	if queue != "" && queue != belfry.DefaultQueue {
		scan, args = scanQueueSQL, append(args, storable(queue))
	}
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		jobs := 0
		err := tx.QueryRow(ctx, `/* forecast */ SELECT count(*) FROM (SELECT 1`+scan+`) j`, args...).Scan(&jobs)
		if complete = jobs <= limit; err != nil || !complete {
			return err
		}
		plans, err = collect(ctx, tx, scanPlanned, selectPlannedSQL+`(SELECT id`+scan+`) j`+joinPlannedSQL, args...)
		return err
	})
	return plans, complete && err == nil, wrapError("read the plans of a namespace", err)
}

const (
	probesPerPlan = 4 // places of the table that are looked at for each plan: a page has room for more rows than those of plans
	probesPerPage = 8 // which find about two plans
)

// SamplePlans looks at random places of the table, of which some have a row. They are on
// many pages: rows of a page were often created together and are alike.
func (s *Store) SamplePlans(ctx context.Context, n int) (plans []store.Planned, weight float64, err error) {
	err = s.scanSnapshot(ctx, func(tx pgx.Tx) error {
		var pages, size int64
		if err := tx.QueryRow(ctx, planPagesSQL).Scan(&pages, &size); err != nil || pages == 0 {
			return err
		}
		var places []string
		places, weight = samplePlaces(pages, size, n)
		plans, err = collect(ctx, tx, scanPlanned, samplePlansSQL, places)
		return err
	})
	return plans, weight, wrapError("sample plans", err)
}

// samplePlaces draws places of a table with so many pages of a size, each at most once, and
// returns how many places each stands for.
func samplePlaces(pages, size int64, n int) (places []string, weight float64) {
	most := (size - 24) / 28 // rows of a page: without its header, the least that a row takes
	drawn := make([]int64, 0, n*probesPerPlan)
	for len(drawn) < cap(drawn) {
		page := rand.Int64N(pages)
		for range probesPerPage {
			drawn = append(drawn, page*most+rand.Int64N(most))
		}
	}
	slices.Sort(drawn)
	drawn = slices.Compact(drawn)
	return column(drawn, func(p *int64) string {
		return "(" + strconv.FormatInt(*p/most, 10) + "," + strconv.FormatInt(*p%most+1, 10) + ")"
	}), float64(pages*most) / float64(len(drawn))
}
