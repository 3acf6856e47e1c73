package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func (s *Store) PutActivity(ctx context.Context, node belfry.ID, list []store.Activity) error {
	for _, a := range list {
		if _, err := s.pool.Exec(ctx, `/* activity */ INSERT INTO belfry.activity (namespace, minute, node, counts) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, minute, node) DO UPDATE SET counts = excluded.counts`, a.Namespace, a.Minute, notNull(node), a.Counts[:]); err != nil {
			return wrapError("record activity", err)
		}
	}
	return nil
}

func (s *Store) Activity(ctx context.Context, namespace string, since time.Time) (list []store.Activity, err error) {
	var minute time.Time
	var counts []int64
	err = forEach(ctx, s.readPool, []any{timeColumn{&minute}, &counts}, func() error {
		list = store.MergeActivity(list, namespace, minute, counts)
		return nil
	}, `/* activity */ SELECT minute, counts FROM belfry.activity WHERE namespace = $1 AND minute >= $2 ORDER BY minute`, namespace, since)
	return list, wrapError("read activity", err)
}

// RunTimes reads the latest rows of each job and table along their indexes. A run is settled
// after its instant, or shortly before it, so that old partitions are left out.
func (s *Store) RunTimes(ctx context.Context, namespace string, jobs []belfry.ID, since time.Time, limit int) ([]store.RunTime, error) {
	table := func(name, state, finished, skipped, more string) string {
		return `(SELECT x.job_id, x.id, ` + state + `, x.scheduled_at, x.started_at, ` + finished + `, ` + skipped + ` FROM belfry.` + name + ` x
  WHERE x.job_id = j.id AND x.namespace = $2 AND x.scheduled_at >= $3` + more + ` ORDER BY x.scheduled_at DESC, x.id DESC LIMIT $4)`
	}
	times, err := collect(ctx, s.readPool, scanInto(func(r *store.RunTime) []any {
		return []any{idColumn(&r.JobID), idColumn(&r.RunID), &r.Status, timeColumn{&r.ScheduledAt}, nullTimeColumn{&r.StartedAt}, nullTimeColumn{&r.FinishedAt}, &r.Skipped}
	}), `/* run times */ SELECT t.* FROM unnest($1::uuid[]) AS j (id) CROSS JOIN LATERAL (`+
		table("runs", "x.state", "NULL::timestamptz", "0::bigint", "")+` UNION ALL `+table("dead", "'dead'", "x.died_at", "0::bigint", "")+` UNION ALL `+
		table("history", "x.state", "x.settled_at", "x.skipped_count", " AND x.settled_at >= $3::timestamptz - interval '1 day'")+`) t`, uuids(jobs), namespace, since, limit)
	return times, wrapError("read the times of runs", err)
}

func (s *Store) JobsByName(ctx context.Context, namespace string, after belfry.ID, limit int) ([]belfry.ID, error) {
	ids, err := collectIDs(ctx, s.readPool, `/* jobs by name */ SELECT id FROM belfry.jobs WHERE namespace = $1 AND name IS NOT NULL AND state <> 'deleted'
  AND name > coalesce((SELECT name FROM belfry.jobs WHERE id = $2), '') ORDER BY namespace, name LIMIT $3`, namespace, uuid(after), limit)
	return column(ids, func(id *pgtype.UUID) belfry.ID { return id.Bytes }), wrapError("list jobs by name", err)
}

func (s *Store) AddSession(ctx context.Context, session store.Session) error {
	_, err := s.pool.Exec(ctx, `INSERT INTO belfry.sessions (id, key_hash, seen_at) VALUES ($1, $2, clock_timestamp()) ON CONFLICT DO NOTHING`, session.ID[:], session.Key[:])
	return wrapError("record a session", err)
}

func (s *Store) Session(ctx context.Context, id store.Hash) (store.Session, error) {
	var key []byte
	var old bool
	err := s.readPool.QueryRow(ctx, `SELECT key_hash, seen_at < clock_timestamp() - $3 * interval '1 second' FROM belfry.sessions
WHERE id = $1 AND seen_at > clock_timestamp() - $2 * interval '1 second'`, id[:], store.SessionTimeout.Seconds(), store.SessionTouch.Seconds()).Scan(&key, &old)
	if err == pgx.ErrNoRows || err == nil && len(key) != len(store.Hash{}) {
		return store.Session{}, store.ErrNoSession
	}
	if err == nil && old {
		_, err = s.pool.Exec(ctx, `UPDATE belfry.sessions SET seen_at = clock_timestamp() WHERE id = $1`, id[:])
	}
	if err != nil {
		return store.Session{}, wrapError("look up a session", err)
	}
	return store.Session{ID: id, Key: store.Hash(key)}, nil
}

func (s *Store) EndSession(ctx context.Context, id store.Hash) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM belfry.sessions WHERE id = $1`, id[:])
	return wrapError("end a session", err)
}
