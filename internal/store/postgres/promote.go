package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
)

// Promote makes runs whose retry is due ready, and runs that wait for nothing.
func (s *Store) Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return 0, time.Time{}, err
	}
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
	freed, err := s.promoteWaiting(ctx, shards)
	if err != nil {
		return promoted, time.Time{}, wrapError("let waiting runs go ahead", err)
	}
	promoted += freed
	var at pgtype.Timestamptz
	err = s.pool.QueryRow(ctx, `SELECT min(ready_at) FROM belfry.runs WHERE state = 'retry' AND shard = ANY($1)`, int32s(shards)).Scan(&at)
	return promoted, timeOrZero(at), wrapError("promote", err)
}

// Ready counts the ready runs of each lane, up to the limit a lane. It walks the
// index from lane to lane, so that its cost does not grow with the queue.
func (s *Store) CountReady(ctx context.Context, limit int) (map[string]int, error) {
	rows, err := s.pool.Query(ctx, `
WITH RECURSIVE lane (name) AS (
  (SELECT lane FROM belfry.runs WHERE state = 'ready' ORDER BY lane LIMIT 1)
   UNION ALL
  SELECT (SELECT r.lane FROM belfry.runs r WHERE r.state = 'ready' AND r.lane > lane.name ORDER BY r.lane LIMIT 1) FROM lane WHERE lane.name IS NOT NULL)
SELECT lane.name, n.ready FROM lane
 CROSS JOIN LATERAL (SELECT count(*) AS ready FROM (SELECT 1 FROM belfry.runs r WHERE r.state = 'ready' AND r.lane = lane.name LIMIT $1) x) n
 WHERE lane.name IS NOT NULL`, limit)
	if err != nil {
		return nil, wrapError("count ready runs", err)
	}
	ready := map[string]int{}
	var lane string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&lane, &n}, func() error {
		ready[lane] = n
		return nil
	})
	return ready, wrapError("count ready runs", err)
}

// advance lets the first waiting run of each of the jobs go ahead that has no other
// live run, and says how many are ready.
//
// The plans are locked first, and the runs looked at in a statement of its own, so
// that its snapshot is younger than the locks. Two that do this for one job then
// follow each other, and the second sees what the first did. Whoever makes runs of
// the job has the same lock and moves the version. A fire that took its snapshot
// before us and gets the lock after us still sees the run that we let go, as
// waiting, and makes nothing beside it, since to it every live run counts. So
// there is never more than one live run of such a job that does not wait.
//
// The other way round a run may wait for nothing: a fire still sees a run that is
// over, and makes another that waits for it, which whoever settled the first did
// not see. Nor does anybody come here if the process dies after settling. Promote
// looks for such runs.
func (s *Store) advance(ctx context.Context, jobs []belfry.ID) (ready int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	ids := uuids(jobs)
	batch := &pgx.Batch{} // a transaction of its own
	batch.Queue(`/* advance */ SELECT count(*) FROM (SELECT 1 FROM belfry.plans WHERE job_id = ANY($1) ORDER BY job_id FOR UPDATE) p`, ids)
	later := 0
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
				later++
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
	if later > 0 {
		s.notifier.notifyPlans(false)
	}
	return ready, nil
}

// releaseSQL lets all runs of a job go that wait for others, once they need not.
const releaseWaitingSQL = `/* advance */
UPDATE belfry.runs SET state = CASE WHEN ready_at > c.now THEN 'retry' ELSE 'ready' END, ready_at = greatest(ready_at, c.now),
       rank = (extract(epoch FROM greatest(ready_at, c.now)) * 1000000)::bigint + weight
  FROM (SELECT clock_timestamp() AS now) c WHERE job_id = $1 AND state = 'waiting'`

// aloneSQL tells of a job j whether all its live runs wait.
const onlyWaitingRuns = `(SELECT 1 FROM belfry.runs y WHERE y.job_id = j.job_id AND y.state IN ('ready', 'running', 'retry') LIMIT 1) IS NULL`

// lookWaiting is how many jobs whose runs wait one call of unstick looks at.
const waitingScanLimit = 1000

// walk is where the next look at jobs whose runs wait begins.
type scanPosition struct {
	sync.Mutex
	after belfry.ID
}

// unstick lets runs of the shards go ahead that wait for nothing. It walks from job
// to job, and a later call goes on where this one ended, so that its cost does not
// grow with what waits.
func (s *Store) promoteWaiting(ctx context.Context, shards []int) (ready int, err error) {
	s.waitingScan.Lock()
	defer s.waitingScan.Unlock()
	rows, err := s.pool.Query(ctx, `/* advance */
WITH RECURSIVE j (job_id, shard, n) AS (
  (SELECT job_id, shard, 1 FROM belfry.runs WHERE state = 'waiting' AND job_id > $2 ORDER BY job_id LIMIT 1)
   UNION ALL
  SELECT r.job_id, r.shard, j.n + 1 FROM j
   CROSS JOIN LATERAL (SELECT job_id, shard FROM belfry.runs WHERE state = 'waiting' AND job_id > j.job_id ORDER BY job_id LIMIT 1) r
   WHERE j.n < $3)
SELECT job_id, n = $3, shard = ANY($1) AND `+onlyWaitingRuns+` FROM j`, int32s(shards), pgtype.UUID{Bytes: s.waitingScan.after, Valid: true}, waitingScanLimit)
	if err != nil {
		return 0, err
	}
	var (
		next         belfry.ID
		stuck        []belfry.ID
		job          pgtype.UUID
		last, waited bool
	)
	_, err = pgx.ForEachRow(rows, []any{&job, &last, &waited}, func() error {
		if last {
			next = job.Bytes
		}
		if waited {
			stuck = append(stuck, job.Bytes)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.waitingScan.after = next
	return s.advance(ctx, stuck)
}
