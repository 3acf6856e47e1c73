package secretstore

import (
	"context"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// Trigger encrypts the payloads of triggers.
func (s *Store) Trigger(ctx context.Context, triggers []plan.Trigger, r *store.Request) error {
	sealed := append([]plan.Trigger{}, triggers...)
	for i := range sealed {
		if err := s.sealPayloadOf(ctx, sealed[i].Namespace, sealed[i].JobID, &sealed[i].Payload); err != nil {
			return err
		}
	}
	return s.Store.Trigger(ctx, sealed, r)
}

// Fire returns claimed runs with the payloads that were written.
func (s *Store) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	result, err := s.Store.Fire(ctx, owner, steps, slots...)
	result.Claimed, err = s.openRuns(ctx)(result.Claimed, err)
	return result, err
}

// Claim returns runs with the payloads that were written.
func (s *Store) Claim(ctx context.Context, c belfry.Claim) ([]*belfry.Run, error) {
	return s.ClaimBelow(ctx, c, plan.MaxRank)
}

// ClaimBelow is Claim for the runs below a rank.
func (s *Store) ClaimBelow(ctx context.Context, c belfry.Claim, rank int64) ([]*belfry.Run, error) {
	return s.openRuns(ctx)(s.Store.ClaimBelow(ctx, c, rank))
}

// ClaimShares is Claim for a share of each namespace.
func (s *Store) ClaimShares(ctx context.Context, c belfry.Claim, shares store.Shares) ([]*belfry.Run, error) {
	return s.openRuns(ctx)(s.Store.ClaimShares(ctx, c, shares))
}

// ClaimRuns is Claim for some runs.
func (s *Store) ClaimRuns(ctx context.Context, c belfry.Claim, ids []belfry.ID) ([]*belfry.Run, error) {
	return s.openRuns(ctx)(s.Store.ClaimRuns(ctx, c, ids))
}

// openRuns decrypts the payloads of runs that a call claimed. The attempt of a run whose payload
// cannot be decrypted fails here; any other error is that of a claim whose answer was lost.
func (s *Store) openRuns(ctx context.Context) func(runs []*belfry.Run, err error) ([]*belfry.Run, error) {
	return func(runs []*belfry.Run, err error) ([]*belfry.Run, error) {
		if err != nil {
			return runs, err
		}
		var failed []belfry.Result
		open := runs[:0]
		for _, run := range runs {
			payload, err := s.openPayload(ctx, run.Namespace, run.JobID, run.Payload)
			switch {
			case err == nil:
				run.Payload = payload
				open = append(open, run)
			case !isUnreadable(err):
				return nil, err
			default:
				failed = append(failed, belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeFailed, Error: "the payload cannot be decrypted: " + err.Error()})
			}
		}
		if failed != nil {
			if _, err := s.Store.Finish(ctx, failed); err != nil {
				return nil, err
			}
		}
		return open, nil
	}
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
		if err := s.sealPayloadOf(ctx, namespace, sealed[i].JobID, &sealed[i].Payload); err != nil {
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
