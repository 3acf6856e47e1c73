// Package promtest finds and runs Prometheus for tests, as Debian packages it.
package promtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/porttest"
)

const envRequire = "BELFRY_TEST_REQUIRE_PROMETHEUS"

// Tool returns the path of prometheus or promtool. Without it the test is skipped, or
// fails if BELFRY_TEST_REQUIRE_PROMETHEUS=1.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing := name + " is not installed: apt-get install prometheus (it need not be started)"
		if os.Getenv(envRequire) == "1" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	return path
}

// Run runs promtool, which must succeed, and returns what it prints.
func Run(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := exec.Command(Tool(tb, "promtool"), args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("promtool %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// Server is a running Prometheus.
type Server struct {
	URL string
	tb  testing.TB
}

// guard runs a command until its own input ends, which it does with the test binary at the
// latest.
const guard = `"$@" </dev/null & child=$!; cat >/dev/null; kill "$child"; wait "$child"`

// Start starts a server with a configuration until the test ends.
func Start(tb testing.TB, config string) *Server {
	tb.Helper()
	program, dir := Tool(tb, "prometheus"), tb.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	address := porttest.Addr(tb)
	var output bytes.Buffer
	cmd := exec.Command("sh", "-c", guard, "sh", program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = &output, &output
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		input.Close()
		_ = cmd.Wait()
		if tb.Failed() {
			tb.Logf("prometheus printed:\n%s", output.String())
		}
	})
	return &Server{URL: "http://" + address, tb: tb}
}

// Sample is one result of a query.
type Sample struct {
	Labels map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // time and value
}

// Number is the value.
func (s Sample) Number() (n float64) {
	text, _ := s.Value[1].(string)
	fmt.Sscan(text, &n)
	return n
}

// Query evaluates an expression now. It returns nothing while the server does not answer.
func (s *Server) Query(expr string) (samples []Sample) {
	s.tb.Helper()
	var reply struct {
		Error string
		Data  struct{ Result []Sample }
	}
	s.Get("/api/v1/query?query="+url.QueryEscape(expr), &reply)
	if reply.Error != "" {
		s.tb.Fatalf("%s: %s", expr, reply.Error)
	}
	return reply.Data.Result
}

// Get calls the API and decodes the answer. It reports whether there was one.
func (s *Server) Get(path string, into any) bool {
	s.tb.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(s.URL + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into) == nil
}
