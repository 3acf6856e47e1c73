package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

const key = "9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA"

// startNode starts a node; change alters the default configuration first. It is
// stopped, and must stop cleanly, when the test ends or stop is called.
func startNode(t *testing.T, change func(*Config)) (base string, stop func()) {
	t.Helper()
	c := Defaults()
	c.Listen, c.Data = "127.0.0.1:0", t.TempDir()
	change(&c)
	n, stop := runNode(t, c)
	t.Cleanup(stop)
	return "http://" + n.Addr().String(), stop
}

// runNode runs a node until stop is called; it must stop cleanly.
func runNode(tb testing.TB, c Config) (n *Node, stop func()) {
	tb.Helper()
	n, err := New(tb.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("the node ended with %v", err)
		}
	})
}

func keyFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// request makes a request and decodes the response into out.
func request(t *testing.T, method, url, body string, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s %s: %s: %s", method, url, resp.Status, text)
		}
	}
	return resp.StatusCode
}

// runNow creates a job that calls the target at once, without retries, and
// waits until its run is settled.
func runNow(t *testing.T, base, target string) belfry.Run {
	t.Helper()
	return runFields(t, base, `"payload":{"url":"`+target+`"}`)
}

// runFields is runNow of a job with other fields.
func runFields(t *testing.T, base, fields string) belfry.Run {
	t.Helper()
	var job belfry.Job
	at := time.Now().UTC().Format(time.RFC3339Nano)
	status := request(t, "POST", base+"/api/v1/jobs", `{"schedule":"`+at+`","max_retries":0,`+fields+`}`, &job)
	if status != http.StatusCreated {
		t.Fatalf("creating a job: %d", status)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var runs []belfry.Run
		request(t, "GET", base+"/api/v1/jobs/"+job.ID.String()+"/runs", "", &runs)
		if len(runs) == 1 && runs[0].FinishedAt != nil {
			return runs[0]
		}
	}
	t.Fatal("the job did not run")
	return belfry.Run{}
}

func receiver(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "done") }))
	t.Cleanup(server.Close)
	return server.URL
}

func TestPrivateTargetsWithoutKeysOnly(t *testing.T) {
	url := receiver(t)
	for _, tt := range []struct {
		name    string
		change  func(*Config)
		allowed bool
	}{
		{"the embedded default", func(*Config) {}, true},
		{"with keys", func(c *Config) { c.APIKeyFile = keyFile(t) }, false},
		{"with keys and the address allowed", func(c *Config) { c.APIKeyFile, c.AllowTargets = keyFile(t), []string{"127.0.0.1/32"} }, true},
		{"on PostgreSQL", func(c *Config) { c.DatabaseURL = pgtest.Database(t, postgres.Migrate) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base, _ := startNode(t, tt.change)
			run := runNow(t, base, url)
			if allowed := run.Status == belfry.RunSucceeded; allowed != tt.allowed {
				t.Errorf("the run is %s: %s", run.Status, run.Error)
			}
			if !tt.allowed && !strings.Contains(run.Error, "--allow-target") {
				t.Errorf("the error does not say what to do: %s", run.Error)
			}
		})
	}
}

// A key file that becomes unusable locks everybody out, and the node says so, until it is
// usable again.
func TestKeyFileThatIsSpoiledWhileServing(t *testing.T) {
	file := keyFile(t)
	base, _ := startNode(t, func(c *Config) { c.APIKeyFile = file })
	wait := func(path string, status int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); request(t, "GET", base+path, "", nil) != status; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not answered with %d", path, status)
			}
		}
	}
	for range 2 {
		wait("/readyz", http.StatusOK)
		wait("/api/v1/jobs", http.StatusOK)
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		for path, status := range map[string]int{"/api/v1/jobs": http.StatusUnauthorized, "/readyz": http.StatusServiceUnavailable} {
			wait(path, status)
			var p belfry.Problem
			request(t, "GET", base+path, "", &p)
			if !strings.Contains(p.Detail, "API key file of this server cannot be used") || strings.Contains(p.Detail, filepath.Dir(file)) {
				t.Errorf("%s: got %q", path, p.Detail)
			}
		}
		if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPIKeysAndHostsAreChecked(t *testing.T) {
	base, _ := startNode(t, func(c *Config) { c.APIKeyFile = keyFile(t) })
	resp, err := http.Get(base + "/api/v1/jobs")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %s", resp.Status)
	}
	req, _ := http.NewRequest("GET", base+"/api/v1/jobs", nil)
	req.Host = "evil.test"
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("under an unknown name: %s", resp.Status)
	}
}

// The links in alerts lead to this server, by the name that they have.
func TestLinksInAlertsWork(t *testing.T) {
	sent := make(chan belfry.Alert, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event struct{ Data belfry.Alert }
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		sent <- event.Data
	}))
	t.Cleanup(hook.Close)
	base, _ := startNode(t, func(c *Config) { c.PublicURL = "https://belfry.example.com/" })
	request(t, "POST", base+"/api/v1/channels", `{"name":"ops","type":"webhook","url":"`+hook.URL+`"}`, nil)
	if status := request(t, "POST", base+"/api/v1/channels/ops/test", "", nil); status != http.StatusNoContent {
		t.Fatalf("the test: %d", status)
	}
	link := (<-sent).URL
	path, ok := strings.CutPrefix(link, "https://belfry.example.com/api/")
	req, err := http.NewRequestWithContext(t.Context(), "GET", base+"/api/"+path, nil)
	if !ok || err != nil {
		t.Fatalf("the link is %q: %v", link, err)
	}
	req.Host = "belfry.example.com"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", link, resp.Status)
	}
}

func TestRolesCanBeSplitOverProcesses(t *testing.T) {
	url := pgtest.Database(t, postgres.Migrate)
	role := func(roles ...string) string {
		base, _ := startNode(t, func(c *Config) { c.DatabaseURL, c.Roles, c.AllowTargets = url, roles, []string{"127.0.0.1"} })
		return base
	}
	api := role(RoleAPI)
	scheduler := role(RoleScheduler)
	role(RoleWorker)
	if run := runNow(t, api, receiver(t)); run.Status != belfry.RunSucceeded || run.Output != "done" {
		t.Errorf("the run is %+v", run)
	}
	if status := request(t, "GET", scheduler+"/api/v1/jobs", "", nil); status != http.StatusNotFound {
		t.Errorf("a node without the role serves the API with %d", status)
	}
	if status := request(t, "GET", scheduler+"/readyz", "", nil); status != http.StatusOK {
		t.Errorf("a node without an API is not ready: %d", status)
	}
}

func TestStoppedNodeReleasesItsShards(t *testing.T) {
	url := pgtest.Database(t, postgres.Migrate)
	node := func() (string, func()) {
		return startNode(t, func(c *Config) { c.DatabaseURL, c.AllowTargets = url, []string{"127.0.0.1"} })
	}
	_, stop := node()
	stays, _ := node()
	sink := receiver(t)
	runNow(t, stays, sink)
	stop()
	for range 8 { // over all shards, more or less
		if run := runNow(t, stays, sink); run.Status != belfry.RunSucceeded {
			t.Errorf("the run is %s: %s", run.Status, run.Error)
		}
	}
}

// When all connections to the database go silent while new ones work, every job fires
// again within 10 seconds.
func TestSilentConnections(t *testing.T) {
	proxy := pgtest.NewProxy(t, pgtest.Database(t, postgres.Migrate))
	base, _ := startNode(t, func(c *Config) { c.DatabaseURL, c.AllowTargets = proxy.URL(), []string{"127.0.0.1"} })
	var mu sync.Mutex
	last := map[string]time.Time{} // by job: its latest call
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		last[r.URL.Path] = time.Now()
	}))
	t.Cleanup(sink.Close)
	const jobs = 20
	for i := range jobs {
		body := fmt.Sprintf(`{"schedule": "* * * * * *", "overlap": "parallel", "payload": {"url": "%s/%d"}}`, sink.URL, i)
		if status := request(t, "POST", base+"/api/v1/jobs", body, nil); status != http.StatusCreated {
			t.Fatalf("creating a job: %d", status)
		}
	}
	fired := func(since time.Time) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, at := range last {
			if at.After(since) {
				n++
			}
		}
		return n
	}
	wait := func(since time.Time, limit time.Duration) time.Duration {
		t.Helper()
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if took := time.Since(start); fired(since) == jobs {
				return took
			} else if took > limit {
				t.Fatalf("after %s %d of %d jobs have run", took, fired(since), jobs)
			}
		}
	}
	wait(time.Now(), 20*time.Second)
	proxy.Silence()
	// A second later no answer is on its way any more.
	took := wait(time.Now().Add(time.Second), 30*time.Second)
	t.Logf("all jobs ran again after %s", took)
	if took > 10*time.Second {
		t.Errorf("all jobs ran again only after %s", took)
	}
}

// Without an endpoint for traces, the store of a node is the database, with its encryption: nothing of
// them is on the path of a run.
func TestNoTracesUnlessConfigured(t *testing.T) {
	for endpoint, want := range map[string]string{"": "*secretstore.Store", "http://127.0.0.1:1": "*tracing.Store"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		c := Defaults()
		c.Listen, c.Data = "127.0.0.1:0", t.TempDir()
		n, stop := runNode(t, c)
		if got := fmt.Sprintf("%T", n.store); got != want {
			t.Errorf("with the endpoint %q the store is a %s, wants %s", endpoint, got, want)
		}
		stop()
	}
}
