package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

// The cookies: a random token, of which the server stores the hash, and a login that is pending.
const (
	sessionCookie = "belfry_session"
	pendingCookie = "belfry_login"
)

// cookie is a cookie that no script reads. With TLS no other host and no plain connection can set it.
// It is lax: the way back from an issuer begins at its site.
func cookie(r *http.Request, name, value string, maxAge int) *http.Cookie {
	secure := auth.ClientOf(r).Secure
	if secure {
		name = "__Host-" + name
	}
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode}
}

// cookieOf is the value of a cookie that a request has; empty: it has none.
func cookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(cookie(r, name, "", 0).Name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (s *server) requiresLogin() bool { return s.Access != nil && s.Access.Required() }

// loggedIn is who sent a request; nil if they must log in. A session ends with its key.
func (s *server) loggedIn(ctx context.Context, r *http.Request) *auth.Principal {
	if !s.requiresLogin() {
		return auth.Local()
	}
	token := cookieOf(r, sessionCookie)
	if len(token) != 64 {
		return nil
	}
	session, err := s.Control.Session(ctx, sha256.Sum256([]byte(token)))
	if err != nil {
		return nil
	}
	if session.Person != "" {
		return s.principalOf(r.Context(), session.Person)
	}
	if p, err := s.Access.Holder(session.Key); err == nil {
		return p
	}
	return nil
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
	http.SetCookie(r.w, cookie(r.Request, sessionCookie, token, int(store.SessionTimeout/time.Second)*60)) // the server ends it earlier
	if !isLocal(to) {
		to = "/"
	}
	http.Redirect(r.w, r.Request, to, http.StatusSeeOther)
	return nil
}

func (s *server) logout(r *request) error {
	s.endSession(r)
	http.SetCookie(r.w, cookie(r.Request, sessionCookie, "", -1))
	http.Redirect(r.w, r.Request, "/login?done=logout", http.StatusSeeOther)
	return nil
}

func (s *server) endSession(r *request) {
	if token := cookieOf(r.Request, sessionCookie); token != "" {
		_ = s.Control.EndSession(r.ctx, sha256.Sum256([]byte(token))) // it ends by itself
	}
}

const (
	loginPath = "/login/oidc"

	// CallbackPath is where an issuer sends people back to.
	CallbackPath = "/login/callback"

	// personTimeout is after how long a person logs in again: until then the issuer is not asked
	// whether it still knows them.
	personTimeout = 12 * time.Hour
)

// person is who has logged in without a key, as a session has it.
type person struct {
	oidc.User
	Until time.Time `json:"until"`
}

// principalOf is what a person may do by the rules of now; nil: they must log in.
func (s *server) principalOf(ctx context.Context, text string) *auth.Principal {
	var who person
	if s.OIDC == nil || json.Unmarshal([]byte(text), &who) != nil {
		return nil
	}
	left := who.Until.Sub(s.Control.Now())
	p, err := s.OIDC.Principal(who.User)
	if left <= 0 || err != nil {
		return nil
	}
	ended := make(chan struct{})
	p.Ended = ended
	timer := time.AfterFunc(left, func() { close(ended) })
	context.AfterFunc(ctx, func() { timer.Stop() })
	return p
}

// pendingLogin is a login that the issuer has not confirmed yet, in a cookie.
type pendingLogin struct {
	oidc.Flow
	To string
}

func (s *server) startOIDC(r *request) error {
	if s.OIDC == nil {
		return belfry.Errorf(belfry.NotFound, "this server has no login with OpenID Connect")
	}
	to := r.URL.Query().Get("to")
	address, flow, err := s.OIDC.Start(r.ctx)
	if err != nil {
		return r.refuseLogin(to, err)
	}
	text := base64.RawURLEncoding.EncodeToString(belfry.MustJSON(pendingLogin{flow, to}))
	http.SetCookie(r.w, cookie(r.Request, pendingCookie, text, int(oidc.FlowTimeout/time.Second)))
	http.Redirect(r.w, r.Request, address, http.StatusSeeOther)
	return nil
}

func (s *server) finishOIDC(r *request) error {
	if s.OIDC == nil {
		return belfry.Errorf(belfry.NotFound, "this server has no login with OpenID Connect")
	}
	var pending pendingLogin
	flow, _ := base64.RawURLEncoding.DecodeString(cookieOf(r.Request, pendingCookie))
	_ = json.Unmarshal(flow, &pending) // without a flow nobody gets in
	http.SetCookie(r.w, cookie(r.Request, pendingCookie, "", -1))
	user, err := s.OIDC.Finish(r.ctx, pending.Flow, r.URL.Query())
	if err != nil {
		return r.refuseLogin(pending.To, err)
	}
	text := string(belfry.MustJSON(person{user, s.Control.Now().Add(personTimeout)}))
	p := s.principalOf(r.ctx, text)
	if p == nil {
		return r.askLogin()
	}
	return s.startSession(r, p, store.Session{Person: text}, pending.To)
}

// refuseLogin says that a login failed. Details are for the log.
func (r *request) refuseLogin(to string, err error) error {
	r.server.Log.Warn("a login with OpenID Connect failed", "address", auth.ClientOf(r.Request).Address, "error", err)
	form := r.server.loginForm(to)
	form.Error = sentence(publicText(err))
	return r.showStatus(openapi.StatusOf(belfry.CodeOf(err)), "login.html", "", "Log in", form)
}

func (s *server) loginForm(to string) loginForm {
	form := loginForm{To: to}
	if s.OIDC != nil { // at the public address, which the issuer leads back to and the cookie is for
		form.Issuer, form.IssuerLink = s.OIDC.Host(), strings.TrimSuffix(s.OIDC.RedirectURL, CallbackPath)+loginPath+"?to="+url.QueryEscape(to)
	}
	return form
}
