//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package sqlite

import (
	"os"
	"runtime"

	"github.com/belfry-sh/belfry"
)

// takeLock refuses: without a lock that ends with its process, nothing says that
// the runs of an earlier one are over.
func takeLock(string) (*os.File, error) {
	return nil, belfry.Errorf(belfry.Invalid, "lock the data directory: not possible on %s; use PostgreSQL", runtime.GOOS)
}
