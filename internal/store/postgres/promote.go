package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
)

func (s *Store) Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	tag, err := s.pool.Exec(ctx, `/* promote */
UPDATE belfry.runs SET state = 'ready'
 WHERE id IN (SELECT id FROM belfry.runs WHERE state = 'retry' AND ready_at <= clock_timestamp() AND shard = ANY($1)
               ORDER BY ready_at LIMIT $2 FOR UPDATE SKIP LOCKED)`, int32s(shards), limit)
	if err != nil {
		return 0, time.Time{}, wrapError("promote", err)
	}
	promoted = int(tag.RowsAffected())
	if promoted > 0 {
		s.notifier.notifyReady()
	}
	waiting, err := s.promoteWaiting(ctx, shards)
	if err != nil {
		return promoted, time.Time{}, wrapError("promote waiting runs", err)
	}
	promoted += waiting
	err = s.pool.QueryRow(ctx, `SELECT min(ready_at) FROM belfry.runs WHERE state = 'retry' AND shard = ANY($1)`, int32s(shards)).Scan(timeColumn{&next})
	return promoted, next, wrapError("promote", err)
}

// advance promotes the first waiting run of each of the jobs that has no other live
// run, and returns how many are ready.
//
// The plans are locked first, and the runs read in a statement of its own, so that its
// snapshot is younger than the locks. Two calls for one job are then serialized, and
// the second sees what the first did. Every transaction that makes runs of the job
// takes the same lock and raises the version. A fire that took its snapshot before us
// and gets the lock after us still sees the promoted run as waiting, and makes nothing
// beside it, since every live run counts. So such a job never has more than one live
// run that does not wait.
//
// The other way round a run may wait for nothing: a fire still sees a run that is
// settled, and makes one that waits for it, which the settling transaction did not see.
// Nor does anybody come here if the process dies after settling. Promote looks for such
// runs.
func (s *Store) advance(ctx context.Context, jobs []belfry.ID) (ready int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	ids := uuids(jobs)
	batch := &pgx.Batch{} // a transaction of its own
	batch.Queue(`/* advance */ SELECT count(*) FROM (SELECT 1 FROM belfry.plans WHERE job_id = ANY($1) ORDER BY job_id FOR UPDATE) p`, ids)
	retries := 0
	batch.Queue(`/* advance */
WITH head AS MATERIALIZED (
  SELECT x.id, greatest(x.ready_at, c.now) AS ready_at, CASE WHEN x.ready_at > c.now THEN 'retry' ELSE 'ready' END AS state
    FROM (SELECT DISTINCT unnest($1::uuid[])) AS j (job_id)
   CROSS JOIN (SELECT clock_timestamp() AS now) c
   CROSS JOIN LATERAL (SELECT r.id, r.ready_at FROM belfry.runs r WHERE r.job_id = j.job_id AND r.state = 'waiting' ORDER BY r.scheduled_at, r.id LIMIT 1) x
   WHERE `+onlyWaitingRuns+`)
UPDATE belfry.runs r SET state = head.state, ready_at = head.ready_at, rank = (extract(epoch FROM head.ready_at) * 1000000)::bigint + r.weight
  FROM head WHERE r.id = head.id AND r.state = 'waiting'
RETURNING r.state`, ids).Query(func(rows pgx.Rows) error {
		var state belfry.RunStatus
		_, err := pgx.ForEachRow(rows, []any{&state}, func() error {
			if state == belfry.RunReady {
				ready++
			} else {
				retries++
			}
			return nil
		})
		return err
	})
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}
	if ready > 0 {
		s.notifier.notifyReady()
	}
	if retries > 0 {
		s.notifier.notifyPlans(false)
	}
	return ready, nil
}

// releaseWaitingSQL promotes all waiting runs of a job that is no longer serial.
const releaseWaitingSQL = `/* advance */
UPDATE belfry.runs SET state = CASE WHEN ready_at > c.now THEN 'retry' ELSE 'ready' END, ready_at = greatest(ready_at, c.now),
       rank = (extract(epoch FROM greatest(ready_at, c.now)) * 1000000)::bigint + weight
  FROM (SELECT clock_timestamp() AS now) c WHERE job_id = $1 AND state = 'waiting'`

// onlyWaitingRuns is a condition on a job j whose live runs all wait.
const onlyWaitingRuns = `(SELECT 1 FROM belfry.runs y WHERE y.job_id = j.job_id AND y.state IN ('ready', 'running', 'retry') LIMIT 1) IS NULL`

// waitingScanLimit is how many jobs with waiting runs one call of promoteWaiting reads.
const waitingScanLimit = 1000

// scanPosition is where the next scan of jobs with waiting runs starts.
type scanPosition struct {
	sync.Mutex
	after belfry.ID
}

// promoteWaiting promotes runs of the shards that wait for nothing. It scans a bounded
// number of jobs, and the next call continues where this one ended.
func (s *Store) promoteWaiting(ctx context.Context, shards []int) (ready int, err error) {
	s.waitingScan.Lock()
	defer s.waitingScan.Unlock()
	var (
		next, job      belfry.ID
		jobs           []belfry.ID
		last, promoted bool
	)
	err = forEach(ctx, s.pool, []any{idColumn(&job), &last, &promoted}, func() error {
		if last {
			next = job
		}
		if promoted {
			jobs = append(jobs, job)
		}
		return nil
	}, `/* advance */
WITH RECURSIVE j (job_id, shard, n) AS (
  (SELECT job_id, shard, 1 FROM belfry.runs WHERE state = 'waiting' AND job_id > $2 ORDER BY job_id LIMIT 1)
   UNION ALL
  SELECT r.job_id, r.shard, j.n + 1 FROM j
   CROSS JOIN LATERAL (SELECT job_id, shard FROM belfry.runs WHERE state = 'waiting' AND job_id > j.job_id ORDER BY job_id LIMIT 1) r
   WHERE j.n < $3)
SELECT job_id, n = $3, shard = ANY($1) AND `+onlyWaitingRuns+` FROM j`, int32s(shards), notNull(s.waitingScan.after), waitingScanLimit)
	if err != nil {
		return 0, err
	}
	s.waitingScan.after = next
	return s.advance(ctx, jobs)
}

// CountReady skips from lane to lane in the index: its cost does not grow with the queue.
func (s *Store) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	ready := map[string]int{}
	var lane string
	var n int
	err := forEach(ctx, s.pool, []any{&lane, &n}, func() error {
		ready[lane] = n
		return nil
	}, `
WITH RECURSIVE lane (name) AS (
  (SELECT lane FROM belfry.runs WHERE state = 'ready' ORDER BY lane LIMIT 1)
   UNION ALL
  SELECT (SELECT r.lane FROM belfry.runs r WHERE r.state = 'ready' AND r.lane > lane.name ORDER BY r.lane LIMIT 1) FROM lane WHERE lane.name IS NOT NULL)
SELECT lane.name, n.ready FROM lane
 CROSS JOIN LATERAL (SELECT count(*) AS ready FROM (SELECT 1 FROM belfry.runs r WHERE r.state = 'ready' AND r.lane = lane.name LIMIT $1) x) n
 WHERE lane.name IS NOT NULL`, limit)
	return ready, wrapError("count ready runs", err)
}
