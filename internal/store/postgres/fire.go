package postgres

import (
	"context"
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

// Fire applies the steps whose plan has not changed since it was read.
func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	ctx, cancel := detach(ctx, callTimeout)
	defer cancel()
	fired, err := s.fire(ctx, s.pool, owner, steps, slots)
	if err != nil {
		return fired, wrapError("fire", err)
	}
	if fired.Ready > 0 {
		s.notifier.notifyReady()
	}
	return fired, nil
}

func (s *Store) fire(ctx context.Context, q querier, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	fired := store.FireResult{Applied: make([]bool, len(steps))}
	if len(steps) == 0 {
		return fired, nil
	}
	a := newFireArgs(steps)
	variant, args := a.list(owner, slots)
	if len(steps) > maxGenericPlanSteps && !s.behindPooler {
		args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	}
	var (
		step         int64
		state        belfry.RunStatus
		run, token   pgtype.UUID
		at, deadline pgtype.Timestamptz
		payload      pgtype.Text
	)
	err := forEach(ctx, q, []any{&step, &run, &state, &token, &at, &deadline, &payload}, func() error {
		switch {
		case step > 0:
			fired.Applied[step-1] = true
		case state == belfry.RunRunning:
			fired.Claimed = append(fired.Claimed, a.claimed(run.Bytes, slots.Worker, token.Bytes, timeOrZero(at), timeOrZero(deadline), payload))
		case state == belfry.RunReady:
			fired.Ready++
		}
		return nil
	}, fireSQL[variant], args...)
	return fired, err
}

// claimed is a run that a slot of the local worker took.
func (a *fireArgs) claimed(id, worker belfry.ID, token belfry.Token, at, deadline time.Time, payload pgtype.Text) *belfry.Run {
	run := a.runs[a.index[id]]
	step, r := &a.steps[run.step-1], run.of
	return &belfry.Run{
		ID: r.ID, JobID: step.Seen.JobID, Namespace: step.Namespace, Revision: step.Revision, Kind: r.Kind,
		Status: belfry.RunRunning, ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: at, Attempt: 1,
		StartedAt: &at, WorkerID: worker, Token: token, Spec: step.Policy.Spec, DeadlineAt: deadline, TemplateKey: r.Key,
		Payload: rawJSON(payload),
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

// ofStep is something that a step makes.
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
	}
	if len(a.events) > 0 {
		args = append(args, a.eventArgs()...)
	}
	return fireVariant{keys: len(keys) > 0, events: len(a.events) > 0}, args
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

func (a *fireArgs) eventArgs() []any {
	type event = ofStep[belfry.Event]
	return []any{
		column(a.events, func(e *event) int64 { return e.step }),
		column(a.events, func(e *event) pgtype.UUID { return uuid(e.of.ID) }),
		column(a.events, func(e *event) string { return storable(e.of.Namespace) }),
		column(a.events, func(e *event) pgtype.UUID { return uuid(e.of.JobID) }),
		column(a.events, func(e *event) string { return storable(string(e.of.Kind)) }),
		column(a.events, func(e *event) time.Time { return e.of.At }),
		column(a.events, func(e *event) string { return storable(e.of.Message) }),
		column(a.events, func(e *event) int64 { return e.of.Count }),
	}
}
