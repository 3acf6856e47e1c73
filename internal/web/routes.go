package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/validate"
)

// route is a page, or what a form of one does, and what it asks of who requests it.
type route struct {
	pattern    string
	permission auth.Permission
	global     bool // is about all namespaces
	serve      func(*request) error
}

func (s *server) routes() []route {
	list := []route{
		{"GET /login", auth.Public, false, s.loginPage}, {"POST /login", auth.Public, false, s.login}, {"POST /logout", auth.Public, false, s.logout},
		{"GET " + loginPath, auth.Public, false, s.startOIDC}, {"GET " + CallbackPath, auth.Public, false, s.finishOIDC},
		{"GET /{$}", auth.Read, false, s.overview}, {"GET /live", auth.Read, false, s.stream},
		{"GET /jobs", auth.Read, false, s.jobs}, {"POST /jobs", auth.Operate, false, s.bulk}, {"GET /jobs/{job}", auth.Read, false, s.job},
		{"GET /jobs/new", auth.Write, false, s.newJob}, {"POST /jobs/new", auth.Write, false, s.createJob}, {"POST /jobs/preview", auth.Write, false, s.previewJob},
		{"GET /jobs/{job}/edit", auth.Write, false, s.editJob}, {"POST /jobs/{job}/edit", auth.Write, false, s.saveJob},
		{"GET /runs", auth.Read, false, listPage("runs", "Runs", []string{"status", "job"}, s.Control.ListRuns)},
		{"GET /runs/{run}", auth.Read, false, s.run}, {"GET /dead", auth.Read, false, s.dead},
		{"GET /events", auth.Read, false, listPage("events", "Events", []string{"kind", "job"}, s.Control.ListEvents)},
		{"GET /audit", auth.Read, false, listPage("audit", "Audit", []string{"job", "actor", "action", "since"}, s.Control.ListAudit)},
		{"GET /alerts", auth.Read, false, s.alerts}, {"POST /alerts/{alert}", auth.Operate, false, s.acknowledge},
		{"GET /channels/{channel}", auth.Read, false, s.channel}, {"POST /channels/{channel}", auth.Write, false, s.saveChannel},
		{"GET /forecast", auth.Read, false, s.forecast}, {"GET /fleet", auth.Read, true, s.fleet}, {"GET /settings", auth.Read, true, s.settings},
		{"/", auth.Known, false, func(r *request) error {
			return belfry.Errorf(belfry.NotFound, "there is no page at %.200s", r.URL.Path)
		}},
	}
	for _, a := range []struct {
		path, names string
		permission  auth.Permission
		serve       func(*request) error
	}{
		{"/jobs/{job}/", "trigger pause resume cancel backfill", auth.Operate, s.actOnJob}, {"/jobs/{job}/", "delete rollback", auth.Write, s.actOnJob},
		{"/runs/{run}/", "cancel redrive discard", auth.Operate, s.actOnRun}, {"/dead/", "redrive discard", auth.Operate, s.actOnDead},
		{"/channels/{channel}/", "test", auth.Operate, s.actOnChannel}, {"/channels/{channel}/", "delete", auth.Write, s.actOnChannel},
	} {
		for name := range strings.FieldsSeq(a.names) {
			list = append(list, route{"POST " + a.path + name, a.permission, false, func(r *request) error {
				r.SetPathValue("action", name)
				return a.serve(r)
			}})
		}
	}
	return list
}

// handle reads what all pages have in common, and checks that who requests one may have it. Who must
// log in first comes back to it after that.
func (s *server) handle(route route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		timeout := pageTimeout
		if r.Method == http.MethodPost { // which may be about thousands of jobs
			timeout = postTimeout
			connection, until := http.NewResponseController(w), time.Now().Add(postTimeout+pageTimeout)
			connection.SetReadDeadline(until) // without support there is no timeout either
			connection.SetWriteDeadline(until)
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		in := &request{Request: r, w: w, server: s, ctx: ctx, principal: s.loggedIn(ctx, r)}
		in.namespace = cmp.Or(r.URL.Query().Get("ns"), in.defaultNamespace())
		err := func() error {
			if r.Method == http.MethodPost {
				r.Body = http.MaxBytesReader(w, r.Body, maxForm)
				if err := r.ParseForm(); err != nil {
					return belfry.Errorf(belfry.Invalid, "the form cannot be read, or has more than %d bytes", maxForm)
				}
			}
			if !validate.Namespace(in.namespace) {
				return belfry.Errorf(belfry.NotFound, "a namespace has 1 to 63 lower-case letters, digits and hyphens")
			}
			return in.permit(route)
		}()
		if err != nil {
			in.fail(err)
		}
	}
}

// permit serves a page to who may have it.
func (r *request) permit(route route) error {
	switch {
	case route.permission == auth.Public:
		if r.principal != nil {
			r.actAs(r.principal)
		}
		return route.serve(r)
	case r.principal == nil:
		return r.askLogin()
	}
	namespace := r.namespace
	if route.global {
		namespace = ""
	}
	if err := r.principal.Check(route.permission, namespace); err != nil {
		return err
	}
	r.actAs(r.principal)
	return route.serve(r)
}

// actAs sets who makes the request.
func (r *request) actAs(p *auth.Principal) {
	p.Address, p.RequestID = auth.ClientOf(r.Request).Address, r.w.Header().Get("X-Request-Id") // which the API has set
	r.ctx = auth.With(r.ctx, p)
}

// defaultNamespace is the one that is shown unless another is chosen.
func (r *request) defaultNamespace() string {
	if p := r.principal; p != nil && !p.Sees(belfry.DefaultNamespace) && len(p.Namespaces) > 0 {
		return p.Namespaces[0]
	}
	return belfry.DefaultNamespace
}

//go:embed assets
var assetFiles embed.FS

// asset is an embedded file, compressed once.
type asset struct {
	hash       string
	text, gzip []byte
	media      string
}

// assets are the files by name. They are compressed when the first page is shown.
var assets = sync.OnceValue(func() map[string]asset {
	list, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	found := map[string]asset{}
	for _, file := range list {
		text, err := assetFiles.ReadFile("assets/" + file.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		found[file.Name()] = asset{hex.EncodeToString(sum[:8]), text, compress(text, gzip.BestCompression), mime.TypeByExtension(path.Ext(file.Name()))}
	}
	return found
})

func compress(text []byte, level int) []byte {
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, level) // which exists
	w.Write(text)
	w.Close()
	return packed.Bytes()
}

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// assetPath is the address of a file, which changes with its content.
func assetPath(name string) string { return "/assets/" + assets()[name].hash + "/" + name }

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets()[r.PathValue("name")]
	if !ok || a.hash != r.PathValue("hash") {
		http.NotFound(w, r)
		return
	}
	h, body := w.Header(), a.text
	h.Set("Content-Type", a.media)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = a.gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}
