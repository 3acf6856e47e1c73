package oidc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/time/rate"

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

const (
	httpTimeout = 10 * time.Second
	maxResponse = 1 << 20 // bytes
)

// newHTTPClient makes the client for the issuer. A token with a wrong signature makes us ask for
// new keys: the limit keeps somebody who sends many from using us against the issuer.
func newHTTPClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // requests are rare
	return &http.Client{Transport: &limitedTransport{transport, rate.NewLimiter(1, 10)}}
}

// fetchError is why the issuer did not answer.
type fetchError struct{ error }

func (e *fetchError) Unwrap() error { return e.error }

// limitedTransport limits requests, their time and the size of their responses.
type limitedTransport struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.limiter.Allow() {
		return nil, &fetchError{errors.New("the issuer was asked too often")}
	}
	ctx, cancel := context.WithTimeout(r.Context(), httpTimeout)
	defer cancel()
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, &fetchError{err}
	}
	// Read here: not everybody closes bodies.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	resp.Body.Close()
	if err == nil && resp.StatusCode >= http.StatusInternalServerError {
		err = fmt.Errorf("%s answered %s", r.URL.Host, resp.Status)
	}
	if err != nil {
		return nil, &fetchError{err}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

type fetchKey struct{}

// keySet has the keys of the issuer. The verifier hides why a signature could not be checked, so
// the caller finds in its context whether it was because the issuer did not answer.
type keySet struct{ oidc.KeySet }

func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, token)
	if failed, ok := errors.AsType[*fetchError](err); ok {
		if out, ok := ctx.Value(fetchKey{}).(*error); ok {
			*out = failed
		}
	}
	return payload, err
}
