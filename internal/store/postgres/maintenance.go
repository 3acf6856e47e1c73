package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
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
var namespaceTables = []string{"triggers", "runs", "attempts", "history", "dead", "ended", "requests", "events", "monitors", "channels", "alerts", "failing", "activity", "jobs"}

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

func (s *Store) AddTraceLinks(ctx context.Context, ids []belfry.ID, traceparent string) error {
	_, err := s.pool.Exec(ctx, `/* add trace links */
INSERT INTO belfry.trace_links (id, traceparent, created_at) SELECT id, $2, clock_timestamp() FROM unnest($1::uuid[]) AS l (id) ON CONFLICT DO NOTHING`,
		uuids(ids), storable(traceparent))
	return wrapError("add trace links", err)
}

func (s *Store) TraceLinks(ctx context.Context, ids []belfry.ID) (map[belfry.ID]string, error) {
	links, err := collectMap[belfry.ID, string](ctx, s.readPool, `/* trace links */ SELECT id, traceparent FROM belfry.trace_links WHERE id = ANY($1)`, uuids(ids))
	return links, wrapError("look up trace links", err)
}

const (
	// eachShard reads the first due plans d of each shard along their index.
	eachShard = ` FROM generate_series(0, $1::integer - 1) AS s (shard) CROSS JOIN LATERAL (
  SELECT p.job_id, p.next_at FROM belfry.plans p WHERE p.shard = s.shard AND p.next_at <= $2 ORDER BY p.next_at, p.job_id LIMIT $3) d`

	countDueSQL  = `/* stats */ SELECT count(*), min(d.next_at)` + eachShard
	sampleDueSQL = `/* stats */ SELECT j.queue || '/' || j.type, count(*)` + eachShard + `
 CROSS JOIN LATERAL (SELECT queue, type FROM belfry.jobs WHERE id = d.job_id LIMIT 1) j GROUP BY 1`

	countDeadSQL    = `/* stats */ SELECT lane, count(*) FROM (SELECT lane FROM belfry.dead LIMIT $1) d GROUP BY lane`
	estimateDeadSQL = `/* stats */ SELECT reltuples::bigint FROM pg_class WHERE oid = 'belfry.dead'::regclass`
	countRunningSQL = `/* stats */ SELECT worker, count(*) FROM (SELECT worker FROM belfry.runs WHERE state = 'running' LIMIT $1) r GROUP BY worker`

	// Partitions that were never analysed have -1 tuples. A default partition comes last.
	historySQL = `/* stats */ SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, coalesce(min(c.relname), '')
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'belfry.history'::regclass`
)

// Stats uses a transaction for what needs one and no longer: who locks a table would wait
// for all of it.
func (s *Store) Stats(ctx context.Context) (stats store.Stats, err error) {
	for _, read := range []func(context.Context, *store.Stats) error{s.countDue, s.countDead, s.countRunning, s.measureHistory} {
		if err := read(ctx, &stats); err != nil {
			return store.Stats{}, wrapError("count for metrics", err)
		}
	}
	return stats, nil
}

func (s *Store) countDue(ctx context.Context, stats *store.Stats) error {
	return s.scanSnapshot(ctx, func(tx pgx.Tx) (err error) {
		now, due := s.Now(), 0
		err = tx.QueryRow(ctx, countDueSQL, s.shards, now, store.PerShard(store.MaxDueCounted, s.shards)).Scan(&due, timeColumn{&stats.OldestDue})
		if err != nil || due == 0 {
			return err
		}
		stats.Due, err = collectMap[string, int](ctx, tx, sampleDueSQL, s.shards, now, store.PerShard(store.MaxDueSampled, s.shards))
		store.Scale(stats.Due, due)
		return err
	})
}

func (s *Store) countDead(ctx context.Context, stats *store.Stats) (err error) {
	if stats.Dead, err = collectMap[string, int](ctx, s.readPool, countDeadSQL, store.MaxDeadCounted); err != nil {
		return err
	}
	counted := 0
	for _, n := range stats.Dead {
		counted += n
	}
	if counted < store.MaxDeadCounted {
		return nil
	}
	var estimate int
	err = s.readPool.QueryRow(ctx, estimateDeadSQL).Scan(&estimate)
	store.Scale(stats.Dead, estimate)
	return err
}

func (s *Store) countRunning(ctx context.Context, stats *store.Stats) (err error) {
	stats.Running, err = collectMap[belfry.ID, int](ctx, s.readPool, countRunningSQL, store.MaxRunningCounted)
	return err
}

func (s *Store) measureHistory(ctx context.Context, stats *store.Stats) error {
	var oldest string
	if err := s.readPool.QueryRow(ctx, historySQL).Scan(&stats.HistoryRows, &stats.HistoryBytes, &oldest); err != nil {
		return err
	}
	if day, err := time.Parse(partitionName, oldest); err == nil {
		stats.OldestHistory = day
	}
	return nil
}

func (s *Store) Pools() []store.PoolStats {
	var pools []store.PoolStats
	for _, p := range []struct {
		name string
		pool *pool
	}{{"main", s.pool}, {"read", s.readPool}, {"priority", s.priorityPool}} {
		stat := p.pool.Stat()
		pools = append(pools, store.PoolStats{
			Name: p.name, Max: int(stat.MaxConns()), InUse: int(stat.AcquiredConns()), Idle: int(stat.IdleConns()), Waited: stat.EmptyAcquireWaitTime(),
		})
	}
	return pools
}
