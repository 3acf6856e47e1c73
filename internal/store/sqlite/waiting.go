package sqlite

import (
	"database/sql"
	"errors"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

const (
	hasLive = `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ?)`
	isLive  = `SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?)`

	countWaiting = `SELECT count(*) FROM (SELECT 1 FROM runs WHERE job_id = ? AND state = 'waiting' LIMIT ?)`

	// notWaiting is a condition on the live runs of a job that lets the index answer.
	notWaiting = ` state IN ('ready', 'running', 'retry') `

	letGo = `UPDATE runs SET state = CASE WHEN ready_at > @now THEN 'retry' ELSE 'ready' END, ready_at = max(ready_at, @now), rank = max(ready_at, @now) + weight `

	// release is for a job whose runs need not wait for each other any more.
	release = letGo + `WHERE job_id = @job AND state = 'waiting'`

	goAhead = letGo + `
WHERE id = (SELECT id FROM runs WHERE job_id = @job AND state = 'waiting' ORDER BY scheduled_at, id LIMIT 1)
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = @job AND r.` + notWaiting + `) RETURNING state`

	// selectHeldUp hops from job to job, however many runs of each are waiting.
	selectHeldUp = `
WITH RECURSIVE held (job_id) AS (
  SELECT min(job_id) FROM runs WHERE state = 'waiting'
  UNION ALL
  SELECT (SELECT min(r.job_id) FROM runs r WHERE r.state = 'waiting' AND r.job_id > held.job_id) FROM held WHERE held.job_id IS NOT NULL
)
SELECT held.job_id FROM held WHERE held.job_id IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = held.job_id AND r.` + notWaiting + `)
  AND EXISTS (SELECT 1 FROM plans p WHERE p.job_id = held.job_id AND p.` + inShards + `) LIMIT ?`
)

// place says where a run of a step begins: ready, waiting for an earlier one of its
// job, or skipped for a reason. The empty state means that it is there already.
func (f *firing) place(job belfry.ID, r *plan.Run) (belfry.RunStatus, belfry.Reason, error) {
	if keyed(r) {
		if taken, err := f.keyTaken(job, r); err != nil || taken {
			return belfry.RunSkipped, belfry.ReasonDuplicateKey, err
		}
	}
	if !r.Serial {
		return belfry.RunReady, "", nil
	}
	var live, known int64
	if err := f.get([]any{&live}, hasLive, job[:]); err != nil || live == 0 {
		return belfry.RunReady, "", err
	}
	err := f.get([]any{&known}, isLive, r.ID[:])
	switch {
	case err != nil || known != 0:
		return "", "", err
	case r.Queue <= 0:
		return belfry.RunSkipped, belfry.ReasonOverlap, nil
	case r.Queue < plan.NoQueueLimit:
		var waiting int
		if err := f.get([]any{&waiting}, countWaiting, job[:], int64(r.Queue)); err != nil {
			return "", "", err
		}
		if waiting >= r.Queue {
			return belfry.RunSkipped, belfry.ReasonQueueFull, nil
		}
	}
	return belfry.RunWaiting, "", nil
}

// goAhead lets the first waiting run of a job go, unless another is before it.
func (t *tx) goAhead(job belfry.ID) error {
	var state belfry.RunStatus
	err := t.get([]any{&state}, goAhead, sql.Named("now", micro(t.now)), sql.Named("job", job[:]))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case state == belfry.RunReady:
		t.news.ready = true
	default:
		t.news.change() // whoever promotes retries has one more instant to wait for
	}
	return nil
}

// left sees to what a run leaves behind that is no longer alive: the next one of
// its job, and a one-off that may be over.
func (t *tx) left(g *gone) error {
	if g.waits != 0 {
		if err := t.goAhead(g.job); err != nil {
			return err
		}
	}
	if g.once == 0 {
		return nil
	}
	_, err := t.retire(g.job)
	return err
}
