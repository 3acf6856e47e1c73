package web_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/browsertest"
	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/internal/oidctest"
)

var strongKey = rand.Text() + rand.Text()

// withIssuer is a site at the public address of a proxy, with a key and an issuer.
func withIssuer(t *testing.T, issuer *oidctest.Issuer) *site {
	t.Helper()
	var backend atomic.Pointer[url.URL]
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(backend.Load())
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(front.Close)
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("ada:"+strongKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(c *node.Config) {
		c.APIKeyFile, c.PublicURL = file, front.URL
		c.OIDC = node.OIDC{Issuer: issuer.URL, ClientID: "belfry", Roles: []string{"groups=platform:admin", "groups=billing:reader@default"}}
	})
	address, err := url.Parse(s.address)
	if err != nil {
		t.Fatal(err)
	}
	backend.Store(address)
	s.address = front.URL
	return s
}

func TestLoginWithOpenIDConnect(t *testing.T) {
	t.Parallel()
	issuer := oidctest.New(t)
	s := withIssuer(t, issuer)
	start := s.address + "/login/oidc?to=" + url.QueryEscape("/jobs?search=x")
	c := person(t)
	if _, text := get(t, c, s.address+"/jobs?search=x"); !strings.Contains(text, "Log in with "+strings.TrimPrefix(issuer.URL, "http://")) || !strings.Contains(text, strings.ReplaceAll(start, "&", "&amp;")) || !strings.Contains(text, "API key") {
		t.Fatalf("the page to log in has no link to %s:\n%s", start, text)
	}
	answer, text := get(t, c, start)
	if answer.Request.URL.RequestURI() != "/jobs?search=x" || !strings.Contains(text, "ann@example.com") {
		t.Fatalf("after the login one is at %s:\n%s", answer.Request.URL, text)
	}
	here, _ := url.Parse(s.address)
	if cookies := c.Jar.Cookies(here); len(cookies) != 1 {
		t.Errorf("the browser has the cookies %v", cookies)
	}
	if answer, _ := get(t, c, s.address+"/settings"); answer.StatusCode != http.StatusOK {
		t.Errorf("an admin gets %d", answer.StatusCode)
	}
	last := c.Jar.Cookies(here)
	post(t, c, s.address+"/logout", nil)
	c.Jar.SetCookies(here, last)
	if answer, _ := get(t, c, s.address+"/jobs"); answer.Request.URL.Path != "/login" {
		t.Error("the session goes on after the logout")
	}

	// At the next login the groups are others.
	issuer.Set("groups", []string{"billing"})
	if answer, _ := get(t, c, start); answer.Request.URL.Path != "/jobs" {
		t.Fatalf("a reader is at %s", answer.Request.URL)
	}
	for path, want := range map[string]int{"/jobs": http.StatusOK, "/jobs/new": http.StatusForbidden, "/settings": http.StatusForbidden, "/jobs?ns=other": http.StatusNotFound} {
		if answer, _ := get(t, c, s.address+path); answer.StatusCode != want {
			t.Errorf("a reader of one namespace gets %d from %s, want %d", answer.StatusCode, path, want)
		}
	}
	stranger := person(t)
	issuer.Set("groups", []string{"guests"})
	if answer, text := get(t, stranger, start); answer.StatusCode != http.StatusForbidden || !strings.Contains(text, "This server gives no role to ann@example.com") {
		t.Errorf("who matches no rule gets %d:\n%s", answer.StatusCode, text)
	}
	if answer, _ := get(t, stranger, s.address+"/jobs"); answer.Request.URL.Path != "/login" {
		t.Error("who matches no rule is logged in")
	}
	issuer.Set("groups", []string{"platform"})
	if answer, _ := get(t, stranger, start+"&x=1"); answer.Request.URL.Path != "/jobs" {
		t.Error("they are not let in when they match one")
	}
	if answer, _ := get(t, person(t), s.address+"/login/oidc?to="+url.QueryEscape("//evil.example")); answer.Request.URL.Host != here.Host || answer.Request.URL.Path != "/" {
		t.Errorf("a login leads to %s", answer.Request.URL)
	}
}

// A login that began elsewhere, such as with an attacker, does not log this browser in.
func TestLoginThatBeganElsewhere(t *testing.T) {
	t.Parallel()
	issuer := oidctest.New(t)
	s := withIssuer(t, issuer)
	attacker := person(t)
	var back string
	attacker.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == "/login/callback" {
			back = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	get(t, attacker, s.address+"/login/oidc")
	if back == "" {
		t.Fatal("the issuer did not lead back")
	}
	victim := person(t)
	if answer, text := get(t, victim, back); answer.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "not begun in this browser") {
		t.Errorf("got %d:\n%s", answer.StatusCode, text)
	}
	here, _ := url.Parse(s.address)
	if cookies := victim.Jar.Cookies(here); len(cookies) != 0 {
		t.Errorf("the victim has the cookies %v", cookies)
	}
	for _, query := range []string{"", "?code=x", "?state=&code=x", "?error=access_denied"} {
		if answer, _ := get(t, person(t), s.address+"/login/callback"+query); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q gets %d", query, answer.StatusCode)
		}
	}
}

func TestTokensOfPeopleInTheAPI(t *testing.T) {
	t.Parallel()
	issuer := oidctest.New(t)
	s := withIssuer(t, issuer)
	status := func(method, path, token string) int {
		t.Helper()
		r, _ := http.NewRequest(method, s.address+path, strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return answer.StatusCode
	}
	reader := issuer.Token(map[string]any{"groups": []string{"billing"}})
	for _, tt := range []struct {
		name, method, path, token string
		want                      int
	}{
		{"an admin", "GET", "/api/v1/fleet", issuer.Token(nil), 200},
		{"an API key", "GET", "/api/v1/fleet", strongKey, 200},
		{"a reader", "GET", "/api/v1/jobs", reader, 200},
		{"a reader who writes", "POST", "/api/v1/jobs", reader, 403},
		{"a reader of one namespace", "GET", "/api/v1/fleet", reader, 403},
		{"nobody's rule", "GET", "/api/v1/jobs", issuer.Token(map[string]any{"groups": "x"}), 403},
		{"expired", "GET", "/api/v1/jobs", issuer.Token(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), 401},
		{"another audience", "GET", "/api/v1/jobs", issuer.Token(map[string]any{"aud": "other"}), 401},
		{"no signature", "GET", "/api/v1/jobs", issuer.TokenWith("none", nil), 401},
		{"HS256 with the public key", "GET", "/api/v1/jobs", issuer.TokenWith("HS256", nil), 401},
		{"no token", "GET", "/api/v1/jobs", "x", 401},
	} {
		if got := status(tt.method, tt.path, tt.token); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}

// The server starts without its issuer, and people can log in as soon as that answers.
func TestIssuerIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	issuer := oidctest.New(t)
	issuer.Down(true)
	s := withIssuer(t, issuer)
	c := person(t)
	if answer, text := get(t, c, s.address+"/login/oidc"); answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "does not answer; try again later, or use an API key.") {
		t.Errorf("got %d:\n%s", answer.StatusCode, text)
	}
	if answer := post(t, c, s.address+"/login", url.Values{"key": {strongKey}}); answer.Request.URL.Path != "/" {
		t.Errorf("with a key one is at %s", answer.Request.URL)
	}
	issuer.Down(false)
	eventually(t, "people can log in when the issuer is back", func() bool {
		answer, _ := get(t, person(t), s.address+"/login/oidc?to=/jobs")
		return answer.Request.URL.Path == "/jobs"
	})
}

func TestLoginWithOpenIDConnectInABrowser(t *testing.T) {
	t.Parallel()
	issuer := oidctest.New(t)
	s := withIssuer(t, issuer)
	tab := browsertest.Open(t, s.address)
	tab.Expect("a request to " + issuer.URL + "/authorize")
	tab.Go("/jobs")
	tab.See("Log in", "API key")
	tab.Accessible("the page to log in")
	tab.Click("Log in with " + strings.TrimPrefix(issuer.URL, "http://"))
	tab.See("ann@example.com", "Jobs")
	if at := tab.URL(); at != "/jobs" {
		t.Errorf("after the login the page is %s", at)
	}
	tab.Click("Log out")
	tab.See("You are logged out.", "API key")
	tab.Go("/jobs")
	tab.See("Log in with")
}
