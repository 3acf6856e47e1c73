package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// keyed does something under the key of a request, in one transaction with the
// key and the answer. A nil request has no key.
func withRequestKey(ctx context.Context, tx pgx.Tx, r *store.Request, do func() error) error {
	if r == nil {
		return do()
	}
	if err := insertRequestKey(ctx, tx, r); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	answer, err := r.Response()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `/* request */ UPDATE belfry.requests SET answer = $3 WHERE namespace = $1 AND key = $2`,
		storable(r.Namespace), storable(r.Key), answer)
	return err
}

// takeKey writes a key down, after waiting for whoever is doing the same. It
// returns what is there already as a *store.Repeated.
func insertRequestKey(ctx context.Context, tx pgx.Tx, r *store.Request) error {
	tag, err := tx.Exec(ctx, `/* request */
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', '8s', true))
INSERT INTO belfry.requests (namespace, key, hash, created_at) SELECT $1, $2, $3, clock_timestamp() FROM patience
ON CONFLICT DO NOTHING`, storable(r.Namespace), storable(r.Key), r.Hash[:])
	if sqlState(err) == lockNotAvailable {
		return belfry.Errorf(belfry.Unavailable, "an earlier request with this idempotency key is still being answered; try again: %w", err)
	}
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	before, err := readResponse(ctx, tx, r.Namespace, r.Key)
	if err != nil {
		return err
	}
	if before == nil {
		return belfry.Errorf(belfry.Unavailable, "this idempotency key was just forgotten; try again")
	}
	return before
}

// Answered finds the answer that was kept under a key.
func (s *Store) CachedResponse(ctx context.Context, namespace, key string) (*store.DuplicateRequest, error) {
	before, err := readResponse(ctx, s.pool, namespace, key)
	return before, wrapError("look up an idempotency key", err)
}

func readResponse(ctx context.Context, q querier, namespace, key string) (*store.DuplicateRequest, error) {
	var hash []byte
	before := &store.DuplicateRequest{}
	err := q.QueryRow(ctx, `SELECT hash, answer FROM belfry.requests WHERE namespace = $1 AND key = $2`, storable(namespace), storable(key)).Scan(&hash, &before.Response)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	copy(before.Hash[:], hash)
	return before, err
}
