package sqlite

import (
	"context"
	"database/sql"
	"math/rand/v2"
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

const (
	scanNamespace = ` FROM jobs WHERE namespace = ? AND state <> 'deleted' LIMIT ?`
	scanQueue     = ` FROM jobs WHERE namespace = ? AND queue = ? AND state <> 'deleted' LIMIT ?`

	selectPlanned = `SELECT ` + sqlstore.PlanColumns + `, p.digest FROM `
	plannedOf     = selectPlanned + `plans p WHERE p.next_at IS NOT NULL AND p.job_id IN (SELECT id`

	selectRowids = `SELECT coalesce((SELECT min(rowid) FROM jobs), 0), coalesce((SELECT max(rowid) FROM jobs), -1)`
	samplePlans  = selectPlanned + `json_each(?) CROSS JOIN jobs j ON j.rowid >= json_each.value AND j.rowid < json_each.value + ?
CROSS JOIN plans p ON p.job_id = j.id WHERE p.next_at IS NOT NULL LIMIT ?`
)

func scanPlanned(rows *sql.Rows, p *store.Planned) error {
	return rows.Scan(sharedColumns(sqlstore.PlannedFields(p))...)
}

// NamespacePlans counts first, which reads an index alone.
func (s *Store) NamespacePlans(ctx context.Context, namespace, queue string, limit int) (plans []store.Planned, complete bool, err error) {
	scan, args := scanNamespace, []any{namespace, limit + 1}
	if queue != "" {
		scan, args = scanQueue, []any{namespace, queue, limit + 1}
	}
	err = s.read(ctx, "read the plans of a namespace", func(t *tx) error {
		jobs := 0
		if err := t.get([]any{&jobs}, `SELECT count(*) FROM (SELECT 1`+scan+`)`, args...); err != nil || jobs > limit {
			return err
		}
		complete = true
		plans, err = all(t, scanPlanned, plannedOf+scan+`)`, args...)
		return err
	})
	return plans, complete && err == nil, err
}

// SamplePlans reads jobs at random rowids, which are consecutive. If most of those that were
// given out are gone, it reads stretches of them.
func (s *Store) SamplePlans(ctx context.Context, n int) (plans []store.Planned, weight float64, err error) {
	err = s.read(ctx, "sample plans", func(t *tx) error {
		var low, high int64
		if err := t.get([]any{&low, &high}, selectRowids); err != nil {
			return err
		}
		for length := int64(1); len(plans) < n/4 && length < 2*(high-low+1); length *= 8 {
			places := high - low + length // where a stretch may begin that has a rowid
			starts := make([]int64, n)
			for i := range starts {
				starts[i] = low - length + 1 + rand.Int64N(places)
			}
			weight = float64(places) / (float64(n) * float64(length))
			if plans, err = all(t, scanPlanned, samplePlans, string(belfry.MustJSON(starts)), length, 8*n); err != nil {
				return err
			}
		}
		return nil
	})
	return plans, weight, err
}

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
