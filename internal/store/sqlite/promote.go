package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	promoteRetries = `UPDATE runs SET state = 'ready', rank = ready_at + weight WHERE id IN
(SELECT id FROM runs WHERE state = 'retry' AND ready_at <= ? AND` + inShards + `ORDER BY ready_at LIMIT ?)`

	selectNextRetry = `SELECT ready_at FROM runs WHERE state = 'retry' AND` + inShards + `ORDER BY ready_at LIMIT 1`

	// notWaiting is a condition on the live runs of a job that can use an index.
	notWaiting = ` state IN ('ready', 'running', 'retry') `

	promoteWaiting = `UPDATE runs SET state = CASE WHEN ready_at > @now THEN 'retry' ELSE 'ready' END, ready_at = max(ready_at, @now), rank = max(ready_at, @now) + weight `

	// promoteAllWaiting is for a job that now allows several runs at a time.
	promoteAllWaiting = promoteWaiting + `WHERE job_id = @job AND state = 'waiting'`

	promoteFirstWaiting = promoteWaiting + `
WHERE id = (SELECT id FROM runs WHERE job_id = @job AND state = 'waiting' ORDER BY scheduled_at, id LIMIT 1)
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = @job AND r.` + notWaiting + `) RETURNING state`

	// selectUnblockedJobs finds jobs whose runs wait for nothing. It goes from job to
	// job, however many runs of each are waiting.
	selectUnblockedJobs = `
WITH RECURSIVE waiting (job_id) AS (
  SELECT min(job_id) FROM runs WHERE state = 'waiting'
  UNION ALL
  SELECT (SELECT min(r.job_id) FROM runs r WHERE r.state = 'waiting' AND r.job_id > waiting.job_id) FROM waiting WHERE waiting.job_id IS NOT NULL
)
SELECT waiting.job_id FROM waiting WHERE waiting.job_id IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = waiting.job_id AND r.` + notWaiting + `)
  AND EXISTS (SELECT 1 FROM plans p WHERE p.job_id = waiting.job_id AND p.` + inShards + `) LIMIT ?`
)

func (s *Store) Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error) {
	owned := shardsJSON(shards)
	err = s.write(ctx, "promote runs", func(t *tx) error {
		if promoted, err = t.exec(promoteRetries, micro(t.now), owned, atMost(limit)); err != nil {
			return err
		}
		t.changes.ready = promoted > 0
		unblocked, err := all(t, scanID, selectUnblockedJobs, owned, atMost(limit-promoted))
		if err != nil {
			return err
		}
		for _, job := range unblocked {
			if err := t.promoteFirstWaiting(job); err != nil {
				return err
			}
		}
		promoted += len(unblocked)
		_, err = t.find([]any{timeColumn{&next}}, selectNextRetry, owned)
		return err
	})
	if err != nil {
		return 0, time.Time{}, err
	}
	return promoted, next, nil
}

func scanID(rows *sql.Rows, id *belfry.ID) error { return rows.Scan(bytesColumn{id[:]}) }

// promoteFirstWaiting promotes the first waiting run of a job that has no other live
// run.
func (t *tx) promoteFirstWaiting(job belfry.ID) error {
	var state belfry.RunStatus
	found, err := t.find([]any{&state}, promoteFirstWaiting, sql.Named("now", micro(t.now)), sql.Named("job", job[:]))
	if found {
		t.changes.requeued(state)
	}
	return err
}
