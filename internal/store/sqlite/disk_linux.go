package sqlite

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
)

// networks are file systems whose locks or shared memory do not work between
// machines, by their number in statfs.
var networks = map[uint32]string{
	0x00006969: "NFS",
	0x0000517B: "SMB",
	0xFE534D42: "SMB",
	0xFF534D42: "CIFS",
	0x0000564C: "NCP",
	0x00C36400: "Ceph",
	0x0BD00BD0: "Lustre",
	0x5346414F: "AFS",
	0x6B414653: "AFS",
	0x73757245: "Coda",
}

// fuse is any file system of a user process; the mount table has its name.
const fuse = 0x65735546

var fuseNetworks = []string{"sshfs", "glusterfs", "ceph", "s3fs", "goofys", "rclone", "gcsfuse", "davfs", "smbnetfs", "juicefs", "nfs"}

// networkFileSystem reports whether a directory is on a network file system, and which.
func networkFileSystem(dir string) (kind string, remote bool, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return "", false, err
	}
	magic := uint32(fs.Type)
	if magic != fuse {
		kind, remote = networks[magic]
		return kind, remote, nil
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return "", false, err
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", false, nil // unknown: most FUSE file systems are local
	}
	defer mounts.Close()
	dev := uint64(st.Dev)
	major, minor := dev>>8&0xfff|dev>>32&^0xfff, dev&0xff|dev>>12&^0xff&0xffffffff
	kind, remote = fuseNetwork(mounts, fmt.Sprintf("%d:%d", major, minor))
	return kind, remote, nil
}

// fuseNetwork looks up the device in a mount table and reports whether its type, such
// as fuse.sshfs, is a network file system.
func fuseNetwork(mounts io.Reader, device string) (kind string, remote bool) {
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, types := strings.Fields(before), strings.Fields(after)
		if len(fields) < 3 || len(types) < 1 || fields[2] != device {
			continue
		}
		kind = types[0]
		if slices.ContainsFunc(fuseNetworks, func(name string) bool { return strings.HasPrefix(kind, "fuse."+name) }) {
			return kind, true
		}
	}
	return kind, false
}
