package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectRequest = `SELECT hash, response FROM requests WHERE namespace = ? AND key = ?`
	insertRequest = `INSERT INTO requests (namespace, key, hash, response, created_at) VALUES (?, ?, ?, ?, ?)`
)

// Answered finds the answer that was kept under a key; nil if there is none.
func (s *Store) CachedResponse(ctx context.Context, namespace, key string) (found *store.DuplicateRequest, err error) {
	err = s.read(ctx, "look up a request", func(t *tx) error {
		found, err = t.answered(namespace, key)
		return err
	})
	return found, err
}

func (t *tx) answered(namespace, name string) (*store.DuplicateRequest, error) {
	var found store.DuplicateRequest
	err := t.get([]any{key{found.Hash[:]}, &found.Response}, selectRequest, namespace, name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &found, nil
}

// once does what a request asks for and keeps its answer, or finds that it was
// done before. A nil request is always new. An error of its answer is returned
// as it is.
func (s *Store) once(ctx context.Context, doing string, r *store.Request, f func(*tx) error) error {
	var refused error
	err := s.write(ctx, doing, func(t *tx) error {
		if r == nil {
			return f(t)
		}
		before, err := t.answered(r.Namespace, r.Key)
		if err != nil {
			return err
		}
		if before != nil {
			return before
		}
		if err := f(t); err != nil {
			return err
		}
		answer, err := r.Response()
		if err != nil {
			refused = err
			return err
		}
		_, err = t.exec(insertRequest, r.Namespace, r.Key, r.Hash[:], append([]byte{}, answer...), micro(t.now))
		return err
	})
	if refused != nil {
		return refused
	}
	return err
}
