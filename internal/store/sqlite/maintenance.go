package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectNamespaces = `WITH RECURSIVE found (namespace) AS (
  SELECT min(namespace) FROM jobs WHERE state <> 'deleted'
  UNION ALL
  SELECT (SELECT min(j.namespace) FROM jobs j WHERE j.state <> 'deleted' AND j.namespace > found.namespace) FROM found WHERE found.namespace IS NOT NULL)
SELECT namespace FROM found WHERE namespace IS NOT NULL`
	hasOthers = `SELECT EXISTS (SELECT 1 FROM jobs WHERE namespace <> ?1) OR EXISTS (SELECT 1 FROM ended WHERE namespace <> ?1) OR EXISTS (SELECT 1 FROM history WHERE namespace <> ?1)`
)

// Namespaces looks up one namespace after another in the index of lists, so that it costs
// the same however many jobs there are.
func (s *Store) Namespaces(ctx context.Context) ([]string, error) {
	return readAll(ctx, s, "list namespaces", func(rows *sql.Rows, name *string) error { return rows.Scan(name) }, selectNamespaces)
}

// DeleteNamespace deletes without a condition where the tables have nothing else, which
// SQLite does without a look at the rows.
func (s *Store) DeleteNamespace(ctx context.Context, namespace string) error {
	return s.write(ctx, "delete a namespace", func(t *tx) error {
		others, err := t.exists(hasOthers, namespace)
		if err != nil {
			return err
		}
		if !others {
			for _, table := range []string{"plans", "revisions", "keys", "jobs", "triggers", "runs", "attempts", "history", "dead", "ended"} {
				if err := t.run(`DELETE FROM ` + table); err != nil {
					return err
				}
			}
		}
		for _, table := range []string{"plans", "revisions", "keys"} {
			if err := t.run(`DELETE FROM `+table+` WHERE job_id IN (SELECT id FROM jobs WHERE namespace = ?1 UNION ALL SELECT id FROM ended WHERE namespace = ?1)`, namespace); err != nil {
				return err
			}
		}
		for _, table := range []string{"triggers", "runs", "attempts", "history", "dead", "ended", "requests", "events", "monitors", "channels", "alerts", "failing", "activity", "jobs"} {
			if err := t.run(`DELETE FROM `+table+` WHERE namespace = ?`, namespace); err != nil {
				return err
			}
		}
		return nil
	})
}

const selectUsedBytes = `SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size`

func (s *Store) Usage(ctx context.Context) (store.Usage, error) {
	return readValue(ctx, s, "measure the tables", func(t *tx) (u store.Usage, err error) {
		err = t.get([]any{&u.Bytes}, selectUsedBytes)
		return u, err
	})
}

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

const (
	insertTraceLink  = `INSERT INTO trace_links (id, traceparent, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	selectTraceLinks = `SELECT id, traceparent FROM trace_links WHERE id IN (SELECT unhex(value, '-') FROM json_each(?))`
)

func (s *Store) AddTraceLinks(ctx context.Context, ids []belfry.ID, traceparent string) error {
	return s.write(ctx, "add trace links", func(t *tx) error {
		for i := range ids {
			if err := t.run(insertTraceLink, ids[i][:], traceparent, micro(t.now)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) TraceLinks(ctx context.Context, ids []belfry.ID) (map[belfry.ID]string, error) {
	return readValue(ctx, s, "look up trace links", func(t *tx) (map[belfry.ID]string, error) {
		return allPairs[belfry.ID, string](t, selectTraceLinks, idsJSON(ids))
	})
}

const (
	countDue  = `SELECT count(*), min(next_at) FROM (SELECT next_at FROM plans WHERE shard = ? AND next_at <= ? ORDER BY next_at, job_id LIMIT ?)`
	sampleDue = `SELECT j.queue || '/' || j.type, count(*)
FROM (SELECT job_id FROM plans WHERE shard = ? AND next_at <= ? ORDER BY next_at, job_id LIMIT ?) d CROSS JOIN jobs j ON j.id = d.job_id GROUP BY 1`

	countDead    = `SELECT lane, count(*) FROM (SELECT lane FROM dead LIMIT ?) GROUP BY lane`
	countAllDead = `SELECT count(*) FROM dead`
	countRunning = `SELECT worker, count(*) FROM (SELECT worker FROM runs WHERE state = 'running' LIMIT ?) GROUP BY worker`

	// History is added at its end, and mostly deleted at its beginning.
	countHistory = `SELECT coalesce((SELECT max(rowid) FROM history) - (SELECT min(rowid) FROM history) + 1, 0)`
	selectOldest = `SELECT min(settled_at) FROM history WHERE retain_until IS NULL`
)

func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	return readValue(ctx, s, "count for metrics", func(t *tx) (stats store.Stats, err error) {
		if err := t.countDue(&stats, s.shards); err != nil {
			return stats, err
		}
		if stats.Dead, err = allPairs[string, int](t, countDead, store.MaxDeadCounted); err != nil {
			return stats, err
		}
		var dead int
		if err := t.get([]any{&dead}, countAllDead); err != nil {
			return stats, err
		}
		store.Scale(stats.Dead, dead)
		if stats.Running, err = allPairs[belfry.ID, int](t, countRunning, store.MaxRunningCounted); err != nil {
			return stats, err
		}
		if err := t.get([]any{&stats.HistoryRows}, countHistory); err != nil {
			return stats, err
		}
		if err := t.get([]any{timeColumn{&stats.OldestHistory}}, selectOldest); err != nil {
			return stats, err
		}
		err = t.get([]any{&stats.HistoryBytes}, selectUsedBytes)
		return stats, err
	})
}

func (t *tx) countDue(stats *store.Stats, shards int) error {
	stats.Due = map[string]int{}
	total := 0
	for shard := range shards {
		var n int
		first := stats.OldestDue
		if err := t.get([]any{&n, timeColumn{&first}}, countDue, shard, micro(t.now), store.PerShard(store.MaxDueCounted, shards)); err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		total += n
		if stats.OldestDue.IsZero() || first.Before(stats.OldestDue) {
			stats.OldestDue = first
		}
		sample, err := allPairs[string, int](t, sampleDue, shard, micro(t.now), store.PerShard(store.MaxDueSampled, shards))
		if err != nil {
			return err
		}
		for lane, n := range sample {
			stats.Due[lane] += n
		}
	}
	store.Scale(stats.Due, total)
	return nil
}

func (s *Store) Pools() []store.PoolStats {
	stats := func(name string, p *pool) store.PoolStats {
		return store.PoolStats{Name: name, Max: p.size, InUse: p.size - len(p.idle), Idle: len(p.idle)}
	}
	return []store.PoolStats{stats("write", s.writer), stats("read", s.reader)}
}

// statementNames are what metrics call transactions, as on PostgreSQL, by what they do.
var statementNames = map[string]string{
	"claim": "claim", "finish": "finish", "fire": "fire", "reap": "reap", "prune": "prune", "promote runs": "promote", "archive jobs": "archive",
	"record a heartbeat": "heartbeat", "read the upcoming plans": "plans", "count the ready runs": "count ready", "create jobs": "create", "edit a job": "edit",
	"list jobs": "list", "count for metrics": "stats", "cancel a run": "cancel", "discard dead letters": "discard", "redrive dead letters": "redrive",
}

func statementName(doing string) string {
	return cmp.Or(statementNames[doing], "other")
}

// isFailure reports whether an error of a transaction says that something is wrong with
// the database, and not with what it was asked to do.
func isFailure(err error) bool {
	code := belfry.CodeOf(err)
	return err != nil && !errors.Is(err, context.Canceled) && (code == belfry.Unavailable || code == belfry.Internal)
}
