package oidc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfry-sh/belfry"
)

// Token is the login of a command line.
type Token struct {
	belfry.Login
	IDToken      string    `json:"id_token"`
	Expiry       time.Time `json:"expiry"` // of the ID token
	RefreshToken string    `json:"refresh_token,omitempty"`

	claims map[string]any
}

// Prompt shows a person where to log in. With a code, it is to be entered there.
type Prompt func(address, code string)

// newClient is a Provider for the command line, which wants its logins to last.
func newClient(login belfry.Login) (*Provider, *metadata, error) {
	m, err := discover(login.Issuer, time.Now())
	if err != nil {
		return nil, nil, fmt.Errorf("ask the issuer %s: %w", login.Issuer, err)
	}
	p := New(Options{Issuer: login.Issuer, ClientID: login.ClientID})
	p.current, p.scopes = m, []string{oidc.ScopeOfflineAccess}
	return p, m, nil
}

// LogInWithBrowser logs a person in with a browser on this machine, which comes back to a port on
// loopback (RFC 8252).
func LogInWithBrowser(ctx context.Context, login belfry.Login, prompt Prompt) (Token, error) {
	p, _, err := newClient(login)
	if err != nil {
		return Token{}, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Token{}, fmt.Errorf("listen for the browser: %w", err)
	}
	p.RedirectURL = "http://" + listener.Addr().String() + "/callback"
	address, flow, err := p.Start(ctx)
	if err != nil {
		return Token{}, err
	}
	type result struct {
		token Token
		err   error
	}
	results := make(chan result, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("state") != flow.State {
			http.Error(w, "This login was not begun by the command line that listens here.", http.StatusBadRequest)
			return // somebody else may still come with the right one
		}
		var out result
		out.token, out.err = p.redeem(r.Context(), flow, r.URL.Query().Get("code"))
		text := "You are logged in. You can close this page."
		if out.err != nil {
			text = "The login failed. The command line says why."
		}
		fmt.Fprintln(w, text)
		select {
		case results <- out:
		default: // the browser has come twice
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: httpTimeout}
	go server.Serve(listener)
	defer server.Shutdown(context.WithoutCancel(ctx)) // which lets the browser have its answer
	prompt(address, "")
	select {
	case out := <-results:
		return out.token, out.err
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
}

// LogInWithCode logs a person in on another machine, where they enter a code (RFC 8628).
func LogInWithCode(ctx context.Context, login belfry.Login, prompt Prompt) (Token, error) {
	p, m, err := newClient(login)
	if err != nil {
		return Token{}, err
	}
	if m.endpoint.DeviceAuthURL == "" {
		return Token{}, fmt.Errorf("the issuer %s offers no login with a code; log in with a browser on this machine", login.Issuer)
	}
	ctx = oidc.ClientContext(ctx, newHTTPClient())
	answer, err := p.config(m).DeviceAuth(ctx)
	if err != nil {
		return Token{}, fmt.Errorf("the issuer did not begin the login: %w", err)
	}
	prompt(answer.VerificationURI, answer.UserCode)
	token, err := p.config(m).DeviceAccessToken(ctx, answer)
	if err != nil {
		return Token{}, fmt.Errorf("the issuer did not confirm the login: %w", err)
	}
	return p.tokenOf(ctx, token)
}

// Refresh returns a login that lasts longer, without asking the person.
func (t Token) Refresh(ctx context.Context) (Token, error) {
	if t.RefreshToken == "" {
		return Token{}, errors.New("the login has expired")
	}
	p, m, err := newClient(t.Login)
	if err != nil {
		return Token{}, err
	}
	ctx = oidc.ClientContext(ctx, newHTTPClient())
	token, err := p.config(m).TokenSource(ctx, &oauth2.Token{RefreshToken: t.RefreshToken}).Token()
	if err != nil {
		return Token{}, fmt.Errorf("the issuer did not prolong the login: %w", err)
	}
	return p.tokenOf(ctx, token)
}
