package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// withRequestKey calls f and stores the key and the response of a request in the same
// transaction. A nil request has no key.
func withRequestKey(ctx context.Context, tx pgx.Tx, r *store.Request, f func() error) error {
	if r == nil {
		return f()
	}
	if err := insertRequestKey(ctx, tx, r); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	response, err := r.Response()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `/* request */ UPDATE belfry.requests SET response = $3 WHERE namespace = $1 AND key = $2`,
		storable(r.Namespace), storable(r.Key), response)
	return err
}

// insertRequestKey stores the key, after waiting for a transaction that is storing the
// same one. It returns an existing request as a *store.DuplicateRequest.
func insertRequestKey(ctx context.Context, tx pgx.Tx, r *store.Request) error {
	tag, err := tx.Exec(ctx, `/* request */
WITH timeout AS MATERIALIZED (SELECT set_config('lock_timeout', '8s', true))
INSERT INTO belfry.requests (namespace, key, hash, created_at) SELECT $1, $2, $3, clock_timestamp() FROM timeout
ON CONFLICT DO NOTHING`, storable(r.Namespace), storable(r.Key), r.Hash[:])
	if sqlState(err) == lockNotAvailable {
		return belfry.Errorf(belfry.Unavailable, "an earlier request with this idempotency key is still in progress; try again: %w", err)
	}
	if err != nil || tag.RowsAffected() > 0 {
		return err
	}
	duplicate, err := readResponse(ctx, tx, r.Namespace, r.Key)
	if err != nil {
		return err
	}
	if duplicate == nil {
		return belfry.Errorf(belfry.Unavailable, "this idempotency key has just expired; try again")
	}
	return duplicate
}

// CachedResponse finds the response that is stored under a key.
func (s *Store) CachedResponse(ctx context.Context, namespace, key string) (*store.DuplicateRequest, error) {
	duplicate, err := readResponse(ctx, s.pool, namespace, key)
	return duplicate, wrapError("look up an idempotency key", err)
}

func readResponse(ctx context.Context, q querier, namespace, key string) (*store.DuplicateRequest, error) {
	var hash []byte
	duplicate := &store.DuplicateRequest{}
	err := q.QueryRow(ctx, `SELECT hash, response FROM belfry.requests WHERE namespace = $1 AND key = $2`, storable(namespace), storable(key)).Scan(&hash, &duplicate.Response)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	copy(duplicate.Hash[:], hash)
	return duplicate, err
}
