package web_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/internal/web"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/role_matrix.txt")

// keyOf is the key of a role, which no file of keys refuses.
func keyOf(role string) string { return "e7Qz1NwXr5TkM2vGhB9yLdS4aFjU6cPo-" + role }

var pageRoles = []string{"none", "reader", "operator", "author", "admin", "worker"}

// siteWithRoles has a key for each role, in the namespace own.
func siteWithRoles(t *testing.T) *site {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	lines := "all:" + key + "\n"
	for _, role := range pageRoles[1:] {
		lines += fmt.Sprintf("%s:%s role=%[1]s namespace=own\n", role, keyOf(role))
	}
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return newSite(t, func(c *node.Config) { c.APIKeyFile = file })
}

// loggedInAs is a browser of somebody with a key, which does not follow redirects.
func loggedInAs(t *testing.T, s *site, key string) *http.Client {
	c := person(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if key != "" {
		post(t, c, s.address+"/login", url.Values{"key": {key}})
	}
	return c
}

// S4, S6: the same table for the pages as for the operations of the API. A form that is empty may be
// refused for that, after the permission was checked.
func TestRoleMatrixOfPages(t *testing.T) {
	t.Parallel()
	s := siteWithRoles(t)
	patterns, permissions := web.RoutesOf(web.New(web.Options{}))
	clients := []*http.Client{loggedInAs(t, s, "")}
	for _, role := range pageRoles[1:] {
		clients = append(clients, loggedInAs(t, s, keyOf(role)))
	}
	all := loggedInAs(t, s, key)
	const id = "01a22f39-15c0-8d3b-a6c4-90e15f7b2d08"
	fill := strings.NewReplacer("{job}", id, "{run}", id, "{alert}", id, "{channel}", "oncall", "{$}", "")
	send := func(c *http.Client, pattern, namespace string) string {
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = "GET", "/nothing"
		}
		r, _ := http.NewRequestWithContext(t.Context(), method, s.address+fill.Replace(path)+"?ns="+namespace, strings.NewReader(""))
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var text []byte
		if path != "/live" || answer.StatusCode != http.StatusOK { // which does not end
			text = readAll(t, answer)
		}
		switch {
		case strings.HasPrefix(answer.Header.Get("Location"), "/login?to="), answer.StatusCode == http.StatusUnauthorized && path == "/live":
			return "login"
		case answer.StatusCode == http.StatusForbidden:
			return "403"
		case answer.StatusCode == http.StatusNotFound && strings.Contains(string(text), "There is no namespace"):
			return "404"
		case answer.StatusCode >= 500:
			t.Errorf("%s: %s %s", pattern, answer.Status, text)
		}
		return "yes"
	}
	var lines []string
	for i, pattern := range patterns {
		if pattern == "POST /logout" || pattern == "POST /login" {
			continue // which end sessions
		}
		line := fmt.Sprintf("%-34s %-8s", pattern, permissions[i])
		for _, c := range clients {
			line += fmt.Sprintf(" %-12s", send(c, pattern, "own")+" "+send(c, pattern, "other"))
		}
		lines = append(lines, line+" "+send(all, pattern, "other"))
	}
	slices.Sort(lines)
	head := fmt.Sprintf("%-34s %-8s", "page", "needs")
	for _, role := range pageRoles {
		head += fmt.Sprintf(" %-12s", role)
	}
	got := "Each cell: in a namespace of the key, in another one; last an admin of all namespaces.\n\n" + head + " all\n" + strings.Join(lines, "\n") + "\n"
	const file = "testdata/role_matrix.txt"
	if *rewrite {
		os.MkdirAll("testdata", 0o755)
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), got); err != nil || diff != "" {
		t.Errorf("%s (-want +got), write it with: go test ./internal/web -run RoleMatrix -rewrite\n%v %s", file, err, diff)
	}
}

// What a person may not do is not offered.
func TestPagesOfferWhatOneMayDo(t *testing.T) {
	t.Parallel()
	s := siteWithRoles(t)
	s.send("PUT", "/api/v1/jobs/report", `{"schedule": "@yearly", "payload": {"url": "https://example.com"}}`, "own")
	s.send("PUT", "/api/v1/jobs/hidden", `{"schedule": "@yearly", "payload": {"url": "https://example.com"}}`, "secret-namespace")
	offers := map[string]int{">Trigger<": 1, ">Pause<": 1, ">Cancel the job<": 1, ">Edit<": 2, `danger">Delete<`: 2}
	for rank, role := range []string{"reader", "operator", "author", "admin"} {
		c := person(t)
		answer := post(t, c, s.address+"/login", url.Values{"key": {keyOf(role)}})
		if answer.Request.URL.Path != "/" {
			t.Errorf("%s: the login leads to %s: %s", role, answer.Request.URL, answer.Status)
		}
		_, page := get(t, c, s.address+"/jobs/report")
		if !strings.Contains(page, "report") {
			t.Fatalf("%s does not see the job: %s", role, page)
		}
		for text, least := range offers {
			if strings.Contains(page, text) != (rank >= least) {
				t.Errorf("%s is offered %s: %t", role, text, rank < least)
			}
		}
		for _, path := range []string{"/", "/jobs", "/runs", "/dead", "/alerts", "/events", "/forecast"} {
			answer, page := get(t, c, s.address+path)
			if answer.StatusCode != http.StatusOK || strings.Contains(page, "secret-namespace") || strings.Contains(page, `href="/fleet`) || strings.Contains(page, `href="/settings`) {
				t.Errorf("%s at %s: %s", role, path, answer.Status)
			}
			if offered := strings.Contains(page, "/jobs/new"); offered != (rank >= 2 && (path == "/" || path == "/jobs")) {
				t.Errorf("%s at %s is offered a new job: %t", role, path, offered)
			}
		}
		if answer, page := get(t, c, s.address+"/jobs/hidden?ns=secret-namespace"); answer.StatusCode != http.StatusNotFound || strings.Contains(page, "option") && strings.Contains(page, ">secret-namespace<") {
			t.Errorf("%s in another namespace: %s", role, answer.Status)
		}
	}
	if answer, page := get(t, loggedInAs(t, s, keyOf("reader")), s.address+"/fleet"); answer.StatusCode != http.StatusForbidden || !strings.Contains(page, "all namespaces") {
		t.Errorf("the fleet: %s", answer.Status)
	}
	if answer := post(t, person(t), s.address+"/login", url.Values{"key": {keyOf("worker")}}); answer.StatusCode != http.StatusForbidden {
		t.Errorf("the login of a worker: %s", answer.Status)
	}
}

func readAll(t *testing.T, answer *http.Response) []byte {
	t.Helper()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// send calls the API as an admin of everything.
func (s *site) send(method, path, body, namespace string) {
	s.t.Helper()
	r, _ := http.NewRequestWithContext(s.t.Context(), method, s.address+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Belfry-Namespace", namespace)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s", method, path, answer.Status)
	}
}
