package node

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/promtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// get returns the status and the text of a page, asked for without a key.
func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// families returns the kinds of the metrics of Belfry in a scrape, by name.
func families(text string) map[string]string {
	found := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		var name, kind string
		if n, _ := fmt.Sscanf(s.Text(), "# TYPE %s %s", &name, &kind); n == 2 && strings.HasPrefix(name, "belfry_") {
			found[name] = kind
		}
	}
	return found
}

// awaitFamily scrapes a node until it exports a metric, and returns everything that it exports.
func awaitFamily(t *testing.T, base, name string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		status, text := get(t, base+"/metrics")
		if families(text)[name] != "" {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not exported: %d\n%s", name, status, text)
		}
	}
}

func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(belfry_[a-z_]+)` \\| (counter|gauge|histogram) \\|").FindAllStringSubmatch(string(text), -1) {
		found[row[1]] = row[2]
	}
	if len(found) < 20 {
		t.Fatalf("docs/metrics.md has %d metrics: the test reads it wrongly", len(found))
	}
	return found
}

// A running node exports what docs/metrics.md lists, and nothing else.
func TestNodeExportsTheDocumentedMetrics(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"sqlite": func(*Config) {},
		"postgres": func(c *Config) {
			c.DatabaseURL, c.AllowTargets = pgtest.Database(t, postgres.Migrate), []string{"127.0.0.1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			base, _ := startNode(t, change)
			runNow(t, base, receiver(t))
			got, want := families(awaitFamily(t, base, "belfry_worker_utilization")), documentedMetrics(t)
			for metric, kind := range want {
				if got[metric] != kind {
					t.Errorf("%s is exported as %q, documented as %s", metric, got[metric], kind)
				}
			}
			for metric := range got {
				if want[metric] == "" {
					t.Errorf("%s is not documented", metric)
				}
			}
		})
	}
}

func TestMetricsNeedAKey(t *testing.T) {
	base, _ := startNode(t, func(c *Config) { c.APIKeyFile = keyFile(t) })
	if status, text := get(t, base+"/metrics"); status != http.StatusUnauthorized || strings.Contains(text, "belfry_") {
		t.Errorf("without a key: %d", status)
	}
	if status := request(t, "GET", base+"/metrics", "", nil); status != http.StatusOK {
		t.Errorf("with a key: %d", status)
	}
	if status, _ := get(t, base+"/debug/pprof/"); status == http.StatusOK {
		t.Error("profiles are served with the API")
	}
}

func TestMetricsListener(t *testing.T) {
	c := Defaults()
	c.Listen, c.Data, c.APIKeyFile, c.MetricsListen = "127.0.0.1:0", t.TempDir(), keyFile(t), ":0"
	n, stop := runNode(t, c)
	defer stop()
	base := "http://" + n.MetricsAddr().String()
	if !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Fatalf("an address without a host is %s", base)
	}
	if status, text := get(t, base+"/metrics"); status != http.StatusOK || !strings.Contains(text, "\nbelfry_shards 60\n") || !strings.Contains(text, "\ngo_goroutines ") || !strings.Contains(text, "\nprocess_") {
		t.Errorf("/metrics: %d\n%s", status, text)
	}
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/goroutine": 200, "/debug/pprof/cmdline": 404, "/api/v1/jobs": 404, "/": 404} {
		if status, _ := get(t, base+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	req, _ := http.NewRequest("GET", base+"/metrics", nil)
	req.Host = "evil.test"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("under an unknown name: %s", resp.Status)
	}
}

func TestMetricsListenIsChecked(t *testing.T) {
	c := Defaults()
	c.MetricsListen = "9464"
	if err := c.Validate(); err == nil || !strings.Contains(fmt.Sprint(err.(*belfry.Error).Fields), "--metrics-listen") {
		t.Errorf("got %v", err)
	}
}

// Of a cluster one node exports the metrics of the cluster: another one when it has stopped.
func TestOneNodeExportsTheCluster(t *testing.T) {
	url := pgtest.Database(t, postgres.Migrate)
	type node struct {
		base string
		stop func()
	}
	var nodes []node
	for range 2 {
		base, stop := startNode(t, func(c *Config) { c.DatabaseURL = url })
		nodes = append(nodes, node{base, stop})
	}
	exporters := func() (found []int) {
		for i, n := range nodes {
			if _, text := get(t, n.base+"/metrics"); families(text)["belfry_dlq_depth"] != "" && strings.Contains(text, "\nbelfry_leases{kind=\"node\"} ") {
				found = append(found, i)
			}
		}
		return found
	}
	await := func(doing string, done func(found []int) bool) []int {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
			found := exporters()
			if done(found) {
				return found
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the nodes %v export the cluster", doing, found)
			}
		}
	}
	// The shards of a node move when another one starts: until then the first one has all.
	for _, n := range nodes {
		awaitShards(t, n.base, 60)
	}
	first := await("with two nodes", func(found []int) bool { return len(found) == 1 })[0]
	nodes[first].stop()
	nodes = append(nodes[:first], nodes[first+1:]...)
	await("after its stop", func(found []int) bool { return len(found) == 1 })
}

// awaitShards waits until a node owns some of the shards and others have the rest.
func awaitShards(t *testing.T, base string, all int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, text := get(t, base+"/metrics")
		var owned int
		if _, rest, ok := strings.Cut(text, "\nbelfry_shards_owned "); ok {
			fmt.Sscan(rest, &owned)
		}
		if owned > 0 && owned < all {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s owns %d shards", base, owned)
		}
	}
}

const prometheusConfig = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: belfry
    authorization: {credentials: %s}
    static_configs: [{targets: [%q]}]
`

// A real Prometheus scrapes a node on PostgreSQL whose runs succeed, fail and die, and
// evaluates the shipped rules.
func TestPrometheusScrapesANode(t *testing.T) {
	rules, err := filepath.Abs("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	promtest.Tool(t, "prometheus")
	base, _ := startNode(t, func(c *Config) {
		c.DatabaseURL, c.APIKeyFile, c.AllowTargets = pgtest.Database(t, postgres.Migrate), keyFile(t), []string{"127.0.0.1"}
	})
	server := promtest.Start(t, fmt.Sprintf(prometheusConfig, rules, key, strings.TrimPrefix(base, "http://")))
	await := func(expr string, holds func(value float64) bool) {
		t.Helper()
		var samples []promtest.Sample
		for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(250 * time.Millisecond) {
			if samples = server.Query(expr); len(samples) == 1 && holds(samples[0].Number()) {
				return
			}
		}
		t.Fatalf("%s is %v", expr, samples)
	}
	is := func(want float64) func(float64) bool { return func(got float64) bool { return got == want } }
	runNow(t, base, receiver(t))
	await(`belfry_job_attempts_total{queue="default", type="http", outcome="failed"}`, is(0)) // so that a rate sees the first failure

	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(failing.Close)
	for range 2 {
		if run := runNow(t, base, failing.URL); run.Status != belfry.RunDead {
			t.Fatalf("the run is %s", run.Status)
		}
	}
	await(`belfry_job_schedule_lag_seconds_count{queue="default", type="http"}`, is(3))
	await(`belfry_job_execution_duration_seconds_count{queue="default", type="http"}`, is(3))
	await(`belfry_job_attempts_total{outcome="failed"}`, is(2))
	await(`belfry_job_attempts_total{outcome="succeeded"}`, is(1))
	await(`belfry_runs_dead_total{reason="out_of_retries"}`, is(2))
	await(`belfry_dlq_depth{queue="default", type="http"}`, is(2))
	await(`belfry_pending_queue_depth{queue="default", type="http"}`, is(0))
	await(`belfry_worker_utilization{queue="default", type="http"}`, func(v float64) bool { return v >= 0 && v <= 1 })
	await(`belfry:job_failure_rate`, func(v float64) bool { return v > 0.5 && v <= 1 })
	await(`ALERTS{alertname="BelfryDeadLetters", alertstate="firing"}`, is(1))
	for _, quiet := range []string{"BelfryNodeDown", "BelfryNoScheduler", "BelfryShardsWithoutOwner", "BelfryClockOffset"} {
		if alerts := server.Query(`ALERTS{alertstate="firing", alertname="` + quiet + `"}`); len(alerts) > 0 {
			t.Errorf("%s fires: %v", quiet, alerts)
		}
	}
	var state struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if !server.Get("/api/v1/rules", &state) || len(state.Data.Groups) == 0 {
		t.Fatal("Prometheus has no rules")
	}
	for _, group := range state.Data.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
		}
	}
}
