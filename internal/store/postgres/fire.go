package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// maxGenericPlanSteps is the size of the largest batch that is fired with a prepared
// statement. Its plan soon becomes generic, which suits small batches.
const maxGenericPlanSteps = 100

func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	ctx, cancel := detach(ctx, fireTimeout)
	defer cancel()
	fired, err := s.fireBatch(ctx, owner, steps, slots)
	if err != nil {
		return store.FireResult{}, wrapError("fire", err) // The rows arrive before the commit, which may fail.
	}
	s.metrics.Started(fired.Claimed)
	if len(fired.Ready) > 0 {
		s.notifier.notifyReady()
	}
	return fired, nil
}

// fireBatch applies simple steps by the statement for them, unless that fails because of
// something that only the general one decides.
func (s *Store) fireBatch(ctx context.Context, owner belfry.ID, steps []plan.Step, slots []store.FreeSlots) (fired store.FireResult, err error) {
	switch {
	case slices.ContainsFunc(steps, isLimited):
		err = pgx.BeginFunc(ctx, s.orMain(s.firePool), func(tx pgx.Tx) (err error) {
			fired, err = s.fire(ctx, tx, owner, steps, slots)
			return err
		})
		return fired, err
	case s.firesSimply(steps, slots):
		fired, err = s.fireSimple(ctx, owner, steps, slots)
		switch sqlState(err) {
		case lockNotAvailable, deadlockDetected:
			s.plansLockedAt.Store(time.Now().Unix())
		case uniqueViolation:
		default:
			return fired, err
		}
	}
	return s.fire(ctx, s.orMain(s.firePool), owner, steps, slots)
}

// firesSimply reports whether the statement for simple steps is to fire a batch. It assigns
// slots before it knows which runs there are, so that a run that becomes a skip leaves its
// slot free: a small batch with too few slots is left to the general one. Behind a pooler
// it might wait for locks without end.
func (s *Store) firesSimply(steps []plan.Step, slots []store.FreeSlots) bool {
	free := 0
	for i := range slots {
		free += slots[i].Free
	}
	return len(steps) > 0 && (free == 0 || free >= len(steps) || len(steps) > maxGenericPlanSteps) && !s.behindPooler &&
		time.Since(time.Unix(s.plansLockedAt.Load(), 0)) > lockedPause && allSimple(steps)
}

// lockedPause is for how long the general statement, which leaves out locked plans, fires
// all batches after one waited for a lock in vain.
const lockedPause = 10 * time.Second

// isLimited reports whether the plan after a step depends on which runs are made.
func isLimited(s plan.Step) bool { return s.NextIfSkipped != nil }

// fire applies steps of all kinds. It uses the first of the slots.
func (s *Store) fire(ctx context.Context, q querier, owner belfry.ID, steps []plan.Step, all []store.FreeSlots) (store.FireResult, error) {
	fired := store.FireResult{Applied: make([]bool, len(steps))}
	if len(steps) == 0 {
		return fired, nil
	}
	var slots store.FreeSlots
	if len(all) > 0 {
		slots = all[0]
	}
	a := newFireArgs(steps)
	variant, args := a.list(owner, slots)
	if len(steps) > maxGenericPlanSteps && !s.behindPooler {
		args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	}
	var (
		step         int64
		state        belfry.RunStatus
		run          belfry.ID
		token        belfry.Token
		at, deadline time.Time
		payload      json.RawMessage
	)
	err := forEach(ctx, q, []any{&step, idColumn(&run), &state, idColumn(&token), timeColumn{&at}, timeColumn{&deadline}, jsonColumn{&payload}}, func() error {
		switch {
		case step > 0:
			fired.Applied[step-1] = true
		case state == belfry.RunRunning:
			fired.Claimed = append(fired.Claimed, firedRun(a.stepOf(run), a.runs[a.index[run]].of, slots.Worker, token, at, deadline, payload))
		case state == belfry.RunReady:
			fired.AddReady(a.stepOf(run).Lane())
		case state == belfry.RunSkipped && a.stepOf(run).NextIfSkipped != nil:
			fired.AddSkipped(int(a.runs[a.index[run]].step-1), 1)
		}
		return nil
	}, fireSQL[variant], args...)
	if err != nil {
		return fired, err
	}
	return fired, replanSkipped(ctx, q, steps, fired.Skipped)
}

func (a *fireArgs) stepOf(run belfry.ID) *plan.Step { return &a.steps[a.runs[a.index[run]].step-1] }

func firedRun(step *plan.Step, r *plan.Run, worker belfry.ID, token belfry.Token, at, deadline time.Time, payload json.RawMessage) *belfry.Run {
	return &belfry.Run{
		ID: r.ID, JobID: step.Seen.JobID, JobName: step.Name, Namespace: step.Namespace, Revision: step.Revision, Kind: r.Kind,
		Status: belfry.RunRunning, ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: at, Attempt: 1,
		StartedAt: &at, WorkerID: worker, Token: token, Spec: step.Policy.Spec, DeadlineAt: deadline, TemplateKey: r.Key,
		Payload: payload,
	}
}

// fireArgs is a batch of steps with what all of them make.
type fireArgs struct {
	steps    []plan.Step
	runs     []ofStep[plan.Run]
	triggers []ofStep[plan.Run] // those of runs with a trigger
	skips    []ofStep[plan.Skip]
	events   []ofStep[belfry.Event]
	index    map[belfry.ID]int // of runs
}

type ofStep[T any] struct {
	step int64 // from 1
	of   *T
}

func newFireArgs(steps []plan.Step) *fireArgs {
	a := &fireArgs{steps: steps, runs: make([]ofStep[plan.Run], 0, len(steps)), index: make(map[belfry.ID]int, len(steps))}
	for i := range steps {
		s, step := &steps[i], int64(i+1)
		for k := range s.Runs {
			run := ofStep[plan.Run]{step, &s.Runs[k]}
			a.index[run.of.ID] = len(a.runs)
			a.runs = append(a.runs, run)
			if !run.of.Trigger.IsZero() {
				a.triggers = append(a.triggers, run)
			}
		}
		for k := range s.Skips {
			a.skips = append(a.skips, ofStep[plan.Skip]{step, &s.Skips[k]})
		}
		if s.Event != nil {
			a.events = append(a.events, ofStep[belfry.Event]{step, s.Event})
		}
	}
	return a
}

// list returns the variant of the statement that the batch needs, and its arguments.
func (a *fireArgs) list(owner belfry.ID, slots store.FreeSlots) (fireVariant, []any) {
	type run = ofStep[plan.Run]
	type skip = ofStep[plan.Skip]
	keys := sparseColumn(a.runs, func(r *run) pgtype.Text { return text(r.of.Key) })
	args := []any{
		column(a.steps, func(s *plan.Step) pgtype.UUID { return uuid(s.Seen.JobID) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Seen.Version }),
		column(a.steps, func(s *plan.Step) bool { return s.Due }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.First()) }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.Next.NextAt) }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.Next.NominalAt) }),
		column(a.steps, func(s *plan.Step) pgtype.Timestamptz { return timestamptz(s.Next.FiredFor) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Next.RunsMade }),
		column(a.steps, func(s *plan.Step) string { return s.Next.ZoneVersion }),
		column(a.steps, func(s *plan.Step) string { return storable(s.Namespace) }),
		column(a.steps, func(s *plan.Step) int32 { return int32(s.Revision) }),
		column(a.steps, func(s *plan.Step) int32 { return int32(s.Seen.Shard) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Epoch }),
		column(a.steps, func(s *plan.Step) string { return storable(s.Lane()) }),
		column(a.steps, func(s *plan.Step) int64 { return s.Policy.Timeout().Milliseconds() }),
		sparseColumn(a.steps, triggerCount),
		sparseColumn(a.steps, func(s *plan.Step) bool { return s.Next.Once }),
		sparseColumn(a.steps, func(s *plan.Step) int64 { return s.Policy.Weight() }),
		sparseColumn(a.steps, func(s *plan.Step) pgtype.Int4 { return retentionDays(s.Policy.RetentionDays) }),

		column(a.runs, func(r *run) int64 { return r.step }),
		column(a.runs, func(r *run) pgtype.UUID { return uuid(r.of.ID) }),
		column(a.runs, func(r *run) string { return string(r.of.Kind) }),
		column(a.runs, func(r *run) pgtype.UUID { return uuid(r.of.Trigger) }),
		column(a.runs, func(r *run) time.Time { return r.of.ScheduledAt }),
		column(a.runs, func(r *run) time.Time { return r.of.ReadyAt }),
		column(a.runs, func(r *run) int64 { return plan.Rank(r.of.ReadyAt, a.steps[r.step-1].Policy.Weight()) }),
		column(a.runs, func(r *run) int32 { return queueColumn(r.of) }),
		column(a.runs, func(r *run) pgtype.Text { return text(string(r.of.Payload)) }),
		keys,

		column(a.triggers, func(r *run) int64 { return r.step }),
		column(a.triggers, func(r *run) pgtype.UUID { return uuid(r.of.Trigger) }),

		column(a.skips, func(s *skip) int64 { return s.step }),
		column(a.skips, func(s *skip) pgtype.UUID { return uuid(s.of.ID) }),
		column(a.skips, func(s *skip) time.Time { return s.of.From }),
		column(a.skips, func(s *skip) time.Time { return s.of.To }),
		column(a.skips, func(s *skip) int64 { return s.of.Count }),
		column(a.skips, func(s *skip) string { return string(s.of.Reason) }),

		newTokens(min(slots.Free, len(a.runs))), notNull(owner), uuid(slots.Worker), storables(slots.Lanes), store.DeadlineGrace.Milliseconds(),

		column(a.skips, func(s *skip) string { return storable(s.of.Detail) }),
		sparseColumn(a.runs, func(r *run) int32 { return a.ownBefore(r) }),
	}
	if len(a.events) > 0 {
		type event = ofStep[belfry.Event]
		args = append(args,
			column(a.events, func(e *event) int64 { return e.step }),
			column(a.events, func(e *event) pgtype.UUID { return uuid(e.of.ID) }),
			column(a.events, func(e *event) string { return storable(e.of.Namespace) }),
			column(a.events, func(e *event) pgtype.UUID { return uuid(e.of.JobID) }),
			column(a.events, func(e *event) string { return storable(string(e.of.Kind)) }),
			column(a.events, func(e *event) time.Time { return e.of.At }),
			column(a.events, func(e *event) string { return storable(e.of.Message) }),
			column(a.events, func(e *event) int64 { return e.of.Count }))
	}
	return fireVariant{keys: len(keys) > 0, events: len(a.events) > 0, limited: slices.ContainsFunc(a.steps, isLimited)}, args
}

// ownBefore is twice how many runs of the step before a run are not backfills, plus one if
// the first of them is the first of the step, which does not wait if no run is live.
func (a *fireArgs) ownBefore(r *ofStep[plan.Run]) (n int32) {
	runs := a.steps[r.step-1].Runs
	for i := 0; &runs[i] != r.of; i++ {
		if runs[i].Kind != belfry.KindBackfill {
			n += 2
		}
	}
	if n > 0 && runs[0].Kind != belfry.KindBackfill {
		n++
	}
	return n
}

func triggerCount(s *plan.Step) (n int64) {
	for i := range s.Runs {
		if !s.Runs[i].Trigger.IsZero() {
			n++
		}
	}
	return n
}

// queueColumn is below zero for a run that does not wait.
func queueColumn(r *plan.Run) int32 {
	if !r.Serial {
		return -1
	}
	return int32(r.Queue)
}

// isSimple reports whether a step can be applied by the statement for simple steps, which
// costs half of the general one.
func isSimple(s *plan.Step) bool {
	if !s.IsSimple() || s.NextIfSkipped != nil {
		return false
	}
	r := &s.Runs[0]
	return (!r.Serial || r.Queue == 0) && s.Next.FiredFor.Equal(r.ScheduledAt) && s.Next.Once == s.Seen.Once
}

// allSimple reports whether all steps are simple, of different jobs, and by the same time-zone data.
func allSimple(steps []plan.Step) bool {
	sorted := true
	for i := range steps {
		if !isSimple(&steps[i]) || steps[i].Next.ZoneVersion != steps[0].Next.ZoneVersion {
			return false
		}
		sorted = sorted && (i == 0 || steps[i-1].Seen.JobID.Compare(steps[i].Seen.JobID) < 0)
	}
	return sorted || !repeatsJob(steps)
}

// repeatsJob reports whether two steps are of one job.
func repeatsJob(steps []plan.Step) bool {
	seen := make(map[belfry.ID]bool, len(steps))
	for i := range steps {
		seen[steps[i].Seen.JobID] = true
	}
	return len(seen) < len(steps)
}

// fireClass is what many steps of a batch have in common.
type fireClass struct {
	namespace, lane string
	revision        int
	timeout         time.Duration
	weight          int64
	retentionDays   int
	serial, oneOff  bool
	worker          belfry.ID // that takes the run at once if it is ready
}

func classOf(s *plan.Step) fireClass {
	return fireClass{s.Namespace, s.Lane(), s.Revision, s.Policy.Timeout(), s.Policy.Weight(), s.Policy.RetentionDays, s.Runs[0].Serial, s.Next.Once, belfry.ID{}}
}

// fireSimple applies simple steps. The result of a step is that of the general statement,
// except that a run that becomes a skip leaves its slot free.
func (s *Store) fireSimple(ctx context.Context, owner belfry.ID, steps []plan.Step, slots []store.FreeSlots) (store.FireResult, error) {
	fired := store.FireResult{Applied: make([]bool, len(steps)), Claimed: make([]*belfry.Run, 0, len(steps))}
	fires, args := simpleFireArgs(owner, steps, slices.Clone(slots))
	var (
		n       int32
		state   belfry.RunStatus
		now     time.Time
		payload json.RawMessage
	)
	err := forEach(ctx, s.orMain(s.firePool), []any{&n, &state, timeColumn{&now}, jsonColumn{&payload}}, func() error {
		f := &fires[n-1]
		step := &steps[f.step]
		fired.Applied[f.step] = true
		switch state {
		case belfry.RunRunning:
			deadline := now.Add(step.Policy.Timeout() + store.DeadlineGrace)
			fired.Claimed = append(fired.Claimed, firedRun(step, &step.Runs[0], f.class.worker, f.token, now, deadline, payload))
		case belfry.RunReady:
			fired.AddReady(step.Lane())
		}
		return nil
	}, fireSimpleSQL, args...)
	return fired, err
}

// simpleFire is a simple step in the order of jobs.
type simpleFire struct {
	step   int // its index
	class  *fireClass
	number int32        // of the class, from 1
	token  belfry.Token // of the run; zero if no worker takes it
}

// simpleFireArgs returns simple steps in the order of jobs, and the arguments of the
// statement for them. Slots are assigned in the order of the steps.
func simpleFireArgs(owner belfry.ID, steps []plan.Step, slots []store.FreeSlots) (fires []simpleFire, args []any) {
	numbers, list := map[fireClass]int32{}, []*fireClass(nil)
	fires = make([]simpleFire, len(steps))
	for i := range steps {
		f := &fires[i]
		f.step = i
		class := classOf(&steps[i])
		if class.worker = store.TakeSlot(slots, class.lane); !class.worker.IsZero() {
			f.token = belfry.NewToken()
		}
		if numbers[class] == 0 {
			first := class // its own variable, so that only a new class is allocated
			list = append(list, &first)
			numbers[class] = int32(len(list))
		}
		f.number = numbers[class]
		f.class = list[f.number-1]
	}
	slices.SortFunc(fires, func(a, b simpleFire) int { return steps[a.step].Seen.JobID.Compare(steps[b.step].Seen.JobID) })
	return fires, []any{
		column(list, func(c **fireClass) string { return storable((*c).namespace) }),
		column(list, func(c **fireClass) string { return storable((*c).lane) }),
		column(list, func(c **fireClass) int32 { return int32((*c).revision) }),
		column(list, func(c **fireClass) int64 { return (*c).timeout.Milliseconds() }),
		column(list, func(c **fireClass) int64 { return (*c).weight }),
		column(list, func(c **fireClass) int32 { return int32((*c).retentionDays) }),
		column(list, func(c **fireClass) bool { return (*c).serial }),
		column(list, func(c **fireClass) bool { return (*c).oneOff }),
		column(fires, func(f *simpleFire) int64 { return steps[f.step].Epoch }),
		steps[0].Next.ZoneVersion,

		column(fires, func(f *simpleFire) pgtype.UUID { return uuid(steps[f.step].Seen.JobID) }),
		column(fires, func(f *simpleFire) int64 { return steps[f.step].Seen.Version }),
		column(fires, func(f *simpleFire) int32 { return f.number }),
		column(fires, func(f *simpleFire) pgtype.UUID { return uuid(steps[f.step].Runs[0].ID) }),
		column(fires, func(f *simpleFire) time.Time { return steps[f.step].Runs[0].ScheduledAt }),
		column(fires, func(f *simpleFire) time.Time { return steps[f.step].Runs[0].ReadyAt }),
		column(fires, func(f *simpleFire) pgtype.Timestamptz { return orInfinity(steps[f.step].Next.NextAt) }),
		column(fires, func(f *simpleFire) pgtype.Timestamptz { return orInfinity(steps[f.step].Next.NominalAt) }),
		column(fires, func(f *simpleFire) int64 { return steps[f.step].Next.RunsMade }),
		column(fires, func(f *simpleFire) pgtype.UUID { return notNull(f.token) }),
		notNull(owner), column(list, func(c **fireClass) pgtype.UUID { return notNull((*c).worker) }), store.DeadlineGrace.Milliseconds(),
		column(fires, func(f *simpleFire) int64 {
			s := &steps[f.step]
			return plan.Rank(s.Runs[0].ReadyAt, s.Policy.Weight())
		}),
		notNull(belfry.Token{}),
	}
}
