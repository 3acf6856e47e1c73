package secretstore

import (
	"context"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Fire returns claimed runs with the payloads that were written.
func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	result, err := s.Store.Fire(ctx, owner, steps, slots...)
	if err == nil {
		result.Claimed, err = s.openRuns(ctx, result.Claimed)
	}
	return result, err
}

// Claim returns runs with the payloads that were written.
func (s *Store) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	return s.ClaimBelow(ctx, c, plan.MaxRank)
}

// ClaimBelow is Claim for the runs below a rank.
func (s *Store) ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error) {
	runs, err := s.Store.ClaimBelow(ctx, c, rank)
	if err != nil {
		return runs, err
	}
	return s.openRuns(ctx, runs)
}

// ClaimShares is Claim for a share of each namespace.
func (s *Store) ClaimShares(ctx context.Context, c belfry.Claim, shares store.Shares) ([]*belfry.Run, error) {
	runs, err := s.Store.ClaimShares(ctx, c, shares)
	if err != nil {
		return runs, err
	}
	return s.openRuns(ctx, runs)
}

// ClaimRuns is Claim for some runs.
func (s *Store) ClaimRuns(ctx context.Context, c belfry.Claim, ids []belfry.ID) ([]*belfry.Run, error) {
	runs, err := s.Store.ClaimRuns(ctx, c, ids)
	if err != nil {
		return runs, err
	}
	return s.openRuns(ctx, runs)
}

// openRuns decrypts the payloads of claimed runs. The attempt of a run whose payload cannot be
// decrypted fails here; any other error is that of a claim whose answer was lost.
func (s *Store) openRuns(ctx context.Context, runs []*belfry.Run) ([]*belfry.Run, error) {
	var failed []belfry.Result
	open := runs[:0]
	for _, run := range runs {
		payload, err := s.openPayload(ctx, run.Namespace, run.JobID, run.Payload)
		if err == nil {
			run.Payload = payload
			open = append(open, run)
			continue
		}
		if !isUnreadable(err) {
			return nil, err
		}
		failed = append(failed, belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeFailed, Error: "the payload cannot be decrypted: " + err.Error()})
	}
	if failed != nil {
		if _, err := s.Store.Finish(ctx, failed); err != nil {
			return nil, err
		}
	}
	return open, nil
}

// DeadLetter returns a dead letter with the payload that was written.
func (s *Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (belfry.DeadLetter, error) {
	letter, err := s.Store.DeadLetter(ctx, namespace, run)
	if err == nil {
		if letter.Payload, err = s.openPayload(ctx, namespace, letter.JobID, letter.Payload); err != nil {
			return belfry.DeadLetter{}, unreadable("the payload of the dead letter", err)
		}
	}
	return letter, err
}

// Redrive encrypts the payloads that dead letters get.
func (s *Store) Redrive(ctx context.Context, namespace string, list []store.Redrive) (int, error) {
	sealed := append([]store.Redrive{}, list...)
	for i := range sealed {
		if len(sealed[i].Payload) == 0 {
			continue
		}
		key, err := s.sealKey(ctx, namespace)
		if err == nil {
			sealed[i].Payload, err = sealPayload(key, namespace, sealed[i].JobID, sealed[i].Payload)
		}
		if err != nil {
			return 0, err
		}
	}
	return s.Store.Redrive(ctx, namespace, sealed)
}

// JobLabels returns labels with payloads as they were written. One that cannot be decrypted
// counts as too large.
func (s *Store) JobLabels(ctx context.Context, jobs []belfry.ID) (map[belfry.ID]store.JobLabels, error) {
	labels, err := s.Store.JobLabels(ctx, jobs)
	for id, l := range labels {
		opened, err := s.openPayload(ctx, l.Namespace, id, l.Payload)
		if l.Payload = opened; err != nil {
			l.LargePayload = true
		}
		labels[id] = l
	}
	return labels, err
}
