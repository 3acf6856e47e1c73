package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var cgroupRoot = "/sys/fs/cgroup"

// newCgroups makes cgroups with the limits of a launch, where this process may. It returns
// their directories, in which the command is to be before it starts.
func newCgroups(name string, l *launch) (dirs []string) {
	memory, processes := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Processes, 10)
	if base := unifiedBase(); base != "" {
		dir := filepath.Join(base, name)
		if os.Mkdir(dir, 0o755) != nil {
			return nil
		}
		err := writeFile(dir, "pids.max", processes)
		if l.Memory > 0 {
			err = errors.Join(err, writeFile(dir, "memory.max", memory))
			_ = writeFile(dir, "memory.swap.max", "0") // where swap is accounted
		}
		if err != nil {
			_ = os.Remove(dir)
			return nil
		}
		return []string{dir}
	}
	for _, c := range []struct{ controller, file, limit string }{{"pids", "pids.max", processes}, {"memory", "memory.limit_in_bytes", memory}} {
		path := ownCgroup(c.controller)
		if path == "" || c.limit == "0" {
			continue
		}
		dir := filepath.Join(cgroupRoot, c.controller, path, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if writeFile(dir, c.file, c.limit) != nil {
			_ = os.Remove(dir)
			continue
		}
		dirs = append(dirs, dir)
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
