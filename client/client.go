// Package client is the HTTP client of a Belfry server.
//
//	c, err := client.New("http://127.0.0.1:7070", client.WithKey(key))
//	job, err := c.CreateJob(ctx, belfry.Manifest{
//		Name:    "report",
//		Spec:    belfry.Spec{Schedule: "30 9 * * MON-FRI", Timezone: "Europe/Paris"},
//		Payload: belfry.MustJSON(belfry.HTTPPayload{URL: "https://example.com/hook"}),
//	})
//
// A Client is also the source of runs of a worker, see package worker:
//
//	err = worker.New(c, mux).Run(ctx)
//
// A ref is the id or the name of a job.
//
// Calls that are safe to repeat are repeated when the server cannot be reached, is
// overloaded or restarts: reads, calls that set a state, and calls that create, trigger
// or backfill, which have an idempotency key. An answer of the server that is not a
// success is an *Error. belfry.CodeOf returns the code of any error of this package;
// belfry.Unavailable is that there was no answer.
package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// Client accesses one namespace of a server. It is safe for concurrent use.
type Client struct {
	base      string        // address of the server, without a slash at the end
	key       func() string // a function, so that nobody prints it by mistake
	namespace string
	agent     string
	retries   int
	tls       TLS
	plain     bool // the key may be sent without TLS
	http      *http.Client
	worker    atomic.Pointer[belfry.ID] // of the latest claim or heartbeat
	smallRuns atomic.Bool               // the runs of the last claim had small payloads
}

// Option configures a Client.
type Option func(*Client)

// WithKey sets the API key.
func WithKey(key string) Option {
	return func(c *Client) {
		if key != "" {
			c.key = func() string { return key }
		}
	}
}

// WithNamespace sets the namespace. The default is belfry.DefaultNamespace.
func WithNamespace(name string) Option {
	return func(c *Client) { c.namespace = cmp.Or(name, c.namespace) }
}

// WithHTTPClient sets the HTTP client, for certificates, proxies and the like. If the
// Client is for a worker, whose claims wait, its Timeout must be at least 30 seconds.
// Redirects are not followed.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) { c.http = h }
}

// WithUserAgent sets the name of the program in the server's log.
func WithUserAgent(agent string) Option {
	return func(c *Client) { c.agent = agent }
}

// WithRetries sets how often a failed call that is safe to repeat is repeated. The
// default is 3.
func WithRetries(n int) Option {
	return func(c *Client) { c.retries = max(n, 0) }
}

// New returns a Client of the server at an address such as
// "https://belfry.example.com", which may have a path. Without a scheme it is http://,
// and /api/v1 at its end does not count. A key is sent over http:// to this machine alone,
// see WithInsecurePlainHTTP. New does not connect yet.
func New(server string, options ...Option) (*Client, error) {
	base, err := parseAddress(server)
	if err != nil {
		return nil, err
	}
	standard := &http.Client{Transport: newTransport()}
	c := &Client{base: base, namespace: belfry.DefaultNamespace, agent: "belfry-go", retries: 3, http: standard}
	for _, option := range options {
		option(c)
	}
	switch {
	case c.key != nil && (!isHeaderValue(c.key()) || strings.Contains(c.key(), " ")):
		return nil, errors.New("the key must have printable ASCII characters only, and no spaces")
	case !isHeaderValue(c.namespace):
		return nil, fmt.Errorf("%.80q is not a namespace", c.namespace)
	case !isHeaderValue(c.agent):
		return nil, fmt.Errorf("%.80q is not a user agent", c.agent)
	case c.http == nil:
		return nil, errors.New("the HTTP client is nil")
	case c.tls != (TLS{}) && c.http != standard && c.http.Transport != nil:
		return nil, errors.New("WithTLS needs an HTTP client without a Transport; set TLSClientConfig of the Transport instead")
	}
	if err := c.checkPlain(); err != nil {
		return nil, err
	}
	c.worker.Store(new(belfry.NewID(time.Now())))
	own := *c.http
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, c.useTLS(&own)
}

// Close closes idle connections. The Client may be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// parseAddress checks the address of a server. Its errors do not repeat an address that
// may contain a password.
func parseAddress(server string) (string, error) {
	const example = "an address is such as https://belfry.example.com"
	if strings.Contains(server, "@") {
		return "", errors.New("the address of the server must not contain a user name or password; use WithKey")
	}
	address := server
	if !strings.Contains(server, "://") && !strings.HasPrefix(server, "http:") && !strings.HasPrefix(server, "https:") {
		address = "http://" + server
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "", fmt.Errorf("%.80q is not the address of a server: %s", server, example)
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "":
		return "", fmt.Errorf("%.80q does not start with http:// or https://: %s", server, example)
	case u.Hostname() == "":
		return "", fmt.Errorf("%.80q has no host: %s", server, example)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", fmt.Errorf("the address of the server must not contain ? or #: %s", example)
	}
	path := strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), apiPath)
	return u.Scheme + "://" + u.Host + strings.TrimRight(path, "/"), nil
}

// Error is a failure that a server, or a proxy in front of it, answered.
type Error struct {
	Status     int                 // HTTP status
	Code       belfry.Code         // the kind of failure
	Detail     string              // a sentence for people
	Fields     []belfry.FieldError // the fields that are wrong
	RequestID  string              // in the server's log
	RetryAfter time.Duration       // that the server asks for; zero if it does not

	maybeDone bool // an earlier try of the same call may have been executed
}

// Error is one line.
func (e *Error) Error() string {
	const maxFields = 10
	text, before := e.Detail, ": "
	for _, f := range e.Fields[:min(len(e.Fields), maxFields)] {
		text += before + f.Field + ": " + f.Message
		before = "; "
	}
	if more := len(e.Fields) - maxFields; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if e.maybeDone {
		text += "; an earlier try of this call, whose answer was lost, may have changed it"
	}
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the failure as a *belfry.Error. BadRequest is Invalid there.
func (e *Error) Unwrap() error {
	code := e.Code
	if code == belfry.BadRequest {
		code = belfry.Invalid
	}
	return &belfry.Error{Code: code, Message: e.Detail, Fields: e.Fields}
}

// SchemeError is that an address has https:// although the server does not use TLS, or
// http:// although it does.
type SchemeError struct {
	Use string // the address to use instead
}

func (e *SchemeError) Error() string {
	if strings.HasPrefix(e.Use, "http:") {
		return "the server does not use TLS: use " + e.Use
	}
	return "the server uses TLS: use " + e.Use
}

func (c *Client) schemeError() *SchemeError {
	if host, ok := strings.CutPrefix(c.base, "https://"); ok {
		return &SchemeError{"http://" + host}
	}
	return &SchemeError{"https://" + strings.TrimPrefix(c.base, "http://")}
}

// A server that uses TLS answers plain HTTP with an alert, or with one of these texts,
// of Go, nginx and Apache.
const tlsAlert = `malformed HTTP response "\x15\x03`

var wantsTLS = regexp.MustCompile(`(?i)HTTP request to an HTTPS server|plain HTTP request was sent to HTTPS port|plain HTTP to an SSL-enabled server port`)

const (
	maxProblem = 256 << 10 // bytes of a problem document
	maxDetail  = 1 << 10   // bytes of a text in it
)

// newError is the Error of an answer. If it is not a problem document, only its status
// counts: the text may be a page of a proxy.
func newError(a *http.Response, body []byte) *Error {
	e := &Error{Status: a.StatusCode, RequestID: sanitizeLine(a.Header.Get("X-Request-Id"), 100), RetryAfter: retryAfter(a.Header, time.Now())}
	var p belfry.Problem
	media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if media == "application/problem+json" && json.Unmarshal(body, &p) == nil && p.Detail != "" && p.Code != "" {
		e.Code, e.Detail = belfry.Code(sanitizeLine(string(p.Code), 64)), sanitizeLine(p.Detail, maxDetail)
		e.RequestID = cmp.Or(sanitizeLine(p.RequestID, 100), e.RequestID)
		for _, f := range p.Errors {
			e.Fields = append(e.Fields, belfry.FieldError{Field: sanitizeLine(f.Field, maxDetail), Message: sanitizeLine(f.Message, maxDetail)})
		}
		return e
	}
	e.Code, e.Detail = foreignError(a)
	return e
}

// foreignError is the code and the detail of an answer that is not one of a Belfry server.
func foreignError(a *http.Response) (belfry.Code, string) {
	detail := fmt.Sprintf("the answer is %d %s, not one of a Belfry server", a.StatusCode, http.StatusText(a.StatusCode))
	switch status := a.StatusCode; {
	case status >= 300 && status < 400:
		target := "another address"
		if to, err := a.Location(); err == nil {
			target = (&url.URL{Scheme: to.Scheme, Host: to.Host}).String()
		}
		return belfry.Internal, fmt.Sprintf("the answer redirects to %s: use that address", sanitizeLine(target, 200))
	case status == http.StatusBadRequest:
		return belfry.BadRequest, detail + ": check the address"
	case status == http.StatusUnauthorized:
		return belfry.Unauthorized, detail + ": check the address and the key"
	case status == http.StatusForbidden:
		return belfry.Forbidden, detail + ": a proxy refuses the request"
	case status == http.StatusNotFound:
		return belfry.NotFound, detail + ": check the address"
	case status == http.StatusPreconditionFailed:
		return belfry.Changed, detail
	case status == http.StatusRequestEntityTooLarge:
		return belfry.TooLarge, detail + ": a proxy refuses a request of this size"
	case status == http.StatusTooManyRequests:
		return belfry.RateLimited, detail + ": try again later"
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return belfry.Unavailable, detail + ": the server behind a proxy cannot be reached; try again later"
	default:
		return belfry.Internal, detail + ": check the address"
	}
}

func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// sanitizeLine makes text from outside safe to print in one line.
func sanitizeLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, sanitize.Text(s, limit))
	return strings.TrimSpace(s)
}
