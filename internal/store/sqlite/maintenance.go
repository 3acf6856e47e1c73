package sqlite

import (
	"cmp"
	"context"
	"errors"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// PurgeNamespace deletes without a condition where the tables have nothing else, which
// SQLite does without a look at the rows.
func (s *Store) PurgeNamespace(ctx context.Context, namespace string) error {
	return s.write(ctx, "delete a namespace", func(t *tx) error {
		others, err := t.exists(translate(sqlstore.HasOthers), namespace)
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
		return sqlstore.PurgeNamespace(sharedTx{t}, namespace)
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
	countDue  = `SELECT count(*), min(next_at) FROM (SELECT next_at FROM plans WHERE shard = ? AND next_at <= ? ORDER BY next_at, job_id LIMIT ?)`
	sampleDue = `SELECT j.queue || '/' || j.type, count(*)
FROM (SELECT job_id FROM plans WHERE shard = ? AND next_at <= ? ORDER BY next_at, job_id LIMIT ?) d CROSS JOIN jobs j ON j.id = d.job_id GROUP BY 1`

	countDead = `SELECT lane, count(*) FROM (SELECT lane FROM dead LIMIT ?) GROUP BY lane`

	// History is added at its end, and mostly deleted at its beginning.
	selectTotals = `SELECT (SELECT count(*) FROM dead), coalesce((SELECT max(rowid) FROM history) - (SELECT min(rowid) FROM history) + 1, 0),
  (SELECT min(settled_at) FROM history WHERE retain_until IS NULL), (` + selectUsedBytes + `)`
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
		if err := t.get([]any{&dead, &stats.HistoryRows, timeColumn{&stats.OldestHistory}, &stats.HistoryBytes}, selectTotals); err != nil {
			return stats, err
		}
		store.Scale(stats.Dead, dead)
		stats.Running, err = allPairs[belfry.ID, int](t, translate(sqlstore.CountRunning), store.MaxRunningCounted)
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

func (s *Store) Database(ctx context.Context) (store.Database, error) {
	return readValue(ctx, s, "measure the database", func(t *tx) (store.Database, error) {
		d := store.Database{Kind: "sqlite"}
		err := t.get([]any{&d.Version, &d.Bytes}, `SELECT sqlite_version(), page_count * page_size FROM pragma_page_count, pragma_page_size`)
		return d, err
	})
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
