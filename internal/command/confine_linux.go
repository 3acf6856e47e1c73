package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// prepare does what needs the rights of the worker: cgroups, limits, the user. Then it
// confines itself, inside bubblewrap if there is one.
func (l *launch) prepare() error {
	say(sayLayer, "session")
	say(sayLayer, "environment")
	say(sayLayer, "directory")
	pids := false
	for _, dir := range l.Cgroups {
		if err := writeFile(dir, "cgroup.procs", "0"); err != nil {
			return fmt.Errorf("enter the cgroup: %w", err)
		}
		for file, most := range map[string]int64{"pids.max": l.Processes, "memory.limit_in_bytes": l.Memory, "memory.max": l.Memory} {
			text, _ := os.ReadFile(filepath.Join(dir, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n <= most { // which may be rounded
				name, _, _ := strings.Cut(file, ".")
				say(sayLayer, "cgroup "+name)
				pids = pids || name == "pids"
			}
		}
	}
	if err := l.setLimits(pids); err != nil {
		return err
	}
	if u := l.User; u != nil {
		if err := errors.Join(syscall.Setgroups(u.Groups), syscall.Setgid(u.GID), syscall.Setuid(u.UID)); err != nil {
			return fmt.Errorf("become user %d: %w", u.UID, err)
		}
		say(sayLayer, "user")
	}
	if l.Bubblewrap == "" {
		return l.confine(false)
	}
	self, err := os.Readlink(selfPath)
	if err == nil {
		err = syscall.Exec(l.Bubblewrap, l.bubblewrapArgs(self), []string{"GOMAXPROCS=1"})
	}
	return fmt.Errorf("start bubblewrap: %w", err)
}

// setLimits sets the limits of this process. Processes are counted by user: those that the
// user has already do not count here.
func (l *launch) setLimits(pids bool) error {
	limits := map[int]int64{unix.RLIMIT_CPU: l.CPU, unix.RLIMIT_FSIZE: l.FileSize, unix.RLIMIT_NOFILE: l.Files, unix.RLIMIT_DATA: l.Memory}
	if !pids {
		uid := os.Geteuid()
		if l.User != nil {
			uid = l.User.UID
		}
		limits[unix.RLIMIT_NPROC] = l.Processes + countThreads(uid)
	}
	maps.DeleteFunc(limits, func(_ int, soft int64) bool { return soft == 0 })
	limits[unix.RLIMIT_CORE] = 0
	for resource, soft := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return fmt.Errorf("read a limit: %w", err)
		}
		limit := syscall.Rlimit{Cur: min(uint64(soft), now.Max), Max: min(uint64(soft), now.Max)} // no more than the worker itself may have
		if resource == unix.RLIMIT_CPU {
			limit.Max = min(limit.Max+2, now.Max) // a moment to clean up between SIGXCPU and SIGKILL
		}
		if err := syscall.Setrlimit(resource, &limit); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	say(sayLayer, "rlimits")
	return nil
}

var ownerAndThreads = regexp.MustCompile(`(?s)\nUid:\s+(\d+).*\nThreads:\s+(\d+)`)

// countThreads is how many threads a user has.
func countThreads(uid int) (total int64) {
	paths, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range paths {
		status, _ := os.ReadFile(path)
		if found := ownerAndThreads.FindSubmatch(status); found != nil && string(found[1]) == strconv.Itoa(uid) {
			n, _ := strconv.ParseInt(string(found[2]), 10, 64)
			total += n
		}
	}
	return total
}

// What a strict sandbox leaves to read: programs and libraries, and what they need.
var systemPaths = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/localtime", "/etc/timezone", "/etc/ssl", "/etc/pki", "/etc/ca-certificates",
}

// readable is what a strict sandbox lets the command read.
func (l *launch) readable() []string {
	return append(slices.Concat(systemPaths, l.Read), l.Argv[0], l.Dir)
}

// inside is where this program is in bubblewrap.
const inside = "/.belfry"

// bubblewrapArgs mounts what is readable and writable, and nothing else.
func (l *launch) bubblewrapArgs(self string) []string {
	args := []string{"bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"}
	if !l.Network {
		args = append(args, "--unshare-net")
	}
	args = append(args, "--tmpfs", "/tmp")
	for _, path := range l.readable() {
		if target, err := os.Readlink(path); err == nil && slices.Contains(systemPaths, path) && !strings.HasPrefix(path, "/etc/") {
			args = append(args, "--symlink", target, path)
		} else {
			args = append(args, "--ro-bind-try", path, path)
		}
	}
	for _, path := range append(slices.Clone(l.Write), l.Private) {
		args = append(args, "--bind", path, path)
	}
	return append(args, "--proc", "/proc", "--dev", "/dev", "--ro-bind", self, inside, "--chdir", "/", "--", inside, Subcommand, stageConfine)
}

// confine gives up what the sandbox does not leave, and becomes the command. It may be
// inside bubblewrap.
func (l *launch) confine(wrapped bool) error {
	if wrapped {
		say(sayLayer, "bubblewrap")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	say(sayLayer, "no_new_privs")
	if err := os.Chdir(l.Dir); err != nil {
		return fmt.Errorf("enter the directory: %w", err)
	}
	if l.Sandbox == sandboxStrict {
		version, err := l.landlock(wrapped)
		switch {
		case err == nil:
			say(sayLayer, fmt.Sprint("landlock ", version))
		case !wrapped:
			return fmt.Errorf("its sandbox is strict, and this machine has neither Landlock (%w; it needs Linux 5.13 or newer) nor bubblewrap that works for the user", err)
		}
	}
	if l.Sandbox != sandboxNone {
		err := l.seccomp()
		switch {
		case err == nil:
			say(sayLayer, "seccomp")
		case l.Sandbox == sandboxStrict && !wrapped && !l.Network:
			return fmt.Errorf("its sandbox is strict, and this machine can neither filter system calls (%w) nor has it bubblewrap that works for the user; without them the network is open", err)
		}
	}
	unix.Umask(0o022)
	if unix.CloseRange(configFD, 1<<30, unix.CLOSE_RANGE_CLOEXEC) != nil {
		for fd := configFD; fd < 4096; fd++ { // Linux before 5.11
			unix.CloseOnExec(fd)
		}
	}
	return fmt.Errorf("execute %s: %w", l.Argv[0], syscall.Exec(l.Argv[0], l.Argv, l.Env))
}

var cgroupRoot = "/sys/fs/cgroup"

// newCgroups makes cgroups with the limits of a launch, where this process may. It returns
// their directories, in which the command is to be before it starts.
func newCgroups(name string, l *launch) (dirs []string) {
	processes, memory := filepath.Join(cgroupRoot, "pids", ownCgroup("pids")), filepath.Join(cgroupRoot, "memory", ownCgroup("memory"))
	memoryFile := "memory.limit_in_bytes"
	if base := unifiedBase(); base != "" {
		processes, memory, memoryFile = base, base, "memory.max"
	}
	for _, limit := range []struct {
		base, file string
		most       int64
	}{{processes, "pids.max", l.Processes}, {memory, memoryFile, l.Memory}} {
		dir := filepath.Join(limit.base, name)
		if limit.most == 0 || !slices.Contains(dirs, dir) && os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		_ = writeFile(dir, limit.file, strconv.FormatInt(limit.most, 10)) // the command reports which limits there are
	}
	return dirs
}

// ownCgroup is the path of this process in the hierarchy of a controller of version 1, or
// in the unified one, whose controller is empty.
func ownCgroup(controller string) string {
	content, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(content)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && parts[1] == controller {
			return parts[2]
		}
	}
	return ""
}

// unifiedBase is the directory of the cgroup (version 2) that was delegated to this
// process; empty if none was.
var unifiedBase = sync.OnceValue(func() string {
	path := ownCgroup("")
	base := filepath.Join(cgroupRoot, path)
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err != nil || path == "" {
		return ""
	}
	// The directories of a service belong to its user if they are delegated; to root they
	// all belong, and systemd marks those that are.
	if mark := make([]byte, 8); os.Geteuid() == 0 && path != "/" {
		if n, err := unix.Getxattr(base, "trusted.delegate", mark); err != nil || string(mark[:n]) != "1" {
			return ""
		}
	}
	const controllers = "+memory +pids"
	if writeFile(base, "cgroup.subtree_control", controllers) == nil {
		return base
	}
	// A cgroup with processes of its own passes no controllers on: this one moves below it.
	leaf := filepath.Join(base, "belfry-worker")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return ""
	}
	if writeFile(leaf, "cgroup.procs", strconv.Itoa(os.Getpid())) != nil || writeFile(base, "cgroup.subtree_control", controllers) != nil {
		return ""
	}
	return base
})

func writeFile(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0)
}

// removeCgroups kills what is in cgroups and removes them. A process leaves its cgroup
// some time after it was killed.
func removeCgroups(dirs []string) {
	for _, dir := range dirs {
		for range 200 {
			if err := unix.Rmdir(dir); err == nil || err == unix.ENOENT {
				break
			}
			content, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for text := range strings.FieldsSeq(string(content)) {
				if pid, err := strconv.Atoi(text); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
