//go:build !linux

package pgtest

import "os"

// fastDir returns where the data of a server that need not be durable should be.
func fastDir() string { return os.TempDir() }
