package sqlite

import (
	"database/sql"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

// heldRun is a run that a worker holds, with what is needed to settle the attempt.
type heldRun struct {
	id        belfry.ID
	namespace string
	shard     int64
	attempt   int
	counts    belfry.AttemptCounts
	worker    belfry.ID
	token     belfry.Token
	startedAt time.Time
	weight    int64
	spec      string
	lane      string
}

const selectHeld = `SELECT r.id, r.namespace, r.shard, r.attempt, r.failures, r.lost, r.cancel_requested_at IS NOT NULL, r.worker, r.token, r.started_at, r.weight,
  coalesce(j.spec, v.spec, ''), r.lane
FROM runs r
LEFT JOIN jobs j ON j.id = r.job_id AND j.revision = r.revision
LEFT JOIN revisions v ON v.job_id = r.job_id AND v.revision = r.revision
`

func scanHeld(rows *sql.Rows, h *heldRun) error {
	return rows.Scan(bytesColumn{h.id[:]}, &h.namespace, &h.shard, &h.attempt, &h.counts.Failures, &h.counts.Lost, &h.counts.Cancelled,
		bytesColumn{h.worker[:]}, bytesColumn{h.token[:]}, timeColumn{&h.startedAt}, &h.weight, &h.spec, &h.lane)
}

// result is what the store itself decides about an attempt.
func (h *heldRun) result(outcome belfry.Outcome, why string) belfry.Result {
	return belfry.Result{Namespace: h.namespace, RunID: h.id, Attempt: h.attempt, Token: h.token, Outcome: outcome, Error: why}
}

const (
	// fence matches a result only if its run is held by exactly this attempt.
	fence = `WHERE r.id = ? AND r.namespace = ? AND r.attempt = ? AND r.token = ? AND r.state = 'running'`

	whereWorker = `WHERE r.state = 'running' AND r.worker = ?`

	// What fails ends the transaction, so that the statement needs no journal to undo it alone.
	insertHistory = `INSERT OR FAIL INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
`
	// settleRuns takes historyArgs. The caller adds which runs.
	settleRuns = insertHistory + `SELECT id, shard, namespace, job_id, revision, kind, ?, '', scheduled_at, ready_at, fired_at, fired_by,
  epoch, attempt, worker, token, started_at, ?, ?, ?, ?, 0, key, ? + retention_days * 86400000000 FROM runs r `

	settleSuccess   = settleRuns + fence
	settleCancelled = settleRuns + `WHERE r.id = ?`

	deleteRun = `DELETE FROM runs WHERE id = ? RETURNING job_id, shard, kind, coalesce(key, ''), one_off,
  EXISTS (SELECT 1 FROM runs w WHERE w.job_id = runs.job_id AND w.state = 'waiting'), lane, coalesce(started_at, 0)`

	// An attempt that exists already is from before the database was restored.
	insertAttempt = `INSERT OR REPLACE INTO attempts (run_id, attempt, shard, namespace, outcome, worker, token, started_at, finished_at, http_status, error, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	requeueRun = `UPDATE runs SET state = ?, ready_at = ?, rank = ?, failures = ?, lost = ?,
  worker = NULL, token = NULL, started_at = NULL, deadline_at = NULL WHERE id = ?`

	settleDead = `INSERT OR REPLACE INTO dead (id, shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, failures, lost, started_at, died_at, payload, fingerprint, key, weight, one_off, retention_days)
SELECT id, shard, namespace, job_id, revision, kind, lane, ?, scheduled_at, ready_at, fired_at, fired_by,
  epoch, timeout_ms, attempt, ?, ?, started_at, ?, payload, ?, key, weight, one_off, retention_days FROM runs WHERE id = ?`

	attemptSucceeded = `SELECT EXISTS (SELECT 1 FROM history WHERE id = ? AND namespace = ? AND attempt = ? AND token = ? AND state = 'succeeded')`
	selectOutcome    = `SELECT outcome FROM attempts WHERE run_id = ? AND namespace = ? AND attempt = ? AND token = ?`
	recordLate       = `UPDATE attempts SET late_outcome = ?, late_at = ? WHERE run_id = ? AND attempt = ? AND late_outcome IS NULL`
)

func (t *tx) finish(r *belfry.Result) (belfry.Verdict, error) {
	settle := t.fail
	if r.Outcome == belfry.OutcomeSucceeded {
		settle = t.succeed
	}
	settled, err := settle(r)
	if err != nil {
		return "", err
	}
	if settled {
		return belfry.VerdictAccepted, nil
	}
	return t.lateVerdict(r)
}

func (t *tx) succeed(r *belfry.Result) (settled bool, err error) {
	n, err := t.exec(settleSuccess, append(t.historyArgs(belfry.RunSucceeded, r), r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])...)
	if err != nil || n == 0 {
		return false, err
	}
	d, err := t.deleteRun(r.RunID)
	if err != nil {
		return true, err
	}
	t.addSettled(r.Namespace, d.lane, d.startedAt, belfry.OutcomeSucceeded, "")
	if d.key != "" && d.kind == belfry.KindScheduled {
		if err := t.run(succeedKey, d.job[:], d.key, d.shard, r.RunID[:], micro(t.now), micro(t.now)); err != nil {
			return true, err
		}
	}
	return true, t.followUps(&d)
}

// historyArgs are the first parameters of settleRuns: the state, the time, the result
// of the last attempt, and the time again.
func (t *tx) historyArgs(state belfry.RunStatus, r *belfry.Result) []any {
	now := micro(t.now)
	return []any{string(state), now, int64(r.HTTPStatus), sanitize.Text(r.Error, store.MaxError), sanitize.Text(r.Output, belfry.MaxOutput), now}
}

func (t *tx) fail(r *belfry.Result) (settled bool, err error) {
	runs, err := all(t, scanHeld, selectHeld+fence, r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
	if err != nil || len(runs) == 0 {
		return false, err
	}
	return true, t.settle(&runs[0], *r)
}

// settle ends an attempt that did not succeed: its run is ready again, waits
// for a retry, is cancelled, or is dead.
func (t *tx) settle(h *heldRun, r belfry.Result) error {
	now := micro(t.now)
	err := t.run(insertAttempt, h.id[:], int64(h.attempt), h.shard, h.namespace, string(r.Outcome), h.worker[:], h.token[:], micro(h.startedAt), now,
		int64(r.HTTPStatus), sanitize.Text(r.Error, store.MaxError), sanitize.Text(r.Output, belfry.MaxOutput))
	if err != nil {
		return err
	}
	s := belfry.Settle(h.id, h.counts, t.specs.OrZero(h.spec).Retry(), r)
	t.addSettled(h.namespace, h.lane, micro(h.startedAt), r.Outcome, s.Reason)
	switch s.State {
	case belfry.RunDead:
		err = t.run(settleDead, string(s.Reason), s.Counts.Failures, s.Counts.Lost, now, belfry.Fingerprint(r), h.id[:])
	case belfry.RunCancelled:
		err = t.run(settleCancelled, append(t.historyArgs(s.State, &r), h.id[:])...)
	default:
		t.changes.requeued(s.State)
		at := t.now.Add(s.Delay)
		return t.run(requeueRun, string(s.State), micro(at), plan.Rank(at, h.weight), s.Counts.Failures, s.Counts.Lost, h.id[:])
	}
	if err != nil {
		return err
	}
	d, err := t.deleteRun(h.id)
	if err != nil {
		return err
	}
	if s.State == belfry.RunDead { // its job is not finished
		d.oneOff = 0
	}
	return t.followUps(&d)
}

// addSettled notes an attempt that ended, to be measured once that is committed.
func (t *tx) addSettled(namespace, lane string, startedAt int64, outcome belfry.Outcome, dead belfry.Reason) {
	took := time.Duration(micro(t.now)-startedAt) * time.Microsecond
	t.settled = append(t.settled, metrics.Attempt{Namespace: namespace, Lane: lane, Outcome: outcome, Duration: took, Dead: dead})
}

func (t *tx) settleAll(runs []heldRun, outcome belfry.Outcome, why string) error {
	for i := range runs {
		if err := t.settle(&runs[i], runs[i].result(outcome, why)); err != nil {
			return err
		}
	}
	return nil
}

type deletedRun struct {
	job    belfry.ID
	shard  int64
	kind   belfry.RunKind
	key    string
	oneOff int64 // a boolean; numbers are scanned faster
	waits  int64 // another run of the job waits; a boolean too

	lane      string
	startedAt int64
}

// deleteRun deletes a live run, which must exist.
func (t *tx) deleteRun(run belfry.ID) (d deletedRun, err error) {
	err = t.get([]any{bytesColumn{d.job[:]}, &d.shard, &d.kind, &d.key, &d.oneOff, &d.waits, &d.lane, &d.startedAt}, deleteRun, run[:])
	return d, err
}

// followUps promotes the next waiting run of the job of a deleted run, and archives a
// finished one-off.
func (t *tx) followUps(d *deletedRun) error {
	if d.waits != 0 {
		if err := t.promoteFirstWaiting(d.job); err != nil {
			return err
		}
	}
	if d.oneOff == 0 {
		return nil
	}
	_, err := t.archive(d.job)
	return err
}

// lateVerdict judges a result whose run is not held by its attempt. It was accepted if
// the same result settled the attempt before; otherwise it is kept as evidence.
func (t *tx) lateVerdict(r *belfry.Result) (belfry.Verdict, error) {
	if r.Outcome == belfry.OutcomeSucceeded {
		known, err := t.exists(attemptSucceeded, r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
		if err != nil || known {
			return belfry.VerdictAccepted, err
		}
	}
	var outcome belfry.Outcome
	found, err := t.find([]any{&outcome}, selectOutcome, r.RunID[:], r.Namespace, int64(r.Attempt), r.Token[:])
	switch {
	case err != nil:
		return "", err
	case !found:
		return belfry.VerdictLate, nil
	case outcome == r.Outcome:
		return belfry.VerdictAccepted, nil
	}
	err = t.run(recordLate, string(r.Outcome), micro(t.now), r.RunID[:], int64(r.Attempt))
	return belfry.VerdictLate, err
}
