package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry/internal/store"
)

// Namespaces looks up one namespace after another in the index of lists, so that it costs
// the same however many jobs there are.
func (s *Store) Namespaces(ctx context.Context) ([]string, error) {
	found, err := collect(ctx, s.readPool, pgx.RowTo[string], `
WITH RECURSIVE found AS (
  (SELECT namespace FROM belfry.jobs WHERE state <> 'deleted' ORDER BY namespace LIMIT 1)
  UNION ALL
  SELECT (SELECT j.namespace FROM belfry.jobs j WHERE j.state <> 'deleted' AND j.namespace > found.namespace ORDER BY j.namespace LIMIT 1)
    FROM found WHERE found.namespace IS NOT NULL)
SELECT namespace FROM found WHERE namespace IS NOT NULL`)
	return found, wrapError("list namespaces", err)
}

const (
	lockForTruncate = `LOCK TABLE belfry.jobs, belfry.ended, belfry.history IN ACCESS EXCLUSIVE MODE`
	hasOthers       = `SELECT EXISTS (SELECT 1 FROM belfry.jobs WHERE namespace <> $1) OR EXISTS (SELECT 1 FROM belfry.ended WHERE namespace <> $1)
		OR EXISTS (SELECT 1 FROM belfry.history WHERE namespace <> $1)`
	truncateJobs = `TRUNCATE belfry.jobs, belfry.plans, belfry.revisions, belfry.keys, belfry.triggers, belfry.runs, belfry.attempts, belfry.history, belfry.dead, belfry.ended`
)

// namespaceTables are the tables with a namespace of their own; the rows of the others
// belong to a job.
var namespaceTables = []string{"triggers", "runs", "attempts", "history", "dead", "ended", "requests", "events", "jobs"}

// DeleteNamespace truncates the tables if they have nothing else: that takes no time
// and leaves no dead tuples.
func (s *Store) DeleteNamespace(ctx context.Context, namespace string) error {
	ctx, cancel := detach(ctx, bulkTimeout)
	defer cancel()
	return wrapError("delete a namespace", pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '30s', true)`); err != nil {
			return err
		}
		if err := truncateIfAlone(ctx, tx, namespace); err != nil {
			return err
		}
		for _, table := range []string{"plans", "revisions", "keys"} {
			if _, err := tx.Exec(ctx, `DELETE FROM belfry.`+table+` x USING (SELECT id, namespace FROM belfry.jobs UNION ALL SELECT id, namespace FROM belfry.ended) j
				WHERE j.id = x.job_id AND j.namespace = $1`, namespace); err != nil {
				return err
			}
		}
		for _, table := range namespaceTables {
			if _, err := tx.Exec(ctx, `DELETE FROM belfry.`+table+` WHERE namespace = $1`, namespace); err != nil {
				return err
			}
		}
		return nil
	}))
}

// truncateIfAlone empties the tables if they have nothing of other namespaces. It waits
// for the locks only then: nobody else's work is stopped.
func truncateIfAlone(ctx context.Context, tx pgx.Tx, namespace string) error {
	for _, statement := range []string{lockForTruncate, truncateJobs} {
		var others bool
		if err := tx.QueryRow(ctx, hasOthers, namespace).Scan(&others); err != nil || others {
			return err
		}
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) Usage(ctx context.Context) (u store.Usage, err error) {
	err = s.readPool.QueryRow(ctx, `SELECT pg_total_relation_size('belfry.jobs') + pg_total_relation_size('belfry.plans'),
		coalesce(pg_stat_get_dead_tuples('belfry.plans'::regclass), 0), coalesce(pg_stat_get_dead_tuples('belfry.runs'::regclass), 0)`).
		Scan(&u.Bytes, &u.DeadPlans, &u.DeadRuns)
	return u, wrapError("measure the tables", err)
}
