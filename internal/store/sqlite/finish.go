package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// maxError bounds the text kept of an error.
const maxError = 8 << 10

// held is a run under a worker, with what it takes to settle the attempt.
type held struct {
	id        belfry.ID
	namespace string
	shard     int64
	attempt   int
	tally     belfry.AttemptCounts
	worker    belfry.ID
	token     belfry.Token
	startedAt time.Time
	weight    int64
	spec      string
}

const selectHeld = `SELECT r.id, r.namespace, r.shard, r.attempt, r.failures, r.lost, r.cancel_requested_at IS NOT NULL, r.worker, r.token, r.started_at, r.weight,
  coalesce(j.spec, v.spec, '')
FROM runs r
LEFT JOIN jobs j ON j.id = r.job_id AND j.revision = r.revision
LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision
`

func scanHeld(rows *sql.Rows, h *held) error {
	return rows.Scan(key{h.id[:]}, &h.namespace, &h.shard, &h.attempt, &h.tally.Failures, &h.tally.Lost, &h.tally.Cancelled, key{h.worker[:]}, key{h.token[:]},
		moment{&h.startedAt}, &h.weight, &h.spec)
}

// result is what the store itself says of an attempt.
func (h *held) result(outcome belfry.Outcome, why string) belfry.Result {
	return belfry.Result{Namespace: h.namespace, RunID: h.id, Attempt: h.attempt, Token: h.token, Outcome: outcome, Error: why}
}

// fence lets a result through only if its run is held by exactly this attempt.
const fence = `WHERE r.id = ? AND r.namespace = ? AND r.attempt = ? AND r.token = ? AND r.state = 'running'`

const (
	// intoHistory takes the state, the time, what came of the last attempt, and the
	// time again. The caller adds which runs.
	intoHistory = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
SELECT id, shard, namespace, job_id, revision, kind, ?, '', scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, worker, token, started_at, ?, ?, ?, ?, 0, key, ? + retention_days * 86400000000 FROM runs r `

	settleSuccess   = intoHistory + fence
	settleCancelled = intoHistory + `WHERE r.id = ?`

	deleteRun = `DELETE FROM runs WHERE id = ? RETURNING job_id, shard, kind, coalesce(key, ''), one_off,
  EXISTS (SELECT 1 FROM runs w WHERE w.job_id = runs.job_id AND w.state = 'waiting')`

	// deletePlain is for a run that leaves nothing behind, as most do: to be told what
	// is left takes half as long again.
	deletePlain = `DELETE FROM runs WHERE id = ? AND NOT one_off AND key IS NULL
  AND NOT EXISTS (SELECT 1 FROM runs w WHERE w.job_id = runs.job_id AND w.state = 'waiting')`

	// An attempt that is there already belongs to an earlier life of the same
	// run, before a restore.
	insertAttempt = `INSERT OR REPLACE INTO attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	settleWaiting = `UPDATE runs SET state = ?, ready_at = ?, rank = ?, failures = ?, lost = ?,
  worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL WHERE id = ?`

	settleDead = `INSERT OR REPLACE INTO dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, failures, lost, started_at, died_at, payload, fingerprint, key, weight, one_off, retention_days)
SELECT id, shard, namespace, job_id, revision, kind, lane, ?, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, ?, ?, started_at, ?, payload, ?, key, weight, one_off, retention_days FROM runs WHERE id = ?`
)

// gone is what is still needed of a run that is no longer alive.
type gone struct {
	job   belfry.ID
	shard int64
	kind  belfry.RunKind
	key   string
	once  int64 // as good as a bool, and read faster
	waits int64 // others of its job do
}

// remove takes a run, which must be there, from the live ones.
func (t *tx) remove(run belfry.ID) (g gone, err error) {
	err = t.get([]any{key{g.job[:]}, &g.shard, &g.kind, &g.key, &g.once, &g.waits}, deleteRun, run[:])
	return g, err
}

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
	n, err := t.exec(settleSuccess, append(t.settled(belfry.RunSucceeded, r), r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])...)
	if err != nil || n == 0 {
		return false, err
	}
	if n, err = t.exec(deletePlain, r.RunID[:]); err != nil || n == 1 {
		return true, err
	}
	g, err := t.remove(r.RunID)
	if err != nil {
		return true, err
	}
	if g.key != "" && g.kind == belfry.KindScheduled {
		if err := t.spendKey(r.RunID, &g); err != nil {
			return true, err
		}
	}
	return true, t.left(&g)
}

// settled are the first parameters of intoHistory.
func (t *tx) settled(state belfry.RunStatus, r *belfry.Result) []any {
	now := micro(t.now)
	return []any{string(state), now, int64(r.HTTPStatus), sanitize.Text(r.Error, maxError), sanitize.Text(string(r.Output), belfry.MaxOutput), now}
}

func (t *tx) fail(r *belfry.Result) (done bool, err error) {
	runs, err := all(t, scanHeld, selectHeld+fence, r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
	if err != nil || len(runs) == 0 {
		return false, err
	}
	return true, t.settle(&runs[0], *r)
}

// settle ends an attempt that did not succeed: its run is ready again, waits
// for a retry, is cancelled, or is dead.
func (t *tx) settle(h *held, r belfry.Result) error {
	now := micro(t.now)
	_, err := t.exec(insertAttempt, h.id[:], int64(h.attempt), h.shard, h.namespace, string(r.Outcome), h.worker[:], h.token[:], micro(h.startedAt), now,
		int64(r.HTTPStatus), sanitize.Text(r.Error, maxError), sanitize.Text(string(r.Output), belfry.MaxOutput))
	if err != nil {
		return err
	}
	s := belfry.Settle(h.id, h.tally, t.specs.OrZero(h.spec).Retry(), r)
	switch s.State {
	case belfry.RunDead:
		_, err = t.exec(settleDead, string(s.Reason), s.Counts.Failures, s.Counts.Lost, now, belfry.Fingerprint(r), h.id[:])
	case belfry.RunCancelled:
		_, err = t.exec(settleCancelled, append(t.settled(s.State, &r), h.id[:])...)
	default:
		return t.again(h, s)
	}
	if err != nil {
		return err
	}
	g, err := t.remove(h.id)
	if err != nil {
		return err
	}
	if s.State == belfry.RunDead { // it keeps its job
		g.once = 0
	}
	return t.left(&g)
}

// again has a run wait for its next attempt.
func (t *tx) again(h *held, s belfry.Settlement) error {
	if s.State == belfry.RunReady {
		t.news.ready = true
	} else {
		t.news.change() // whoever promotes retries has one more instant to wait for
	}
	at := t.now.Add(s.Delay)
	_, err := t.exec(settleWaiting, string(s.State), micro(at), plan.Rank(at, h.weight), s.Counts.Failures, s.Counts.Lost, h.id[:])
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
