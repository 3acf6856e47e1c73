package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

// sessionCookie is the name of the cookie with a random token, of which the server stores the hash. With
// TLS no other host and no plain connection can set it.
func sessionCookie(r *http.Request) string {
	if auth.ClientOf(r).Secure {
		return "__Host-belfry_session"
	}
	return "belfry_session"
}

func (s *server) requiresLogin() bool { return s.Access != nil && s.Access.Required() }

// loggedIn is who sent a request; nil if they must log in. A session ends with its key.
func (s *server) loggedIn(ctx context.Context, r *http.Request) *auth.Principal {
	if !s.requiresLogin() {
		return auth.Local()
	}
	c, err := r.Cookie(sessionCookie(r))
	if err != nil || len(c.Value) != 64 {
		return nil
	}
	session, err := s.Control.Session(ctx, sha256.Sum256([]byte(c.Value)))
	if err != nil {
		return nil
	}
	if session.Person != "" {
		return s.principalOf(r.Context(), session.Person)
	}
	p, err := s.Access.Holder(session.Key)
	if err != nil {
		return nil
	}
	return p
}

// keyName is the name of the key of whoever is logged in.
func (r *request) keyName() string {
	if r.principal == nil {
		return ""
	}
	return cmp.Or(r.principal.Name, r.principal.ID)
}

// askLogin sends a person to the login page, which leads back.
func (r *request) askLogin() error {
	to := r.URL.RequestURI()
	if r.Method != http.MethodGet {
		to = r.back()
	}
	if r.URL.Path == "/live" {
		http.Error(r.w, "log in first", http.StatusUnauthorized)
		return nil
	}
	if r.Header.Get("HX-Request") != "" {
		r.w.Header().Set("HX-Refresh", "true")
		r.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	http.Redirect(r.w, r.Request, "/login?to="+url.QueryEscape(to), http.StatusSeeOther)
	return nil
}

type loginForm struct{ To, Error, Issuer, IssuerLink string }

func (s *server) loginPage(r *request) error {
	if r.principal != nil {
		http.Redirect(r.w, r.Request, "/", http.StatusSeeOther)
		return nil
	}
	return r.show("login.html", "", "Log in", s.loginForm(r.URL.Query().Get("to")))
}

func (s *server) login(r *request) error {
	form := s.loginForm(r.PostFormValue("to"))
	if !s.requiresLogin() {
		return belfry.Errorf(belfry.NotFound, "this server has no API keys, so nobody logs in")
	}
	key := strings.TrimSpace(r.PostFormValue("key"))
	p, err := s.Access.Authenticate(r.Request, key)
	if err == nil && !p.Has(auth.Read) {
		err = p.Check(auth.Read, "")
	}
	if err != nil {
		form.Error = publicText(err)
		switch belfry.CodeOf(err) {
		case belfry.Unauthorized:
			form.Error = "This is not a key of this server."
			entry := belfry.AuditEntry{Action: belfry.AuditLoginFailed, Object: belfry.AuditObject{Kind: belfry.AuditSession}, Address: auth.ClientOf(r.Request).Address, RequestID: r.w.Header().Get("X-Request-Id")}
			if err := s.Control.Audit(r.ctx, entry); err != nil {
				return err
			}
		case belfry.RateLimited:
			r.w.Header().Set("Retry-After", "5")
		}
		return r.showStatus(openapi.StatusOf(belfry.CodeOf(err)), "login.html", "", "Log in", form)
	}
	return s.startSession(r, p, store.Session{Key: s.Access.Hash(key)}, form.To)
}

// startSession logs somebody in, with a new cookie, and leads to a page of this server.
func (s *server) startSession(r *request, p *auth.Principal, session store.Session, to string) error {
	s.endSession(r)
	r.actAs(p)
	random := make([]byte, 32)
	rand.Read(random)
	token := hex.EncodeToString(random)
	session.ID = sha256.Sum256([]byte(token))
	if err := s.Control.AddSession(r.ctx, session); err != nil {
		return err
	}
	r.setCookie(token, int(store.SessionTimeout/time.Second)*60) // the server ends it earlier
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		to = "/"
	}
	http.Redirect(r.w, r.Request, to, http.StatusSeeOther)
	return nil
}

func (s *server) logout(r *request) error {
	s.endSession(r)
	r.setCookie("", -1)
	http.Redirect(r.w, r.Request, "/login?done=logout", http.StatusSeeOther)
	return nil
}

func (s *server) endSession(r *request) {
	if c, err := r.Cookie(sessionCookie(r.Request)); err == nil {
		_ = s.Control.EndSession(r.ctx, sha256.Sum256([]byte(c.Value))) // it ends by itself
	}
}

func (r *request) setCookie(value string, maxAge int) {
	http.SetCookie(r.w, &http.Cookie{
		Name: sessionCookie(r.Request), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: auth.ClientOf(r.Request).Secure,
	})
}
