//go:build linux || darwin || freebsd || netbsd || openbsd

package sqlite

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/belfry-sh/belfry"
)

// acquireLock locks the file until it is closed or the process ends, however it ends. The
// file contains the id of the process, for people.
func acquireLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err = checkOwn(f); err == nil {
		err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	}
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

// checkOwn refuses a file that is another one as well: what is written to it would be written
// there.
func checkOwn(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || ok && stat.Nlink != 1 {
		return belfry.Errorf(belfry.Invalid, "%s is not a file of its own: remove it", f.Name())
	}
	return nil
}

// protect takes the rights of other users to a file or directory away, if there are any. It
// must belong to the user of this process.
func protect(path string, log *slog.Logger) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	mode, private := info.Mode(), os.FileMode(0o600)
	if info.IsDir() {
		private = 0o700
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case int(stat.Uid) != os.Geteuid():
		return belfry.Errorf(belfry.Invalid, "%s belongs to the user %d, and this process is of the user %d: change its owner, or set --data to a directory that does not exist yet, such as %s", path, stat.Uid, os.Geteuid(), filepath.Join(path, "belfry"))
	case mode&os.ModeSticky != 0:
		return belfry.Errorf(belfry.Invalid, "%s is a directory for all users: set --data to one inside it, such as %s", path, filepath.Join(path, "belfry"))
	case mode.Perm()&0o077 == 0:
		return nil
	}
	log.Warn("other users had rights to what is for this process alone; they are taken away", "path", path, "mode", fmt.Sprintf("%04o", mode.Perm()), "now", fmt.Sprintf("%04o", private))
	return os.Chmod(path, private)
}

// releaseLock unlocks the file and closes it. Closing alone would leave it locked while a
// child process that was forked before has not executed its program yet.
func releaseLock(f *os.File) error { return errors.Join(flock(f, syscall.LOCK_UN), f.Close()) }

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
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
