package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/store"
)

// sessionCookie holds a random token. The server stores its hash.
const sessionCookie = "belfry_session"

// loggedIn is the name of the key of whoever sent a request. A session ends with its key.
func (s *server) loggedIn(ctx context.Context, r *http.Request) string {
	c, err := r.Cookie(sessionCookie)
	if s.Keys == nil || err != nil || len(c.Value) != 64 {
		return ""
	}
	session, err := s.Control.Session(ctx, sha256.Sum256([]byte(c.Value)))
	if err != nil {
		return ""
	}
	name, _ := s.Keys.Name(session.Key)
	return name
}

// askLogin sends a person to the login page, which leads back.
func (r *request) askLogin() error {
	to := r.URL.RequestURI()
	if r.Method != http.MethodGet {
		to = r.back()
	}
	if r.Header.Get("HX-Request") != "" {
		r.w.Header().Set("HX-Refresh", "true")
		r.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	http.Redirect(r.w, r.Request, "/login?to="+url.QueryEscape(to), http.StatusSeeOther)
	return nil
}

type loginForm struct{ To, Error string }

func (s *server) loginPage(r *request) error {
	if s.Keys == nil || r.key != "" {
		http.Redirect(r.w, r.Request, "/", http.StatusSeeOther)
		return nil
	}
	return r.show("login.html", "", "Log in", loginForm{To: r.URL.Query().Get("to")})
}

func (s *server) login(r *request) error {
	form := loginForm{To: r.PostFormValue("to")}
	if s.Keys == nil {
		return belfry.Errorf(belfry.NotFound, "this server has no API keys, so nobody logs in")
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if !s.logins.allow(host) {
		form.Error = "There were too many attempts from your address. Wait a minute, then try again."
		return r.showStatus(http.StatusTooManyRequests, "login.html", "", "Log in", form)
	}
	key, ok := s.Keys.Find(strings.TrimSpace(r.PostFormValue("key")))
	if !ok {
		entry := belfry.AuditEntry{Action: belfry.AuditLoginFailed, Object: belfry.AuditObject{Kind: belfry.AuditSession}, Address: host, RequestID: r.w.Header().Get("X-Request-Id")}
		if err := s.Control.Audit(r.ctx, entry); err != nil {
			return err
		}
		form.Error = "This is not a key of this server."
		return r.showStatus(http.StatusUnauthorized, "login.html", "", "Log in", form)
	}
	s.endSession(r)
	random := make([]byte, 32)
	rand.Read(random)
	token := hex.EncodeToString(random)
	name, _ := s.Keys.Name(key)
	r.ctx = auth.With(r.ctx, r.principal(name))
	if err := s.Control.AddSession(r.ctx, store.Session{ID: sha256.Sum256([]byte(token)), Key: key}); err != nil {
		return err
	}
	r.setCookie(token, int(store.SessionTimeout/time.Second)*60) // the server ends it earlier
	if !strings.HasPrefix(form.To, "/") || strings.HasPrefix(form.To, "//") || strings.ContainsAny(form.To, "\\\r\n\t") {
		form.To = "/"
	}
	http.Redirect(r.w, r.Request, form.To, http.StatusSeeOther)
	return nil
}

func (s *server) logout(r *request) error {
	s.endSession(r)
	r.setCookie("", -1)
	http.Redirect(r.w, r.Request, "/login?done=logout", http.StatusSeeOther)
	return nil
}

func (s *server) endSession(r *request) {
	if c, err := r.Cookie(sessionCookie); err == nil {
		_ = s.Control.EndSession(r.ctx, sha256.Sum256([]byte(c.Value))) // it ends by itself
	}
}

func (r *request) setCookie(value string, maxAge int) {
	http.SetCookie(r.w, &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// Guesses of a key that an address has: some at once, then one every few seconds.
const (
	loginBurst   = 10
	loginEvery   = 6 * time.Second
	maxAddresses = 10_000
)

// loginLimiter limits the guesses of each address.
type loginLimiter struct {
	mu    sync.Mutex
	known map[string]*rate.Limiter
}

func (l *loginLimiter) allow(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || len(l.known) >= maxAddresses {
		l.known = map[string]*rate.Limiter{}
	}
	if l.known[address] == nil {
		l.known[address] = rate.NewLimiter(rate.Every(loginEvery), loginBurst)
	}
	return l.known[address].Allow()
}
