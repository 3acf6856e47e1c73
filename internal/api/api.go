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
	"log/slog"
	"net/http"
	"path"

	"github.com/belfry-sh/belfry/internal/control"
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

	// Keys lets in only who has one of them. Nil lets in everybody.
	Keys *Keys

	// RateLimit is how many requests a second each key may make, and twice as many
	// at once; 0 is no limit. Health checks do not count.
	RateLimit float64

	// Hosts are the names, beside loopback ones and all addresses, under which
	// this server may be spoken to. Ports do not matter.
	Hosts []string

	Version string // of the program, for the reference

	Log *slog.Logger // nil: slog.Default
}

type api struct {
	Options
	limiter *limiter
	origins *http.CrossOriginProtection
	mux     *http.ServeMux
	served  []operation     // every route, in the order of the reference
	open    map[string]bool // paths that need no key
	spools  chan struct{}   // a place for each import that may go on at once

	openapi   document // of what is served
	reference document
	policy    string // what a browser may load for the reference page
}

// New returns the handler of all routes.
func New(o Options) http.Handler { return newAPI(o) }

func newAPI(o Options) *api {
	a := &api{
		Options: o,
		limiter: newLimiter(o.RateLimit),
		origins: http.NewCrossOriginProtection(),
		mux:     http.NewServeMux(),
		open:    make(map[string]bool),
		spools:  make(chan struct{}, maxSpools),
	}
	a.Log = cmp.Or(a.Log, slog.Default())
	a.served = a.operations()
	for _, op := range a.served {
		a.mux.Handle(op.Method+" "+op.Path, op.handler)
		if op.Open {
			a.open[op.Path] = true
		}
	}
	a.describe()
	return a
}

// dispatch serves a request by its route. What has none gets a problem document
// instead of the mux's own answer.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request) {
	err := noRoute(r)
	if escaped := r.URL.EscapedPath(); escaped == path.Clean(escaped) { // A name may have slashes, encoded.
		h, pattern := a.mux.Handler(r)
		if pattern != "" {
			a.mux.ServeHTTP(w, r)
			return
		}
		unanswered := probe{header: make(http.Header)}
		h.ServeHTTP(&unanswered, r)
		if unanswered.status == http.StatusMethodNotAllowed {
			err = methodNotAllowed(r, unanswered.header.Get("Allow"))
		}
	}
	a.fail(w, r, err)
}

// probe takes an answer without sending it.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) WriteHeader(status int)      { p.status = status }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
