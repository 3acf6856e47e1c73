// Package web serves the page for people: HTML made on the server from templates, with a
// little script that is embedded as well. It stands on package control, like the API, which
// checks the Host header and the origin of a request and passes on what it does not serve.
//
// Every page works without script. With it, a page follows what happens: one stream of
// server-sent events says that something has changed, and the page fetches its main part
// again.
package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/cache"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

// Access knows who has which key. The API uses the same.
type Access interface {
	// Required reports whether people must log in.
	Required() bool
	// Authenticate returns who has a key, unless the address of the request has sent too many wrong ones.
	Authenticate(r *http.Request, key string) (*auth.Principal, error)
	// Hash is what stands for a key in a session.
	Hash(key string) [32]byte
	// Holder is who has the key with a hash; an error if it has ended.
	Holder(hash [32]byte) (*auth.Principal, error)
}

// Setting is a setting of the server that is in force.
type Setting struct{ Name, Value, Doc string }

// Options are the parts and settings of the page.
type Options struct {
	Control  *control.Control
	Access   Access          // nil: nobody logs in
	OIDC     *oidc.Provider  // nil: people log in with keys
	Draining <-chan struct{} // closed when the node begins to shut down
	Settings []Setting
	Version  string
	Log      *slog.Logger // nil: slog.Default
}

type server struct {
	Options
	mux     *http.ServeMux
	live    *hub
	depths  cache.Cache[string, control.Depths]
	names   cache.Cache[string, []string] // of namespaces
	counts  cache.Cache[string, navCounts]
	screens cache.Cache[string, overview]
}

//go:embed templates
var templateFiles embed.FS

// pages are the templates. They are parsed when the first page is shown.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"))
})

// New returns the handler of the page.
func New(o Options) http.Handler {
	s := &server{Options: o, mux: http.NewServeMux(), live: newHub(o.Control)}
	s.Log = cmp.Or(s.Log, slog.Default())
	s.mux.HandleFunc("GET /assets/{hash}/{name}", serveAsset)
	for _, r := range s.routes() {
		if r.permission.Roles() == nil {
			panic("the page " + r.pattern + " declares no permission")
		}
		s.mux.HandleFunc(r.pattern, s.handle(r))
	}
	return s
}

const (
	pageTimeout = 20 * time.Second
	postTimeout = 2 * time.Minute
	maxForm     = 1 << 20
	pageSize    = 30
	countsKeep  = 2 * time.Second
	namesKeep   = 5 * time.Second

	// policy is what a browser may load: nothing but what this server has.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	s.mux.ServeHTTP(w, r)
}

type request struct {
	*http.Request
	w         http.ResponseWriter
	server    *server
	ctx       context.Context
	namespace string
	principal *auth.Principal // nil: who must log in first
}

// link is the address of a page, with parameters as pairs, in the namespace of the request.
func (r *request) link(path string, pairs ...any) string {
	path, query, _ := strings.Cut(path, "?")
	q, _ := url.ParseQuery(query) // which the program wrote
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			q.Add(fmt.Sprint(pairs[i]), value)
		}
	}
	if r.namespace != belfry.DefaultNamespace {
		q.Set("ns", r.namespace)
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// page is what all templates show.
type page struct {
	r          *request
	Title      string
	Section    string // of the navigation
	Namespaces []string
	Counts     navCounts
	Done       string // what was just done
	Data       any
}

func (p *page) Namespace() string                     { return p.r.namespace }
func (p *page) Version() string                       { return p.r.server.Version }
func (p *page) Key() string                           { return p.r.keyName() }
func (p *page) Now() time.Time                        { return p.r.server.Control.Now() }
func (p *page) Link(path string, pairs ...any) string { return p.r.link(path, pairs...) }
func (p *page) Path() string                          { return p.r.URL.Path }
func (p *page) Self() string                          { return p.r.URL.RequestURI() }
func (p *page) On(v any) on                           { return on{p, v} }

// May reports whether the page offers what needs a permission.
func (p *page) May(permission auth.Permission) bool {
	return p.r.principal != nil && p.r.principal.Has(permission)
}

// Offers reports whether there is a page for who requests this one.
func (p *page) Offers(path string) bool {
	global := path == "/fleet" || path == "/settings"
	return !global || p.r.principal != nil && p.r.principal.SeesAll()
}

// on is a value for a part of a page, with the page.
type on struct {
	P *page
	V any
}

type section struct{ Name, Label, Path, Key string }

var sections = []section{
	{"overview", "Overview", "/", "o"}, {"jobs", "Jobs", "/jobs", "j"}, {"runs", "Runs", "/runs", "r"}, {"dead", "Dead letters", "/dead", "d"},
	{"forecast", "Forecast", "/forecast", "f"}, {"fleet", "Fleet", "/fleet", "n"}, {"alerts", "Alerts", "/alerts", "a"}, {"events", "Events", "/events", "e"}, {"audit", "Audit", "/audit", "u"}, {"settings", "Settings", "/settings", "s"},
}

func (p *page) Sections() []section {
	return slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return !p.Offers(s.Path) })
}

// navCounts are what the navigation counts.
type navCounts struct{ Dead, Alerts int }

// maxCount is how far the navigation counts.
const maxCount = 1000

func (c navCounts) Of(section string) string {
	n := map[string]int{"dead": c.Dead, "alerts": c.Alerts}[section]
	switch {
	case n == 0:
		return ""
	case n >= maxCount:
		return "999+"
	}
	return fmt.Sprint(n)
}

// show writes a page, or only its main part to a script that refreshes it.
func (r *request) show(name, section, title string, data any) error {
	return r.showStatus(http.StatusOK, name, section, title, data)
}

// showSection shows the page of a section, unless its data could not be read.
func (r *request) showSection(section, title string, data any, err error) error {
	if err != nil {
		return err
	}
	return r.show(section+".html", section, title, data)
}

func (r *request) showStatus(status int, name, section, title string, data any) error {
	p := &page{r: r, Title: title, Section: section, Data: data, Done: doneText(r.URL.Query())}
	if section != "" && r.principal != nil {
		if r.sees(r.namespace) {
			p.Counts = r.navCounts()
		}
		known, _ := r.server.names.Get(r.ctx, "", namesKeep, r.server.Control.NamespaceNames)
		known = slices.DeleteFunc(slices.Clone(known), func(n string) bool { return !r.sees(n) })
		if p.Namespaces = known; r.sees(r.namespace) && !slices.Contains(p.Namespaces, r.namespace) {
			p.Namespaces = append(p.Namespaces, r.namespace)
		}
	}
	layout := "layout"
	if r.Header.Get("HX-Target") == "live" {
		layout = "fragment"
	}
	var body, out bytes.Buffer
	if err := pages().ExecuteTemplate(&body, name, p); err != nil {
		return err
	}
	frame := struct {
		*page
		Body template.HTML
	}{p, template.HTML(body.String())} // which a template has made
	if err := pages().ExecuteTemplate(&out, layout, frame); err != nil {
		return err
	}
	r.write(status, out.Bytes())
	return nil
}

// sees reports whether a namespace exists for who requests the page.
func (r *request) sees(namespace string) bool {
	return r.principal != nil && r.principal.Has(auth.Read) && r.principal.Sees(namespace)
}

func (r *request) showPart(name string, data any) error {
	var out bytes.Buffer
	if err := pages().ExecuteTemplate(&out, name, &page{r: r, Data: data}); err != nil {
		return err
	}
	r.write(http.StatusOK, out.Bytes())
	return nil
}

func (r *request) write(status int, html []byte) {
	r.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	r.w.Header().Set("Vary", "Accept, Accept-Encoding, HX-Target")
	if html = visible(html); len(html) > 1<<10 && acceptsGzip(r.Request) { // pages have no secrets whose length could tell something
		r.w.Header().Set("Content-Encoding", "gzip")
		html = compress(html, gzip.BestSpeed)
	}
	r.w.WriteHeader(status)
	r.w.Write(html) // a client that is gone cannot be told
}

func (r *request) navCounts() navCounts {
	counts, _ := r.server.counts.Get(r.ctx, r.namespace, countsKeep, func(ctx context.Context) (c navCounts, err error) {
		if c.Dead, err = r.server.Control.CountDead(ctx, r.namespace, maxCount); err != nil {
			return c, err
		}
		alerts, _, err := r.server.Control.Alerts(ctx, r.namespace, belfry.AlertFilter{Status: belfry.AlertFiring}, store.Page{Limit: maxCount})
		c.Alerts = len(alerts)
		return c, err
	})
	return counts
}

// redirect sends a browser to another page after a change, with a word that says what was
// done.
func (r *request) redirect(path, done string, pairs ...any) error {
	r.server.counts.Clear()
	r.server.names.Clear()
	r.server.screens.Clear()
	r.server.live.changed(r.namespace)
	if path == "" {
		path = r.back()
	}
	u, _ := url.Parse(r.link(path, pairs...))
	q := u.Query()
	if q.Del("done"); done != "" {
		q.Set("done", done)
	}
	u.RawQuery = q.Encode()
	http.Redirect(r.w, r.Request, u.String(), http.StatusSeeOther)
	return nil
}

// finish is redirect, unless the change failed.
func (r *request) finish(err error, path, done string, pairs ...any) error {
	if err != nil {
		return err
	}
	return r.redirect(path, done, pairs...)
}

// back is the page of this server that a form was on.
func (r *request) back() string {
	u, err := url.Parse(r.Referer())
	if err != nil || u.Host != r.Host || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") {
		return "/"
	}
	q := u.Query()
	q.Del("done")
	u.RawQuery = q.Encode()
	return u.RequestURI()
}

// doneWords are what pages say after a change.
var doneWords = map[string]string{
	"created": "The job was created.", "saved": "Saved.", "unchanged": "Nothing differs, so nothing was changed.", "deleted": "Deleted.", "trigger": "Triggered. The run starts as soon as a worker is free.",
	"pause": "Paused. Nothing fires until you resume it.", "resume": "Resumed.", "cancel": "Cancelled.", "rollback": "Rolled back.", "backfill": "The runs are queued, oldest first.",
	"redrive": "Redriven.", "discard": "Discarded.", "acknowledged": "Acknowledged. Nothing more is sent until it is resolved.", "tested": "The test message was accepted.", "logout": "You are logged out.",
}

func doneText(q url.Values) string {
	text := doneWords[q.Get("done")]
	if n := q.Get("n"); text != "" && len(n) < 8 && strings.Trim(n, "0123456789") == "" && n != "" {
		text = strings.TrimSuffix(text, ".") + ": " + n + "."
	}
	return text
}

// fail shows what went wrong, without its cause, which is logged.
func (r *request) fail(err error) {
	status, message := openapi.StatusOf(belfry.CodeOf(err)), publicText(err)
	if status >= http.StatusInternalServerError {
		r.server.Log.Log(r.Context(), slog.LevelWarn, "page failed", "path", r.URL.Path, "status", status, "error", err)
	}
	shown := r.showStatus(status, "error.html", cmp.Or(sectionOf(r.URL.Path), "overview"), http.StatusText(status), message)
	if shown != nil {
		http.Error(r.w, message, status)
	}
}

func sectionOf(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if slices.ContainsFunc(sections, func(s section) bool { return s.Name == first }) {
		return first
	}
	return ""
}
