package secretstore

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

func onSQLite(t *testing.T, test func(t *testing.T, raw store.Store)) {
	t.Run("SQLite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s)
	})
}

// eachStore runs a test with both databases.
func eachStore(t *testing.T, test func(t *testing.T, raw store.Store)) {
	onSQLite(t, test)
	t.Run("PostgreSQL", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.Database(t, postgres.Migrate)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s)
	})
}

// newKeys makes a file with a key.
func newKeys(t *testing.T) (*encrypt.Keys, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "encryption.key")
	if err := encrypt.CreateKeys(path); err != nil {
		t.Fatal(err)
	}
	keys, err := encrypt.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return keys, path
}

func open(t *testing.T, raw store.Store, keys *encrypt.Keys) *Store {
	t.Helper()
	s, err := New(t.Context(), raw, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Store, namespace, name, value string, keep time.Duration) store.SecretRecord {
	t.Helper()
	r, err := s.PutSecret(t.Context(), store.SecretRecord{Secret: belfry.Secret{Namespace: namespace, Name: name, Value: value, AllowedHosts: []string{"a.example", "*.b.example"}}}, keep)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSourceHasTheValueInUseFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, raw store.Store) {
		keys, _ := newKeys(t)
		s := open(t, raw, keys)
		values := func(want ...string) {
			t.Helper()
			got, err := NewSource(s).Secret(t.Context(), "ours", "key")
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		if _, err := NewSource(s).Secret(t.Context(), "ours", "key"); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("a secret that does not exist: %v", err)
		}
		put(t, s, "ours", "key", "first", 0)
		put(t, s, "theirs", "key", "other", 0)
		values("first")
		put(t, s, "ours", "key", "second", time.Hour)
		put(t, s, "ours", "key", "second", time.Hour) // Repeating a call does nothing.
		values("second", "first")
		third := put(t, s, "ours", "key", "third", time.Microsecond)
		for s.Now().Before(*third.PreviousUntil) { // what is known of the clock of the database may be behind
			time.Sleep(time.Millisecond)
		}
		values("third")
		put(t, s, "ours", "key", "fourth", 0)
		values("fourth")
		found, err := NewSource(s).Lookup(t.Context(), "ours", "key")
		if err != nil || !found.Allows("A.example") || !found.Allows("x.b.example") || found.Allows("b.example") || found.Allows("c.example") {
			t.Errorf("allowed hosts: %q, %v", found.AllowedHosts, err)
		}
		list, err := s.ListSecrets(t.Context(), "ours")
		if err != nil || len(list) != 1 || list[0].Value != "" || list[0].Previous != "" || list[0].Name != "key" {
			t.Errorf("the list is %+v, %v", list, err)
		}
		if err := s.DeleteSecret(t.Context(), "ours", "key"); err != nil {
			t.Error(err)
		}
		if err := s.DeleteSecret(t.Context(), "ours", "key"); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("deleted twice: %v", err)
		}
	})
}
