package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
)

const (
	apiPath  = "/api/v1"
	jobsPath = apiPath + "/jobs"
	runsPath = apiPath + "/runs"
	deadPath = apiPath + "/dead-letters"

	maxPreallocated = 4 << 20          // bytes of memory that an answer gets for its Content-Length alone
	maxAnswer       = 64 << 20         // bytes of an answer
	tryTimeout      = 30 * time.Second // of one try of a call
	bulkTimeout     = 3 * time.Minute  // of one try of a call about thousands of jobs or runs

	minDelay      = 200 * time.Millisecond // before the first retry; it doubles
	maxDelay      = 5 * time.Second
	maxRetryAfter = 30 * time.Second // beyond which a call fails instead
)

// call is one request to the server, which may be tried several times.
type call struct {
	what     string // for errors: "create job"
	method   string
	path     string     // escaped, with the query
	query    url.Values // more of it
	body     []byte
	stream   *lines // instead of body
	match    string // version that the job must have
	key      string // idempotency key
	once     bool   // not repeated
	consumes bool   // it finds nothing if an earlier try succeeded
	timeout  time.Duration
	limit    int64 // bytes of the answer
}

// CallOption changes one call.
type CallOption func(*call)

// IfMatch makes a call change a job only if it still has the version, which
// JobWithVersion returns. Otherwise the error is belfry.Changed. An empty version is any.
func IfMatch(version string) CallOption { return func(q *call) { q.match = version } }

// IdempotencyKey makes a create, import, trigger, backfill or bulk action count once,
// however often it is called with the same key and content within seven days. Without
// it, or with an empty key, the tries of one call count once.
func IdempotencyKey(key string) CallOption { return func(q *call) { q.key = key } }

// CancelRuns has DeleteJob cancel the live runs. Without it they finish.
func CancelRuns() CallOption { return parameter("runs", "cancel") }

// PurgeHistory has DeleteJob delete the history of the job too. Without it the history
// is kept for its retention.
func PurgeHistory() CallOption { return parameter("history", "delete") }

func parameter(name, value string) CallOption { return func(q *call) { q.query.Set(name, value) } }

func timeout(d time.Duration) CallOption { return func(q *call) { q.timeout = d } }

// keyed sets one idempotency key for all tries of a call.
func keyed(q *call) {
	q.key = cmp.Or(q.key, belfry.NewID(time.Now()).String())
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func newCall(what, method, path string, options ...CallOption) *call {
	q := &call{what: what, method: method, path: path, query: url.Values{}, timeout: tryTimeout, limit: maxAnswer}
	for _, option := range options {
		option(q)
	}
	if len(q.query) > 0 {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		q.path += sep + q.query.Encode()
	}
	return q
}

// Do sends a request to a path such as "/api/v1/jobs?limit=5". A body that is not nil is
// sent as JSON, and the answer is decoded into out unless that is nil. It is repeated
// like other calls, except for a POST without an IdempotencyKey.
func (c *Client) Do(ctx context.Context, method, path string, body, out any, options ...CallOption) error {
	if !strings.HasPrefix(path, "/") {
		return belfry.Errorf(belfry.Invalid, "request %.80q: the path must start with a slash", path)
	}
	q := newCall(fmt.Sprintf("request %.80s", path), method, path, options...)
	q.once = method == http.MethodPost && q.key == ""
	_, err := c.json(ctx, q, body, out)
	return err
}

// fetch makes a call with JSON both ways and returns the decoded answer.
func fetch[T any](ctx context.Context, c *Client, what, method, path string, body any, options ...CallOption) (out T, err error) {
	_, err = c.json(ctx, newCall(what, method, path, options...), body, &out)
	return out, err
}

// encodedBody is a body that is JSON already.
type encodedBody []byte

func (c *Client) json(ctx context.Context, q *call, body, out any) (*answer, error) {
	if text, ok := body.(encodedBody); ok {
		q.body = text
	} else if body != nil {
		text, err := jsontext.Append(nil, body)
		if err != nil {
			return nil, belfry.Errorf(belfry.Invalid, "%s: the input has no JSON form: %w", q.what, err)
		}
		q.body = text
	}
	a, err := c.do(ctx, q)
	if err != nil || out == nil {
		return a, err
	}
	if err := jsontext.Unmarshal(a.body, out); err != nil {
		return nil, fmt.Errorf("%s: %w", q.what, belfry.Errorf(belfry.Internal,
			"the answer is %d with %q that cannot be decoded, not one of a Belfry server of this version: check the address",
			a.status, sanitizeLine(a.header.Get("Content-Type"), 80)))
	}
	return a, nil
}

func (c *Client) try(ctx context.Context, q *call) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.timeout, errSlow)
	defer cancel()
	r, err := c.request(ctx, q)
	if err != nil {
		return nil, err
	}
	a, err := c.http.Do(r)
	if err != nil {
		return nil, c.unavailable(ctx, err)
	}
	defer a.Body.Close()
	limit := q.limit
	if a.StatusCode >= 300 {
		limit = maxProblem
	}
	var text bytes.Buffer
	text.Grow(int(min(max(a.ContentLength, 0), limit, maxPreallocated)) + bytes.MinRead) // what is known is not copied as it grows
	_, err = text.ReadFrom(io.LimitReader(a.Body, limit+1))
	body := text.Bytes()
	if a.StatusCode == http.StatusBadRequest && wantsTLS.Match(body) {
		return nil, c.unavailable(ctx, c.schemeError())
	}
	if a.StatusCode >= 300 {
		return nil, newError(a, body[:min(len(body), maxProblem)]) // even if it is incomplete
	}
	if err != nil {
		return nil, c.unavailable(ctx, err)
	}
	if int64(len(body)) > limit {
		return nil, belfry.Errorf(belfry.TooLarge, "the answer has more than %d bytes: request less at once", limit)
	}
	return &answer{a.StatusCode, a.Header, body}, nil
}

var errSlow = errors.New("timeout")

func (c *Client) request(ctx context.Context, q *call) (*http.Request, error) {
	if !strings.HasPrefix(q.path, "/") {
		return nil, belfry.Errorf(belfry.Invalid, "the id or name of the job is empty")
	}
	if !isHeaderValue(q.key) || !isHeaderValue(q.match) {
		return nil, belfry.Errorf(belfry.Invalid, "an idempotency key or version must have printable ASCII characters only")
	}
	header := http.Header{}
	header.Set("Accept", "application/json, application/problem+json")
	header.Set("Belfry-Namespace", c.namespace)
	header.Set("User-Agent", c.agent)
	var body io.Reader
	switch {
	case q.stream != nil:
		body = q.stream.reader()
		header.Set("Content-Type", "application/x-ndjson")
		header.Set("Expect", "100-continue") // The sequence starts only if the server accepts the request.
	case q.body != nil:
		body = bytes.NewReader(q.body)
		header.Set("Content-Type", "application/json")
	}
	r, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, body)
	if err != nil {
		return nil, belfry.Errorf(belfry.Invalid, "the request is not valid: %w", err)
	}
	r.Header = header
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	if q.match != "" {
		r.Header.Set("If-Match", `"`+q.match+`"`)
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header)) // nothing, unless ctx has a span
	if c.key != nil {
		r.Header.Set("Authorization", "Bearer "+c.key())
	}
	return r, nil
}

func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// unavailable is the error of a call without an answer. Idle connections may be dead too.
func (c *Client) unavailable(ctx context.Context, err error) error {
	c.http.CloseIdleConnections()
	if outer, ok := errors.AsType[*url.Error](err); ok { // It repeats method and address.
		err = outer.Err
	}
	if _, garbage := errors.AsType[tls.RecordHeaderError](err); garbage || errors.Is(err, http.ErrSchemeMismatch) || strings.Contains(err.Error(), tlsAlert) {
		err = c.schemeError()
	}
	switch cause := context.Cause(ctx); {
	case cause == errSlow:
		err = cause
	case cause != nil: // the caller's context ended
		return fmt.Errorf("no answer from %s: %w", c.base, cause)
	}
	return belfry.Errorf(belfry.Unavailable, "no answer from %s: %w", c.base, err)
}

// JobPath is the path of a job, or of something below it, for Do.
func JobPath(ref string, more ...string) string {
	if ref == "" {
		return "" // which no call accepts
	}
	escaped := url.PathEscape(ref)
	if ref == "." || ref == ".." {
		escaped = strings.ReplaceAll(ref, ".", "%2E")
	}
	return strings.Join(append([]string{jobsPath, escaped}, more...), "/")
}

func (c *Client) do(ctx context.Context, q *call) (*answer, error) {
	unknown := false // an earlier try may have been executed
	for try := 0; ; try++ {
		a, err := c.try(ctx, q)
		if err == nil {
			return a, nil
		}
		failed, answered := errors.AsType[*Error](err)
		if answered && unknown {
			if failed.Status == http.StatusNotFound && q.method == http.MethodDelete {
				return &answer{status: http.StatusNoContent}, nil
			}
			failed.maybeDone = failed.Status == http.StatusPreconditionFailed || q.consumes && failed.Status == http.StatusNotFound
		}
		delay, retryable := retryDelay(err, try)
		deadline, limited := ctx.Deadline()
		tooLate := limited && time.Until(deadline) <= delay
		if ctx.Err() != nil || !retryable || q.once || try >= c.retries || tooLate || q.stream != nil && !q.stream.rewind() {
			return nil, fmt.Errorf("%s: %w", q.what, err)
		}
		unknown = unknown || !answered || failed.Status != http.StatusTooManyRequests
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w: the last try: %w", q.what, context.Cause(ctx), err)
		}
	}
}

// retryDelay is the delay before the next try, if a failure is temporary.
func retryDelay(err error, try int) (time.Duration, bool) {
	delay := min(minDelay<<min(try, 10), maxDelay)
	delay = time.Duration(float64(delay) * (0.5 + rand.Float64())) // so that clients that failed together do not retry together
	failed, answered := errors.AsType[*Error](err)
	if !answered {
		_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
		_, wrongScheme := errors.AsType[*SchemeError](err)
		return delay, belfry.CodeOf(err) == belfry.Unavailable && !untrusted && !wrongScheme
	}
	switch failed.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return max(delay, failed.RetryAfter), failed.RetryAfter <= maxRetryAfter
	default:
		return 0, false
	}
}

// newTransport makes the connections of one Client. It uses HTTP/1.1: a call that is
// aborted closes its connection, so that a dead connection is not used again.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAliveConfig: keepAlive}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				tcp.SetLinger(0) // An aborted request must not arrive later.
			}
			return conn, err
		},
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  5 * time.Minute, // of the longest import; other calls have shorter limits
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// keepAlive detects a dead peer within about ten seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
