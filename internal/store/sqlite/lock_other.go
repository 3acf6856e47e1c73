//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package sqlite

import (
	"log/slog"
	"os"
	"runtime"

	"github.com/belfry-sh/belfry"
)

// protect does nothing: rights are not those of Unix.
func protect(string, *slog.Logger) error { return nil }

// acquireLock fails: without a lock that ends with its process, nothing proves that the
// runs of an earlier process are lost.
func acquireLock(string) (*os.File, error) {
	return nil, belfry.Errorf(belfry.Invalid, "lock the data directory: not possible on %s; use PostgreSQL", runtime.GOOS)
}

func releaseLock(f *os.File) error { return f.Close() }
