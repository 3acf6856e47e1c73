package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
