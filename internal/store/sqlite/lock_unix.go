//go:build linux || darwin || freebsd || netbsd || openbsd

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/belfry-sh/belfry"
)

// acquireLock locks the file until it is closed or the process ends, however it ends. The
// file contains the id of the process, for people.
func acquireLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = flock(f)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = inUse(f, filepath.Dir(path))
	} else if err == nil {
		err = writePID(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func inUse(f *os.File, dir string) error {
	holder, _ := io.ReadAll(io.LimitReader(f, 32))
	by := "another process"
	if pid := strings.TrimSpace(string(holder)); pid != "" {
		by = "process " + pid
	}
	return belfry.Errorf(belfry.Conflict, "%s is in use by %s: a data directory has one process", dir, by)
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	return err
}
