package node

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/servertest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// waitFor waits until a request is answered as a test wants.
func waitFor(t *testing.T, url string, done func(status int, body string) bool) {
	t.Helper()
	var status int
	var body string
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if status, body = resp.StatusCode, string(text); err == nil && done(status, body) {
			return
		}
	}
	t.Fatalf("%s still answers %d: %s", url, status, body)
}

// A node starts although etcd is away, says so, and works once it is there.
func TestNodeElectsByEtcd(t *testing.T) {
	server := servertest.Etcd(t)
	server.Kill()
	url := pgtest.Database(t, postgres.Migrate)
	with := func(roles ...string) string {
		base, _ := startNode(t, func(c *Config) {
			c.DatabaseURL, c.Roles, c.AllowTargets = url, roles, []string{"127.0.0.1"}
			c.Election, c.Etcd.Endpoints = belfry.ElectionEtcd, []string{server.Addr}
		})
		return base
	}
	base, api := with(RoleAPI, RoleScheduler, RoleWorker), with(RoleAPI)
	waitFor(t, base+"/readyz", func(status int, body string) bool {
		return status == http.StatusServiceUnavailable && strings.Contains(body, "leases could not be renewed")
	})
	if status := request(t, "GET", api+"/readyz", "", nil); status != http.StatusOK {
		t.Errorf("a node that takes no part in the election is not ready: %d", status)
	}
	var fleet belfry.Fleet
	if request(t, "GET", base+"/api/v1/fleet", "", &fleet); fleet.Election != belfry.ElectionEtcd || len(fleet.Unowned) != fleet.Shards {
		t.Errorf("%s elects, and nobody owns %v", fleet.Election, fleet.Unowned)
	}
	server.Start()
	waitFor(t, base+"/readyz", func(status int, _ string) bool { return status == http.StatusOK })
	if run := runNow(t, base, receiver(t)); run.Status != belfry.RunSucceeded {
		t.Errorf("the run is %s: %s", run.Status, run.Error)
	}
	waitFor(t, api+"/api/v1/fleet", func(_ int, body string) bool {
		fleet = belfry.Fleet{}
		return json.Unmarshal([]byte(body), &fleet) == nil && fleet.Election == belfry.ElectionEtcd && len(fleet.Unowned) == 0
	})
}
