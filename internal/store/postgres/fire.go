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
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return store.FireResult{}, err
	}
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
	args := a.list(owner, slots)
	if len(steps) > maxGenericPlanSteps && !s.behindPooler {
		args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	}
	rows, err := q.Query(ctx, fireSQL[a.variant()], args...)
	if err != nil {
		return fired, err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			step         int64
			state        string
			run, token   pgtype.UUID
			at, deadline pgtype.Timestamptz
			payload      pgtype.Text
		)
		if err := rows.Scan(&step, &run, &state, &token, &at, &deadline, &payload); err != nil {
			return fired, err
		}
		switch {
		case step > 0:
			fired.Applied[step-1] = true
		case belfry.RunStatus(state) == belfry.RunRunning:
			fired.Claimed = append(fired.Claimed, a.claimed(run.Bytes, slots.Worker, token.Bytes, timeOrZero(at), timeOrZero(deadline), payload))
		case belfry.RunStatus(state) == belfry.RunReady:
			fired.Ready++
		}
	}
	return fired, rows.Err()
}

// claimed is a run that a slot of the local worker took.
func (a *fireArgs) claimed(id, worker belfry.ID, token belfry.Token, at, deadline time.Time, payload pgtype.Text) *belfry.Run {
	i := a.index[id]
	step, r := a.steps[a.stepOf[i]-1], a.runs[i]
	return &belfry.Run{
		ID: r.ID, JobID: step.Seen.JobID, Namespace: step.Namespace, Revision: step.Revision, Kind: r.Kind,
		Status: belfry.RunRunning, ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: at, Attempt: 1,
		StartedAt: &at, WorkerID: worker, Token: token, Spec: step.Policy.Spec, DeadlineAt: deadline, TemplateKey: r.Key,
		Payload: rawJSON(payload),
	}
}

// fireArgs is a batch of steps as arrays, one for each column.
type fireArgs struct {
	steps []plan.Step
	runs  []plan.Run // of all steps, in order
	index map[belfry.ID]int

	jobs                      []pgtype.UUID
	versions, runsMade        []int64
	due                       []bool
	firsts                    []pgtype.Timestamptz
	nexts, nominals, firedFor []pgtype.Timestamptz
	zones, namespaces         []string
	revisions, shards         []int32
	epochs, timeouts          []int64
	lanes                     []string
	triggerCounts             []int64 // triggers of each step; this and the next three end with the last step that has any
	oneOffs                   []bool
	weights                   []int64
	retentionDays             []pgtype.Int4

	stepOf             []int64 // 1-based step of each run
	ids, triggers      []pgtype.UUID
	kinds              []string
	scheduled, readyAt []time.Time
	ranks              []int64
	queues             []int32 // below zero: does not wait
	payloads           []pgtype.Text
	keys               []pgtype.Text // ends with the last run that has one

	triggerStepOf []int64 // 1-based step of each trigger
	triggerIDs    []pgtype.UUID

	skipOf     []int64
	skipIDs    []pgtype.UUID
	froms, tos []time.Time
	counts     []int64
	reasons    []string

	eventOf []int64 // 1-based step of each event
	events  []*belfry.Event
}

func newFireArgs(steps []plan.Step) *fireArgs {
	a := &fireArgs{steps: steps, index: make(map[belfry.ID]int, len(steps))}
	for i := range steps {
		a.addStep(&steps[i])
		for _, r := range steps[i].Runs {
			a.addRun(int64(i+1), r)
		}
		for _, k := range steps[i].Skips {
			a.skipOf = append(a.skipOf, int64(i+1))
			a.skipIDs = append(a.skipIDs, uuid(k.ID))
			a.froms, a.tos = append(a.froms, k.From), append(a.tos, k.To)
			a.counts, a.reasons = append(a.counts, k.Count), append(a.reasons, string(k.Reason))
		}
		if steps[i].Event != nil {
			a.eventOf, a.events = append(a.eventOf, int64(i+1)), append(a.events, steps[i].Event)
		}
	}
	return a
}

func (a *fireArgs) addStep(s *plan.Step) {
	a.jobs = append(a.jobs, uuid(s.Seen.JobID))
	a.versions = append(a.versions, s.Seen.Version)
	a.due = append(a.due, s.Due)
	a.firsts = append(a.firsts, timestamptz(s.First()))
	a.nexts = append(a.nexts, timestamptz(s.Next.NextAt))
	a.nominals = append(a.nominals, timestamptz(s.Next.NominalAt))
	a.firedFor = append(a.firedFor, timestamptz(s.Next.FiredFor))
	a.runsMade = append(a.runsMade, s.Next.RunsMade)
	a.zones = append(a.zones, s.Next.ZoneVersion)
	a.namespaces = append(a.namespaces, storable(s.Namespace))
	a.revisions = append(a.revisions, int32(s.Revision))
	a.shards = append(a.shards, int32(s.Seen.Shard))
	a.epochs = append(a.epochs, s.Epoch)
	a.lanes = append(a.lanes, storable(s.Lane()))
	a.timeouts = append(a.timeouts, s.Policy.Timeout().Milliseconds())
	n := len(a.jobs)
	if s.Next.Once {
		a.oneOffs = grow(a.oneOffs, n)
		a.oneOffs[n-1] = true
	}
	if weight := s.Policy.Weight(); weight != 0 {
		a.weights = grow(a.weights, n)
		a.weights[n-1] = weight
	}
	if s.Policy.RetentionDays > 0 {
		a.retentionDays = grow(a.retentionDays, n)
		a.retentionDays[n-1] = retentionDays(s.Policy.RetentionDays)
	}
}

// grow extends a list to n.
func grow[T any](list []T, n int) []T { return append(list, make([]T, n-len(list))...) }

func (a *fireArgs) addRun(step int64, r plan.Run) {
	a.index[r.ID] = len(a.runs)
	a.runs = append(a.runs, r)
	if !r.Trigger.IsZero() {
		a.triggerStepOf, a.triggerIDs = append(a.triggerStepOf, step), append(a.triggerIDs, uuid(r.Trigger))
		a.triggerCounts = grow(a.triggerCounts, int(step))
		a.triggerCounts[step-1]++
	}
	a.stepOf = append(a.stepOf, step)
	a.ids = append(a.ids, uuid(r.ID))
	a.kinds = append(a.kinds, string(r.Kind))
	a.triggers = append(a.triggers, uuid(r.Trigger))
	a.scheduled = append(a.scheduled, r.ScheduledAt)
	a.readyAt = append(a.readyAt, r.ReadyAt)
	a.ranks = append(a.ranks, plan.Rank(r.ReadyAt, a.steps[step-1].Policy.Weight()))
	queue := int32(-1)
	if r.Serial {
		queue = int32(r.Queue)
	}
	a.queues = append(a.queues, queue)
	a.payloads = append(a.payloads, text(string(r.Payload)))
	if r.Key != "" {
		a.keys = grow(a.keys, len(a.ids))
		a.keys[len(a.ids)-1] = text(r.Key)
	}
}

func (a *fireArgs) variant() fireVariant {
	return fireVariant{keys: len(a.keys) > 0, events: len(a.events) > 0}
}

// list returns the arguments of the statement in order.
func (a *fireArgs) list(owner belfry.ID, slots store.FreeSlots) []any {
	tokens := make([]belfry.Token, min(slots.Free, len(a.runs)))
	for i := range tokens {
		tokens[i] = belfry.NewToken()
	}
	args := []any{
		a.jobs, a.versions, a.due, a.firsts, a.nexts, a.nominals, a.firedFor, a.runsMade,
		a.zones, a.namespaces, a.revisions, a.shards, a.epochs, a.lanes, a.timeouts,
		a.triggerCounts, a.oneOffs, a.weights, a.retentionDays,
		a.stepOf, a.ids, a.kinds, a.triggers, a.scheduled, a.readyAt, a.ranks, a.queues, a.payloads, a.keys,
		a.triggerStepOf, a.triggerIDs,
		a.skipOf, a.skipIDs, a.froms, a.tos, a.counts, a.reasons,
		uuids(tokens), notNull(owner), uuid(slots.Worker), storables(slots.Lanes), store.DeadlineGrace.Milliseconds(),
	}
	if len(a.events) > 0 {
		args = append(args, a.eventArgs()...)
	}
	return args
}

func (a *fireArgs) eventArgs() []any {
	n := len(a.events)
	ids, jobs := make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	namespaces, kinds, messages := make([]string, n), make([]string, n), make([]string, n)
	times, counts := make([]time.Time, n), make([]int64, n)
	for i, e := range a.events {
		ids[i], jobs[i] = uuid(e.ID), uuid(e.JobID)
		namespaces[i], kinds[i], messages[i] = storable(e.Namespace), storable(string(e.Kind)), storable(e.Message)
		times[i], counts[i] = e.At, e.Count
	}
	return []any{a.eventOf, ids, namespaces, jobs, kinds, times, messages, counts}
}
