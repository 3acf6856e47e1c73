package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
)

// get reads from the API with the key of an admin.
func (s *canaryServer) get(path string) string {
	s.t.Helper()
	return s.read(http.DefaultClient, s.server+path, "Bearer "+s.key)
}

// read reads an address, which must answer with 200.
func (s *canaryServer) read(c *http.Client, address, authorization string) string {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Accept", "text/html, application/json, */*")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := c.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Errorf("%s: %s %s, %v", address, response.Status, body, err)
	}
	return string(body)
}

// objects are the names or ids of all that the server has, by their names in paths.
func (s *canaryServer) objects() map[string][]string {
	found := map[string][]string{"namespace": {belfry.DefaultNamespace}}
	for name, list := range map[string]struct{ path, field string }{
		"job": {"jobs?limit=100", "name"}, "run": {"runs?limit=100", "run_id"}, "dead": {"dead-letters?limit=100", "run_id"}, "channel": {"channels", "name"}, "monitor": {"monitors", "name"},
		"secret": {"secrets", "name"}, "alert": {"alerts", "alert_id"}, "event": {"events", "event_id"},
	} {
		var objects []map[string]any
		if err := json.Unmarshal([]byte(s.get("/api/v1/"+list.path)), &objects); err != nil {
			s.t.Fatal(err)
		}
		for _, o := range objects {
			if text, _ := o[list.field].(string); text != "" {
				found[name] = append(found[name], text)
			}
		}
		if len(found[name]) == 0 {
			s.t.Fatalf("there is no %s: %v", name, objects)
		}
	}
	return found
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// fill makes the addresses of a path with the name of an object in braces.
func (s *canaryServer) fill(path string, objects map[string][]string) (out []string) {
	s.t.Helper()
	name := placeholder.FindStringSubmatch(path)
	if name == nil {
		return []string{path}
	}
	if objects[name[1]] == nil {
		s.t.Errorf("%s: nothing is known of %s", path, name[0])
	}
	for _, ref := range objects[name[1]] {
		out = append(out, strings.Replace(path, name[0], url.PathEscape(ref), 1))
	}
	return out
}

// readAPI reads everything that the description of the API says can be read.
func (s *canaryServer) readAPI() string {
	s.awaitText("an alert", &s.alerts, "alert.firing") // so that there is one to read
	var api struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(s.get("/api/v1/openapi.json")), &api); err != nil {
		s.t.Fatal(err)
	}
	objects := s.objects()
	var all strings.Builder
	for path, methods := range api.Paths {
		if methods["get"] == nil || strings.HasPrefix(path, "/ping/") || path == "/metrics" {
			continue
		}
		if strings.HasPrefix(path, "/api/v1/dead-letters/") {
			path = strings.Replace(path, "{run}", "{dead}", 1)
		}
		for _, address := range s.fill(path, objects) {
			all.WriteString(s.get(address))
		}
	}
	return all.String() + s.get("/api/v1/audit?scope=all&limit=100")
}

// browser logs in to the pages, by the issuer or with a key. Its session is a secret.
func (s *canaryServer) browser(login func(c *http.Client) (*http.Response, error)) *http.Client {
	s.t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, strings.TrimPrefix(publicURL, "http://")) {
			address = strings.TrimPrefix(s.server, "http://")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	jar, _ := cookiejar.New(nil) // which has no errors
	transport := &http.Transport{DialContext: dial}
	s.t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Jar: jar, Transport: transport}
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		r.Header.Set("Accept", "text/html")
		for _, name := range []string{"code", "state", "nonce"} {
			if value := r.URL.Query().Get(name); value != "" && r.URL.Host == strings.TrimPrefix(publicURL, "http://") {
				s.secrets.add(canary{place: "the " + name + " of a login", value: value})
			}
		}
		return nil
	}
	answer, err := login(c)
	if err != nil {
		s.t.Fatal(err)
	}
	answer.Body.Close()
	here, _ := url.Parse(publicURL)
	cookies := jar.Cookies(here)
	if answer.StatusCode != http.StatusOK || len(cookies) == 0 {
		s.t.Fatalf("the login at %s: %s, cookies %v\n%s", answer.Request.URL, answer.Status, cookies, s.log)
	}
	for _, cookie := range cookies {
		s.secrets.add(canary{place: "the session of a browser", value: cookie.Value})
	}
	return c
}

// readPages reads every page as an admin, for every object. Its list is the one of the test that
// compares it with the routes.
func (s *canaryServer) readPages() string {
	var all strings.Builder
	byKey := func(key string) func(c *http.Client) (*http.Response, error) {
		return func(c *http.Client) (*http.Response, error) {
			return c.PostForm(publicURL+"/login", url.Values{"key": {key}})
		}
	}
	s.browser(byKey(s.key))
	c := s.browser(func(c *http.Client) (*http.Response, error) { return c.Get(publicURL + "/login/oidc") })
	if answer, err := byKey(s.secrets.put("a wrong key on the page"))(c); err != nil {
		s.t.Error(err)
	} else {
		io.Copy(&all, answer.Body)
		answer.Body.Close()
	}
	objects, pages := s.objects(), 0
	for _, m := range regexp.MustCompile(`(?m)^GET (\S+)`).FindAllStringSubmatch(readText(s.t, "../../internal/web/testdata/role_matrix.txt"), -1) {
		path := strings.TrimSuffix(m[1], "{$}")
		if path == "/live" || strings.HasPrefix(path, "/login") {
			continue
		}
		for _, address := range s.fill(path, objects) {
			pages++
			all.WriteString(s.read(c, publicURL+address, ""))
		}
	}
	for _, run := range objects["dead"] {
		all.WriteString(s.read(c, publicURL+"/runs/"+run, ""))
	}
	if pages < 40 {
		s.t.Errorf("only %d pages were read", pages)
	}
	all.WriteString(s.readStream(c))
	return all.String()
}

// readStream reads the beginning of the stream that pages follow.
func (s *canaryServer) readStream(c *http.Client) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, publicURL+"/live", nil)
	answer, err := c.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil || answer.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Errorf("the stream: %s %q, %v", answer.Status, line, err)
	}
	return line
}

// readExports prints everything with the command line, as tables and in the forms that programs read.
func (s *canaryServer) readExports() string {
	p := &testCLI{t: s.t, server: s.server}
	objects := s.objects()
	commands := [][]string{{"audit", "export", "--scope", "all"}, {"audit", "export"}}
	for _, list := range []string{"job list", "run list", "dead list", "channel list", "alert list", "monitor list", "event list", "key list", "secret list", "namespace list", "audit", "fleet", "forecast"} {
		for _, format := range []string{"wide", "json", "yaml"} {
			commands = append(commands, append(strings.Fields(list), "-o", format))
		}
	}
	show := func(kind string, names []string, command ...string) {
		for _, name := range names {
			for _, format := range []string{"wide", "yaml"} {
				commands = append(commands, append(command[:len(command):len(command)], name, "-o", format))
			}
		}
	}
	show("job", objects["job"], "job", "get")
	show("job", objects["job"], "job", "revisions")
	show("job", objects["job"], "job", "why")
	show("run", objects["run"], "run", "show")
	show("dead", objects["dead"], "dead", "show")
	show("channel", objects["channel"], "channel", "show")
	var all strings.Builder
	for _, args := range commands {
		r := p.ok(append(args, "--key-file", s.keyFile)...)
		all.WriteString(r.out + r.err)
	}
	return all.String()
}

// readMetricsListener reads what needs no key.
func (s *canaryServer) readMetricsListener() string {
	base := regexp.MustCompile(`Metrics +(\S+)/metrics`).FindStringSubmatch(s.log.String())
	if base == nil {
		s.t.Fatal("there is no listener of metrics")
	}
	var all strings.Builder
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1"} {
		all.WriteString(s.read(http.DefaultClient, base[1]+path, ""))
	}
	return all.String()
}

// dump is all that the database has: every table of PostgreSQL, or the files of SQLite.
func (s *canaryServer) dump() string {
	var all strings.Builder
	if s.database == "" {
		files, err := filepath.Glob(filepath.Join(s.data, "belfry.db*"))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, file := range files {
			all.WriteString(readText(s.t, file))
		}
		return all.String()
	}
	db, err := pgx.Connect(s.t.Context(), s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close(context.Background())
	rows, _ := db.Query(s.t.Context(), `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, table := range tables {
		_, failed := db.PgConn().CopyTo(s.t.Context(), &all, "COPY (SELECT * FROM "+table+") TO STDOUT")
		err = errors.Join(err, failed)
	}
	if err != nil || len(tables) < 10 {
		s.t.Fatalf("%d tables: %v", len(tables), err)
	}
	return all.String()
}

// backup is a backup as the documentation of the database describes it, taken while the node runs.
func (s *canaryServer) backup() string {
	if s.database != "" {
		program, err := exec.LookPath("pg_dump")
		if err != nil {
			return s.dump() // which has the same rows
		}
		out, err := exec.CommandContext(s.t.Context(), program, "--dbname", s.database).Output()
		if err != nil {
			s.t.Fatalf("pg_dump: %v", err)
		}
		return string(out)
	}
	copied := filepath.Join(s.t.TempDir(), "backup.db")
	db, err := sql.Open("sqlite", filepath.Join(s.data, "belfry.db"))
	if err == nil {
		_, err = db.ExecContext(s.t.Context(), fmt.Sprintf("VACUUM INTO '%s'", copied))
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.Remove(copied)
	return readText(s.t, copied)
}
