package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

const (
	lockForTruncate = `LOCK TABLE belfry.jobs, belfry.ended, belfry.history IN ACCESS EXCLUSIVE MODE`
	truncateJobs    = `TRUNCATE belfry.jobs, belfry.plans, belfry.revisions, belfry.keys, belfry.triggers, belfry.runs, belfry.attempts, belfry.history, belfry.dead, belfry.ended`
)

// PurgeNamespace truncates the tables if they have nothing else: that takes no time
// and leaves no dead tuples.
func (s *Store) PurgeNamespace(ctx context.Context, namespace string) error {
	ctx, cancel := detach(ctx, bulkTimeout)
	defer cancel()
	return wrapError("delete a namespace", pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '30s', true)`); err != nil {
			return err
		}
		if err := truncateIfAlone(ctx, tx, namespace); err != nil {
			return err
		}
		return sqlstore.PurgeNamespace(sharedTx{ctx, tx, nil}, namespace)
	}))
}

// truncateIfAlone empties the tables if they have nothing of other namespaces. It waits
// for the locks only then: nobody else's work is stopped.
func truncateIfAlone(ctx context.Context, tx pgx.Tx, namespace string) error {
	var may bool // a role that only reads and writes rows deletes them instead
	if err := tx.QueryRow(ctx, `SELECT has_table_privilege('belfry.jobs', 'TRUNCATE')`).Scan(&may); err != nil || !may {
		return err
	}
	for _, statement := range []string{lockForTruncate, truncateJobs} {
		var others bool
		if err := tx.QueryRow(ctx, sqlstore.HasOthers, namespace).Scan(&others); err != nil || others {
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

const (
	// eachShard reads the first due plans d of each shard along their index.
	eachShard = ` FROM generate_series(0, $1::integer - 1) AS s (shard) CROSS JOIN LATERAL (
  SELECT p.job_id, p.next_at FROM belfry.plans p WHERE p.shard = s.shard AND p.next_at <= $2 ORDER BY p.next_at, p.job_id LIMIT $3) d`

	countDueSQL  = `/* stats */ SELECT count(*), min(d.next_at)` + eachShard
	sampleDueSQL = `/* stats */ SELECT j.queue || '/' || j.type, count(*)` + eachShard + `
 CROSS JOIN LATERAL (SELECT queue, type FROM belfry.jobs WHERE id = d.job_id LIMIT 1) j GROUP BY 1`

	countDeadSQL    = `/* stats */ SELECT lane, count(*) FROM (SELECT lane FROM belfry.dead LIMIT $1) d GROUP BY lane`
	estimateDeadSQL = `/* stats */ SELECT reltuples::bigint FROM pg_class WHERE oid = 'belfry.dead'::regclass`

	// Partitions that were never analysed have -1 tuples. A default partition comes last.
	historySQL = `/* stats */ SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, coalesce(min(c.relname), '')
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'belfry.history'::regclass`
)

// Stats uses a transaction for what needs one and no longer: who locks a table would wait
// for all of it.
func (s *Store) Stats(ctx context.Context) (stats store.Stats, err error) {
	running := func(ctx context.Context, stats *store.Stats) (err error) {
		stats.Running, err = s.Running(ctx)
		return err
	}
	for _, read := range []func(context.Context, *store.Stats) error{s.countDue, s.countDead, running, s.measureHistory} {
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

func (s *Store) Database(ctx context.Context) (store.Database, error) {
	d := store.Database{Kind: "postgresql"}
	err := s.readPool.QueryRow(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1), pg_database_size(current_database())`).Scan(&d.Version, &d.Bytes)
	return d, wrapError("measure the database", err)
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
	var stats []store.PoolStats
	for name, p := range s.pools() {
		stat := p.Stat()
		stats = append(stats, store.PoolStats{
			Name: name, Max: int(stat.MaxConns()), InUse: int(stat.AcquiredConns()), Idle: int(stat.IdleConns()), Waited: stat.EmptyAcquireWaitTime(),
		})
	}
	return stats
}
