package api

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// requestContext is what the middleware knows of a request.
type requestContext struct {
	id  string
	key string // name of the API key
}

type contextKey struct{}

func contextOf(r *http.Request) *requestContext {
	if v, ok := r.Context().Value(contextKey{}).(*requestContext); ok {
		return v
	}
	return &requestContext{}
}

var requestIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ServeHTTP authorizes a request and serves it.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	v := &requestContext{id: r.Header.Get("X-Request-Id")}
	if !requestIDs.MatchString(v.id) {
		v.id = belfry.NewID(start).String()
	}
	r = r.WithContext(context.WithValue(r.Context(), contextKey{}, v))
	out := &recorder{ResponseWriter: w}
	out.Header().Set("X-Request-Id", v.id)
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.Header().Set("Cache-Control", "no-store")
	defer func() {
		a.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("request_id", v.id), slog.String("method", r.Method),
			slog.String("path", r.URL.Path), slog.Int("status", out.status), slog.Int64("bytes", out.bytes),
			slog.Duration("took", time.Since(start)), slog.String("key", v.key))
	}()
	defer a.recoverPanic(out, r)
	if err := a.authorize(r); err != nil {
		a.fail(out, r, err)
		return
	}
	a.dispatch(out, r)
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
	a.Log.Error("request panicked", "request_id", contextOf(r).id, "method", r.Method, "path", r.URL.Path,
		"panic", cause, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // Half an answer must not look like a whole one.
	}
	a.fail(w, r, belfry.Errorf(belfry.Internal, "serve a request that panicked"))
}

// authorize says why a request is refused before it is read.
func (a *api) authorize(r *http.Request) error {
	if !a.acceptsHost(r.Host) {
		return &httpError{code: belfry.Misdirected, detail: "this server does not accept the name in the Host header; its operator can add it with --host"}
	}
	if a.Keys != nil && !a.open[r.URL.Path] {
		name, err := a.Keys.check(r.Header.Values("Authorization"), a.Log)
		if err != nil {
			return err
		}
		contextOf(r).key = name
		if err := a.limiter.allow(name, time.Now()); err != nil {
			return err
		}
	}
	if err := a.origins.Check(r); err != nil {
		return &httpError{code: belfry.Forbidden, detail: "a page of another origin may not change anything"}
	}
	return nil
}

// acceptsHost reports whether a Host header names this server. An address, or no host
// at all, is not a name that a page could have pointed here.
func (a *api) acceptsHost(host string) bool {
	name := hostName(host)
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil || slices.ContainsFunc(a.Hosts, func(host string) bool { return hostName(host) == name })
}

// hostName reduces a host to its name in lower case, without port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

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
