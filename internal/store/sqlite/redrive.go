package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectRevival = `SELECT r.job_id, r.weight, coalesce(CASE WHEN j.revision = r.revision THEN j.spec ELSE v.spec END, ''),
  EXISTS (SELECT 1 FROM runs o WHERE o.job_id = r.job_id)
FROM dead r LEFT JOIN jobs j ON j.id = r.job_id LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision ` + whereRun

	revive = `INSERT INTO runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, failures, lost, payload, key, weight, one_off, retention_days)
SELECT id, shard, namespace, job_id, revision, kind, lane, ?, ?, scheduled_at, ?, fired_at, fired_by,
  epoch, timeout_ms, attempt, 0, 0, coalesce(?, payload), key, weight, one_off, retention_days FROM dead WHERE id = ? ON CONFLICT (id) DO NOTHING`

	deleteDead = `DELETE FROM dead WHERE id = ? AND namespace = ? RETURNING job_id, one_off`

	// A fire under way has not seen the run: its step must be made anew.
	bumpPlan = `UPDATE plans SET version = version + 1 WHERE job_id = ?`

	discard = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
SELECT r.id, r.shard, r.namespace, r.job_id, r.revision, r.kind, 'discarded', r.reason, r.scheduled_at, r.ready_at, r.fired_at, r.fired_by,
  r.epoch, r.attempt, a.worker, a.token, r.started_at, ?, coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), 0, r.key,
  ? + r.retention_days * 86400000000
FROM dead r LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt ` + whereRun
)

// Redrive makes runs of dead letters again. Of several of one job the earliest goes
// first: ids are in the order of scheduled instants.
func (s *Store) Redrive(ctx context.Context, namespace string, list []store.Redrive) (redriven int, err error) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b store.Redrive) int { return a.Run.Compare(b.Run) })
	err = s.write(ctx, "redrive dead letters", func(t *tx) error {
		for i := range list {
			done, err := t.redrive(namespace, &list[i])
			if err != nil {
				return err
			}
			if done {
				redriven++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return redriven, nil
}

func (t *tx) redrive(namespace string, r *store.Redrive) (done bool, err error) {
	var (
		job    belfry.ID
		weight int64
		spec   string
		live   bool
	)
	err = t.get([]any{key{job[:]}, &weight, &spec, &live}, selectRevival, r.Run[:], namespace)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	at, state := t.now.Add(max(r.After, 0)).Truncate(time.Microsecond), belfry.RunReady
	switch {
	case live && t.specs.OrZero(spec).Serial():
		state = belfry.RunWaiting
	case at.After(t.now):
		state = belfry.RunRetry
	}
	n, err := t.exec(revive, string(state), plan.Rank(at, weight), micro(at), text(r.Payload), r.Run[:])
	if err != nil || n == 0 {
		return false, err
	}
	if _, _, err := t.bury(namespace, r.Run); err != nil {
		return false, err
	}
	if _, err := t.exec(reviveKey, micro(t.now), r.Run[:]); err != nil {
		return false, err
	}
	if _, err := t.exec(bumpPlan, job[:]); err != nil {
		return false, err
	}
	t.news.change(job)
	t.news.ready = t.news.ready || state == belfry.RunReady
	return true, nil
}

// bury takes a run, which must be there, from the dead ones.
func (t *tx) bury(namespace string, run belfry.ID) (job belfry.ID, once bool, err error) {
	err = t.get([]any{key{job[:]}, &once}, deleteDead, run[:], namespace)
	return job, once, err
}

// Discard gives dead letters up: they become history.
func (s *Store) Discard(ctx context.Context, namespace string, runs []belfry.ID) (discarded int, err error) {
	err = s.write(ctx, "discard dead letters", func(t *tx) error {
		for _, run := range runs {
			n, err := t.exec(discard, micro(t.now), micro(t.now), run[:], namespace)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			discarded++
			job, once, err := t.bury(namespace, run)
			if err != nil {
				return err
			}
			if !once {
				continue
			}
			if _, err := t.retire(job); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return discarded, nil
}
