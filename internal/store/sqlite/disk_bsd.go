//go:build darwin || freebsd

package sqlite

import "syscall"

// mntLocal marks a file system that is stored on this machine.
const mntLocal = 0x1000

// networkFileSystem reports whether a directory is on a network file system, and which.
func networkFileSystem(dir string) (kind string, remote bool, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return "", false, err
	}
	var name []byte
	for _, c := range fs.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return string(name), uint64(fs.Flags)&mntLocal == 0, nil
}
