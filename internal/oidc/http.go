package oidc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"
)

const (
	httpTimeout = 10 * time.Second
	maxResponse = 1 << 20 // bytes
)

// newHTTPClient makes the client for the issuer. A token with a wrong signature makes us ask for
// new keys: the limit keeps somebody who sends many from using us against the issuer.
func newHTTPClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // requests are rare
	return &http.Client{Transport: &limitedTransport{transport, rate.NewLimiter(1, 10)}}
}

// fetchError is why the issuer did not answer.
type fetchError struct{ error }

func (e *fetchError) Unwrap() error { return e.error }

// limitedTransport limits requests, their time and the size of their responses.
type limitedTransport struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.limiter.Allow() {
		return nil, &fetchError{errors.New("the issuer was asked too often")}
	}
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout)
	defer cancel()
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, &fetchError{err}
	}
	// Read here: not everybody closes bodies.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	resp.Body.Close()
	if err == nil && resp.StatusCode >= http.StatusInternalServerError {
		err = fmt.Errorf("%s answered %s", r.URL.Host, resp.Status)
	}
	if err != nil {
		return nil, &fetchError{err}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

type fetchKey struct{}

// keySet has the keys of the issuer. The verifier hides why a signature could not be checked, so
// the caller finds in its context whether it was because the issuer did not answer.
type keySet struct{ oidc.KeySet }

func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, token)
	if failed, ok := errors.AsType[*fetchError](err); ok {
		if out, ok := ctx.Value(fetchKey{}).(*error); ok {
			*out = failed
		}
	}
	return payload, err
}
