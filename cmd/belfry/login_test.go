package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/oidctest"
)

// browserOutput is the standard error of a command whose addresses are opened in a browser.
type browserOutput struct {
	t  *testing.T
	mu sync.Mutex
	strings.Builder
}

var promptedAddress = regexp.MustCompile(`Log in at (\S+)`)

func (b *browserOutput) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if found := promptedAddress.FindSubmatch(p); found != nil {
		go func() {
			answer, err := http.Get(string(found[1])) // which follows the way back
			if err != nil {
				b.t.Error(err)
				return
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if !strings.Contains(string(text), "You are logged in.") {
				b.t.Errorf("the browser shows %s", text)
			}
		}()
	}
	return b.Builder.Write(p)
}

func TestLoginOfTheCommandLine(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	issuer := oidctest.New(t)
	p := withServer(t, "--public-url", "http://127.0.0.1:1", "--oidc-issuer", issuer.URL, "--oidc-client-id", "belfry", "--oidc-role", "groups=platform:author")
	logIn := func(args ...string) {
		t.Helper()
		errOut := &browserOutput{t: t}
		if code := execute(t.Context(), append([]string{"login", "--server", p.server + "/"}, args...), strings.NewReader(""), io.Discard, errOut); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, errOut)
		}
		if args != nil && !strings.Contains(errOut.String(), "enter the code WDJB-MJHT") {
			t.Errorf("it printed %s", errOut)
		}
	}
	stored := func() (out oidc.Token) {
		t.Helper()
		info, err := os.Stat(loginsPath())
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the file of logins: %v, %v", info, err)
		}
		logins, err := readLogins()
		if err != nil {
			t.Fatal(err)
		}
		return logins[p.server]
	}
	expire := func(change func(*oidc.Token)) {
		t.Helper()
		if err := editLogins(func(logins map[string]oidc.Token) {
			token := logins[p.server]
			token.Expiry = time.Now().Add(-time.Minute)
			change(&token)
			logins[p.server] = token
		}); err != nil {
			t.Fatal(err)
		}
	}
	if r := p.run("job", "list"); r.code != exitNotAllowed {
		t.Fatalf("without a login: exit code %d\n%s", r.code, r.err)
	}
	logIn()
	p.ok("job", "create", "hello", "--schedule", "@daily", "--url", "https://example.com")
	if r := p.run("job", "list", "--key", "bf_wrong"); r.code != exitNotAllowed {
		t.Errorf("a key does not go before the login: exit code %d", r.code)
	}

	before := stored()
	expire(func(*oidc.Token) {})
	p.ok("job", "list")
	if after := stored(); after.RefreshToken == before.RefreshToken || after.IDToken == before.IDToken && after.Expiry.Before(time.Now()) {
		t.Error("the login was not prolonged")
	}
	expire(func(token *oidc.Token) { token.RefreshToken = "used" })
	if r := p.run("job", "list"); r.code != exitNotAllowed || !strings.Contains(r.err, "belfry login --server "+p.server) {
		t.Errorf("a login that cannot be prolonged: exit code %d\n%s", r.code, r.err)
	}
	logIn("--device")
	p.ok("job", "list")
	p.ok("logout", "--server", p.server)
	if r := p.run("job", "list"); r.code != exitNotAllowed {
		t.Errorf("after the logout: exit code %d", r.code)
	}
	text, err := os.ReadFile(loginsPath())
	if err != nil || !json.Valid(text) || strings.Contains(string(text), "id_token") {
		t.Errorf("after the logout the file has %s (%v)", text, err)
	}
}

func TestLoginToAServerWithKeysAlone(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	p := withServer(t)
	if r := p.run("login", "--server", p.server); r.code != exitOther || !strings.Contains(r.err, "has no login with OpenID Connect") {
		t.Errorf("exit code %d\n%s", r.code, r.err)
	}
}

func TestFlagsOfOpenIDConnect(t *testing.T) {
	p := &testCLI{t: t}
	valid := map[string]string{"--oidc-issuer": "https://login.example.com", "--oidc-client-id": "belfry", "--public-url": "https://belfry.example.com", "--oidc-role": "groups=a:admin"}
	for _, tt := range []struct{ flag, value, want string }{
		{"--oidc-issuer", "http://login.example.com", "--oidc-issuer: \"http://login.example.com\" is not an https:// address"},
		{"--oidc-issuer", "", "--oidc-issuer: is missing"},
		{"--oidc-client-id", "", "--oidc-client-id: is missing"},
		{"--public-url", "", "--public-url: is missing"},
		{"--oidc-role", "", "without a rule nobody gets in"},
		{"--oidc-role", "groups=a:root", "--oidc-role: \"groups=a:root\" is not"},
		{"--oidc-client-secret-file", "missing", "--oidc-client-secret-file: open missing"},
	} {
		args := []string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir()}
		for flag, value := range valid {
			if flag != tt.flag {
				args = append(args, flag, value)
			}
		}
		if r := p.run(append(args, tt.flag, tt.value)...); r.code == exitOK || !strings.Contains(r.err, tt.want) {
			t.Errorf("%s %q: exit code %d\n%s", tt.flag, tt.value, r.code, r.err)
		}
	}
}
