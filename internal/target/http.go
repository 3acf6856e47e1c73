// Package target holds the built-in handlers: what a job may call.
package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/schema"
)

const (
	connectTimeout = 5 * time.Second
	tlsTimeout     = 5 * time.Second

	// Shorter than the keep-alive of common servers, which is 5 seconds or more: a
	// connection that the server is about to close is not reused.
	idleTimeout = 4 * time.Second

	maxDrain     = 1 << 20          // bytes read beyond what is kept, so that the connection can be reused
	drainTimeout = time.Second      // and for how long
	stallTimeout = 30 * time.Second // between two reads of a body
	maxLocation  = 200              // bytes shown of where a redirect points
)

// HTTPOptions say how HTTP targets are reached. Zero fields have the default in their
// comment.
type HTTPOptions struct {
	Guard       *Guard         // which addresses may be reached; default: public ones
	Resolver    *net.Resolver  // default: net.DefaultResolver
	RootCAs     *x509.CertPool // default: those of the system
	Concurrency int            // how many calls are made at a time; default: up to 256

	Secrets Secrets // that requests may refer to; nil: none

	// Span starts the span of a call and adds its trace context to the headers. Nil: there
	// are no traces.
	Span func(*http.Request) (end func(status int, err error))

	// SigningKeys returns the keys that sign the requests of a job, by its namespace and the name
	// of the secret in its payload, if it has one. No keys: they are not signed.
	SigningKeys func(ctx context.Context, namespace, secret string) (keys [][]byte, err error)
}

// HTTP is the handler of jobs of type http: an attempt is one request. It does not follow
// redirects, use proxies or keep cookies.
type HTTP struct {
	HTTPOptions
	transport *http.Transport
}

// NewHTTP makes the handler. It keeps connections open between calls.
func NewHTTP(o HTTPOptions) *HTTP {
	if o.Guard == nil {
		o.Guard = NewGuard(false, nil)
	}
	return &HTTP{o, &http.Transport{
		Proxy:       nil, // with a proxy the guard would check the address of the proxy, not of the target
		DialContext: o.Guard.Dialer(o.Resolver).DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            o.RootCAs,
			ClientSessionCache: tls.NewLRUClientSessionCache(256),
		},
		TLSHandshakeTimeout:    tlsTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the output is the body as it was sent
		MaxIdleConns:           max(1024, o.Concurrency),
		MaxIdleConnsPerHost:    max(256, o.Concurrency), // all may call the same host, again and again
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// Close closes idle connections.
func (h *HTTP) Close() { h.transport.CloseIdleConnections() }

// Handle makes the request of the run's payload. A response of 2xx is success; any other
// is an error that names the status, and one of 429 or 503 may say when to retry. Status
// and the beginning of the body are always reported. An invalid payload is a permanent
// error. The end of the context aborts the request.
func (h *HTTP) Handle(ctx context.Context, run *belfry.Run) (failure error) {
	payload, invalid := ParseHTTP(run.Payload)
	if len(invalid) > 0 {
		return belfry.Permanent(&belfry.Error{Code: belfry.Invalid, Message: "the payload is not a valid request", Fields: invalid})
	}
	var err error
	if run.Report.Secrets, err = h.resolve(ctx, run, &payload); err != nil {
		return err
	}
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := h.newRequest(call, run, payload)
	if err != nil {
		return err
	}
	// The transport instead of a client: no redirects, no cookies, and errors without
	// the URL, whose query may contain a secret.
	if h.Span != nil {
		end := h.Span(req)
		defer func() { end(run.Report.HTTPStatus, failure) }()
	}
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

func (h *HTTP) newRequest(ctx context.Context, run *belfry.Run, p belfry.HTTPPayload) (*http.Request, error) {
	body, contentType := p.Content()
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, p.Method, p.URL, content)
	if err != nil {
		return nil, belfry.Permanent(errors.New("make the request: the url or method of the payload is not valid"))
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
	return req, h.sign(req, run, p.SignWith, body)
}

// sendOnce writes the name of a header in lower case, which means the same to the target.
// With the usual spelling the transport sends a request again if the connection breaks
// after it was written; but an attempt is one request, and the job decides about retries.
func sendOnce(h http.Header, name string) {
	if v, ok := h[name]; ok {
		delete(h, name)
		h[strings.ToLower(name)] = v
	}
}

// requestError is the error of a request for users: what happened, without the
// addresses of the worker.
func requestError(call context.Context, err error) error {
	if call.Err() != nil {
		return fmt.Errorf("call the target: %w", context.Cause(call))
	}
	if refused, ok := errors.AsType[*BlockedAddrError](err); ok {
		return refused
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("look up the target's name %q: %s", lookup.Name, lookup.Err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		return fmt.Errorf("call the target: %s %s: %w", op.Op, op.Addr, op.Err)
	}
	return fmt.Errorf("call the target: %w", err)
}

var (
	errStalled    = fmt.Errorf("the response stalled for %s", stallTimeout)
	errOutputFull = errors.New("enough of the response was read")
)

// readBody returns the first belfry.MaxOutput bytes of a body and closes it. Up to
// maxDrain more are read and discarded; after that the connection is closed, which is no
// error. cancel ends the request.
func readBody(resp *http.Response, cancel context.CancelCauseFunc) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil // what follows is no body
	}
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	kept, err := io.ReadAll(io.LimitReader(&stallReader{resp.Body, stall}, belfry.MaxOutput))
	if err != nil {
		return kept, fmt.Errorf("the response ended early: %w", err)
	}
	if len(kept) == belfry.MaxOutput {
		drain := time.AfterFunc(drainTimeout, func() { cancel(errOutputFull) })
		defer drain.Stop()
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	}
	return kept, nil
}

// stallReader is a body that must not stall: each read resets the timer.
type stallReader struct {
	body  io.Reader
	stall *time.Timer
}

func (r *stallReader) Read(p []byte) (int, error) {
	r.stall.Reset(stallTimeout)
	return r.body.Read(p)
}

// statusError is the error for a response that is not 2xx. A Retry-After of 429 and 503
// delays the retry.
func statusError(resp *http.Response) error {
	code := resp.StatusCode
	status := strings.TrimSpace(fmt.Sprint(code, " ", http.StatusText(code)))
	if place := location(resp); place != "" && code >= 300 && code <= 399 {
		return fmt.Errorf("the target answered %s to %s; redirects are not followed", status, place)
	}
	err := fmt.Errorf("the target answered %s", status)
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		if wait, ok := RetryAfter(resp.Header, time.Now()); ok {
			return belfry.RetryAfter(err, wait)
		}
	}
	return err
}

// RetryAfter reads the header Retry-After, up to belfry.MaxDelay. A date is compared with
// the header Date, if there is one: the clock of the target may be wrong. An invalid
// header is ignored.
func RetryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(belfry.MaxDelay/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), belfry.MaxDelay), true
}

// location is where a redirect points, without parts that may be secret.
func location(resp *http.Response) string {
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment = nil, "", "", ""
	return sanitize.Text(u.String(), maxLocation)
}

const maxHeaderValue = 8 << 10 // bytes

// ParseHTTP reads and validates the payload of an HTTP job. It returns all errors at
// once; with none, the request can be sent. Messages never repeat a value, since values
// may be secret.
func ParseHTTP(raw json.RawMessage) (p belfry.HTTPPayload, errors []belfry.FieldError) {
	if jsontext.Check(raw) != nil {
		return p, notAnObject
	}
	return ParseValidHTTP(raw, false)
}

var notAnObject = []belfry.FieldError{{Field: "payload", Message: `must be a JSON object; for example {"url": "https://example.com/hook"}`}}

// ParseValidHTTP is ParseHTTP of a payload that is known to be valid JSON. If it is known
// to have no duplicate names either, those are not searched for.
func ParseValidHTTP(raw json.RawMessage, unique bool) (p belfry.HTTPPayload, errors []belfry.FieldError) {
	errors, syntax := schema.DecodeValid(raw, &p, unique)
	if syntax != nil {
		return p, notAnObject
	}
	var more fieldErrors
	fail := more.add
	fail("url", CheckURL(p.URL))
	seen := make(map[string]bool, len(p.Headers))
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		lower := strings.ToLower(name)
		fail("headers."+schema.Clip(name), checkHeader(lower, p.Headers[name], seen[lower]))
		if p.SignWith != "" && strings.HasPrefix(lower, "webhook-") {
			fail("headers."+schema.Clip(name), "is set by Belfry in a request that is signed")
		}
		seen[lower] = true
	}
	if _, unread := References(p); unread != nil {
		more = append(more, unread...)
	}
	if len(p.Body) > 0 && (p.Method == "GET" || p.Method == "HEAD") {
		fail("body", "cannot be sent with "+p.Method+"; leave it out or use another method")
	}
	return p, more.inPayload(errors)
}

// fieldErrors are what is wrong with a payload beyond what its tags say.
type fieldErrors []belfry.FieldError

// add adds an error, unless its message is empty.
func (e *fieldErrors) add(field, message string) {
	if message != "" {
		*e = append(*e, belfry.FieldError{Field: field, Message: message})
	}
}

// inPayload are these errors with those of the tags, by the whole names of their fields.
func (e fieldErrors) inPayload(tags []belfry.FieldError) []belfry.FieldError {
	all := schema.MergeErrors(tags, e)
	for i := range all {
		all[i].Field = "payload." + all[i].Field
	}
	return all
}

// CheckURL says what is wrong with the address of a request, in words that follow the name
// of its field; "" if nothing is.
func CheckURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.TrimSpace(text) != text:
		return "is not a valid URL; for example https://example.com/hook"
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://"
	case u.User != nil:
		return "must not contain a user name or password; use a header"
	case u.Hostname() == "":
		return "has no host"
	case strings.HasSuffix(u.Host, ":"):
		return "has a colon but no port"
	}
	if text := u.Port(); text != "" {
		if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
			return "has a port that is not between 1 and 65535"
		}
	}
	return ""
}

// reservedHeaders are those that the connection or Belfry sets.
var reservedHeaders = []string{
	"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
	"upgrade", "http2-settings", "expect", "idempotency-key",
}

// checkHeader says what is wrong with a header whose name is in lower case.
func checkHeader(name, value string, duplicate bool) string {
	switch {
	case name == "" || strings.IndexFunc(name, notTokenChar) >= 0:
		return "is not a valid header name"
	case slices.Contains(reservedHeaders, name) || strings.HasPrefix(name, "proxy-") || strings.HasPrefix(name, "belfry-"):
		return "is set by Belfry"
	case len(value) > maxHeaderValue:
		return fmt.Sprintf("has %d bytes, the maximum is %d", len(value), maxHeaderValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "contains control characters"
	case duplicate:
		return "is set twice: case makes no difference in header names"
	}
	return ""
}

// notTokenChar reports whether r is not allowed in a header name (RFC 9110, 5.6.2).
func notTokenChar(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
