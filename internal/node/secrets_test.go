package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/encrypt"
	"github.com/belfry-sh/belfry/internal/store"
)

// The embedded database has a key beside it, which is made once and never replaced.
func TestKeyBesideTheEmbeddedDatabase(t *testing.T) {
	c := Defaults()
	c.Listen, c.Data = "127.0.0.1:0", t.TempDir()
	start := func() (*Node, error) { return New(t.Context(), c, slog.New(slog.DiscardHandler)) }
	path := filepath.Join(c.Data, "encryption.key")
	n, err := start()
	if err != nil {
		t.Fatal(err)
	}
	secret := store.SecretRecord{Secret: belfry.Secret{Namespace: "default", Name: "key", Value: "the value"}}
	_, err = n.store.PutSecret(t.Context(), secret, 0)
	n.close()
	info, failed := os.Stat(path)
	if err != nil || failed != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key file: %v, %v, %v", info, err, failed)
	}
	refused := func(want string) {
		t.Helper()
		if n, err := start(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
			if n != nil {
				n.close()
			}
		}
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	refused("encryption.key is missing, and the database has data that is encrypted with the key in it")
	if _, err := os.Stat(path); err == nil {
		t.Error("another key was made")
	}
	if err := encrypt.CreateKeys(path); err != nil {
		t.Fatal(err)
	}
	refused("which is not in " + path)
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if n, err = start(); err != nil {
		t.Fatal(err)
	}
	defer n.close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a key file that others could read: %v, %v", info.Mode(), err)
	}
	if found, err := n.store.Secret(t.Context(), "default", "key"); err != nil || found.Value != "the value" {
		t.Errorf("got %+v, %v", found, err)
	}
}
