//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// guard runs a command that cannot outlive the test binary, however that ends: it starts a watcher and becomes the
// command. The watcher reads a pipe whose other end only the test binary has. A line there says that the command has
// ended; the end of the pipe without one means that the test binary has ended, and then the watcher ends the command and
// removes its directory. The watcher is not a child of the command.
const guard = `
dir=$1 child=$$
shift
(
	{
		read -r word && exit 0
		kill -QUIT "$child"
		tries=0
		while kill -0 "$child" && [ "$tries" -lt 100 ]; do
			sleep 0.1
			tries=$((tries + 1))
		done
		kill -KILL "$child"
		rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }
	} <&3 >/dev/null 2>&1 &
)
exec "$@" 3<&-
`

// process is a guarded child. It needs no goroutine, so that tests may look for leaked ones.
type process struct {
	pid    int
	pipe   *os.File // to the watcher; nil once the child has ended
	status syscall.WaitStatus
}

// spawn starts argv under guard with its output appended to the file log. The directory dir is removed when the test binary dies.
func spawn(dir, log string, who *account, argv ...string) (*process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()

	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"},
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd(), read.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // an interrupt from the keyboard is for the tests only
	}
	if who != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: who.uid, Gid: who.gid}
	}
	pid, err := syscall.ForkExec("/bin/sh", append([]string{"sh", "-c", guard, "guard", dir}, argv...), attr)
	if err != nil {
		write.Close()
		return nil, err
	}
	return &process{pid: pid, pipe: write}, nil
}

// exited reports whether the child has ended, and if so ends its watcher.
func (p *process) exited() bool {
	if p.pipe == nil {
		return true
	}
	pid, err := syscall.Wait4(p.pid, &p.status, syscall.WNOHANG, nil)
	if pid != p.pid && !errors.Is(err, syscall.ECHILD) {
		return false
	}
	p.pipe.WriteString("ended\n")
	p.pipe.Close()
	p.pipe = nil
	return true
}

// wait returns once the child has ended. It is killed after the given time.
func (p *process) wait(limit time.Duration) error {
	var late error
	for deadline := time.Now().Add(limit); !p.exited(); time.Sleep(2 * time.Millisecond) {
		if late == nil && time.Now().After(deadline) {
			late = fmt.Errorf("still running after %v", limit)
			p.signal(syscall.SIGKILL)
		}
	}
	return late
}

// failure returns how a child that has ended failed, or nil.
func (p *process) failure() error {
	switch {
	case p.status.Signaled():
		return fmt.Errorf("ended by signal %d", p.status.Signal())
	case p.status.ExitStatus() != 0:
		return fmt.Errorf("ended with status %d", p.status.ExitStatus())
	}
	return nil
}

// signal sends sig to the child unless it has ended.
func (p *process) signal(sig syscall.Signal) {
	if !p.exited() {
		syscall.Kill(p.pid, sig)
	}
}

// account is the user that the server runs as; nil: the current one.
type account struct{ uid, gid uint32 }

// unprivileged returns the account to use: PostgreSQL refuses to run as root.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("look up account %s: %w", name, err)
		}
		return &account{uint32(uid), uint32(gid)}, nil
	}
	return nil, errors.New("look up an account for the server: neither postgres nor nobody exists, and root may not run it")
}

// own gives path to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}
