package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

const (
	apiPath  = "/api/v1"
	jobsPath = apiPath + "/jobs"

	maxAnswer   = 64 << 20         // bytes of an answer
	tryTimeout  = 30 * time.Second // of one try of a call
	bulkTimeout = 3 * time.Minute  // of one try of a call about thousands of jobs or runs
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

// IfMatch lets a call change a job only if it still has the version, which
// JobWithVersion returns. Otherwise the error is belfry.Changed.
func IfMatch(version string) CallOption { return func(q *call) { q.match = version } }

// IdempotencyKey makes a create, import, trigger, backfill or bulk action count once,
// however often it is called with the same key and content within seven days. Without
// it the tries of one call count once.
func IdempotencyKey(key string) CallOption { return func(q *call) { q.key = key } }

// CancelRuns has DeleteJob cancel the live runs. Without it they finish.
func CancelRuns() CallOption { return parameter("runs", "cancel") }

// PurgeHistory has DeleteJob delete the history of the job too. Without it the history
// is kept for its retention.
func PurgeHistory() CallOption { return parameter("history", "delete") }

func parameter(name, value string) CallOption { return func(q *call) { q.query.Set(name, value) } }

func timeout(d time.Duration) CallOption { return func(q *call) { q.timeout = d } }

// keyed gives all tries of a call the same idempotency key.
func keyed(q *call) {
	if q.key == "" {
		q.key = belfry.NewID(time.Now()).String()
	}
}

// answer is a successful response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// newCall makes a call that may be repeated.
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

// json makes a call with JSON both ways.
func (c *Client) json(ctx context.Context, q *call, body, out any) (*answer, error) {
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, belfry.Errorf(belfry.Invalid, "%s: the input has no JSON form: %w", q.what, err)
		}
		q.body = text
	}
	a, err := c.do(ctx, q)
	if err != nil || out == nil {
		return a, err
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return nil, fmt.Errorf("%s: %w", q.what, foreignAnswer(a))
	}
	return a, nil
}

// foreignAnswer is the error of a successful answer that cannot be decoded.
func foreignAnswer(a *answer) error {
	media := sanitizeLine(a.header.Get("Content-Type"), 80)
	return belfry.Errorf(belfry.Internal, "the answer is %d with %q that cannot be decoded, not one of a Belfry server of this version: check the address", a.status, media)
}

// try sends a request once.
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
	body, err := io.ReadAll(io.LimitReader(a.Body, limit+1))
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
	var body io.Reader
	switch {
	case q.stream != nil:
		body = q.stream.reader()
	case q.body != nil:
		body = bytes.NewReader(q.body)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, body)
	if err != nil {
		return nil, belfry.Errorf(belfry.Invalid, "the request is not valid: %w", err)
	}
	switch {
	case q.stream != nil:
		r.Header.Set("Content-Type", "application/x-ndjson")
		r.Header.Set("Expect", "100-continue") // The sequence starts only if the server accepts the request.
	case q.body != nil:
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, application/problem+json")
	r.Header.Set("Belfry-Namespace", c.namespace)
	r.Header.Set("User-Agent", c.agent)
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	if q.match != "" {
		r.Header.Set("If-Match", `"`+q.match+`"`)
	}
	if c.authenticate != nil {
		c.authenticate(r.Header)
	}
	return r, nil
}

func isHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// unavailable is the error of a request without an answer. Idle connections may be as
// dead as this one.
func (c *Client) unavailable(ctx context.Context, err error) error {
	c.http.CloseIdleConnections()
	var outer *url.Error // It repeats method and address.
	if errors.As(err, &outer) {
		err = outer.Err
	}
	switch cause := context.Cause(ctx); {
	case cause == errSlow:
		err = cause
	case cause != nil: // the caller's context ended
		return fmt.Errorf("no answer from %s: %w", c.base, cause)
	}
	e := belfry.Errorf(belfry.Unavailable, "no answer from %s: %w", c.base, err)
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &permanentError{e}
	}
	return e
}

// permanentError is a failure that another try cannot fix.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

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
