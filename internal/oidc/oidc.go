// Package oidc lets people in with OpenID Connect, beside API keys: on the page with the
// authorization code flow, in the API with a token of the issuer. It also has the login of the
// command line. An issuer that does not answer keeps nobody out who has an API key.
package oidc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
)

// Options name an issuer and what its people may do.
type Options struct {
	Issuer       string
	ClientID     string
	ClientSecret string // empty: the client has none, PKCE is enough
	CLIClientID  string // of the command line; empty: the same client
	RedirectURL  string // where the issuer sends people back to
	Rules        []Rule
	Log          *slog.Logger
}

// Provider knows the people of an issuer. It is an auth.Authenticator for their tokens.
type Provider struct {
	Options
	now    func() time.Time
	scopes []string // asked for beside the usual ones

	mu      sync.Mutex
	current *metadata
	loading chan struct{} // closed when a load has ended; nil: none is under way
	tried   time.Time     // when the last load began
	err     error         // of the last load
	tokens  map[[sha256.Size]byte]*auth.Principal
}

// metadata is what the issuer says of itself.
type metadata struct {
	endpoint oauth2.Endpoint
	scopes   []string
	verifier *oidc.IDTokenVerifier
	loaded   time.Time
}

const (
	clockSkew    = time.Minute
	reload       = time.Hour       // of the metadata and keys of the issuer, so that withdrawn keys are forgotten
	retryPause   = 2 * time.Second // after the issuer did not answer
	maxToken     = 16 << 10        // bytes
	maxTokens    = 10_000          // remembered
	tokenRecheck = 5 * time.Minute // the signature of a remembered token
)

// algorithms are those with a public key. A token that names another one, such as none or HS256,
// is refused before it is looked at.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// New returns a Provider. It asks the issuer nothing yet.
func New(o Options) *Provider {
	return &Provider{Options: o, now: time.Now, tokens: map[[sha256.Size]byte]*auth.Principal{}}
}

// Host is the name of the issuer for people.
func (p *Provider) Host() string {
	u, err := url.Parse(p.Issuer)
	if err != nil {
		return p.Issuer
	}
	return u.Host
}

// Login is what a command line needs to know to log in.
func (p *Provider) Login() belfry.Login {
	if p == nil {
		return belfry.Login{}
	}
	return belfry.Login{Issuer: p.Issuer, ClientID: cmp.Or(p.CLIClientID, p.ClientID)}
}

// Check asks the issuer for its metadata and logs whether it answers.
func (p *Provider) Check(ctx context.Context) {
	if _, err := p.metadata(ctx); err != nil {
		p.Log.Warn("nobody can log in with OpenID Connect until the issuer answers; API keys work", "issuer", p.Issuer, "error", err)
	}
}

// metadata loads what the issuer says once, and again in the background when it is old.
func (p *Provider) metadata(ctx context.Context) (*metadata, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loading == nil && (p.current == nil || p.now().Sub(p.current.loaded) > reload) && time.Since(p.tried) > retryPause {
		p.loading, p.tried = make(chan struct{}), time.Now()
		go p.load(p.loading)
	}
	if done := p.loading; p.current == nil && done != nil {
		p.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
		p.mu.Lock()
	}
	if p.current == nil {
		return nil, p.unavailable(p.err)
	}
	return p.current, nil
}

func (p *Provider) load(done chan struct{}) {
	m, err := discover(p.Issuer, p.now())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err == nil {
		p.current = m
	}
	p.loading = nil
	close(done)
}

func discover(issuer string, now time.Time) (*metadata, error) {
	client := newHTTPClient()
	ctx := oidc.ClientContext(context.Background(), client) // the client has timeouts
	found, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		KeysURL string   `json:"jwks_uri"`
		Scopes  []string `json:"scopes_supported"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, err
	}
	keys := &keySet{oidc.NewRemoteKeySet(ctx, more.KeysURL)}
	m := &metadata{endpoint: found.Endpoint(), scopes: more.Scopes, loaded: now}
	// Audience and time are checked by verify: there may be two audiences, and clocks differ.
	m.verifier = oidc.NewVerifier(issuer, keys, &oidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true, SupportedSigningAlgs: algorithms})
	return m, nil
}

// unavailable is an error for people, with its cause for the log.
func (p *Provider) unavailable(cause error) error {
	return belfry.Errorf(belfry.Unavailable, "the login service %s does not answer; try again later, or use an API key: %w", p.Host(), cause)
}

// verify returns the claims of a token that the issuer has signed for one of the audiences, and
// that is valid now.
func (p *Provider) verify(ctx context.Context, token string, audiences ...string) (claims map[string]any, until time.Time, err error) {
	m, err := p.metadata(ctx)
	if err != nil {
		return nil, until, err
	}
	var failed error
	parsed, err := m.verifier.Verify(context.WithValue(ctx, fetchKey{}, &failed), token)
	if err != nil && failed != nil {
		return nil, until, p.unavailable(failed)
	}
	if err == nil {
		err = parsed.Claims(&claims)
	}
	now := p.now()
	switch notBefore, _ := claims["nbf"].(float64); {
	case err != nil:
	case parsed.Subject == "" || len(parsed.Subject) > 255:
		err = errors.New("it has no subject of at most 255 bytes")
	case !slices.ContainsFunc(parsed.Audience, func(a string) bool { return a != "" && slices.Contains(audiences, a) }):
		err = fmt.Errorf("it is for %q, not for %q", parsed.Audience, audiences)
	case !now.Before(parsed.Expiry.Add(clockSkew)):
		return nil, until, belfry.Errorf(belfry.Unauthorized, "the login has expired; log in again with belfry login")
	case time.Unix(int64(notBefore), 0).After(now.Add(clockSkew)):
		err = errors.New("it is not valid yet")
	}
	if err != nil {
		return nil, until, belfry.Errorf(belfry.Unauthorized, "the token is not valid for this server; log in again with belfry login: %w", errors.Join(auth.ErrUnknown, err)) // which counts as a guess
	}
	return claims, parsed.Expiry.Add(clockSkew), nil
}

// Authenticate returns who has a token of the issuer: an ID token, or an access token that is a
// JWT for our client. Anything that is no JWT is auth.ErrUnknown.
func (p *Provider) Authenticate(ctx context.Context, token string) (*auth.Principal, error) {
	if strings.Count(token, ".") != 2 || !strings.HasPrefix(token, "ey") || len(token) > maxToken {
		return nil, auth.ErrUnknown
	}
	hash := sha256.Sum256([]byte(token))
	p.mu.Lock()
	known := p.tokens[hash]
	p.mu.Unlock()
	if known == nil {
		claims, until, err := p.verify(ctx, token, p.ClientID, p.CLIClientID)
		if err == nil {
			known, err = p.Principal(userOf(claims, p.Rules))
		}
		if err != nil {
			p.Log.Debug("a token was refused", "error", err)
			return nil, err
		}
		p.remember(hash, known, until.Sub(p.now()))
	}
	copied := *known
	return &copied, nil
}

// remember keeps a token for some minutes, so that its signature is not checked at every
// request, and ends what its holder does when it expires.
func (p *Provider) remember(hash [sha256.Size]byte, known *auth.Principal, lifetime time.Duration) {
	ended := make(chan struct{})
	known.Ended = ended
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tokens) >= maxTokens {
		clear(p.tokens)
	}
	p.tokens[hash] = known
	remove := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.tokens[hash] == known {
			delete(p.tokens, hash)
		}
	}
	time.AfterFunc(min(lifetime, tokenRecheck), remove)
	time.AfterFunc(lifetime, func() {
		remove()
		close(ended)
	})
}

// Flow is a login on the page that has begun. The browser keeps it until it comes back.
type Flow struct{ State, Nonce, Verifier string }

// Start begins a login: the browser goes to the address, and comes back with a code.
func (p *Provider) Start(ctx context.Context) (address string, flow Flow, err error) {
	m, err := p.metadata(ctx)
	if err != nil {
		return "", flow, err
	}
	flow = Flow{State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier()}
	return p.config(m).AuthCodeURL(flow.State, oidc.Nonce(flow.Nonce), oauth2.S256ChallengeOption(flow.Verifier)), flow, nil
}

func (p *Provider) config(m *metadata) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: m.endpoint, RedirectURL: p.RedirectURL, Scopes: m.requestScopes(p.scopes...)}
}

// requestScopes are the scopes to ask for: issuers refuse those that they do not know.
func (m *metadata) requestScopes(more ...string) []string {
	scopes := []string{oidc.ScopeOpenID, "profile", "email"}
	for _, scope := range append([]string{"groups"}, more...) {
		if slices.Contains(m.scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// Finish ends a login with what the browser has brought back: the query of its address. Who
// matches no rule is Forbidden.
func (p *Provider) Finish(ctx context.Context, flow Flow, query url.Values) (user User, err error) {
	if flow.State == "" || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(flow.State)) != 1 {
		return user, belfry.Errorf(belfry.Unauthorized, "this login was not begun in this browser, or took longer than %.0f minutes; begin again", FlowTimeout.Minutes())
	}
	refused := func(cause error) error {
		return belfry.Errorf(belfry.Unauthorized, "%s did not confirm the login; try again, or ask the operator of this server: %w", p.Host(), cause)
	}
	if code := query.Get("error"); code != "" {
		return user, refused(fmt.Errorf("the issuer answered %.100q: %.300q", code, query.Get("error_description")))
	}
	token, err := p.redeem(ctx, flow, query.Get("code"))
	if err != nil && belfry.CodeOf(err) != belfry.Unavailable {
		return user, refused(err)
	} else if err != nil {
		return user, err
	}
	user = userOf(token.claims, p.Rules)
	_, err = p.Principal(user)
	return user, err
}

// redeem changes the code of a login for a token, and checks that it is of this login.
func (p *Provider) redeem(ctx context.Context, flow Flow, code string) (Token, error) {
	m, err := p.metadata(ctx)
	if err != nil {
		return Token{}, err
	}
	answer, err := p.config(m).Exchange(oidc.ClientContext(ctx, newHTTPClient()), code, oauth2.VerifierOption(flow.Verifier))
	if failed, ok := errors.AsType[*fetchError](err); ok {
		return Token{}, p.unavailable(failed)
	} else if err != nil {
		return Token{}, err
	}
	token, err := p.tokenOf(ctx, answer)
	if nonce, _ := token.claims["nonce"].(string); err == nil && subtle.ConstantTimeCompare([]byte(nonce), []byte(flow.Nonce)) != 1 {
		err = errors.New("the nonce of the token is another one")
	}
	return token, err
}

// tokenOf reads what the issuer has given to our client.
func (p *Provider) tokenOf(ctx context.Context, answer *oauth2.Token) (Token, error) {
	text, _ := answer.Extra("id_token").(string)
	claims, until, err := p.verify(ctx, text, p.ClientID)
	return Token{Login: belfry.Login{Issuer: p.Issuer, ClientID: p.ClientID}, IDToken: text, Expiry: until.Add(-clockSkew), RefreshToken: answer.RefreshToken, claims: claims}, err
}

// FlowTimeout is how long a person may take to log in.
const FlowTimeout = 10 * time.Minute
