package sqlite

import (
	"context"

	"github.com/belfry-sh/belfry/internal/store"
)

const (
	selectRequest = `SELECT hash, response FROM requests WHERE namespace = ? AND key = ?`
	insertRequest = `INSERT INTO requests (namespace, key, hash, response, created_at) VALUES (?, ?, ?, ?, ?)`
)

func (s *Store) CachedResponse(ctx context.Context, namespace, key string) (*store.DuplicateRequest, error) {
	return readValue(ctx, s, "look up a request", func(t *tx) (*store.DuplicateRequest, error) { return t.cachedResponse(namespace, key) })
}

func (t *tx) cachedResponse(namespace, key string) (*store.DuplicateRequest, error) {
	var r store.DuplicateRequest
	found, err := t.find([]any{bytesColumn{r.Hash[:]}, &r.Response}, selectRequest, namespace, key)
	if err != nil || !found {
		return nil, err
	}
	return &r, nil
}

// writeRequest is write for a request, whose response it stores. A duplicate request
// writes nothing. A nil request has no key.
func (s *Store) writeRequest(ctx context.Context, doing string, r *store.Request, f func(*tx) error) error {
	return s.write(ctx, doing, func(t *tx) error {
		if r == nil {
			return f(t)
		}
		duplicate, err := t.cachedResponse(r.Namespace, r.Key)
		if err != nil {
			return err
		}
		if duplicate != nil {
			return duplicate
		}
		if err := f(t); err != nil {
			return err
		}
		response, err := r.Response()
		if err != nil {
			return &callerError{err}
		}
		_, err = t.exec(insertRequest, r.Namespace, r.Key, r.Hash[:], append([]byte{}, response...), micro(t.now))
		return err
	})
}
