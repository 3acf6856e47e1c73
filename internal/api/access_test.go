package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

func bearer(key string) string { return "Authorization: Bearer " + key }

// createKey creates an API key with the key of the test.
func (s *service) createKey(body string, headers ...string) (k belfry.APIKey) {
	s.t.Helper()
	if headers == nil {
		headers = []string{bearer(testKey)}
	}
	s.expect(http.StatusCreated, &k, "POST", "/api/v1/keys", body, headers...)
	return k
}

// newKeyedService is the API with keys of the database, and of a file with some lines, if there are any.
func newKeyedService(t *testing.T, lines ...string) *service {
	t.Helper()
	db, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, store: db, log: new(logBuffer)}
	o := api.Options{Control: control.New(db, plan.Defaults{}), Ready: db.Ping, Metrics: metrics.New(), Log: slog.New(slog.NewTextHandler(s.log, nil))}
	var file *api.Keys
	if lines != nil {
		withKeys(t, lines...)(&o)
		file = o.Access.File
	}
	stored, err := api.NewStoredKeys(t.Context(), db, o.Log)
	if err != nil {
		t.Fatal(err)
	}
	o.Access = api.NewAccess(file, stored, o.Log)
	o.Access.Metrics = o.Metrics
	o.Control.KeysChanged(stored.Refresh)
	s.Handler = api.New(o)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		o.Access.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		db.Close()
	})
	return s
}

func TestTheFirstKeyClosesTheServer(t *testing.T) {
	s := newKeyedService(t)
	s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs", "")
	for _, body := range []string{`{"role": "reader"}`, `{"role": "admin", "namespaces": ["billing"]}`} {
		if a := s.send("POST", "/api/v1/keys", body); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, "nobody could create others") {
			t.Errorf("%s as the first key: %s", body, a.body)
		}
	}
	first := s.createKey(`{"role": "admin", "name": "ops"}`, "Accept: */*")
	if first.ExpiresAt != nil || !first.Commands || first.CreatedBy.Kind != belfry.ActorLocal || first.Status != belfry.APIKeyActive || auth.KeyPattern.FindString(first.Key) != first.Key {
		t.Errorf("the key is %+v", first)
	}
	s.expect(http.StatusUnauthorized, nil, "GET", "/api/v1/jobs", "")
	s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs", "", bearer(first.Key))
	second := s.createKey(`{"role": "reader"}`, bearer(first.Key))
	if left := time.Until(*second.ExpiresAt); left < 89*24*time.Hour || left > 90*24*time.Hour || second.CreatedBy.ID != first.ID {
		t.Errorf("the second key is %+v", second)
	}
	s.expect(http.StatusNoContent, nil, "DELETE", "/api/v1/keys/"+second.ID, "", bearer(first.Key))
	s.expect(http.StatusNoContent, nil, "DELETE", "/api/v1/keys/"+second.ID, "", bearer(first.Key))
	s.expect(http.StatusUnauthorized, nil, "GET", "/api/v1/jobs", "", bearer(second.Key))
	a := s.expect(http.StatusOK, nil, "GET", "/api/v1/keys", "", bearer(first.Key))
	if auth.KeyPattern.MatchString(a.body) || !strings.Contains(a.body, `"revoked"`) || !strings.Contains(a.body, first.ID) {
		t.Errorf("the list is %s", a.body)
	}
	s.expect(http.StatusNoContent, nil, "DELETE", "/api/v1/keys/"+first.ID, "", bearer(first.Key))
	s.expect(http.StatusUnauthorized, nil, "GET", "/api/v1/jobs", "") // it does not open again
	if log := s.log.String(); auth.KeyPattern.MatchString(log) {
		t.Errorf("the log has a key: %s", log)
	}
}

// S9: only hashes are in the database, and a scanner for secrets finds what is elsewhere.
func TestTheDatabaseHasNoKey(t *testing.T) {
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir, Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := control.New(db, plan.Defaults{})
	made, err := c.CreateKey(t.Context(), belfry.APIKey{Role: belfry.RoleAdmin, Name: "find-this-name"})
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.RotateKey(t.Context(), made.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var dump strings.Builder
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			dump.Write(text)
		}
	}
	if !strings.Contains(dump.String(), "find-this-name") {
		t.Fatal("the dump does not have the name of the key, so it proves nothing")
	}
	for _, key := range []string{made.Key, next.Key} {
		if secret := key[len("bf_12345678_"):]; strings.Contains(dump.String(), secret[:16]) || strings.Contains(dump.String(), secret[16:32]) {
			t.Error("the database has a part of a key")
		}
		if regexp.MustCompile(`\bbf_[a-z0-9]{8}_[0-9A-Za-z]{49}\b`).FindString("KEY="+key+"\n") != key {
			t.Errorf("a scanner does not find a key of %d characters", len(key))
		}
	}
}

// S9, S10
func TestKeysInQueriesAreRefused(t *testing.T) {
	s := newKeyedService(t)
	key, _ := auth.NewKey("k7m2q9d4")
	for _, query := range []string{"key=x", "api_key=x", "access_token=x", "KEY=", "search=" + key, "x%3D" + key, "search=a+" + key + "+b"} {
		for _, path := range []string{"/api/v1/jobs", "/livez", "/docs/api", "/ping/x"} {
			a := s.send("GET", path+"?"+query, "")
			if a.status != http.StatusBadRequest || strings.Contains(a.body, key[12:]) || !strings.Contains(a.body, "Authorization") {
				t.Errorf("%s?%.12s: %d %s", path, query, a.status, a.body)
			}
		}
	}
	s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs?search=bf_", "")
}

// S17: of 5,000 wrong keys from one address within a second ten are checked, and then one every five
// seconds; others are not slower, and neither is who had a right key before.
func TestGuessesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newKeyedService(t, "dev:another-key-of-more-than-thirty-two-characters")
		known := s.createKey(`{"role": "reader"}`).Key
		late := s.createKey(`{"role": "reader"}`).Key
		const attacker, other = "Remote: 203.0.113.7", "Remote: 203.0.113.8"
		get := func(key, from string) int { return s.send("GET", "/api/v1/jobs", "", bearer(key), from).status }
		if got := get(known, attacker); got != http.StatusOK {
			t.Fatalf("a right key gets %d", got)
		}
		count := map[int]int{}
		guess := func(n int) {
			for range n {
				wrong, _ := auth.NewKey("k7m2q9d4")
				count[get(wrong, attacker)]++
			}
		}
		guess(5000)
		if count[401] != 10 || count[429] != 4990 {
			t.Fatalf("the answers are %v", count)
		}
		wrong, _ := auth.NewKey("k7m2q9d4")
		if a := s.send("GET", "/api/v1/jobs", "", bearer(wrong), attacker); a.header.Get("Retry-After") < "1" || a.header.Get("Retry-After") > "5" {
			t.Errorf("it is to be tried again after %q", a.header.Get("Retry-After"))
		}
		for key, want := range map[string]int{known: 200, late: 429} { // it does not tell that the second is right
			if got := get(key, attacker); got != want {
				t.Errorf("a right key of the attacker's address gets %d, want %d", got, want)
			}
			if got := get(key, other); got != http.StatusOK {
				t.Errorf("another address gets %d", got)
			}
		}
		time.Sleep(time.Minute)
		clear(count)
		guess(100)
		if count[401] != 10 { // of twelve that a minute allows, as many as at first
			t.Errorf("after a minute the answers are %v", count)
		}
		time.Sleep(5 * time.Second)
		if got := get(late, attacker); got != http.StatusOK {
			t.Errorf("after the wait a right key gets %d", got)
		}
		time.Sleep(time.Hour)
		guess(20)
		if got := get(known, attacker); got != http.StatusTooManyRequests {
			t.Errorf("a key that was right two hours ago gets %d", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if log := s.log.String(); strings.Count(log, "wrong API key") > 8 || !strings.Contains(log, "count=5") || !strings.Contains(log, "203.0.113.7") {
			t.Errorf("the log is\n%s", log)
		}
		metrics := s.send("GET", "/metrics", "", bearer(testKey)).body
		if !strings.Contains(metrics, `belfry_api_keys_refused_total{reason="wrong"} 30`) || !strings.Contains(metrics, `belfry_api_keys_refused_total{reason="limited"} 50`) {
			t.Errorf("the metrics are %s", regexp.MustCompile(`belfry_api_keys.*`).FindAllString(metrics, -1))
		}
	})
}

func TestRequestsWithoutAKeyAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newKeyedService(t, "")
		count := map[int]int{}
		for range 1500 {
			count[s.send("GET", "/ping/x", "").status]++
		}
		if count[404] != 1000 || count[429] != 500 {
			t.Errorf("the answers are %v", count)
		}
		s.expect(http.StatusTooManyRequests, nil, "GET", "/api/v1/jobs", "")
		s.expect(http.StatusOK, nil, "GET", "/livez", "")
		s.expect(http.StatusOK, nil, "GET", "/api/v1/jobs", "", bearer(testKey))
		s.expect(http.StatusNotFound, nil, "GET", "/ping/x", "", "Remote: 2001:db8::1")
		time.Sleep(time.Second)
		s.expect(http.StatusNotFound, nil, "GET", "/ping/x", "")
	})
}

// partitioned is a source of keys whose database does not answer.
type partitioned struct {
	api.KeySource
	cut atomic.Bool
}

func (p *partitioned) ChangedAPIKeys(ctx context.Context, since time.Time) ([]store.APIKey, time.Time, error) {
	if p.cut.Load() {
		<-ctx.Done()
		return nil, time.Time{}, ctx.Err()
	}
	return p.KeySource.ChangedAPIKeys(ctx, since)
}

// Three nodes have one database. A key that is revoked, or expires, is refused by all of them within 10
// seconds, also by one that cannot read the database, and what waits ends.
func TestRevocationReachesEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Shards: 1})
		if err != nil {
			t.Fatal(err)
		}
		c := control.New(db, plan.Defaults{})
		revoked, _ := c.CreateKey(t.Context(), belfry.APIKey{Role: belfry.RoleReader})
		expires, _ := c.CreateKey(t.Context(), belfry.APIKey{Role: belfry.RoleReader, ExpiresSeconds: belfry.Some(60)})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		source := [3]*partitioned{}
		nodes := [3]*api.StoredKeys{}
		for i := range nodes {
			source[i] = &partitioned{KeySource: db}
			if nodes[i], err = api.NewStoredKeys(ctx, source[i], slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			running.Go(func() { nodes[i].Run(ctx) })
		}
		ended := [3]<-chan struct{}{}
		for i, n := range nodes {
			p, err := n.Authenticate(ctx, revoked.Key)
			if err != nil {
				t.Fatal(err)
			}
			ended[i] = p.Ended
		}
		time.Sleep(7 * time.Second)
		source[2].cut.Store(true)
		if err := c.RevokeKey(ctx, revoked.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i, limit := range []time.Duration{3 * time.Second, 3 * time.Second, 10 * time.Second} {
			<-ended[i]
			if took := time.Since(began); took > limit {
				t.Errorf("node %d refuses the key after %s", i, took)
			}
			want := belfry.Unauthorized
			if i == 2 {
				want = belfry.Unavailable
			}
			if _, err := nodes[i].Authenticate(ctx, revoked.Key); belfry.CodeOf(err) != want {
				t.Errorf("node %d: %v", i, err)
			}
		}
		if _, err := nodes[2].Authenticate(ctx, expires.Key); belfry.CodeOf(err) != belfry.Unavailable || nodes[2].Err() == nil {
			t.Errorf("a node without its database accepts a key: %v", err)
		}
		source[2].cut.Store(false)
		time.Sleep(5 * time.Second)
		for i, n := range nodes {
			if _, err := n.Authenticate(ctx, expires.Key); err != nil || n.Err() != nil {
				t.Errorf("node %d: %v, %v", i, err, n.Err())
			}
			if _, err := n.Authenticate(ctx, revoked.Key); belfry.CodeOf(err) != belfry.Unauthorized {
				t.Errorf("node %d, with its database again: %v", i, err)
			}
		}
		time.Sleep(time.Minute)
		for i, n := range nodes {
			if _, err := n.Authenticate(ctx, expires.Key); belfry.CodeOf(err) != belfry.Unauthorized {
				t.Errorf("node %d accepts a key that has expired: %v", i, err)
			}
		}
		list, _, _ := c.ListKeys(t.Context(), store.Page{Limit: 10})
		for _, k := range list {
			if k.LastUsedAt == nil || k.LastUsedAt.Second() != 0 {
				t.Errorf("%s was last used at %v", k.ID, k.LastUsedAt)
			}
		}
		// A key that was created elsewhere is known at once.
		fresh, _ := c.CreateKey(t.Context(), belfry.APIKey{Role: belfry.RoleReader})
		time.Sleep(time.Second)
		if _, err := nodes[1].Authenticate(ctx, fresh.Key); err != nil {
			t.Errorf("a new key: %v", err)
		}
		stop()
		running.Wait()
		db.Close()
	})
}
