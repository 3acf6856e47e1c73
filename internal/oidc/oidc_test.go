package oidc

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/oidctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ auth.Authenticator = (*Provider)(nil)

func newProvider(t *testing.T, issuer *oidctest.Issuer) *Provider {
	t.Helper()
	rules, err := ParseRules([]string{"groups=platform:admin"})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Issuer: issuer.URL, ClientID: "belfry", RedirectURL: "http://belfry.test/login/callback", Rules: rules, Log: slog.New(slog.DiscardHandler)})
}

func TestTokensOfTheIssuer(t *testing.T) {
	issuer, other := oidctest.New(t), oidctest.New(t)
	now := time.Now()
	in := func(d time.Duration) any { return now.Add(d).Unix() }
	valid := issuer.Token(nil)
	parts := strings.Split(valid, ".")
	forged := base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"iss":%q,"aud":"belfry","sub":"u-2","groups":["platform"],"exp":%d}`, issuer.URL, now.Add(time.Hour).Unix())))
	for _, tt := range []struct {
		name, token string
		code        belfry.Code // "": it is accepted
	}{
		{"an ID token", valid, ""},
		{"several audiences", issuer.Token(map[string]any{"aud": []string{"other", "belfry"}}), ""},
		{"expired within the skew", issuer.Token(map[string]any{"exp": in(-30 * time.Second)}), ""},
		{"valid in a moment", issuer.Token(map[string]any{"nbf": in(30 * time.Second)}), ""},
		{"expired", issuer.Token(map[string]any{"exp": in(-2 * time.Minute)}), belfry.Unauthorized},
		{"no expiry", issuer.Token(map[string]any{"exp": nil}), belfry.Unauthorized},
		{"not valid yet", issuer.Token(map[string]any{"nbf": in(2 * time.Minute)}), belfry.Unauthorized},
		{"another audience", issuer.Token(map[string]any{"aud": "other"}), belfry.Unauthorized},
		{"no audience", issuer.Token(map[string]any{"aud": nil}), belfry.Unauthorized},
		{"an empty audience", issuer.Token(map[string]any{"aud": ""}), belfry.Unauthorized},
		{"no subject", issuer.Token(map[string]any{"sub": nil}), belfry.Unauthorized},
		{"another issuer", other.Token(nil), belfry.Unauthorized},
		{"another issuer in our name", other.Token(map[string]any{"iss": issuer.URL}), belfry.Unauthorized},
		{"another issuer's name", issuer.Token(map[string]any{"iss": other.URL}), belfry.Unauthorized},
		{"without a signature", issuer.TokenWith("none", nil), belfry.Unauthorized},
		{"the public key as a secret", issuer.TokenWith("HS256", nil), belfry.Unauthorized},
		{"other claims", parts[0] + "." + forged + "." + parts[2], belfry.Unauthorized},
		{"cut signature", valid[:len(valid)-8], belfry.Unauthorized},
		{"no group of a rule", issuer.Token(map[string]any{"groups": []string{"other"}}), belfry.Forbidden},
		{"no groups", issuer.Token(map[string]any{"groups": nil}), belfry.Forbidden},
		{"an API key", "bf_k7m2q9d4_" + strings.Repeat("a", 40), belfry.Unauthorized},
		{"nothing", "", belfry.Unauthorized},
		{"dots", "ey..", belfry.Unauthorized},
		{"too long", "ey" + strings.Repeat("a", maxToken) + "..", belfry.Unauthorized},
	} {
		for range 2 { // the second time it may be remembered
			p := newProvider(t, issuer)
			who, err := p.Authenticate(t.Context(), tt.token)
			if tt.code != "" {
				if who != nil || belfry.CodeOf(err) != tt.code {
					t.Errorf("%s: got %v, %v; want %s", tt.name, who, err, tt.code)
				}
				continue
			}
			if err != nil || who.Actor != (belfry.Actor{Kind: belfry.ActorUser, ID: "u-1", Name: "ann@example.com"}) || who.Role != belfry.RoleAdmin || !who.SeesAll() || who.Commands {
				t.Errorf("%s: got %+v, %v", tt.name, who, err)
			}
		}
	}
}

func TestEverySignedByteOfATokenCounts(t *testing.T) {
	issuer := oidctest.New(t)
	p := newProvider(t, issuer)
	valid := issuer.Token(nil)
	dot := strings.LastIndex(valid, ".")
	for i := range dot {
		if valid[i] == '.' {
			continue
		}
		changed := []byte(valid)
		if changed[i]++; changed[i] == valid[0] || changed[i] == '.' {
			changed[i]++
		}
		if _, err := base64.RawURLEncoding.Strict().DecodeString(strings.Split(string(changed), ".")[strings.Count(valid[:i], ".")]); err != nil {
			continue // another text for the same bytes, or none at all
		}
		if who, err := p.Authenticate(t.Context(), string(changed)); err == nil {
			t.Fatalf("byte %d may be changed: %+v", i, who)
		}
	}
	if asked := issuer.Requests("/keys"); asked > 15 {
		t.Errorf("wrong tokens made us ask the issuer %d times", asked)
	}
}

func TestKeysOfTheIssuerAreCachedAndReplaced(t *testing.T) {
	issuer := oidctest.New(t)
	p := newProvider(t, issuer)
	for range 10 {
		if _, err := p.Authenticate(t.Context(), issuer.Token(map[string]any{"jti": time.Now().String()})); err != nil {
			t.Fatal(err)
		}
	}
	if asked := issuer.Requests("/keys"); asked != 1 {
		t.Errorf("the keys were fetched %d times", asked)
	}
	old := issuer.Token(nil)
	issuer.Rotate(t, "ES256")
	if _, err := p.Authenticate(t.Context(), issuer.Token(nil)); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if _, err := p.Authenticate(t.Context(), old); belfry.CodeOf(err) != belfry.Unauthorized {
		t.Errorf("with the key that was withdrawn: %v", err)
	}
}

func TestATokenThatIsUsedEndsWhenItExpires(t *testing.T) {
	issuer := oidctest.New(t)
	p := newProvider(t, issuer)
	token := issuer.Token(map[string]any{"exp": time.Now().Add(-clockSkew + 3*time.Second).Unix()})
	who, err := p.Authenticate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	<-who.Ended
	if _, err := p.Authenticate(t.Context(), token); belfry.CodeOf(err) != belfry.Unauthorized || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after that: %v", err)
	}
}

// The issuer is away when the server starts, comes back, and goes again.
func TestAnIssuerThatIsAway(t *testing.T) {
	issuer := oidctest.New(t)
	p := newProvider(t, issuer)
	issuer.Down(true)
	token := issuer.Token(nil)
	for range 20 {
		if _, err := p.Authenticate(t.Context(), token); belfry.CodeOf(err) != belfry.Unavailable {
			t.Fatalf("while it is away: %v", err)
		}
		if _, _, err := p.Start(t.Context()); belfry.CodeOf(err) != belfry.Unavailable || !strings.Contains(err.Error(), "use an API key") {
			t.Fatalf("while it is away: %v", err)
		}
	}
	if asked := issuer.Requests("/.well-known/openid-configuration"); asked != 1 {
		t.Errorf("it was asked %d times at once", asked)
	}
	issuer.Down(false)
	p.tried = time.Time{} // the pause is over
	if _, err := p.Authenticate(t.Context(), token); err != nil {
		t.Fatalf("when it is back: %v", err)
	}
	issuer.Down(true)
	p.now = func() time.Time { return time.Now().Add(reload + time.Minute) }
	p.tried = time.Time{}
	later := map[string]any{"exp": time.Now().Add(3 * reload).Unix()}
	if _, err := p.Authenticate(t.Context(), issuer.Token(later)); err != nil {
		t.Errorf("known keys hold while it is away: %v", err)
	}
	issuer.Rotate(t, "RS256")
	if _, err := p.Authenticate(t.Context(), issuer.Token(later)); belfry.CodeOf(err) != belfry.Unavailable {
		t.Errorf("a key that is not known while it is away: %v", err)
	}
	p.mu.Lock()
	loading := p.loading
	p.mu.Unlock()
	if loading != nil {
		<-loading
	}
}

// browse follows a login at the issuer, and returns the query that the browser comes back with.
func browse(t *testing.T, address string) url.Values {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatalf("the issuer answered %s", resp.Status)
	}
	return back.Query()
}

func TestLoginOnThePage(t *testing.T) {
	issuer := oidctest.New(t)
	for _, tt := range []struct {
		name   string
		change func(p *Provider, flow *Flow, q url.Values)
		code   belfry.Code
	}{
		{"as it should be", nil, ""},
		{"another state", func(_ *Provider, _ *Flow, q url.Values) { q.Set("state", "x") }, belfry.Unauthorized},
		{"no flow and no state", func(_ *Provider, f *Flow, q url.Values) { *f = Flow{}; q.Del("state") }, belfry.Unauthorized},
		{"another nonce", func(_ *Provider, f *Flow, _ url.Values) { f.Nonce += "x" }, belfry.Unauthorized},
		{"another verifier", func(_ *Provider, f *Flow, _ url.Values) { f.Verifier += "x" }, belfry.Unauthorized},
		{"another code", func(_ *Provider, _ *Flow, q url.Values) { q.Set("code", "x") }, belfry.Unauthorized},
		{"the person refused", func(_ *Provider, _ *Flow, q url.Values) { q.Set("error", "access_denied") }, belfry.Unauthorized},
		{"a token for somebody else", func(*Provider, *Flow, url.Values) {
			issuer.Change(func(claims map[string]any) { claims["aud"] = "other" })
		}, belfry.Unauthorized},
		{"a token without a nonce", func(*Provider, *Flow, url.Values) {
			issuer.Change(func(claims map[string]any) { delete(claims, "nonce") })
		}, belfry.Unauthorized},
		{"not in a group", func(*Provider, *Flow, url.Values) {
			issuer.Change(func(claims map[string]any) { claims["groups"] = "other" })
		}, belfry.Forbidden},
		{"the issuer has gone", func(*Provider, *Flow, url.Values) { issuer.Down(true) }, belfry.Unavailable},
	} {
		issuer.Change(nil)
		issuer.Down(false)
		p := newProvider(t, issuer)
		address, flow, err := p.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if q, _ := url.Parse(address); q.Query().Get("scope") != "openid profile email groups" || strings.Contains(address, flow.Verifier) {
			t.Errorf("the address is %s", address)
		}
		query := browse(t, address)
		if tt.change != nil {
			tt.change(p, &flow, query)
		}
		user, err := p.Finish(t.Context(), flow, query)
		if tt.code != "" {
			if belfry.CodeOf(err) != tt.code {
				t.Errorf("%s: got %v, want %s", tt.name, err, tt.code)
			}
			continue
		}
		if err != nil || user.Subject != "u-1" || user.Name != "ann@example.com" {
			t.Errorf("%s: %+v, %v", tt.name, user, err)
		}
		if _, err := p.Finish(t.Context(), flow, query); err == nil {
			t.Error("a code can be used twice")
		}
	}
}

func TestAClientWithASecret(t *testing.T) {
	issuer := oidctest.New(t)
	for secret, want := range map[string]belfry.Code{"hush": "", "": belfry.Unauthorized} {
		p := newProvider(t, issuer)
		p.ClientID, p.ClientSecret, p.CLIClientID = "web", secret, "belfry"
		address, flow, err := p.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Finish(t.Context(), flow, browse(t, address)); err == nil != (want == "") || err != nil && belfry.CodeOf(err) != want {
			t.Errorf("with the secret %q: %v", secret, err)
		}
		if _, err := p.Authenticate(t.Context(), issuer.Token(nil)); err != nil || p.Login().ClientID != "belfry" {
			t.Errorf("a token of the client of the command line: %v", err)
		}
	}
}

func TestLoginOfTheCommandLine(t *testing.T) {
	issuer := oidctest.New(t)
	login := belfry.Login{Issuer: issuer.URL, ClientID: "belfry"}
	p := newProvider(t, issuer)
	for name, logIn := range map[string]func(context.Context, belfry.Login, Prompt) (Token, error){"browser": LogInWithBrowser, "code": LogInWithCode} {
		token, err := logIn(t.Context(), login, func(address, code string) {
			if name == "code" {
				if code != "WDJB-MJHT" || address != issuer.URL+"/activate" {
					t.Errorf("the prompt has %q and %q", address, code)
				}
				return
			}
			q := browse(t, address)
			u, _ := url.Parse(address)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for _, state := range []string{"forged", q.Get("state")} {
				q.Set("state", state)
				resp, err := client.Get(u.Query().Get("redirect_uri") + "?" + q.Encode())
				if err != nil {
					t.Error(err)
					return
				}
				if resp.Body.Close(); (resp.StatusCode == http.StatusOK) != (state != "forged") {
					t.Errorf("with the state %q: %s", state, resp.Status)
				}
			}
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := p.Authenticate(t.Context(), token.IDToken); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		newer, err := token.Refresh(t.Context())
		if err != nil || newer.RefreshToken == "" || newer.RefreshToken == token.RefreshToken {
			t.Fatalf("%s: refresh: %v", name, err)
		}
		if _, err := p.Authenticate(t.Context(), newer.IDToken); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := token.Refresh(t.Context()); err == nil {
			t.Errorf("%s: a refresh token that was used is accepted", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := LogInWithBrowser(ctx, login, func(string, string) { cancel() }); err == nil {
		t.Error("a login that nobody ends has ended")
	}
}
