// Package api serves the HTTP API: it decodes requests, calls package control, and writes
// JSON, or an RFC 9457 problem document for a failure.
//
// Every request is authorized before it is read: the Host header stops pages that point
// a name of theirs at this machine, http.CrossOriginProtection those of other origins,
// and API keys, if there are any, everybody else. The cause of a failure does not reach
// a client; it is logged with the request id, which the client sees.
package api

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/target"
)

// Options are the parts and settings of the API.
type Options struct {
	Control *control.Control // nil: only the health checks are served

	// Ready says what keeps this node from serving. A *belfry.Error is shown to
	// whoever asks, anything else only logged.
	Ready func(ctx context.Context) error

	// Draining is closed when the node begins to shut down: workers that wait for
	// runs are sent away at once. Nil never is.
	Draining <-chan struct{}

	// Access lets in only who has a key, if keys are required. Nil lets in everybody.
	Access *Access

	// Targets is what the workers of this node may call: jobs that call something else
	// are answered with a warning. Nil warns of nothing.
	Targets *target.Guard

	// RateLimit is how many requests a second each key may make, and twice as many
	// at once; 0 is no limit. Health checks do not count.
	RateLimit float64

	// Hosts are the names, beside loopback ones and all addresses, under which
	// this server may be spoken to. Ports do not matter.
	Hosts []string

	Version string // of the program, for the reference

	Login belfry.Login // with OpenID Connect; zero: there is none

	// Proxies are trusted to say who their clients are.
	Proxies auth.Proxies

	// WorkerCertificates lets in only workers with a certificate that the listener has verified.
	WorkerCertificates bool

	// Page serves what the API does not: the page for people. Nil: there is none. It asks
	// for a login itself, if there are keys.
	Page http.Handler

	Metrics *metrics.Metrics // nil: nothing is measured, and /metrics is not served
	// Span starts the span of a request that changes something. Nil: there are no traces.
	Span func(r *http.Request, route string) (ctx context.Context, end func(status int))

	Log *slog.Logger // nil: slog.Default
}

type api struct {
	Options
	keys    rateLimits    // of requests, by key
	spaces  rateLimits    // of requests, by namespace
	without *auth.Limiter // of requests without a key, by address
	origins *http.CrossOriginProtection
	mux     *http.ServeMux
	served  []operation     // every route, in the order of the reference
	open    map[string]bool // paths that need no key
	spools  chan struct{}   // a place for each import that may go on at once

	keyed, keyless func() description // of what is served
}

// New returns the handler of all routes.
func New(o Options) http.Handler { return newAPI(o) }

func newAPI(o Options) *api {
	a := &api{
		Options: o,
		without: &auth.Limiter{Every: 10 * time.Millisecond, Burst: 1000},
		origins: http.NewCrossOriginProtection(),
		mux:     http.NewServeMux(),
		open:    make(map[string]bool),
		spools:  make(chan struct{}, maxSpools),
	}
	a.Log = cmp.Or(a.Log, slog.Default())
	a.served = a.operations()
	for _, op := range a.served {
		if op.Permission.Roles() == nil {
			panic("the operation " + op.ID + " declares no permission")
		}
		a.mux.Handle(op.Method+" "+op.Path, a.permit(op, a.traced(op)))
		if op.Permission == auth.Public {
			a.open[op.Path] = true
		}
	}
	a.keyed = sync.OnceValue(func() description { return a.describe(true) })
	a.keyless = sync.OnceValue(func() description { return a.describe(false) })
	a.described()
	return a
}

// traced is the handler of an operation, with a span if it changes something that has
// runs. Requests of workers are too many, and belong to no trace.
func (a *api) traced(op operation) http.Handler {
	if a.Span == nil || op.Method == http.MethodGet || op.Group == groupWorkers {
		return op.handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := a.Span(r, op.Path)
		status := http.StatusInternalServerError // of a panic
		defer func() { end(status) }()
		op.handler.ServeHTTP(w, r.WithContext(ctx))
		if out, ok := w.(*recorder); ok {
			status = out.status
		}
	})
}

// addressOfClient is the address that a request came from, without its port and behind the
// proxies that are trusted.
func addressOfClient(r *http.Request) string { return auth.ClientOf(r).Address }

// requestContext is what is known of a request before it is read.
type requestContext struct {
	id        string
	principal *auth.Principal // nil: not known
}

type contextKey struct{}

func contextOf(r *http.Request) *requestContext {
	if v, ok := r.Context().Value(contextKey{}).(*requestContext); ok {
		return v
	}
	return &requestContext{}
}

// keyName is the name of the API key, for the log, or its id.
func (v *requestContext) keyName() string {
	if v.principal == nil {
		return ""
	}
	return cmp.Or(v.principal.Name, v.principal.ID)
}

var requestIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ServeHTTP authorizes a request and serves it.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	v := &requestContext{id: r.Header.Get("X-Request-Id")}
	if !requestIDs.MatchString(v.id) {
		v.id = belfry.NewID(start).String()
	}
	r = a.Proxies.Receive(r.WithContext(context.WithValue(r.Context(), contextKey{}, v)))
	out := &recorder{ResponseWriter: w}
	out.Header().Set("X-Request-Id", v.id)
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.Header().Set("Cache-Control", "no-store")
	defer func() {
		took := time.Since(start)
		a.Metrics.Request(r.Pattern, out.status, took)
		a.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("request_id", v.id), slog.String("method", r.Method),
			slog.String("path", loggedPath(r)), slog.Int("status", out.status), slog.Int64("bytes", out.bytes),
			slog.Duration("took", took), slog.String("key", v.keyName()), slog.String("client", addressOfClient(r)))
	}()
	body := r.Body
	defer a.recoverPanic(out, r)
	if err := a.authorize(r); err != nil {
		a.fail(out, r, err)
	} else {
		a.dispatch(out, r)
	}
	if out.status >= http.StatusBadRequest && out.status != http.StatusRequestTimeout && body != nil && body != http.NoBody && r.Header.Get("Expect") == "" {
		drain(w, body)
	}
}

// A refused body is read for so long and so far, unless the client waits to be asked for it.
// An import that is too large fits.
const (
	maxDrain     = 2 * maxBulk
	drainTimeout = 5 * time.Second
)

// drain sends the response and reads the rest of a body that was refused. Most clients read
// a response only after they have sent everything, and a connection that is closed with
// unread data loses the response.
func drain(w http.ResponseWriter, body io.Reader) {
	connection := http.NewResponseController(w)
	if connection.Flush() == nil && connection.SetReadDeadline(time.Now().Add(drainTimeout)) == nil {
		io.CopyN(io.Discard, body, maxDrain)
	}
}

// loggedPath is the path of a request without the token of a monitor.
func loggedPath(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, pingPath) {
		return pingPath + "***"
	}
	return r.URL.Path
}

// recoverPanic turns a panic of a handler into a response and a line in the log.
func (a *api) recoverPanic(w *recorder, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause)
	}
	a.Log.Error("request panicked", "request_id", contextOf(r).id, "method", r.Method, "path", loggedPath(r),
		"panic", cause, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // Half an answer must not look like a whole one.
	}
	a.fail(w, r, belfry.Errorf(belfry.Internal, "serve a request that panicked"))
}

// authorize says why a request is refused before it is read. Probes of load balancers and
// supervisors may use any name, and need no key: they change nothing and tell no secret.
func (a *api) authorize(r *http.Request) error {
	if probed := r.URL.Path == livePath || r.URL.Path == readyPath; !probed && !AcceptsHost(a.Hosts, r.Host) {
		return &httpError{code: belfry.Misdirected, detail: fmt.Sprintf("this server does not accept the name %.100q in the Host header; its operator can allow it with --host", hostName(r.Host))}
	}
	if err := refuseKeyInQuery(r); err != nil {
		return err
	}
	if err := a.identify(r); err != nil {
		return err
	}
	if err := a.origins.Check(r); err != nil {
		return &httpError{code: belfry.Forbidden, detail: "a page of another origin may not change anything"}
	}
	return nil
}

// AcceptsHost reports whether a Host header names a server with these names. An address, or
// no host at all, is not a name that a page could have pointed here.
func AcceptsHost(hosts []string, host string) bool {
	name := hostName(host)
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil || slices.ContainsFunc(hosts, func(host string) bool { return hostName(host) == name })
}

// hostName reduces a host to its name in lower case, without port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// dispatch serves a request by its route. What has none gets a problem document
// instead of the mux's own answer.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request) {
	if a.isPage(r) {
		a.Page.ServeHTTP(w, r)
		return
	}
	err := &httpError{code: belfry.NotFound, detail: fmt.Sprintf("there is nothing at %.200q; GET / lists all operations", r.URL.Path)}
	if escaped := r.URL.EscapedPath(); escaped == path.Clean(escaped) { // A name may have slashes, encoded.
		known, allow := a.route(r)
		if known {
			a.mux.ServeHTTP(w, r)
			return
		}
		if allow != "" {
			err = &httpError{code: belfry.MethodNotAllowed, detail: fmt.Sprintf("%.20s is not supported here; supported: %s", r.Method, allow), header: map[string]string{"Allow": allow}}
		}
	}
	a.fail(w, r, err)
}

// isPage reports whether a request is for the page: a path that the API does not have, or the
// root for a browser, while a program gets the list of operations there.
func (a *api) isPage(r *http.Request) bool {
	switch {
	case a.Page == nil || strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/api":
		return false
	case r.URL.Path == "/":
		return strings.Contains(r.Header.Get("Accept"), "text/html")
	case r.URL.EscapedPath() != path.Clean(r.URL.EscapedPath()):
		return false
	}
	known, allow := a.route(r)
	return !known && allow == ""
}

// route reports whether the API has the path of a request with its method, or else with which others.
func (a *api) route(r *http.Request) (known bool, allow string) {
	h, pattern := a.mux.Handler(r)
	if pattern != "" {
		return true, ""
	}
	unanswered := probe{header: make(http.Header)}
	if h.ServeHTTP(&unanswered, r); unanswered.status == http.StatusMethodNotAllowed {
		allow = unanswered.header.Get("Allow")
	}
	return false, allow
}

// probe takes an answer without sending it.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) WriteHeader(status int)      { p.status = status }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }

// recorder records status and size of a response.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
