package control

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Key is the idempotency key of a request, and a hash of the request. The same request
// with the same key within a week gets the first response, and nothing is done. The
// zero Key is none.
type Key struct {
	Text string
	Hash [32]byte
}

// request is what the store writes about a key; nil without one.
func (k Key) request(namespace string, response func() ([]byte, error)) *store.Request {
	if k.Text == "" {
		return nil
	}
	return &store.Request{Namespace: namespace, Key: k.Text, Hash: k.Hash, Response: response}
}

// cached returns the response of an earlier request with the key; nil if there is none.
// It comes before any validation: what was valid then need not be valid now.
func (c *Control) cached(ctx context.Context, namespace string, k Key) ([]byte, error) {
	if k.Text == "" {
		return nil, nil
	}
	earlier, err := retryRead(ctx, "look up an idempotency key", func() (*store.DuplicateRequest, error) {
		return c.store.CachedResponse(ctx, namespace, k.Text)
	})
	if err != nil || earlier == nil {
		return nil, err
	}
	return k.response(earlier)
}

// response returns the response of an earlier request, if it was the same request.
func (k Key) response(earlier *store.DuplicateRequest) ([]byte, error) {
	if earlier.Hash != k.Hash {
		return nil, invalid("the idempotency key was used for another request", []belfry.FieldError{{
			Field: "Idempotency-Key", Message: "was used with another request before; a key identifies one request and its repetitions",
		}})
	}
	return earlier.Response, nil
}

// duplicate returns the earlier response that an error carries, if it is about a key
// that was used before; otherwise the error.
func (k Key) duplicate(err error) ([]byte, error) {
	var earlier *store.DuplicateRequest
	if errors.As(err, &earlier) {
		return k.response(earlier)
	}
	return nil, err
}

const badResponse = "decode the response cached under an idempotency key"

// decodeResponse decodes a cached response. It passes an error on.
func decodeResponse[T any](response []byte, err error) (v T, _ error) {
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(response, &v); err != nil {
		return v, belfry.Errorf(belfry.Internal, badResponse+": %w", err)
	}
	return v, nil
}
