package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/schema"
)

// The headings of the reference.
const (
	groupJobs      = "Jobs"
	groupSchedules = "Schedules"
	groupRuns      = "Runs"
	groupDead      = "Dead letters"
	groupEvents    = "Events"
	groupAudit     = "Audit"
	groupAlerts    = "Alerts"
	groupMonitors  = "Monitors"
	groupSecrets   = "Secrets"
	groupWorkers   = "Workers"
	groupKeys      = "API keys"
	groupServer    = "Server"

	groupNamespaces = "Namespaces"
)

var groups = map[string]string{
	groupJobs:      "What to run and when.",
	groupSchedules: "What a schedule means, before a job has it.",
	groupRuns:      "One record for every occurrence, trigger and backfilled instant.",
	groupDead:      "Runs that are out of attempts: show, redrive or discard them.",
	groupEvents:    "What operators should know.",
	groupAudit:     "Who changed what.",
	groupAlerts:    "Who is told what, and what there is to tell.",
	groupMonitors:  "Watch work that is done elsewhere: it pings an address, and an alert says when a ping is missing.",
	groupSecrets:   "Values that jobs use without containing them.",
	groupWorkers:   "How your own program gets work: claim, heartbeat, finish.",
	groupKeys:      "Who may do what. An admin of some namespaces sees and creates keys of these.",
	groupServer:    "The server itself.",

	groupNamespaces: "Parts of the cluster with jobs of their own, and what they may use.",
}

// operations lists everything that the API has. A node without a store serves its health
// checks only.
func (a *api) operations() []operation {
	if a.Control == nil {
		return append(slices.Concat(a.healthOperations(), a.metricsOperations()), a.indexOperation())
	}
	return slices.Concat(a.jobOperations(), a.actionOperations(), a.runOperations(), a.deadOperations(), []operation{a.auditOperation()}, a.alertOperations(), a.monitorOperations(), a.secretOperations(), a.workerOperations(), a.namespaceOperations(), a.fleetOperations(), a.keyOperations(), a.serverOperations(), a.healthOperations(), a.metricsOperations())
}

func (a *api) metricsOperations() []operation {
	if a.Metrics == nil {
		return nil
	}
	return []operation{{openapi.Operation{
		ID: "getMetrics", Method: "GET", Path: "/metrics", Group: groupServer, Permission: auth.Read, Summary: "Get the metrics",
		Doc:    "The metrics of this node for Prometheus, as text or, if `Accept` asks for it, as OpenMetrics.",
		Global: true, Responses: []openapi.Response{{Status: http.StatusOK, Doc: "The metrics.", Media: "text/plain"}},
	}, a.Metrics.Handler()}}
}

type index struct {
	_     struct{} `doc:"The operations of this server."`
	Name  string   `json:"name" example:"belfry" doc:"Always 'belfry'."`
	Paths []string `json:"paths" example:"[\"POST /api/v1/jobs\", \"GET /api/v1/jobs\"]" doc:"Every method and path."`
}

func (a *api) indexOperation() operation {
	return handle(a, openapi.Operation{
		ID: "getIndex", Method: "GET", Path: "/{$}", Group: groupServer, Permission: auth.Known, Summary: "List the operations", Doc: "Every method and path.", Global: true,
		Responses: []openapi.Response{openapi.JSON[index](http.StatusOK, "The operations.")},
	}, func(context.Context, *request, none, none) (response, error) {
		paths := make([]string, len(a.served))
		for i, op := range a.served {
			paths[i] = op.Method + " " + strings.TrimSuffix(op.Path, "{$}")
		}
		return response{body: index{Name: "belfry", Paths: paths}}, nil
	})
}

func (a *api) serverOperations() []operation {
	unchanged := openapi.Response{Status: http.StatusNotModified, Doc: "It is still the version that `If-None-Match` names.", Headers: []string{"ETag"}}
	return []operation{
		a.indexOperation(),
		handle(a, openapi.Operation{
			ID: "getLogin", Method: "GET", Path: apiPath + "/login", Group: groupServer, Permission: auth.Public, Summary: "Get how people log in",
			Doc:    "The issuer of OpenID Connect whose ID tokens this server accepts in place of API keys, if there is one.",
			Global: true, Responses: []openapi.Response{openapi.JSON[belfry.Login](http.StatusOK, "How people log in.")},
		}, func(context.Context, *request, none, none) (response, error) { return response{body: a.Login}, nil }),
		{openapi.Operation{
			ID: "getOpenAPI", Method: "GET", Path: apiPath + "/openapi.json", Group: groupServer, Permission: auth.Public, Summary: "Get the OpenAPI document", Doc: "The API as an OpenAPI 3.1 document.",
			Global: true, Responses: []openapi.Response{{Status: http.StatusOK, Doc: "The document.", Headers: []string{"ETag"}, Media: openapi.MediaJSON}, unchanged},
		}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.described().openapi.serve(w, r, openapi.MediaJSON) })},
		{openapi.Operation{
			ID: "getReference", Method: "GET", Path: "/docs/api", Group: groupServer, Permission: auth.Public, Summary: "Read the reference", Doc: "The API as a page for people.",
			Global: true, Responses: []openapi.Response{{Status: http.StatusOK, Doc: "The page.", Headers: []string{"ETag"}, Media: "text/html"}, unchanged},
		}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := a.described()
			w.Header().Set("Content-Security-Policy", d.policy)
			w.Header().Set("Referrer-Policy", "no-referrer")
			newDocument(d.reference.For(addressOf(r))).serve(w, r, "text/html; charset=utf-8")
		})},
	}
}

const readyTimeout = 3 * time.Second

const (
	livePath  = "/livez"
	readyPath = "/readyz"
)

// healthOperations are for load balancers and supervisors.
func (a *api) healthOperations() []operation {
	ok := func(w http.ResponseWriter) { write(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n")) }
	text := func(doc string) []openapi.Response {
		return []openapi.Response{{Status: http.StatusOK, Doc: doc, Media: "text/plain"}}
	}
	return []operation{
		{openapi.Operation{
			ID: "getLive", Method: "GET", Path: livePath, Group: groupServer, Permission: auth.Public, Summary: "Check that the process is alive",
			Doc: "Answers for as long as the process can answer. Needs no key, and accepts any `Host`.", Global: true, Responses: text("It is alive."),
		}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ok(w) })},
		{openapi.Operation{
			ID: "getReady", Method: "GET", Path: readyPath, Group: groupServer, Permission: auth.Public, Summary: "Check that the node is ready",
			Doc:    "Says whether requests should be sent here, and if not, why: the database cannot be reached or takes no writes, the scheduler of the node makes no progress, the file of API keys cannot be used, or the node is shutting down. Needs no key, and accepts any `Host`.",
			Global: true, Responses: text("It is ready."), Errors: []int{http.StatusServiceUnavailable},
		}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
			defer cancel()
			if a.Ready != nil {
				if err := a.Ready(ctx); err != nil {
					a.fail(w, r, notReady(err))
					return
				}
			}
			ok(w)
		})},
	}
}

// notReady says of a failure only what was meant for people.
func notReady(err error) error {
	detail := "the database cannot be reached"
	if known, ok := errors.AsType[*belfry.Error](err); ok && known.Code != belfry.Internal {
		detail = known.Message
	}
	return fmt.Errorf("%w: %w", &httpError{code: belfry.Unavailable, detail: detail, header: map[string]string{"Retry-After": "5"}}, err)
}

type document struct {
	text []byte
	tag  string
}

func newDocument(text []byte) document {
	sum := sha256.Sum256(text)
	return document{text, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

type description struct {
	openapi   document
	reference openapi.Reference
	policy    string // what a browser may load for the page
}

// describe makes the description, with or without keys. It panics if that fails, which depends on
// nothing but the program and is tested.
func (a *api) describe(keyed bool) (out description) {
	operations := make([]openapi.Operation, len(a.served))
	for i, op := range a.served {
		operations[i] = op.Operation
	}
	limit := schema.For[pageQuery]().Field("limit")
	d := openapi.Describe(operations, openapi.Options{
		Version: a.Version, Keyed: keyed, RateLimited: keyed && a.RateLimit > 0, Groups: groups, PageSize: defaultPageSize, MaxPageSize: int(*limit.Max),
	})
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	reference, failed := d.Reference()
	if err := errors.Join(err, failed); err != nil {
		panic(err)
	}
	out.openapi, out.reference = newDocument(text.Bytes()), reference
	_, rest, _ := bytes.Cut(reference.For(""), []byte("<style>"))
	style, _, _ := bytes.Cut(rest, []byte("</style>"))
	sum := sha256.Sum256(style)
	out.policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return out
}

// described is the description as it is now: the first key may have been created since the start.
func (a *api) described() description {
	if a.Access.Required() {
		return a.keyed()
	}
	return a.keyless()
}

// addressOf is the address under which the server received a request, or a proxy of its did.
func addressOf(r *http.Request) string {
	scheme, host := "http://", r.Host
	if auth.ClientOf(r).Secure {
		scheme = "https://"
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && host == "" { // HTTP/1.0
		host = local.String()
	}
	return scheme + host
}

// serve sends a document, unless the client has it already.
func (d document) serve(w http.ResponseWriter, r *http.Request, media string) {
	w.Header().Set("ETag", d.tag)
	w.Header().Set("Cache-Control", "no-cache") // it may be stored, and must be revalidated
	for known := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if known = strings.TrimPrefix(strings.TrimSpace(known), "W/"); known == d.tag || known == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	write(w, http.StatusOK, media, d.text)
}

// NewServer returns a server with limits on what a slow or large client may cost: its
// connection and what it has sent so far, for half a minute at most. Operations that
// take longer extend that for themselves.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    64 << 10,

		DisableGeneralOptionsHandler: true, // OPTIONS gets a problem document as well
	}
}

// How many connections a listener has at once. Those of this machine count in total alone: a proxy
// may be on it.
const (
	maxConnections        = 20_000
	maxAddressConnections = 2_000
)

// LimitConnections closes connections beyond the most that an address, or all of them, may have.
func LimitConnections(l net.Listener) net.Listener {
	return &limitedListener{Listener: l, from: map[string]int{}}
}

type limitedListener struct {
	net.Listener
	mu    sync.Mutex
	total int
	from  map[string]int
}

// Accept waits for a connection that is allowed.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := ""
		if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			address = auth.Network(tcp.IP.String())
		}
		if l.add(address) {
			return &limitedConn{Conn: c, close: sync.OnceFunc(func() { l.remove(address) })}, nil
		}
		c.Close()
	}
}

func (l *limitedListener) add(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= maxConnections || address != "" && l.from[address] >= maxAddressConnections {
		return false
	}
	l.total++
	l.from[address]++
	return true
}

func (l *limitedListener) remove(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.from[address]--; l.from[address] == 0 {
		delete(l.from, address)
	}
}

type limitedConn struct {
	net.Conn
	close func()
}

// Close frees the place of the connection.
func (c *limitedConn) Close() error {
	c.close()
	return c.Conn.Close()
}
