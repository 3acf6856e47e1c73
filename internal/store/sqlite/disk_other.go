//go:build !linux && !darwin && !freebsd

package sqlite

// network cannot tell on this system.
func network(string) (kind string, remote bool, err error) { return "", false, nil }
