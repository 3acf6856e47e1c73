package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// statusWith is the status that a request with a key gets; 0: there is no answer.
func statusWith(t *testing.T, method, address, body, key string, out any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, address, err, text)
		}
	}
	return answer.StatusCode
}

// S1, S2: a node that other machines reach has a key from its first start on, and each has its own.
func TestTheFirstStartMakesAKey(t *testing.T) {
	t.Parallel()
	open := func(change func(*Config)) *Node {
		c := Defaults()
		c.Listen, c.Data, c.InsecurePlainHTTP = "0.0.0.0:0", t.TempDir(), true
		change(&c)
		n, stop := runNode(t, c)
		t.Cleanup(stop)
		return n
	}
	address := func(n *Node) string { return fmt.Sprintf("http://127.0.0.1:%s/api/v1/jobs", portOf(n)) }
	data := t.TempDir()
	c := Defaults()
	c.Listen, c.Data, c.InsecurePlainHTTP = "0.0.0.0:0", data, true
	first, stop := runNode(t, c)
	made := first.BootstrapKey()
	if got := statusWith(t, "GET", address(first), "", "", nil); got != http.StatusUnauthorized {
		t.Errorf("without a key: %d", got)
	}
	if got := statusWith(t, "GET", address(first), "", made, nil); got != http.StatusOK {
		t.Errorf("with the key that was made: %d", got)
	}
	stop()
	again := open(func(c *Config) { c.Data = data })
	if got := statusWith(t, "GET", address(again), "", made, nil); got != http.StatusOK || again.BootstrapKey() != "" {
		t.Errorf("after another start: %d, and the key %q", got, again.BootstrapKey())
	}
	if another := open(func(*Config) {}); another.BootstrapKey() == made || auth.KeyPattern.FindString(another.BootstrapKey()) == "" {
		t.Error("two databases have one key, or none")
	}

	file := filepath.Join(t.TempDir(), "first")
	written := open(func(c *Config) { c.BootstrapKeyFile = file })
	text, err := os.ReadFile(file)
	info, _ := os.Stat(file)
	inFile := strings.TrimSpace(string(text))
	if err != nil || info.Mode().Perm() != 0o600 || written.BootstrapKey() != "" || statusWith(t, "GET", address(written), "", inFile, nil) != http.StatusOK {
		t.Errorf("the file is %v (%v)", info, err)
	}
	taken := open(func(c *Config) { c.BootstrapKeyFile, c.Listen = file, "127.0.0.1:0" }) // another database, on loopback
	if got := statusWith(t, "GET", address(taken), "", inFile, nil); got != http.StatusOK {
		t.Errorf("the key of a file gets %d", got)
	}
	if got := statusWith(t, "GET", address(taken), "", "", nil); got != http.StatusUnauthorized {
		t.Errorf("without the key of the file: %d", got)
	}
	if local := open(func(c *Config) { c.Listen = "127.0.0.1:0" }); local.BootstrapKey() != "" || statusWith(t, "GET", address(local), "", "", nil) != http.StatusOK {
		t.Error("on loopback a key is required before there is one")
	}
	if filed := open(func(c *Config) { c.APIKeyFile = keyFile(t) }); filed.BootstrapKey() != "" {
		t.Error("a key is made beside the file of keys")
	}
	for text, mode := range map[string]os.FileMode{"secret\n": 0o600, inFile: 0o644} {
		os.WriteFile(file, []byte(text), 0o600)
		os.Chmod(file, mode)
		c := Defaults()
		c.Listen, c.Data, c.BootstrapKeyFile = "127.0.0.1:0", t.TempDir(), file
		if _, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("a file of mode %o: %v", mode, err)
		}
	}
}

func portOf(n *Node) string {
	_, port, _ := strings.Cut(strings.TrimPrefix(n.Addr().String(), "[::]"), ":")
	return port
}

// S9: a key that is revoked is refused by every node within 10 seconds, also by one that lost the
// database, where keys of the file still work. The slack is for a busy machine; a test of package api
// has the bound.
func TestRevocationOnThreeNodes(t *testing.T) {
	t.Parallel()
	const bound, slack = 10 * time.Second, 5 * time.Second
	database := pgtest.Database(t, postgres.Migrate)
	proxy := pgtest.NewProxy(t, database)
	var bases [3]string
	for i := range bases {
		bases[i], _ = startNode(t, func(c *Config) {
			if c.DatabaseURL = database; i == 2 {
				c.DatabaseURL, c.APIKeyFile = proxy.URL(), keyFile(t)
			}
		})
	}
	t.Cleanup(proxy.Heal)
	var admin, reader belfry.APIKey
	statusWith(t, "POST", bases[0]+"/api/v1/keys", `{"role": "admin"}`, "", &admin)
	statusWith(t, "POST", bases[0]+"/api/v1/keys", `{"role": "reader"}`, admin.Key, &reader)
	const path, body = "/api/v1/schedules/preview", `{"schedule": "@daily"}` // which needs no database
	for i, base := range bases {
		if got := statusWith(t, "POST", base+path, body, reader.Key, nil); got != http.StatusOK {
			t.Fatalf("node %d: %d", i, got)
		}
	}
	proxy.Stall()
	if got := statusWith(t, "DELETE", bases[0]+"/api/v1/keys/"+reader.ID, "", admin.Key, nil); got != http.StatusNoContent {
		t.Fatalf("revoked: %d", got)
	}
	revoked := time.Now()
	for i, want := range []int{http.StatusUnauthorized, http.StatusUnauthorized, http.StatusServiceUnavailable} {
		for {
			got := statusWith(t, "POST", bases[i]+path, body, reader.Key, nil)
			if got == want {
				break
			}
			if time.Since(revoked) > bound+slack {
				t.Fatalf("node %d answers %d, %s after the key was revoked", i, got, time.Since(revoked))
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
	}
	if got := statusWith(t, "POST", bases[2]+path, body, key, nil); got != http.StatusOK {
		t.Errorf("a key of the file gets %d without the database", got)
	}
}

// S5: what a listener answers to somebody without a key.
func TestTheMetricsListenerAnswersLittle(t *testing.T) {
	t.Parallel()
	c := Defaults()
	c.Listen, c.Data, c.APIKeyFile, c.MetricsListen = "127.0.0.1:0", t.TempDir(), keyFile(t), "127.0.0.1:0"
	n, stop := runNode(t, c)
	defer stop()
	base := "http://" + n.MetricsAddr().String()
	for _, path := range []string{"/", "/api/v1/jobs", "/api/v1/keys", "/login", "/jobs", "/debug/pprof/cmdline", "/debug/vars", "/livez", "/metrics", "/debug/pprof/"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			got := statusWith(t, method, base+path, "", "", nil)
			if open := path == "/metrics" && method == "GET" || path == "/debug/pprof/"; open != (got == http.StatusOK) {
				t.Errorf("%s %s: %d", method, path, got)
			}
		}
	}
}
