package postgres

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

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
