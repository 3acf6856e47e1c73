package node

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// replaceFile replaces a file as an operator does, at once.
func replaceFile(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path+"~", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

func randomKey() string {
	raw := make([]byte, 32)
	rand.Read(raw)
	return base64.StdEncoding.EncodeToString(raw)
}

// keyedCluster is nodes with a file of encryption keys each: one on SQLite, two on PostgreSQL.
type keyedCluster struct {
	t       *testing.T
	configs []Config
	nodes   []*Node
	stops   []func()
}

func startKeyedCluster(t *testing.T, onPostgres bool, keys ...string) *keyedCluster {
	t.Helper()
	c := &keyedCluster{t: t}
	nodes, database := 1, ""
	if onPostgres {
		nodes, database = 2, pgtest.Database(t, postgres.Migrate)
	}
	for range nodes {
		config := Defaults()
		config.Listen, config.Data, config.DatabaseURL, config.RateLimit = "127.0.0.1:0", t.TempDir(), database, 0
		config.EncryptionKeyFile, config.AllowTargets = filepath.Join(t.TempDir(), "encryption.key"), []string{"127.0.0.1"}
		replaceFile(t, config.EncryptionKeyFile, keys...)
		c.configs = append(c.configs, config)
		c.start(config)
	}
	return c
}

func (c *keyedCluster) start(config Config) {
	c.t.Helper()
	n, stop := runNode(c.t, config)
	c.t.Cleanup(stop)
	c.nodes, c.stops = append(c.nodes, n), append(c.stops, stop)
}

// client is one of a namespace at a node, whose number may be too large. It repeats nothing.
func (c *keyedCluster) client(node int, namespace string) *client.Client {
	c.t.Helper()
	of, err := client.New("http://"+c.nodes[node%len(c.nodes)].Addr().String(), client.WithRetries(0), client.WithNamespace(namespace))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(of.Close)
	return of
}

// firstOf creates a job with a secret in a namespace that has no data key yet.
func (c *keyedCluster) firstOf(node int, namespace string) {
	c.t.Helper()
	m := belfry.Manifest{Name: "first", Spec: belfry.Spec{Schedule: "@yearly"}, Payload: belfry.MustJSON(map[string]any{"url": "http://127.0.0.1", "body": map[string]string{"password": "secret"}})}
	if _, err := c.client(node, namespace).CreateJob(c.t.Context(), m); err != nil {
		c.t.Errorf("node %d, namespace %s: %v", node, namespace, err)
	}
	c.read(namespace)
}

// read reads the job of firstOf on all nodes.
func (c *keyedCluster) read(namespace string) {
	c.t.Helper()
	for i := range c.nodes {
		if _, err := c.client(i, namespace).Job(c.t.Context(), "first"); err != nil {
			c.t.Errorf("node %d reads namespace %s: %v", i, namespace, err)
		}
	}
}

// reencrypt does what belfry secret reencrypt does.
func (c *keyedCluster) reencrypt() {
	c.t.Helper()
	for after := ""; ; {
		step, err := c.client(0, "").Reencrypt(c.t.Context(), after)
		if err != nil || step.Failed > 0 {
			c.t.Fatalf("the step %+v: %v", step, err)
		}
		if after = step.After; after == "" {
			return
		}
	}
}

// callOnce is a job that calls an address now, with a secret of its own and a named one.
func callOnce(name, url, token string) belfry.Manifest {
	return belfry.Manifest{Name: name, Spec: belfry.Spec{Schedule: soon(0), MaxRetries: belfry.Some(0)}, Payload: belfry.MustJSON(map[string]any{
		"url": url, "headers": map[string]string{"Authorization": "Bearer " + token, "X-Named": `{{secret "named"}}`}, "body": map[string]string{"token": token}})}
}

// awaitCount waits until a count has a value.
func awaitCount(t *testing.T, what string, count *atomic.Int64, want int64) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); count.Load() < want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d of %d", what, count.Load(), want)
		}
	}
}

// S19: the key that encrypts is replaced, first on one node and then on the other, while jobs with
// secrets are created, read, edited and executed on both. No request and no run fails, and afterwards
// the old key is not needed, also for namespaces that were new meanwhile.
func TestEncryptionKeyRotationUnderLoad(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, onPostgres bool) {
		const named = "value of the named secret"
		old := randomKey()
		c := startKeyedCluster(t, onPostgres, old)
		var calls, wrong atomic.Int64
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !strings.HasPrefix(token, "token-") || string(body) != fmt.Sprintf(`{"token":%q}`, token) || r.Header.Get("X-Named") != named {
				wrong.Add(1)
				t.Errorf("a call has %q, %q and %s", token, r.Header.Get("X-Named"), body)
			}
			calls.Add(1)
		}))
		t.Cleanup(target.Close)
		clients := []*client.Client{c.client(0, ""), c.client(1, "")}
		if _, err := clients[0].PutSecret(t.Context(), belfry.Secret{Name: "named", Value: named}); err != nil {
			t.Fatal(err)
		}
		l := startLoad(t, 3, func(ctx context.Context, n int64) error {
			name := fmt.Sprintf("load-%d", n)
			job, err := clients[n%2].CreateJob(ctx, callOnce(name, target.URL, "token-"+name))
			if err == nil {
				_, err = clients[(n+1)%2].Job(ctx, job.ID.String())
			}
			if err == nil && n%5 == 0 {
				_, err = clients[n%2].PutSecret(ctx, belfry.Secret{Name: "named", Value: named})
			}
			return err
		})
		var namespaces []string
		eachNode := func() {
			for i := range c.nodes {
				namespaces = append(namespaces, fmt.Sprintf("new-%d", len(namespaces)))
				c.firstOf(i, namespaces[len(namespaces)-1])
			}
		}
		for range 2 {
			next := randomKey()
			for _, config := range c.configs { // one node has it first
				l.during(4, func() { replaceFile(t, config.EncryptionKeyFile, next, old) })
				eachNode()
			}
			l.during(4, c.reencrypt)
			for _, config := range c.configs {
				replaceFile(t, config.EncryptionKeyFile, next)
			}
			l.during(4, eachNode)
			old = next
		}
		served := l.end()
		awaitCount(t, "calls", &calls, served)
		t.Logf("%d requests and %d runs, %d failed", served, calls.Load(), l.failed.Load()+wrong.Load())
		for _, stop := range c.stops {
			stop()
		}
		c.nodes = nil
		c.start(c.configs[0]) // which has the last key alone, and reads everything
		for _, namespace := range namespaces {
			c.read(namespace)
		}
	})
}

// S21: the key that signs callbacks is replaced while they are sent. The receiver knows the old key,
// then both, and from some seconds after the replacement on the new one alone.
func TestSigningKeyRotationUnderLoad(t *testing.T) {
	const switched = 7 * time.Second // a new value is used by all nodes within five
	onEachDatabase(t, func(t *testing.T, onPostgres bool) {
		c := startKeyedCluster(t, onPostgres, randomKey())
		older, newer := webhook.NewKey(), webhook.NewKey()
		var rotated atomic.Int64 // when, in seconds since 1970; 0: not yet
		var calls, after atomic.Int64
		target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			at, _ := strconv.ParseInt(r.Header.Get("Webhook-Timestamp"), 10, 64)
			known := []string{older, newer}
			switch since := rotated.Load(); {
			case since == 0:
				known = known[:1]
			case at > since+int64(switched/time.Second):
				known = known[1:]
				after.Add(1)
			}
			var keys [][]byte
			for _, text := range known {
				key, err := webhook.ParseKey(text)
				if err != nil {
					t.Error(err)
				}
				keys = append(keys, key)
			}
			if err := webhook.Verify(r.Header, body, time.Now(), 5*time.Minute, keys...); err != nil {
				t.Errorf("with %d keys known: %v", len(known), err)
			}
			calls.Add(1)
		}))
		t.Cleanup(target.Close)
		admin := c.client(0, "")
		set := func(key string) {
			if _, err := admin.PutSecret(t.Context(), belfry.Secret{Name: "hooks", Value: key, KeepPreviousSeconds: 86400}); err != nil {
				t.Fatal(err)
			}
		}
		set(older)
		clients := []*client.Client{c.client(0, ""), c.client(1, "")}
		l := startLoad(t, 2, func(ctx context.Context, n int64) error {
			_, err := clients[n%2].CreateJob(ctx, belfry.Manifest{Spec: belfry.Spec{Schedule: soon(0), MaxRetries: belfry.Some(0)}, Payload: belfry.MustJSON(map[string]any{
				"url": target.URL, "sign_with": "hooks", "body": map[string]int64{"n": n}})})
			time.Sleep(20 * time.Millisecond) // the load lasts longer than others
			return err
		})
		l.during(10, func() {})
		awaitCount(t, "calls before", &calls, 20)
		rotated.Store(time.Now().Unix()) // the receiver is told first
		set(newer)
		awaitCount(t, "calls with the new key alone", &after, 20)
		served := l.end()
		awaitCount(t, "calls", &calls, served)
		t.Logf("%d callbacks, %d of them with the new key alone", calls.Load(), after.Load())
	})
}

// S9: keys of a file, and the bootstrap key, are replaced while they are used.
func TestKeyFileRotationUnderLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, bootstrap := filepath.Join(dir, "keys"), filepath.Join(dir, "first")
	var fileKey, storedKey atomic.Pointer[string]
	use := func(p *atomic.Pointer[string], key string) { p.Store(&key) }
	use(&fileKey, randomKey())
	replaceFile(t, file, "ops:"+*fileKey.Load())
	base, _ := startNode(t, func(c *Config) { c.APIKeyFile, c.BootstrapKeyFile, c.RateLimit = file, bootstrap, 0 })
	text, err := os.ReadFile(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	use(&storedKey, strings.TrimSpace(string(text)))
	l := startLoad(t, 4, func(_ context.Context, n int64) error {
		key := []*atomic.Pointer[string]{&fileKey, &storedKey}[n%2].Load()
		if status := statusWith(t, "GET", base+"/api/v1/jobs?limit=1", "", *key, nil); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	await := func(key string, want int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); statusWith(t, "GET", base+"/api/v1/jobs?limit=1", "", key, nil) != want; time.Sleep(500 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the key does not get %d", want)
			}
		}
	}
	for range 2 {
		old, next := *fileKey.Load(), randomKey()
		l.during(5, func() { replaceFile(t, file, "ops:"+old, "next:"+next) })
		await(next, http.StatusOK)
		l.during(5, func() { use(&fileKey, next) })
		l.during(5, func() { replaceFile(t, file, "next:"+next) })
		await(old, http.StatusUnauthorized)

		var made belfry.APIKey
		old = *storedKey.Load()
		id := strings.Split(old, "_")[1]
		if status := statusWith(t, "POST", base+"/api/v1/keys/"+id+"/rotate", `{"overlap_seconds": 60}`, old, &made); status != http.StatusCreated {
			t.Fatalf("the key %s is not rotated: %d", id, status)
		}
		l.during(5, func() { use(&storedKey, made.Key) })
		if status := statusWith(t, "DELETE", base+"/api/v1/keys/"+id, "", made.Key, nil); status != http.StatusNoContent {
			t.Fatalf("the key %s is not revoked: %d", id, status)
		}
		l.during(5, func() { await(old, http.StatusUnauthorized) })
	}
	t.Logf("%d requests, %d failed", l.end(), l.failed.Load())
}
