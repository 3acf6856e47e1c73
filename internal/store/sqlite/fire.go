package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// advance moves a plan to its next version. It changes nothing if the plan has
// moved since it was seen, is not due, or has passed the first occurrence that
// the step decides.
const advance = `UPDATE plans SET version = version + 1, next_at = ?, nominal_at = ?, fired_for = ?, runs_made = ?, zone_version = ?, one_off = ?, quarantined = NULL
WHERE job_id = ? AND version = ? AND (NOT ? OR next_at <= ?) AND (fired_for IS NULL OR fired_for < ?)`

const runColumns = `id, shard, namespace, job_id, revision, kind, lane, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, payload, key,
weight, one_off, retention_days, lost, failures, `

const (
	insertRun = `INSERT INTO runs (` + runColumns + `attempt, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?) ON CONFLICT (id) DO NOTHING`

	insertRunning = `INSERT INTO runs (` + runColumns + `attempt, state, worker, token, started_at, deadline_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 1, 'running', ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

	insertSkip = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
epoch, attempt, settled_at, http_status, error, output, skipped_to, skipped_count, retain_until)
VALUES (?, ?, ?, ?, ?, ?, 'skipped', ?, ?, ?, ?, ?, ?, 0, ?, 0, '', '', ?, ?, ?)`
)

// firing is one Fire.
type firing struct {
	*tx
	owner  belfry.ID
	worker belfry.ID
	lanes  []string
	free   int
	store.FireResult
}

// Fire applies the steps that still fit their plans.
func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (fired store.FireResult, err error) {
	err = s.write(ctx, "fire", func(t *tx) error {
		fired, err = t.fire(owner, steps, slots)
		return err
	})
	if err != nil {
		return store.FireResult{}, err
	}
	return fired, nil
}

func (t *tx) fire(owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	f := firing{tx: t, owner: owner, worker: slots.Worker, lanes: slots.Lanes, free: slots.Free}
	f.Applied = make([]bool, len(steps))
	for i := range steps {
		var err error
		if f.Applied[i], err = f.step(&steps[i]); err != nil {
			return store.FireResult{}, err
		}
	}
	t.news.ready = t.news.ready || f.Ready > 0
	return f.FireResult, nil
}

func (f *firing) step(s *plan.Step) (applied bool, err error) {
	seen, next, now, first := &s.Seen, &s.Next, micro(f.now), int64(math.MaxInt64)
	if at := s.First(); !at.IsZero() {
		first = micro(at)
	}
	n, err := f.exec(advance, stamp(next.NextAt), stamp(next.NominalAt), stamp(next.FiredFor), next.RunsMade, next.ZoneVersion, next.Once,
		seen.JobID[:], seen.Version, s.Due, now, first)
	if err != nil || n == 0 {
		return false, err
	}
	for i := range s.Skips {
		skip := &s.Skips[i]
		if err := f.skip(s, skip, belfry.KindScheduled, skip.From); err != nil {
			return false, err
		}
	}
	for i := range s.Runs {
		if err := f.run(s, &s.Runs[i]); err != nil {
			return false, err
		}
	}
	return true, f.raise(seen.Shard, s.Event)
}

func (f *firing) skip(s *plan.Step, skip *plan.Skip, kind belfry.RunKind, readyAt time.Time) error {
	now := micro(f.now)
	_, err := f.exec(insertSkip, skip.ID[:], int64(s.Seen.Shard), s.Namespace, s.Seen.JobID[:], int64(s.Revision), string(kind), string(skip.Reason),
		micro(skip.From), micro(readyAt), now, f.owner[:], s.Epoch, now, micro(skip.To), skip.Count, keepUntil(f.now, s.Policy.RetentionDays))
	return err
}

// run makes a run of the step, or a skip in its place, unless its trigger is
// consumed already or the run is there.
func (f *firing) run(s *plan.Step, r *plan.Run) error {
	if !r.Trigger.IsZero() {
		n, err := f.exec(`UPDATE triggers SET fired_at = ? WHERE id = ? AND fired_at IS NULL`, micro(f.now), r.Trigger[:])
		if err != nil || n == 0 {
			return err
		}
	}
	state, reason, err := f.place(s.Seen.JobID, r)
	switch {
	case err != nil || state == "":
		return err
	case state == belfry.RunSkipped:
		skip := &plan.Skip{ID: r.ID, From: r.ScheduledAt, To: r.ScheduledAt, Count: 1, Reason: reason}
		return f.skip(s, skip, r.Kind, r.ReadyAt)
	}
	lane, weight := s.Lane(), s.Policy.Weight()
	args := []any{r.ID[:], int64(s.Seen.Shard), s.Namespace, s.Seen.JobID[:], int64(s.Revision), string(r.Kind), lane, plan.Rank(r.ReadyAt, weight),
		micro(r.ScheduledAt), micro(r.ReadyAt), micro(f.now), f.owner[:], s.Epoch, s.Policy.Timeout().Milliseconds(), text(r.Payload), text(r.Key),
		weight, s.Next.Once, keepDays(s.Policy.RetentionDays)}
	if state == belfry.RunReady && f.free > 0 && slices.Contains(f.lanes, lane) {
		err = f.start(s, r, args)
	} else {
		var n int
		if n, err = f.exec(insertRun, append(args, string(state))...); state == belfry.RunReady {
			f.Ready += n
		}
	}
	if err != nil || !keyed(r) {
		return err
	}
	return f.noteKey(s, r)
}

// start makes a run that the worker holds from the beginning.
func (f *firing) start(s *plan.Step, r *plan.Run, args []any) error {
	started := f.now
	run := &belfry.Run{
		ID: r.ID, JobID: s.Seen.JobID, Namespace: s.Namespace, Revision: s.Revision, Kind: r.Kind, Status: belfry.RunRunning,
		ScheduledAt: stored(r.ScheduledAt), ReadyAt: stored(r.ReadyAt), FiredAt: f.now, Attempt: 1, StartedAt: &started, WorkerID: f.worker, TemplateKey: r.Key,
		Token: belfry.NewToken(), Payload: r.Payload, Spec: s.Policy.Spec, DeadlineAt: deadline(f.now, s.Policy.Timeout()),
	}
	n, err := f.exec(insertRunning, append(args, f.worker[:], run.Token[:], micro(f.now), micro(run.DeadlineAt))...)
	if err != nil || n == 0 {
		return err
	}
	f.free--
	if len(run.Payload) == 0 {
		if run.Payload, err = f.payloadAt(run.JobID, run.Revision); err != nil {
			return err
		}
	}
	f.Claimed = append(f.Claimed, run)
	return nil
}

// stored is an instant as it would be read back.
func stored(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// deadline is when an attempt that starts now is taken from its worker.
func deadline(now time.Time, timeout time.Duration) time.Time {
	return now.Add(timeout + store.DeadlineGrace)
}

// payloadAt is the payload that a job had at a revision.
func (t *tx) payloadAt(job belfry.ID, revision int) (out json.RawMessage, err error) {
	err = t.get([]any{payload{&out}}, `SELECT payload FROM jobs WHERE id = ? AND revision = ?`, job[:], int64(revision))
	if errors.Is(err, sql.ErrNoRows) {
		err = t.get([]any{payload{&out}}, `SELECT payload FROM revisions WHERE job_id = ? AND revision = ?`, job[:], int64(revision))
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return out, err
}
