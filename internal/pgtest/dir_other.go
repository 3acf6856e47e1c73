//go:build !linux

package pgtest

import "os"

// fastDir returns where the data of a server that need not be durable should be.
func fastFolder() string { return os.TempDir() }
