// Package api is the HTTP face: it reads requests, asks package control, and
// writes JSON, or an RFC 9457 problem document for whatever goes wrong.
//
// Who may enter is decided before anything is read: the Host header stops pages
// that point a name of theirs at this machine, http.CrossOriginProtection those
// of other origins, and API keys, if there are any, everybody else. Nothing of
// what a failure was caused by reaches a client; it is logged under the id of
// the request, which the client does see.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/belfry-sh/belfry/internal/control"
)

// Options are what the HTTP face works with.
type Options struct {
	Control *control.Control // nil: only the health checks are served

	// Ready says what keeps this node from serving. A *belfry.Error is shown to
	// whoever asks, anything else only logged.
	Ready func(ctx context.Context) error

	// Keys lets in only who has one of them. Nil lets in everybody.
	Keys *Keys

	// Hosts are the names, beside loopback ones and all addresses, under which
	// this server may be spoken to. Ports do not matter.
	Hosts []string

	Log *slog.Logger // nil: slog.Default
}

// patience bounds what a request may wait for, well within the server's
// WriteTimeout.
const patience = 20 * time.Second

type api struct {
	control *control.Control
	ready   func(ctx context.Context) error
	keys    *Keys
	hosts   map[string]bool
	origins *http.CrossOriginProtection
	log     *slog.Logger
	mux     *http.ServeMux
	paths   []string // "METHOD /path" of every route, in order
}

// New returns the handler of all routes.
func New(o Options) http.Handler {
	a := &api{
		control: o.Control,
		ready:   o.Ready,
		keys:    o.Keys,
		hosts:   make(map[string]bool),
		origins: http.NewCrossOriginProtection(),
		log:     o.Log,
		mux:     http.NewServeMux(),
	}
	if a.log == nil {
		a.log = slog.Default()
	}
	for _, host := range o.Hosts {
		a.hosts[hostName(host)] = true
	}
	a.routes()
	return a
}

func (a *api) routes() {
	add := func(pattern string, h http.Handler) {
		a.mux.Handle(pattern, h)
		a.paths = append(a.paths, pattern)
	}
	add("GET /livez", http.HandlerFunc(a.livez))
	add("GET /readyz", http.HandlerFunc(a.readyz))
	a.mux.Handle("GET /{$}", route(a, readNothing, a.index))
	if a.control == nil {
		return
	}
	add("POST /api/v1/jobs", route(a, readCreation, a.createJob))
	add("GET /api/v1/jobs", route(a, readJobList, a.listJobs))
	add("GET /api/v1/jobs/{id}", route(a, readJob, a.getJob))
	add("PATCH /api/v1/jobs/{id}", route(a, readChange, a.changeJob))
	add("DELETE /api/v1/jobs/{id}", route(a, readJob, a.deleteJob))
	add("POST /api/v1/jobs/{id}/trigger", route(a, readTrigger, a.triggerJob))
	add("GET /api/v1/jobs/{id}/runs", route(a, readRunList, a.listRuns))
	add("GET /api/v1/runs/{id}", route(a, readRun, a.getRun))
}

// dispatch serves a request by its route. What has none gets a problem document
// instead of the mux's own answer.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != path.Clean(r.URL.Path) {
		a.fail(w, r, noRoute(r))
		return
	}
	h, pattern := a.mux.Handler(r)
	if pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	unanswered := probe{header: make(http.Header)}
	h.ServeHTTP(&unanswered, r)
	if unanswered.status == http.StatusMethodNotAllowed {
		a.fail(w, r, wrongMethod(r, unanswered.header.Get("Allow")))
		return
	}
	a.fail(w, r, noRoute(r))
}

// probe takes an answer without sending it.
type probe struct {
	header http.Header
	status int
}

func (p *probe) Header() http.Header         { return p.header }
func (p *probe) WriteHeader(status int)      { p.status = status }
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
