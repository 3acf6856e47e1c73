package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// manySteps is the size from which a batch is worth a plan of its own. A prepared
// statement's plan soon becomes one for any size, which suits small batches.
const manySteps = 100

// Fire applies the steps whose plan is still as it was seen.
func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots store.FreeSlots) (store.FireResult, error) {
	ctx, cancel, err := detach(ctx, callTimeout)
	if err != nil {
		return store.FireResult{}, err
	}
	defer cancel()
	fired, err := s.fire(ctx, s.work, owner, steps, slots)
	if err != nil {
		return fired, failed("fire", err)
	}
	if fired.Ready > 0 {
		s.hints.tellReady()
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
	if len(steps) > manySteps && !s.pooled {
		args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	}
	rows, err := q.Query(ctx, fireSQL[a.form()], args...)
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
			fired.Claimed = append(fired.Claimed, a.claimed(run.Bytes, slots.Worker, token.Bytes, moment(at), moment(deadline), payload))
		case belfry.RunStatus(state) == belfry.RunReady:
			fired.Ready++
		}
	}
	return fired, rows.Err()
}

// claimed is the run that a local slot was given.
func (a *fireArgs) claimed(id, worker belfry.ID, token belfry.Token, at, deadline time.Time, payload pgtype.Text) *belfry.Run {
	i := a.index[id]
	step, r := a.steps[a.stepOf[i]-1], a.runs[i]
	run := &belfry.Run{
		ID: r.ID, JobID: step.Seen.JobID, Namespace: step.Namespace, Revision: step.Revision, Kind: r.Kind,
		Status: belfry.RunRunning, ScheduledAt: r.ScheduledAt, ReadyAt: r.ReadyAt, FiredAt: at, Attempt: 1,
		StartedAt: &at, WorkerID: worker, Token: token, Spec: step.Policy.Spec, DeadlineAt: deadline, TemplateKey: r.Key,
	}
	if payload.Valid {
		run.Payload = json.RawMessage(payload.String)
	}
	return run
}
