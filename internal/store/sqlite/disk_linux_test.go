package sqlite

import (
	"strings"
	"testing"
)

const mountTable = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:40 / /mnt/far rw,nosuid shared:9 - fuse.sshfs me@far:/ rw,user_id=0
32 22 0:41 / /mnt/near rw,nosuid shared:9 - fuse.mergerfs a:b rw,user_id=0
33 22 0:42 / /mnt/bucket rw,nosuid - fuse.s3fs s3fs rw
broken line
`

func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for _, tt := range []struct {
		name, device, kind string
		remote             bool
	}{
		{"a remote one", "0:40", "fuse.sshfs", true},
		{"a bucket", "0:42", "fuse.s3fs", true},
		{"a local one", "0:41", "fuse.mergerfs", false},
		{"one that is not mounted", "0:99", "", false},
	} {
		kind, remote := fuseNetwork(strings.NewReader(mountTable), tt.device)
		if kind != tt.kind || remote != tt.remote {
			t.Errorf("%s: got %q, %v, wants %q, %v", tt.name, kind, remote, tt.kind, tt.remote)
		}
	}
	if kind, remote, err := networkFileSystem(t.TempDir()); err != nil || remote {
		t.Errorf("the disk of this machine is taken for %q, %v", kind, err)
	}
	if _, _, err := networkFileSystem("/no/such/directory"); err == nil {
		t.Error("a directory that is not there has a file system")
	}
}
