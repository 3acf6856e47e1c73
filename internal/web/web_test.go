package web_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/browsertest"
	"github.com/belfry-sh/belfry/internal/node"
)

const key = "9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA-ada"

// keyed is a site that asks for a key, and the file of its keys.
func keyed(t *testing.T) (*site, string) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("ada:"+key+"\nbob:e7Qz1NwXr5TkM2vGhB9yLdS4aFjU6cPo-bob\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newSite(t, func(c *node.Config) { c.APIKeyFile = file }), file
}

// person is a browser without script.
func person(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func get(t *testing.T, c *http.Client, address string) (*http.Response, string) {
	t.Helper()
	r, _ := http.NewRequest("GET", address, nil)
	r.Header.Set("Accept", "text/html")
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer, string(text)
}

func post(t *testing.T, c *http.Client, address string, form url.Values) *http.Response {
	t.Helper()
	answer, err := c.PostForm(address, form)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer
}

func TestLogin(t *testing.T) {
	t.Parallel()
	s, file := keyed(t)
	c := person(t)
	answer, text := get(t, c, s.address+"/jobs?search=x")
	if answer.Request.URL.Path != "/login" || !strings.Contains(text, "API key") {
		t.Fatalf("without a key one gets %s", answer.Request.URL)
	}
	for _, path := range []string{"/", "/jobs/new", "/runs", "/dead", "/forecast", "/forecast?zone=nowhere&jitter_seconds=x", "/fleet", "/settings"} {
		if answer, _ := get(t, c, s.address+path); answer.Request.URL.Path != "/login" {
			t.Errorf("%s is shown without a key", path)
		}
	}
	if answer, _ := get(t, c, s.address+"/live"); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the stream answers %d without a key", answer.StatusCode)
	}
	if answer := post(t, c, s.address+"/jobs/new", url.Values{"name": {"x"}}); answer.Request.URL.Path != "/login" {
		t.Errorf("a change without a key leads to %s", answer.Request.URL)
	}
	if answer := post(t, c, s.address+"/login", url.Values{"key": {"wrong"}}); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong key gets %d", answer.StatusCode)
	}
	answer = post(t, c, s.address+"/login", url.Values{"key": {key}, "to": {"/jobs?search=x"}})
	if answer.Request.URL.Path != "/jobs" {
		t.Fatalf("after the login one is at %s", answer.Request.URL)
	}
	here, _ := url.Parse(s.address)
	first := c.Jar.Cookies(here)[0].Value
	post(t, c, s.address+"/login", url.Values{"key": {key}, "to": {"//evil.example"}})
	if again := c.Jar.Cookies(here)[0].Value; again == first {
		t.Error("a login does not change the cookie")
	}
	stale := &http.Client{Jar: person(t).Jar}
	stale.Jar.SetCookies(here, []*http.Cookie{{Name: "belfry_session", Value: first}})
	if answer, _ := get(t, stale, s.address+"/jobs"); answer.Request.URL.Path != "/login" {
		t.Error("the session before the second login goes on")
	}
	last := c.Jar.Cookies(here)[0].Value
	post(t, c, s.address+"/logout", nil)
	stale.Jar.SetCookies(here, []*http.Cookie{{Name: "belfry_session", Value: last}})
	if answer, _ := get(t, stale, s.address+"/jobs"); answer.Request.URL.Path != "/login" {
		t.Error("a session goes on after the logout")
	}

	bob := person(t)
	post(t, bob, s.address+"/login", url.Values{"key": {"e7Qz1NwXr5TkM2vGhB9yLdS4aFjU6cPo-bob"}})
	if answer, _ := get(t, bob, s.address+"/jobs"); answer.Request.URL.Path != "/jobs" {
		t.Fatal("bob cannot log in")
	}
	if err := os.WriteFile(file, []byte("ada:"+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session of a key that is gone ends", func() bool {
		answer, _ := get(t, bob, s.address+"/jobs")
		return answer.Request.URL.Path == "/login"
	})
}

func TestTheSessionCookie(t *testing.T) {
	t.Parallel()
	s, file := keyed(t)
	behind := newSite(t, func(c *node.Config) { c.APIKeyFile, c.TrustedProxies = file, []string{"127.0.0.1"} })
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, proxied := range []bool{false, true} {
		address := s.address
		if proxied {
			address = behind.address
		}
		r, _ := http.NewRequest("POST", address+"/login", strings.NewReader(url.Values{"key": {key}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", "https") // of anybody, or of a proxy that is trusted
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		cookie := answer.Cookies()[0]
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Secure != proxied || strings.HasPrefix(cookie.Name, "__Host-") != proxied || cookie.Path != "/" || cookie.Domain != "" || len(cookie.Value) != 64 {
			t.Errorf("the cookie is %v", cookie)
		}
	}
}

func TestGuessesAreLimited(t *testing.T) {
	t.Parallel()
	s, _ := keyed(t)
	limited := false
	for range 30 {
		answer := post(t, http.DefaultClient, s.address+"/login", url.Values{"key": {"guess"}})
		limited = limited || answer.StatusCode == http.StatusTooManyRequests
	}
	if !limited {
		t.Error("30 guesses are allowed")
	}
	if answer := post(t, http.DefaultClient, s.address+"/login", url.Values{"key": {key}}); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("after too many guesses the right key gets %d", answer.StatusCode)
	}
}

func TestLoginInABrowser(t *testing.T) {
	t.Parallel()
	s, _ := keyed(t)
	tab := browsertest.Open(t, s.address)
	tab.Expect("401") // of the wrong key
	tab.Go("/jobs")
	tab.Accessible("login")
	tab.Screenshot("login-light")
	tab.Fill("API key", "wrong")
	tab.Click("Log in")
	tab.See("This is not a key of this server.")
	tab.Fill("API key", key)
	tab.Click("Log in")
	tab.See("There are no jobs yet", "ada")
	tab.Click("Log out")
	tab.See("You are logged out.")
	tab.Go("/jobs")
	tab.See("API key")
}

func TestOtherOriginsAndHostsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.job("safe", "@yearly", "/ok")
	send := func(change func(*http.Request)) int {
		r, _ := http.NewRequest("POST", s.address+"/jobs/safe/pause", strings.NewReader(""))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		change(r)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if got := send(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); got != http.StatusForbidden {
		t.Errorf("a page of another site gets %d", got)
	}
	if got := send(func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }); got != http.StatusForbidden {
		t.Errorf("a page of another origin gets %d", got)
	}
	if got := send(func(r *http.Request) { r.Host = "evil.example" }); got != http.StatusMisdirectedRequest {
		t.Errorf("another name gets %d", got)
	}
	if got := send(func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat("a=b&", 1<<19))) }); got != http.StatusUnprocessableEntity {
		t.Errorf("a form of 2 MiB gets %d", got)
	}
	for _, path := range []string{"/jobs/safe/pause", "/jobs/safe/delete", "/logout"} {
		if answer, _ := get(t, http.DefaultClient, s.address+path); answer.StatusCode < 400 {
			t.Errorf("GET %s answers %d", path, answer.StatusCode)
		}
	}
	if got := s.call("GET", "/jobs/safe", nil)["status"]; got != "scheduled" {
		t.Errorf("the job is %v", got)
	}
}

func TestRootIsForBrowsersAndPrograms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if answer, text := get(t, http.DefaultClient, s.address+"/"); !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") || !strings.Contains(text, "<h1>Overview</h1>") {
		t.Errorf("a browser gets %s", answer.Header.Get("Content-Type"))
	}
	answer, err := http.Get(s.address + "/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a program gets %s", answer.Header.Get("Content-Type"))
	}
	if answer, _ := get(t, http.DefaultClient, s.address+"/api/v1/none"); answer.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("a path of the API gets %s", answer.Header.Get("Content-Type"))
	}
	if answer, text := get(t, http.DefaultClient, s.address+"/none"); answer.StatusCode != http.StatusNotFound || !strings.Contains(text, "There is no page") {
		t.Errorf("a page that is not there gets %d", answer.StatusCode)
	}
}

// The first page and all it loads, as a browser gets it.
func TestPagesAreLight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 30 {
		s.job(fmt.Sprintf("job-%d", i), "*/5 * * * *", "/ok")
	}
	load := func(path string) (*http.Response, []byte) {
		r, _ := http.NewRequest("GET", s.address+path, nil)
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Accept-Encoding", "gzip")
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %d %v, %v", path, answer.StatusCode, answer.Header, err)
		}
		return answer, body
	}
	for _, page := range []string{"/", "/jobs", "/jobs/job-1", "/jobs/new", "/forecast?jitter_seconds=300"} {
		_, packed := load(page)
		size := len(packed)
		_, text := get(t, http.DefaultClient, s.address+page)
		for _, m := range regexp.MustCompile(`(?:src|href)="(/assets/[^"]+)"`).FindAllStringSubmatch(text, -1) {
			answer, body := load(m[1])
			if !strings.Contains(answer.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %v", m[1], answer.Header)
			}
			size += len(body)
		}
		if size > 60<<10 {
			t.Errorf("%s weighs %d bytes with all that it loads", page, size)
		}
	}
}

func TestVendoredFilesAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("vendored.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"app.js": true, "style.css": true, "icon.svg": true}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 5 || words[0] == "#" {
			continue
		}
		file, err := os.ReadFile(filepath.Join("assets", words[1]))
		if got := fmt.Sprintf("%x", sha256.Sum256(file)); err != nil || got != words[0] {
			t.Errorf("%s has the sum %s (%v)", words[1], got, err)
		}
		known[words[1]] = true
	}
	files, _ := os.ReadDir("assets")
	for _, f := range files {
		if !known[f.Name()] {
			t.Errorf("%s is neither ours nor in vendored.txt", f.Name())
		}
	}
}

// What people do with forms works in a browser that runs no script.
func TestFormsWorkWithoutScript(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := person(t)
	answer := post(t, c, s.address+"/jobs/new", url.Values{"name": {"plain"}, "schedule": {"0 9 * * *"}, "timezone": {"UTC"}, "type": {"http"}, "payload.url": {s.receiver + "/ok"}})
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Request.URL.Path, "/jobs/") {
		t.Fatalf("creating a job leads to %s with %d", answer.Request.URL, answer.StatusCode)
	}
	answer = post(t, c, s.address+"/jobs/new", url.Values{"name": {"nightly"}, "schedule": {"0 9 * * *"}, "type": {"command"}, "payload": {`{"command": "backup"}`}, "payload.url": {""}, "handler": {""}})
	if got := s.call("GET", "/jobs/nightly", nil)["handler"]; got != "command.backup" || !strings.HasPrefix(answer.Request.URL.Path, "/jobs/") {
		t.Errorf("the handler of a command is %v, and creating it leads to %s", got, answer.Request.URL)
	}
	if _, text := get(t, c, s.address+"/jobs/nightly/edit"); !strings.Contains(text, `value="command" checked`) {
		t.Errorf("the form of a command says %s", text)
	}
	id := s.call("GET", "/jobs/plain", nil)["job_id"].(string)
	form := url.Values{"job": {id}, "action": {"pause"}, "scope": {"selected"}}
	post(t, c, s.address+"/jobs", form)
	if got := s.call("GET", "/jobs/plain", nil)["status"]; got != "scheduled" {
		t.Errorf("without a confirmation the job is %v", got)
	}
	form.Set("confirm", "yes")
	post(t, c, s.address+"/jobs", form)
	if got := s.call("GET", "/jobs/plain", nil)["status"]; got != "paused" {
		t.Errorf("the job is %v", got)
	}
	_, text := get(t, c, s.address+"/jobs?status=paused")
	if !strings.Contains(text, "plain") || !strings.Contains(text, `<time`+` `) && !strings.Contains(text, "paused") {
		t.Errorf("the list says %s", text)
	}
}
