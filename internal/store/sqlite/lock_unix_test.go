//go:build linux || darwin || freebsd || netbsd || openbsd

package sqlite

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A descriptor that a child process has inherited, and closes only when it executes its
// program, does not keep the directory locked.
func TestReleaseLockOfInheritedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := acquireLock(path)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if _, err := acquireLock(path); err == nil {
		t.Fatal("a lock that is held was acquired")
	}
	if err := releaseLock(f); err != nil {
		t.Fatal(err)
	}
	if f, err = acquireLock(path); err != nil {
		t.Fatal(err)
	}
	if err := releaseLock(f); err != nil {
		t.Fatal(err)
	}
}
