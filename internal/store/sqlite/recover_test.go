package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

// killed is a copy of a data directory as a killed process would leave it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return left
}

// A process that was killed may have lived until its next heartbeat was due; one that
// stopped says when.
func TestDownSince(t *testing.T) {
	dirs := map[string]string{"stopped": t.TempDir(), "killed": t.TempDir(), "killed at once": t.TempDir()}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openDir(t, dir)
				if !s.DownSince().IsZero() || s.unclean {
					t.Errorf("a new database was down since %s, unclean: %v", s.DownSince(), s.unclean)
				}
				opened := s.Now()
				time.Sleep(time.Second)
				if name != "killed at once" {
					time.Sleep(time.Minute)
					register(t, s)
				}
				want := s.Now()
				if name == "killed at once" {
					want = opened.Add(belfry.HeartbeatInterval)
				} else if name == "killed" {
					want = want.Add(belfry.HeartbeatInterval)
				}
				left := killed(t, dir)
				closeStore(t, s)
				if name == "stopped" {
					left = dir
				}
				time.Sleep(time.Hour)
				for i := range 2 { // The second time it was stopped.
					s = openDir(t, left)
					if unclean := name != "stopped" && i == 0; s.DownSince() != want || s.unclean != unclean {
						t.Errorf("it was down since %s, unclean: %v; want %s and %v", s.DownSince(), s.unclean, want, unclean)
					}
					synctest.Wait()
					if err := s.Ping(ctx); err != nil {
						t.Error(err)
					}
					want = s.Now()
					closeStore(t, s)
				}
			})
		})
	}
}

// Damage of the file is found after a kill, and said by Ping.
func TestDamageIsFoundAfterAKill(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir)
	fill(t, s, 5000, `INSERT INTO requests (namespace, key, hash, response, created_at) SELECT 'default', hex(randomblob(100)), x'', x'', i FROM n`)
	closeStore(t, s)
	s = openDir(t, dir)
	left := killed(t, dir)
	closeStore(t, s)
	file, err := os.OpenFile(filepath.Join(left, databaseFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, err := file.Seek(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte(strings.Repeat("damage", 2000)), size/2); err != nil {
		t.Fatal(err)
	}
	file.Close()
	s = openDir(t, left)
	defer closeStore(t, s)
	deadline := time.Now().Add(time.Minute)
	for s.Ping(ctx) == nil && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if err := s.Ping(ctx); err == nil || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("Ping of a damaged file says %v", err)
	}
}
