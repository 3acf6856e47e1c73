package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlstore"
)

// inShards is a condition on the shards of one node, which are usually all of them.
const inShards = ` shard IN (SELECT value FROM json_each(?)) `

const (
	selectUpcoming = `SELECT ` + sqlstore.PlanColumns + `, p.digest FROM plans p
WHERE p.shard = ? AND p.next_at <= ? AND (p.next_at, p.job_id) > (?, ?) ORDER BY p.next_at, p.job_id LIMIT ?`
)

func (s *Store) Upcoming(ctx context.Context, w store.Window) ([]store.Planned, error) {
	return readValue(ctx, s, "read the upcoming plans", func(t *tx) (plans []store.Planned, err error) {
		for shard, after := range w.After {
			page, err := all(t, scanPlanned, selectUpcoming, int64(shard), micro(w.Until), timeOr(after.At, beforeAll), after.ID[:], atMost(w.Limit))
			if err != nil {
				return nil, err
			}
			plans = append(plans, page...)
		}
		return plans, nil
	})
}

func (s *Store) PlansForZoneUpdate(ctx context.Context, shards []int, release string, after belfry.ID, limit int) ([]store.Due, belfry.ID, error) {
	return s.ZoneUpdate(ctx, s.ScanLimit, shards, release, after, limit)
}

const insertTrigger = `INSERT INTO triggers (id, shard, namespace, job_id, run_id, kind, at, payload, created_at)
SELECT ?, shard, namespace, id, ?, ?, ?, ?, ? FROM jobs WHERE id = ? ON CONFLICT (id) DO NOTHING`

func (s *Store) Trigger(ctx context.Context, triggers []plan.Trigger, r *store.Request) error {
	return s.writeRequest(ctx, "record triggers", r, func(t *tx) error {
		var checked belfry.ID
		for i := range triggers {
			g, run := &triggers[i], triggers[i].RunID()
			if g.JobID != checked {
				if _, err := t.editableJob(g.Namespace, g.JobID); err != nil {
					return t.unlessTriggered(g.ID, err)
				}
				checked = g.JobID
				t.changes.planWritten(g.JobID)
			}
			err := t.run(insertTrigger, g.ID[:], run[:], string(g.Kind), micro(g.At), nullText(g.Payload), micro(t.now), g.JobID[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// unlessTriggered is an error about a job, or nil if the call is repeated: the job may
// have been archived after its run.
func (t *tx) unlessTriggered(trigger belfry.ID, missing error) error {
	known, err := t.exists(`SELECT EXISTS (SELECT 1 FROM triggers WHERE id = ?)`, trigger[:])
	if err != nil || known {
		return err
	}
	return missing
}

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
WHERE id = (SELECT id FROM runs WHERE job_id = @job AND state = 'waiting' ORDER BY kind = 'backfill', scheduled_at, id LIMIT 1)
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = @job AND r.` + notWaiting + `) RETURNING state`

	// selectWaitingJobs lists jobs with waiting runs, however many each has, and whether
	// they wait for nothing.
	selectWaitingJobs = `
WITH RECURSIVE waiting (job_id, n) AS (
  SELECT min(job_id), 1 FROM runs WHERE state = 'waiting' AND job_id > @after
  UNION ALL
  SELECT (SELECT min(r.job_id) FROM runs r WHERE r.state = 'waiting' AND r.job_id > waiting.job_id), waiting.n + 1 FROM waiting
  WHERE waiting.job_id IS NOT NULL AND waiting.n < @limit
)
SELECT waiting.job_id, NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = waiting.job_id AND r.` + notWaiting + `)
  AND EXISTS (SELECT 1 FROM plans p WHERE p.job_id = waiting.job_id AND p.shard IN (SELECT value FROM json_each(@shards)))
FROM waiting WHERE waiting.job_id IS NOT NULL`
)

func (s *Store) Promote(ctx context.Context, shards []int, limit int) (promoted int, next time.Time, err error) {
	owned := shardsJSON(shards)
	err = s.write(ctx, "promote runs", func(t *tx) error {
		if promoted, err = t.exec(promoteRetries, micro(t.now), owned, atMost(limit)); err != nil {
			return err
		}
		t.changes.ready = promoted > 0
		unblocked, err := s.promoteUnblocked(t, owned)
		if err != nil {
			return err
		}
		promoted += unblocked
		_, err = t.find([]any{timeColumn{&next}}, selectNextRetry, owned)
		return err
	})
	if err != nil {
		return 0, time.Time{}, err
	}
	return promoted, next, nil
}

// waitingScanLimit is how many jobs with waiting runs one call of Promote reads.
const waitingScanLimit = 1000

// waitingScanInterval is the least time until the next call after one that read so many for
// nothing.
const waitingScanInterval = time.Second

type waitingJob struct {
	id        belfry.ID
	unblocked bool
}

// promoteUnblocked promotes runs of the shards that wait for nothing. It scans a bounded
// number of jobs, and the next call continues where this one ended.
func (s *Store) promoteUnblocked(t *tx, shards string) (promoted int, err error) {
	if !s.waitingAfter.IsZero() && time.Since(s.waitingAt) < waitingScanInterval {
		return 0, nil
	}
	jobs, err := all(t, scanInto(func(w *waitingJob) []any { return []any{bytesColumn{w.id[:]}, &w.unblocked} }), selectWaitingJobs,
		sql.Named("after", s.waitingAfter[:]), sql.Named("limit", waitingScanLimit), sql.Named("shards", shards))
	if err != nil {
		return 0, err
	}
	s.waitingAfter = belfry.ID{}
	for i, job := range jobs {
		if i == waitingScanLimit-1 {
			s.waitingAfter = job.id
		}
		if !job.unblocked {
			continue
		}
		if err := t.promoteFirstWaiting(job.id); err != nil {
			return promoted, err
		}
		promoted++
	}
	if s.waitingAt = time.Now(); promoted > 0 {
		s.waitingAt = time.Time{}
	}
	return promoted, nil
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
