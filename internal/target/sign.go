package target

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// sign signs a request if its job or namespace has a signing secret. The id is that of the run,
// the same in all attempts. If there is no key to sign with, the request must not be sent: its
// receiver would refuse it, or worse, learn to accept unsigned ones.
func (h *HTTP) sign(req *http.Request, run *belfry.Run, name string, body []byte) error {
	if h.signingKeys == nil {
		if name != "" {
			return errors.New("sign the request: this worker has no secrets")
		}
		return nil
	}
	keys, err := h.signingKeys(req.Context(), run.Namespace, name)
	if err != nil {
		return fmt.Errorf("sign the request, which was not sent: %w", err)
	}
	if len(keys) > 0 {
		webhook.Sign(req.Header, run.ID.String(), time.Now(), body, keys...)
	}
	return nil
}

// SigningKeys finds the keys that sign requests: those of the secret that a job names, or else of
// the one that its namespace names.
type SigningKeys struct {
	Secrets    secret.Source
	Namespaces func(context.Context) ([]belfry.Namespace, error)

	mu       sync.Mutex
	read     time.Time
	defaults map[string]string // by namespace; nil: never read
	err      error             // of the last read
}

// The secret that a namespace names is remembered for a while, and a database that does not
// answer is not asked for each request.
const (
	rereadNamespaces = 5 * time.Second
	readTimeout      = 3 * time.Second
)

// Find returns the keys; none if neither the job nor the namespace names a secret.
func (s *SigningKeys) Find(ctx context.Context, namespace, name string) (keys [][]byte, err error) {
	if name == "" {
		if name, err = s.defaultOf(ctx, namespace); err != nil || name == "" {
			return nil, err
		}
	}
	values, err := s.Secrets.Secret(ctx, namespace, name)
	switch {
	case belfry.CodeOf(err) == belfry.NotFound || err == nil && len(values) == 0:
		return nil, fmt.Errorf("the namespace %s has no secret %q", namespace, name)
	case err != nil:
		return nil, fmt.Errorf("read the secret %q: %w", name, err)
	}
	for _, value := range values {
		key, err := webhook.ParseKey(value)
		if err != nil {
			return nil, fmt.Errorf("the secret %q is no signing key: it %w", name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// defaultOf is the secret that a namespace names. If namespaces cannot be read, what was read
// last holds; without it nothing is sent, since it might have to be signed.
func (s *SigningKeys) defaultOf(ctx context.Context, namespace string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) >= rereadNamespaces {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // others wait for it too
		defer cancel()
		var list []belfry.Namespace
		if list, s.err = s.Namespaces(ctx); s.err == nil {
			s.defaults = map[string]string{}
			for _, n := range list {
				s.defaults[n.Name] = n.SignWith
			}
		}
		s.read = time.Now()
	}
	if s.defaults == nil {
		return "", fmt.Errorf("read whether the namespace wants signatures: %w", s.err)
	}
	return s.defaults[namespace], nil
}
