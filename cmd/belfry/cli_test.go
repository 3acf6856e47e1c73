package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestMain keeps the configuration of whoever runs the tests out of them. A benchmark starts
// the program that it is part of as its worker: here the tests. So do tests that need a
// process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"bench", "serve", command.Subcommand}, os.Args[1]) {
		main()
	}
	home, err := os.MkdirTemp("", "belfry-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range []string{"BELFRY_SERVER", "BELFRY_KEY", "BELFRY_NAMESPACE", "NO_COLOR", "VISUAL", "EDITOR"} {
		os.Unsetenv(name)
	}
	os.Setenv("HOME", home)
	os.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	code := pgtest.Main(m)
	os.RemoveAll(home)
	os.Exit(code)
}

// testCLI runs the command line against a server.
type testCLI struct {
	t      *testing.T
	server string
	stdin  io.Reader
}

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

// withServer starts a server and gives a shell for it.
func withServer(t *testing.T, args ...string) *testCLI {
	t.Helper()
	return &testCLI{t: t, server: serverOf(serving(t, args...))}
}

// serverOf is the address of the server that printed a greeting.
func serverOf(greeting []string) string {
	address := regexp.MustCompile(`https?://\S+/api/v1`).FindString(strings.Join(greeting, "\n"))
	return strings.TrimSuffix(address, "/api/v1")
}

// run calls the command line and tells how it ended.
func (p *testCLI) run(args ...string) result {
	p.t.Helper()
	var out, err bytes.Buffer
	if slices.Contains([]string{"job", "run", "dead", "monitor", "event", "channel", "alert", "forecast", "fleet", "audit", "key", "secret", "namespace"}, args[0]) && p.server != "" {
		args = append(args[:len(args):len(args)], "--server", p.server)
	}
	in := p.stdin
	if in == nil {
		in = strings.NewReader("")
	}
	code := execute(p.t.Context(), args, in, &out, &err)
	return result{code, out.String(), err.String()}
}

// ok calls the command line and wants it to work.
func (p *testCLI) ok(args ...string) result {
	p.t.Helper()
	r := p.run(args...)
	if r.code != exitOK {
		p.t.Fatalf("belfry %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r
}

// json calls the command line and reads the JSON that it prints.
func (p *testCLI) json(into any, args ...string) {
	p.t.Helper()
	r := p.ok(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(r.out), into); err != nil {
		p.t.Fatalf("belfry %s printed what is not JSON: %v\n%s", strings.Join(args, " "), err, r.out)
	}
}

// job looks at a job.
func (p *testCLI) job(ref string) belfry.Job {
	p.t.Helper()
	var job belfry.Job
	p.json(&job, "job", "show", ref)
	return job
}

// api asks the server itself.
func (p *testCLI) api(path string) json.RawMessage {
	p.t.Helper()
	answer, err := http.Get(p.server + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		p.t.Fatalf("GET %s: %s %s, error %v", path, answer.Status, body, err)
	}
	return body
}

// file writes a file of the test.
func (p *testCLI) file(name, content string) string {
	p.t.Helper()
	return writeFile(p.t, filepath.Join(p.t.TempDir(), name), content)
}

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// receiver is a target of jobs that answers as it is told.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex // guards the fields below
	status int
	bodies []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies = append(r.bodies, string(body))
		w.WriteHeader(r.status)
		fmt.Fprintf(w, "answer %d\x1b[31m", len(r.bodies))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

// columns splits the lines of a table where two or more blanks are.
func columns(table string) [][]string {
	var rows [][]string
	for l := range strings.Lines(table) {
		rows = append(rows, regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(l), -1))
	}
	return rows
}
