// Package client talks to a Belfry server over HTTP.
//
//	c, err := client.New("http://127.0.0.1:7070", client.WithKey(key))
//	job, err := c.CreateJob(ctx, client.Draft{
//		Name:     "report",
//		Schedule: "30 9 * * MON-FRI",
//		Timezone: "Europe/Paris",
//		Payload:  map[string]any{"url": "https://example.com/hook"},
//	})
//
// A Client also is the source of a worker, see package worker:
//
//	err = worker.New(c, mux).Run(ctx)
//
// A ref names a job by its id or by its name.
//
// Calls that are safe to repeat are repeated when the server cannot be reached,
// is overloaded or is being restarted: those that look and those that say how
// something shall be, and those that create, trigger and backfill, under an
// idempotency key that is drawn once a call. What a server refuses is an *Error;
// belfry.CodeOf tells the kind of any error of this package, belfry.Unavailable
// being that nobody answered.
package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
)

// Client is a way to one namespace of a server. It may be used by several
// goroutines.
type Client struct {
	base      string            // address of the server, without a slash at the end
	identify  func(http.Header) // puts the key there; a function, so that no one prints it by mistake
	namespace string
	agent     string
	retries   int
	http      *http.Client
	worker    atomic.Pointer[belfry.ID] // that claimed or was alive last
}

// Option changes how a Client works.
type Option func(*Client) error

// WithKey says the API key to send.
func WithKey(key string) Option {
	return func(c *Client) error {
		if key == "" {
			return nil
		}
		if unsendable(key) || strings.Contains(key, " ") {
			return errors.New("the key may only have printable ASCII characters and no spaces")
		}
		c.identify = func(h http.Header) { h.Set("Authorization", "Bearer "+key) }
		return nil
	}
}

// WithNamespace says which namespace to work in; "default" unless it says so.
func WithNamespace(name string) Option {
	return func(c *Client) error {
		if unsendable(name) {
			return fmt.Errorf("%.80q is not the name of a namespace", name)
		}
		if name != "" {
			c.namespace = name
		}
		return nil
	}
}

// WithHTTPClient says what to send requests with, for certificates, proxies and
// the like. It must not have a Timeout shorter than 30 seconds if the Client is
// to feed a worker, which waits for work that long. Redirects are not followed.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) error {
		if h == nil {
			return errors.New("the HTTP client is nil")
		}
		c.http = h
		return nil
	}
}

// WithUserAgent says what the server's log calls the program.
func WithUserAgent(agent string) Option {
	return func(c *Client) error {
		if unsendable(agent) {
			return fmt.Errorf("%.80q cannot be sent as a user agent", agent)
		}
		c.agent = agent
		return nil
	}
}

// WithRetries says how often a call that is safe to repeat is repeated when it
// fails: 3 times unless it says otherwise.
func WithRetries(n int) Option {
	return func(c *Client) error {
		c.retries = max(n, 0)
		return nil
	}
}

// New makes a Client of the server at an address such as
// "https://belfry.example.com", which may have a path. It connects to nothing yet.
func New(server string, options ...Option) (*Client, error) {
	base, err := address(server)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, namespace: belfry.DefaultNamespace, agent: "belfry-go", retries: 3}
	for _, option := range options {
		if err := option(c); err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
	}
	c.worker.Store(new(belfry.NewID(time.Now())))
	own := http.Client{Transport: newTransport()}
	if c.http != nil {
		own = *c.http
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
}

// Close closes the connections that are not in use. A Client may be used again
// afterwards.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// address checks where a server is said to be. It does not repeat what may hold
// a password.
func address(server string) (string, error) {
	const example = "an address looks like https://belfry.example.com"
	if strings.Contains(server, "@") {
		return "", errors.New("make a client: the server's address must not have a user or password; keys go in WithKey")
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return "", fmt.Errorf("make a client: %.80q is not the address of a server: %s", server, example)
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "":
		return "", fmt.Errorf("make a client: %.80q does not begin with http:// or https://: %s", server, example)
	case u.Hostname() == "":
		return "", fmt.Errorf("make a client: %.80q names no host: %s", server, example)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", fmt.Errorf("make a client: the address of a server has nothing behind a ? or #: %s", example)
	}
	return u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"), nil
}
