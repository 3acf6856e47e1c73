//go:build !linux

package pgtest

import "os"

// fastFolder returns where the data of a server that may forget everything should lie.
func fastFolder() string { return os.TempDir() }
