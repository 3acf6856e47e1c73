package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	whereTimes  = ` WHERE r.job_id = @job AND r.namespace = @namespace AND r.scheduled_at >= @since ORDER BY r.scheduled_at DESC, r.id DESC LIMIT @limit)`
	selectTimes = `SELECT * FROM (SELECT r.job_id, r.id, r.state, r.scheduled_at, r.started_at, NULL, 0 FROM runs r` + whereTimes +
		` UNION ALL SELECT * FROM (SELECT r.job_id, r.id, 'dead', r.scheduled_at, r.started_at, r.died_at, 0 FROM dead r` + whereTimes +
		` UNION ALL SELECT * FROM (SELECT r.job_id, r.id, r.state, r.scheduled_at, r.started_at, r.settled_at, r.skipped_count FROM history r` + whereTimes
)

func (s *Store) RunTimes(ctx context.Context, namespace string, jobs []belfry.ID, since time.Time, limit int) ([]store.RunTime, error) {
	return readValue(ctx, s, "read the times of runs", func(t *tx) (times []store.RunTime, err error) {
		for _, job := range jobs {
			found, err := all(t, scanInto(func(r *store.RunTime) []any {
				return []any{bytesColumn{r.JobID[:]}, bytesColumn{r.RunID[:]}, &r.Status, timeColumn{&r.ScheduledAt}, nullTimeColumn{&r.StartedAt}, nullTimeColumn{&r.FinishedAt}, &r.Skipped}
			}), selectTimes, sql.Named("job", job[:]), sql.Named("namespace", namespace), sql.Named("since", micro(since)), sql.Named("limit", atMost(limit)))
			if err != nil {
				return nil, err
			}
			times = append(times, found...)
		}
		return times, nil
	})
}
