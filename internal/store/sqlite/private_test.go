//go:build linux || darwin || freebsd || netbsd || openbsd

package sqlite

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRightsOfOthersAreTakenAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var out bytes.Buffer
	open := func() {
		t.Helper()
		s, err := Open(t.Context(), Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open()
	if out.Len() > 0 {
		t.Errorf("a new directory is mended: %s", out.String())
	}
	files := []string{databaseFile, lockFile, databaseFile + "-wal", databaseFile + "-shm", "tls-key.pem", "secrets.key", "notes.txt"}
	for _, name := range files {
		path := filepath.Join(dir, name)
		if f, err := os.OpenFile(path, os.O_CREATE, 0o600); err == nil {
			f.Close()
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	open()
	for _, name := range append(files, ".") {
		info, err := os.Stat(filepath.Join(dir, name))
		if os.IsNotExist(err) { // SQLite removes its log when it closes
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o600)
		switch name {
		case ".":
			want = 0o700
		case "notes.txt": // not ours
			want = 0o644
		}
		if mode := info.Mode().Perm(); mode != want {
			t.Errorf("%s has mode %04o, not %04o", name, mode, want)
		}
		if said := strings.Contains(out.String(), "path="+filepath.Join(dir, name)+" "); said != (name != "notes.txt") {
			t.Errorf("%s is in the log: %v\n%s", name, said, out.String())
		}
	}
	out.Reset()
	open()
	if out.Len() > 0 {
		t.Errorf("it is mended again: %s", out.String())
	}
}

func TestForeignDataIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	for _, name := range []string{".", databaseFile} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
			f.Close()
		}
		if err := os.Chown(path, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "belongs to the user 12345") {
			t.Errorf("%s: got %v, %v", name, s, err)
		}
	}
}

func TestDirectoryForAllIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "belfry")) {
		t.Errorf("got %v", err)
	}
}

// The lock file is never another file: it would be overwritten.
func TestLockFileIsNoLink(t *testing.T) {
	for name, link := range map[string]func(to, path string) error{"symbolic": os.Symlink, "hard": os.Link, "pipe": func(_, path string) error { return syscall.Mkfifo(path, 0o600) }} {
		dir := t.TempDir()
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := link(victim, filepath.Join(dir, lockFile)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Options{Dir: dir}); err == nil {
			t.Errorf("a %s link is locked", name)
		}
		if text, _ := os.ReadFile(victim); string(text) != "precious" {
			t.Errorf("through a %s link the file became %q", name, text)
		}
	}
}
