package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// visit is what is known of a request beside what it asks for.
type visit struct {
	id  string
	key string // name of the API key
}

type visitKey struct{}

func visitOf(r *http.Request) *visit {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

var requestIDs = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ServeHTTP admits a request, or not, and serves it.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	v := &visit{id: r.Header.Get("X-Request-Id")}
	if !requestIDs.MatchString(v.id) {
		v.id = belfry.NewID(start).String()
	}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	out := &recorder{ResponseWriter: w}
	out.Header().Set("X-Request-Id", v.id)
	out.Header().Set("X-Content-Type-Options", "nosniff")
	out.Header().Set("Cache-Control", "no-store")
	defer func() {
		a.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("request_id", v.id), slog.String("method", r.Method),
			slog.String("path", r.URL.Path), slog.Int("status", out.status), slog.Int64("bytes", out.bytes),
			slog.Duration("took", time.Since(start)), slog.String("key", v.key))
	}()
	defer a.catch(out, r)
	if err := a.admit(r); err != nil {
		a.fail(out, r, err)
		return
	}
	a.dispatch(out, r)
}

// catch turns a panic of a handler into an answer and a line in the log.
func (a *api) catch(w *recorder, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause)
	}
	a.log.Error("request panicked", "request_id", visitOf(r).id, "method", r.Method, "path", r.URL.Path,
		"panic", cause, "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // Half an answer must not look like a whole one.
	}
	a.fail(w, r, belfry.Errorf(belfry.Internal, "serve a request that panicked"))
}

// admit says why a request is not let in.
func (a *api) admit(r *http.Request) error {
	if !a.knows(r.Host) {
		return &refusal{
			status: http.StatusMisdirectedRequest,
			code:   misdirected,
			detail: "this server does not answer under the name in the Host header; its operator can add it",
		}
	}
	if a.keys != nil && !a.open[r.URL.Path] {
		name, err := a.keys.check(r.Header.Values("Authorization"), a.log)
		if err != nil {
			return err
		}
		visitOf(r).key = name
		if err := a.limiter.admit(name, time.Now()); err != nil {
			return err
		}
	}
	if err := a.origins.Check(r); err != nil {
		return &refusal{
			status: http.StatusForbidden,
			code:   forbidden,
			detail: "a page of another origin may not change anything here",
		}
	}
	return nil
}

// knows tells whether a Host header is ours. An address, or no host at all, is not
// a name that a page could have pointed here.
func (a *api) knows(host string) bool {
	name := hostName(host)
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || a.hosts[name] {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// hostName reduces a host to its name in lower case, without port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
