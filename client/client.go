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
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
)

// Client accesses one namespace of a server. It is safe for concurrent use.
type Client struct {
	base      string        // address of the server, without a slash at the end
	key       func() string // a function, so that nobody prints it by mistake
	namespace string
	agent     string
	retries   int
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
// and /api/v1 at its end does not count. New does not connect yet.
func New(server string, options ...Option) (*Client, error) {
	base, err := parseAddress(server)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, namespace: belfry.DefaultNamespace, agent: "belfry-go", retries: 3, http: &http.Client{Transport: newTransport()}}
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
	}
	c.worker.Store(new(belfry.NewID(time.Now())))
	own := *c.http
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
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
