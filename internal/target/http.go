// Package target holds the built-in handlers: what a job may call.
package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	connectTimeout = 5 * time.Second
	tlsTimeout     = 5 * time.Second

	// Shorter than the keep-alive of common servers, the least of which is 5
	// seconds: a connection that the server is about to close is not used again.
	idleTimeout = 4 * time.Second
)

// HTTPOptions says how HTTP targets are reached; its zero fields mean the stated
// default.
type HTTPOptions struct {
	Guard    *Guard         // which addresses may be reached; public ones
	Resolver *net.Resolver  // how names are looked up; net.DefaultResolver
	RootCAs  *x509.CertPool // who may vouch for a target; the system's
}

// HTTP is the handler of jobs of type http: an attempt is one request. It
// follows no redirect, uses no proxy and keeps no cookie.
type HTTP struct {
	transport *http.Transport
}

// NewHTTP makes the handler. It keeps connections open between calls.
func NewHTTP(o HTTPOptions) *HTTP {
	if o.Guard == nil {
		o.Guard = NewGuard(false, nil)
	}
	dialer := &net.Dialer{
		Timeout:        connectTimeout,
		KeepAlive:      30 * time.Second,
		Resolver:       o.Resolver,
		ControlContext: o.Guard.control,
	}
	return &HTTP{transport: &http.Transport{
		Proxy:       nil, // with a proxy the guard would see the proxy's address, not the target's
		DialContext: dialer.DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            o.RootCAs,
			ClientSessionCache: tls.NewLRUClientSessionCache(256),
		},
		TLSHandshakeTimeout:    tlsTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // what is kept of an answer is what was sent
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// Close lets go of connections that are not in use.
func (h *HTTP) Close() { h.transport.CloseIdleConnections() }

// Handle makes the request that the run's payload describes. An answer of 2xx
// is success; any other is an error that names it, and one of 429 or 503 may say
// when to try again. Status and the beginning of the body are reported in every
// case. A payload that makes no request never will, so that is permanent. The end
// of the context drops the request.
func (h *HTTP) Handle(ctx context.Context, run *belfry.Run) error {
	payload, faults := ParseHTTP(run.Payload)
	if len(faults) > 0 {
		return belfry.Permanent(&belfry.Error{Code: belfry.Invalid, Message: "the payload makes no request", Fields: faults})
	}
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := newRequest(call, run, payload)
	if err != nil {
		return err
	}
	// The transport itself, not a client around it: no redirects, no cookies, and
	// errors without the address, whose query may hold a secret.
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return requestError(call, err)
	}
	run.Report.HTTPStatus = resp.StatusCode
	run.Report.Output, err = readBody(resp, cancel)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return statusError(resp)
	}
	if err != nil {
		return requestError(call, err)
	}
	return nil
}

// request builds the request of one attempt.
func newRequest(ctx context.Context, run *belfry.Run, p belfry.HTTPPayload) (*http.Request, error) {
	body, contentType := p.Content()
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, p.Method, p.URL, content)
	if err != nil {
		return nil, belfry.Permanent(errors.New("make the request: the payload's url or method is not valid"))
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("User-Agent", "belfry")
	for name, value := range p.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Belfry-Job-Id", run.JobID.String())
	req.Header.Set("Belfry-Run-Id", run.ID.String())
	req.Header.Set("Belfry-Attempt", strconv.Itoa(run.Attempt))
	req.Header.Set("Belfry-Scheduled-At", run.ScheduledAt.UTC().Format(time.RFC3339Nano))
	req.Header.Set("Idempotency-Key", run.Key())
	sendOnce(req.Header, "Idempotency-Key")
	sendOnce(req.Header, "X-Idempotency-Key")
	return req, nil
}

// sendOnce spells a header in lower case, which means the same to the target.
// The transport takes its usual spelling as leave to send a request again when
// the connection broke after it was written; an attempt is one request, and
// whether there is another is for the job's retries to say.
func sendOnce(h http.Header, name string) {
	if v, ok := h[name]; ok {
		delete(h, name)
		h[strings.ToLower(name)] = v
	}
}

// explain makes an error of a call fit for people: what happened, without the
// worker's own addresses.
func requestError(call context.Context, err error) error {
	if call.Err() != nil {
		return fmt.Errorf("call the target: %w", context.Cause(call))
	}
	var refused *BlockedAddrError
	var lookup *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &lookup):
		return fmt.Errorf("look up the target's name %q: %s", lookup.Name, lookup.Err)
	case errors.As(err, &op) && op.Addr != nil:
		return fmt.Errorf("call the target: %s %s: %w", op.Op, op.Addr, op.Err)
	default:
		return fmt.Errorf("call the target: %w", err)
	}
}
