package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// maxError bounds the text kept of an error.
const maxError = 8 << 10

// held is a run under a worker, with what it takes to settle the attempt.
type held struct {
	id        belfry.ID
	namespace string
	shard     int64
	attempt   int
	tally     belfry.Tally
	worker    belfry.ID
	token     belfry.Token
	startedAt time.Time
	spec      string
}

const selectHeld = `SELECT r.id, r.namespace, r.shard, r.attempt, r.failures, r.lost, r.worker, r.token, r.started_at, coalesce(j.spec, v.spec, '')
FROM runs r
LEFT JOIN jobs j ON j.id = r.job_id AND j.revision = r.revision
LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision
`

func scanHeld(rows *sql.Rows, h *held) error {
	return rows.Scan(key{h.id[:]}, &h.namespace, &h.shard, &h.attempt, &h.tally.Failures, &h.tally.Lost, key{h.worker[:]}, key{h.token[:]},
		moment{&h.startedAt}, &h.spec)
}

// result is what the store itself says of an attempt.
func (h *held) result(outcome belfry.Outcome, why string) belfry.Result {
	return belfry.Result{Namespace: h.namespace, RunID: h.id, Attempt: h.attempt, Token: h.token, Outcome: outcome, Error: why}
}

// fence lets a result through only if its run is held by exactly this attempt.
const fence = `WHERE r.id = ? AND r.namespace = ? AND r.attempt = ? AND r.token = ? AND r.state = 'running'`

const (
	settleSuccess = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key)
SELECT id, shard, namespace, job_id, revision, kind, 'succeeded', '', scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, worker, token, started_at, ?, ?, ?, ?, 0, key FROM runs r ` + fence

	deleteRun = `DELETE FROM runs WHERE id = ?`

	// An attempt that is there already belongs to an earlier life of the same
	// run, before a restore.
	insertAttempt = `INSERT OR REPLACE INTO attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	settleWaiting = `UPDATE runs SET state = ?, ready_at = ?, rank = ?, failures = ?, lost = ?,
  worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL WHERE id = ?`

	settleDead = `INSERT OR REPLACE INTO dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, failures, lost, started_at, died_at, payload, trace, fingerprint, key)
SELECT id, shard, namespace, job_id, revision, kind, lane, ?, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, ?, ?, started_at, ?, payload, trace, ?, key FROM runs WHERE id = ?`
)

// Finish settles attempts, each only if its run is held by exactly that one.
func (s *Store) Finish(ctx context.Context, results []belfry.Result) (verdicts []belfry.Verdict, err error) {
	if len(results) == 0 {
		return nil, ctx.Err()
	}
	err = s.write(ctx, "finish", func(t *tx) error {
		verdicts = make([]belfry.Verdict, len(results))
		for i := range results {
			if verdicts[i], err = t.finish(&results[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

func (t *tx) finish(r *belfry.Result) (belfry.Verdict, error) {
	var done bool
	var err error
	if r.Outcome == belfry.OutcomeSucceeded {
		done, err = t.succeed(r)
	} else {
		done, err = t.fail(r)
	}
	if err != nil {
		return "", err
	}
	if done {
		return belfry.VerdictAccepted, nil
	}
	return t.late(r)
}

func (t *tx) succeed(r *belfry.Result) (done bool, err error) {
	n, err := t.exec(settleSuccess, micro(t.now), int64(r.HTTPStatus), belfry.Clean(r.Error, maxError), belfry.Clean(string(r.Output), belfry.MaxOutput),
		r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
	if err != nil || n == 0 {
		return false, err
	}
	_, err = t.exec(deleteRun, r.RunID[:])
	return true, err
}

func (t *tx) fail(r *belfry.Result) (done bool, err error) {
	runs, err := all(t, scanHeld, selectHeld+fence, r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
	if err != nil || len(runs) == 0 {
		return false, err
	}
	return true, t.settle(&runs[0], *r)
}

// settle ends an attempt that did not succeed: its run is ready again, waits
// for a retry, or is dead.
func (t *tx) settle(h *held, r belfry.Result) error {
	now := micro(t.now)
	_, err := t.exec(insertAttempt, h.id[:], int64(h.attempt), h.shard, h.namespace, string(r.Outcome), h.worker[:], h.token[:], micro(h.startedAt), now,
		int64(r.HTTPStatus), belfry.Clean(r.Error, maxError), belfry.Clean(string(r.Output), belfry.MaxOutput))
	if err != nil {
		return err
	}
	s := belfry.Settle(h.id, h.tally, t.specs.OrNone(h.spec).Retry(), r.Outcome)
	if s.State == belfry.RunDead {
		if _, err := t.exec(settleDead, string(s.Reason), s.Tally.Failures, s.Tally.Lost, now, belfry.Fingerprint(r), h.id[:]); err != nil {
			return err
		}
		_, err = t.exec(deleteRun, h.id[:])
		return err
	}
	if s.State == belfry.RunReady {
		t.news.ready = true
	} else {
		t.news.change() // whoever promotes retries has one more instant to wait for
	}
	at := t.now.Add(s.Delay)
	_, err = t.exec(settleWaiting, string(s.State), micro(at), plan.Rank(at), s.Tally.Failures, s.Tally.Lost, h.id[:])
	return err
}

// late looks at a result that found its run not held by its attempt. It was
// accepted if the same one decided the attempt before; otherwise it is kept
// beside the attempt as evidence.
func (t *tx) late(r *belfry.Result) (belfry.Verdict, error) {
	var known bool
	if r.Outcome == belfry.OutcomeSucceeded {
		err := t.get([]any{&known}, `SELECT EXISTS (SELECT 1 FROM history WHERE id = ? AND namespace = ? AND attempt = ? AND token = ? AND state = 'succeeded')`,
			r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
		if err != nil || known {
			return belfry.VerdictAccepted, err
		}
	}
	var outcome string
	err := t.get([]any{&outcome}, `SELECT outcome FROM attempts WHERE run_id = ? AND namespace = ? AND attempt = ? AND token = ?`,
		r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return belfry.VerdictLate, nil
	case err != nil:
		return "", err
	case outcome == string(r.Outcome):
		return belfry.VerdictAccepted, nil
	}
	_, err = t.exec(`UPDATE attempts SET late_outcome = ?, late_at = ? WHERE run_id = ? AND attempt = ? AND late_outcome IS NULL`,
		string(r.Outcome), micro(t.now), r.RunID[:], int64(r.Attempt))
	return belfry.VerdictLate, err
}
