package web

import (
	"context"
	"encoding/base64"
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

func pendingCookie(r *http.Request, value string, maxAge int) *http.Cookie {
	secure := auth.ClientOf(r).Secure
	name := "belfry_login"
	if secure {
		name = "__Host-" + name
	}
	// Lax: the way back begins at the site of the issuer.
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode}
}

// startOIDC sends a person to the issuer.
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
	http.SetCookie(r.w, pendingCookie(r.Request, text, int(oidc.FlowTimeout/time.Second)))
	http.Redirect(r.w, r.Request, address, http.StatusSeeOther)
	return nil
}

// finishOIDC takes a person back from the issuer.
func (s *server) finishOIDC(r *request) error {
	if s.OIDC == nil {
		return belfry.Errorf(belfry.NotFound, "this server has no login with OpenID Connect")
	}
	var pending pendingLogin
	none := pendingCookie(r.Request, "", -1)
	if c, err := r.Cookie(none.Name); err == nil {
		text, _ := base64.RawURLEncoding.DecodeString(c.Value)
		_ = json.Unmarshal(text, &pending) // without a flow nobody gets in
	}
	http.SetCookie(r.w, none)
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

// loginForm is what the page to log in shows.
func (s *server) loginForm(to string) loginForm {
	form := loginForm{To: to}
	if s.OIDC != nil { // at the public address, which the issuer leads back to and the cookie is for
		form.Issuer, form.IssuerLink = s.OIDC.Host(), strings.TrimSuffix(s.OIDC.RedirectURL, CallbackPath)+loginPath+"?to="+url.QueryEscape(to)
	}
	return form
}
