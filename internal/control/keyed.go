package control

import (
	"context"
	"errors"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Key is an idempotency key under which something is asked for, and a hash of what
// that is. Whoever asks for the same again under the same key within a week gets
// the first answer, and nothing is done. No Text is no key.
type Key struct {
	Text string
	Hash [32]byte
}

// request is what the store is told of a key; nil without one.
func (k Key) request(namespace string, answer func() ([]byte, error)) *store.Request {
	if k.Text == "" {
		return nil
	}
	return &store.Request{Namespace: namespace, Key: k.Text, Hash: k.Hash, Answer: answer}
}

// answered finds the answer that was given under a key before anything else is
// looked at: what was fine then need not be fine now. It is nil if there is none.
func (c *Control) answered(ctx context.Context, namespace string, k Key) (answer []byte, err error) {
	if k.Text == "" {
		return nil, nil
	}
	var earlier *store.Repeated
	err = insist(ctx, "look up an idempotency key", func() error {
		earlier, err = c.store.Answered(ctx, namespace, k.Text)
		return err
	})
	if err != nil || earlier == nil {
		return nil, err
	}
	return k.same(earlier)
}

// same gives an earlier answer, if it was to the same question.
func (k Key) same(earlier *store.Repeated) ([]byte, error) {
	if earlier.Hash != k.Hash {
		return nil, &belfry.Error{Code: belfry.Invalid, Message: "the idempotency key was used for something else", Fields: []belfry.FieldError{{
			Field: "Idempotency-Key", Message: "was used with another request before; a key stands for one request and what repeats it",
		}}}
	}
	return earlier.Answer, nil
}

// repeated gives the earlier answer that an error carries, if it is about a key
// that was used before; otherwise a nil answer and the error.
func (k Key) repeated(err error) ([]byte, error) {
	var earlier *store.Repeated
	if errors.As(err, &earlier) {
		return k.same(earlier)
	}
	return nil, err
}

// unreadable is the error about an answer that is not what it should be.
func unreadable(err error) error {
	return belfry.Errorf(belfry.Internal, "read the answer kept under an idempotency key: %w", err)
}
