package sqlite

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

type fireTx struct {
	*tx
	owner belfry.ID
	slots []store.FreeSlots
	store.FireResult
	plain    plainSteps
	payloads map[revisionOf]json.RawMessage // those that were read before
	skipped  int                            // runs of the current step that became skips
}

func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	payloads, err := s.readPayloads(ctx, steps, slots)
	if err != nil {
		return store.FireResult{}, err
	}
	fired, err := writeValue(ctx, s, "fire", func(t *tx) (store.FireResult, error) {
		f := fireTx{tx: t, owner: owner, slots: slices.Clone(slots), payloads: payloads}
		err := f.fire(steps)
		return f.FireResult, err
	})
	s.metrics.Started(fired.Claimed)
	return fired, err
}

// fire applies steps: the plain ones together, and the others one by one.
func (f *fireTx) fire(steps []plan.Step) error {
	plain, err := f.findPlain(steps)
	if err != nil {
		return err
	}
	f.Applied = make([]bool, len(steps))
	seen := make(map[belfry.ID]bool, len(steps))
	for i := range steps {
		s := &steps[i]
		if seen[s.Seen.JobID] { // A second step of a job comes after the first.
			plain[i] = false
			if err := f.applyPlain(); err != nil {
				return err
			}
		}
		seen[s.Seen.JobID] = true
		if plain[i] {
			f.addPlain(s)
			f.Applied[i] = true
		} else if err := f.fireStep(i, s); err != nil {
			return err
		}
	}
	err = f.applyPlain()
	f.changes.ready = f.changes.ready || len(f.Ready) > 0
	return err
}

// fireStep applies the step with a number.
func (f *fireTx) fireStep(i int, s *plan.Step) (err error) {
	f.skipped = 0
	if f.Applied[i], err = f.applyStep(s); err != nil || f.skipped == 0 || s.NextIfSkipped == nil {
		return err
	}
	f.AddSkipped(i, f.skipped)
	return f.replan(s, f.skipped)
}

func (f *fireTx) applyStep(s *plan.Step) (applied bool, err error) {
	seen, next := &s.Seen, &s.Next
	n, err := f.exec(advancePlan, nullTime(next.NextAt), nullTime(next.NominalAt), nullTime(next.FiredFor), next.RunsMade, next.ZoneVersion, next.Once,
		seen.JobID[:], seen.Version, s.Due, micro(f.now), timeOr(s.First(), afterAll))
	if err != nil || n == 0 {
		return false, err
	}
	for i := range s.Skips {
		skip := &s.Skips[i]
		if err := f.addSkip(s, skip, belfry.KindScheduled, skip.From); err != nil {
			return false, err
		}
	}
	for i := range s.Runs {
		if err := f.addRun(s, &s.Runs[i]); err != nil {
			return false, err
		}
	}
	return true, f.addEvent(seen.Shard, s.Event)
}

// replan gives a job with max_runs the plan that it has after some of the runs became
// skips.
func (f *fireTx) replan(s *plan.Step, skipped int) error {
	next := s.NextIfSkipped
	return f.run(`UPDATE plans SET next_at = ?, nominal_at = ?, runs_made = runs_made - ? WHERE job_id = ?`,
		nullTime(next.NextAt), nullTime(next.NominalAt), skipped, s.Seen.JobID[:])
}

func (f *fireTx) addSkip(s *plan.Step, skip *plan.Skip, kind belfry.RunKind, readyAt time.Time) error {
	now := micro(f.now)
	return f.run(insertSkip, skip.ID[:], int64(s.Seen.Shard), s.Namespace, s.Seen.JobID[:], int64(s.Revision), string(kind), string(skip.Reason),
		micro(skip.From), micro(readyAt), now, f.owner[:], s.Epoch, now, skip.Detail, micro(skip.To), skip.Count, retainUntil(f.now, s.Policy.RetentionDays))
}

// addRun adds a run of the step, or a skip in its place, unless its trigger is fired
// already or the run exists.
func (f *fireTx) addRun(s *plan.Step, r *plan.Run) error {
	if !r.Trigger.IsZero() {
		n, err := f.exec(fireTrigger, micro(f.now), r.Trigger[:])
		if err != nil || n == 0 {
			return err
		}
	}
	state, reason, err := f.initialState(s.Seen.JobID, r)
	switch {
	case err != nil || state == "":
		return err
	case state == belfry.RunSkipped:
		if r.Kind == belfry.KindScheduled {
			f.skipped++
		}
		skip := &plan.Skip{ID: r.ID, From: r.ScheduledAt, To: r.ScheduledAt, Count: 1, Reason: reason}
		return f.addSkip(s, skip, r.Kind, r.ReadyAt)
	}
	lane, weight := s.Lane(), s.Policy.Weight()
	args := []any{r.ID[:], int64(s.Seen.Shard), s.Namespace, s.Seen.JobID[:], int64(s.Revision), string(r.Kind), lane, plan.Rank(r.ReadyAt, weight),
		micro(r.ScheduledAt), micro(r.ReadyAt), micro(f.now), f.owner[:], s.Epoch, s.Policy.Timeout().Milliseconds(), nullText(r.Payload), nullText(r.Key),
		weight, s.Next.Once, nullDays(s.Policy.RetentionDays)}
	var claimed *belfry.Run
	claim := []any{int64(0), string(state), nil, nil, nil, nil}
	if state == belfry.RunReady {
		if worker := store.TakeSlot(f.slots, lane); !worker.IsZero() {
			claimed = f.claimedRun(s, r, worker)
			claim = []any{int64(1), string(belfry.RunRunning), worker[:], claimed.Token[:], micro(f.now), micro(claimed.DeadlineAt)}
		}
	}
	n, err := f.exec(insertRun, append(args, claim...)...)
	switch {
	case err != nil || n == 0:
	case claimed != nil:
		f.Claimed = append(f.Claimed, claimed)
		err = f.addPayload(claimed)
	case state == belfry.RunReady:
		f.AddReady(lane)
	}
	if err != nil || !hasUniqueKey(r) {
		return err
	}
	return f.run(insertKey, s.Seen.JobID[:], r.Key, int64(s.Seen.Shard), r.ID[:], micro(f.now))
}

// claimedRun is the run of a step as its worker gets it, but for the payload of its job.
func (f *fireTx) claimedRun(s *plan.Step, r *plan.Run, worker belfry.ID) *belfry.Run {
	started := f.now
	return &belfry.Run{
		ID: r.ID, JobID: s.Seen.JobID, JobName: s.Name, Namespace: s.Namespace, Revision: s.Revision, Kind: r.Kind, Status: belfry.RunRunning,
		ScheduledAt: storedTime(r.ScheduledAt), ReadyAt: storedTime(r.ReadyAt), FiredAt: f.now, Attempt: 1, StartedAt: &started, WorkerID: worker,
		TemplateKey: r.Key, Token: belfry.NewToken(), Payload: r.Payload, Spec: s.Policy.Spec, DeadlineAt: deadline(f.now, s.Policy.Timeout()),
	}
}

// addPayload gives a run without a payload of its own that of its job.
func (f *fireTx) addPayload(run *belfry.Run) (err error) {
	if len(run.Payload) > 0 {
		return nil
	}
	payload, known := f.payloads[revisionOf{run.JobID, run.Revision}]
	if !known {
		payload, err = f.payloadAt(run.JobID, run.Revision)
	}
	run.Payload = payload
	return err
}

// deadline is when an attempt that starts now is taken from its worker.
func deadline(now time.Time, timeout time.Duration) time.Time {
	return now.Add(timeout + store.DeadlineGrace)
}

func (t *tx) payloadAt(job belfry.ID, revision int) (out json.RawMessage, err error) {
	found, err := t.find([]any{jsonColumn{&out}}, `SELECT payload FROM jobs WHERE id = ? AND revision = ?`, job[:], int64(revision))
	if err == nil && !found {
		_, err = t.find([]any{jsonColumn{&out}}, `SELECT payload FROM revisions WHERE job_id = ? AND revision = ?`, job[:], int64(revision))
	}
	return out, err
}

// initialState is where a run of a step begins: ready, waiting for an earlier run of
// its job, or skipped for a reason. It is empty if the run exists already.
func (f *fireTx) initialState(job belfry.ID, r *plan.Run) (belfry.RunStatus, belfry.Reason, error) {
	if hasUniqueKey(r) {
		taken, err := f.exists(keyIsTaken, job[:], r.Key, r.ID[:], job[:], r.Key, r.ID[:], micro(f.now.Add(-store.KeyRetention)))
		if err != nil || taken {
			return belfry.RunSkipped, belfry.ReasonDuplicateKey, err
		}
	}
	if !r.Serial {
		return belfry.RunReady, "", nil
	}
	var live, known int64
	if err := f.get([]any{&live}, jobHasLiveRun, job[:]); err != nil || live == 0 {
		return belfry.RunReady, "", err
	}
	err := f.get([]any{&known}, runIsLive, r.ID[:])
	if err != nil || known != 0 {
		return "", "", err
	}
	if r.Kind != belfry.KindBackfill { // A backfill takes no place of the queue.
		if own, err := f.exists(jobHasOwnLiveRun, job[:]); err != nil || !own {
			return belfry.RunWaiting, "", err
		}
	}
	switch {
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

// hasUniqueKey reports whether no other run may have the key of the run.
func hasUniqueKey(r *plan.Run) bool { return r.Key != "" && r.Kind == belfry.KindScheduled }

// advancePlan moves a plan to its next version. It changes nothing if the plan has
// moved since it was seen, is not due, or has passed the first occurrence that the
// step decides.
const advancePlan = `UPDATE plans SET version = version + 1, next_at = ?, nominal_at = ?, fired_for = ?, runs_made = ?, zone_version = ?, one_off = ?, quarantined = NULL
WHERE job_id = ? AND version = ? AND (NOT ? OR next_at <= ?) AND (fired_for IS NULL OR fired_for < ?)`

const fireTrigger = `UPDATE triggers SET fired_at = ? WHERE id = ? AND fired_at IS NULL`

const (
	insertRun = `INSERT INTO runs (id, shard, namespace, job_id, revision, kind, lane, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, payload, key,
weight, one_off, retention_days, lost, failures, attempt, state, worker, token, started_at, deadline_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

	insertSkip = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
epoch, attempt, settled_at, http_status, error, output, skipped_to, skipped_count, retain_until)
VALUES (?, ?, ?, ?, ?, ?, 'skipped', ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, '', ?, ?, ?)`
)

// What decides where a new run begins.
const (
	jobHasLiveRun = `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ?)`
	runIsLive     = `SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?)`
	countWaiting  = `SELECT count(*) FROM (SELECT 1 FROM runs WHERE job_id = ? AND state = 'waiting' AND kind <> 'backfill' LIMIT ?)`

	jobHasOwnLiveRun = `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ? AND kind <> 'backfill')`
)

// The idempotency keys of scheduled runs.
const (
	keyIsTaken = `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ? AND key = ? AND kind = 'scheduled' AND id <> ?)
OR EXISTS (SELECT 1 FROM keys WHERE job_id = ? AND key = ? AND run_id <> ? AND succeeded_at > ?)`

	insertKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at, succeeded_at = NULL`

	// A run that was dead for a while may succeed after another run had its key.
	succeedKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at, succeeded_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, succeeded_at = excluded.succeeded_at`
)

const insertEvent = `INSERT INTO events (id, shard, namespace, job_id, run_id, kind, at, message, count) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

// addEvent records an event; nil is none.
func (t *tx) addEvent(shard int, e *belfry.Event) error {
	if e == nil {
		return nil
	}
	return t.run(insertEvent, e.ID[:], int64(shard), e.Namespace, nullID(e.JobID), nullID(e.RunID), string(e.Kind), micro(e.At), sanitize.Text(e.Message, store.MaxError), e.Count)
}
