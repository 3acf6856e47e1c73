//go:build !linux && !darwin && !freebsd

package sqlite

// networkFileSystem does not know on this system.
func networkFileSystem(string) (kind string, remote bool, err error) { return "", false, nil }
