package command

import (
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock: of reading, and those that a file can have which is no directory.
const (
	rightsToRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsOfFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// Files that are no risk without bubblewrap, which has its own.
var (
	systemDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
	systemFacts   = []string{"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version", "/proc/filesystems"}
)

// landlock leaves this thread, and what it executes, the files of the launch alone. It
// returns the version of the kernel's interface.
func (l *launch) landlock(wrapped bool) (version int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if version = int(n); errno != 0 {
		return 0, errno
	}
	size := uintptr(8) // of what the version knows of the attributes
	attr := unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1}
	for since, right := range map[int]uint64{2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV} {
		if version >= since {
			attr.Handled_access_fs |= right
		}
	}
	if version >= 4 {
		size = 16
		if !l.Network {
			attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if version >= 6 {
		size = 24
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return 0, errno
	}
	defer unix.Close(int(fd))
	read, write := l.readable(), append(slices.Clone(l.Write), l.Private)
	if wrapped {
		read, write = append(read, "/proc"), append(write, "/dev", "/tmp")
	} else {
		read, write = append(read, systemFacts...), append(write, systemDevices...)
	}
	for i, path := range append(read, write...) {
		rights := attr.Handled_access_fs
		if i < len(read) {
			rights &= rightsToRead
		}
		if err := allow(int(fd), path, rights); err != nil {
			return 0, err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return 0, errno
	}
	return version, nil
}

// allow adds a rule for a path, which need not exist.
func allow(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		rights &= rightsOfFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	const pathBeneath = 1
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), pathBeneath, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// refusedCalls are system calls that no command needs and that have helped to break out of
// sandboxes, or change the machine itself.
var refusedCalls = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PERF_EVENT_OPEN, unix.SYS_BPF, unix.SYS_USERFAULTFD,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETNS,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_IO_URING_SETUP, // can do what other calls are refused
}

var auditArchitectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// seccomp refuses system calls to this thread and what it executes, and without a network
// all sockets but those of this machine. Calls of another architecture are refused too,
// since they have other numbers.
func (l *launch) seccomp() error {
	architecture, known := auditArchitectures[runtime.GOARCH]
	if !known {
		return unix.ENOSYS
	}
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		leave = unix.BPF_RET | unix.BPF_K

		callAt, architectureAt, firstArgumentAt = 0, 4, 16 // in the data of the filter
		otherNumbers                            = 0x40000000
		refuse                                  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	f := []unix.SockFilter{
		{Code: load, K: architectureAt},
		{Code: equal, K: architecture, Jt: 1},
		{Code: leave, K: refuse},
		{Code: load, K: callAt},
		{Code: least, K: otherNumbers, Jf: 1},
		{Code: leave, K: refuse},
	}
	for _, call := range refusedCalls {
		f = append(f, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: leave, K: refuse})
	}
	if !l.Network {
		f = append(f, unix.SockFilter{Code: equal, K: unix.SYS_SOCKET, Jf: 3}, unix.SockFilter{Code: load, K: firstArgumentAt},
			unix.SockFilter{Code: equal, K: unix.AF_UNIX, Jt: 1}, unix.SockFilter{Code: leave, K: refuse})
	}
	f = append(f, unix.SockFilter{Code: leave, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
