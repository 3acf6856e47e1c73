package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfry-sh/belfry"
)

// HideEnvironment keeps commands of the same user from reading the environment of this
// process, which may have keys and passwords.
func HideEnvironment() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// execute runs a command under a supervisor, a process of its own that ends everything
// that the command has started: when the command ends, when ctx does, and when this process
// is gone. What it says on the status pipe is the report.
func (c *Command) execute(ctx context.Context, l *launch, environment func(private string) []string, out io.Writer) (*belfry.CommandReport, error) {
	defer l.remove()
	if err := c.makePrivate(l); err != nil {
		return nil, fmt.Errorf("prepare the command: %w", err)
	}
	l.Env = environment(l.Private)
	l.Cgroups = newCgroups(filepath.Base(l.Private), l)
	if l.Sandbox == sandboxStrict {
		l.Bubblewrap = bubblewrap(l.User)
	}
	config, err := memoryFile(l)
	listen, control, controlErr := os.Pipe()
	status, tell, statusErr := os.Pipe()
	for _, f := range []*os.File{config, listen, control, status, tell} {
		defer f.Close()
	}
	if err := errors.Join(err, controlErr, statusErr); err != nil {
		return nil, fmt.Errorf("prepare the command: %w", err)
	}
	cmd := exec.CommandContext(ctx, selfPath, Subcommand, stageSupervise)
	cmd.Env, cmd.Dir = []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}, "/"
	cmd.Stdout, cmd.Stderr = out, out
	if l.Stdin != "" {
		cmd.Stdin = strings.NewReader(l.Stdin)
	}
	cmd.ExtraFiles = []*os.File{config, tell, listen} // configFD, statusFD, controlFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = grace + 20*time.Second // a fork bomb may leave the supervisor little time
	cmd.Cancel = func() error {
		_, err := control.Write([]byte{'T'})
		time.AfterFunc(grace, func() { control.Close() })
		return err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor of the command: %w", err)
	}
	tell.Close()
	listen.Close()
	waitErr := cmd.Wait()
	report, err := c.readStatus(status)
	if report == nil && err == nil {
		err = fmt.Errorf("the supervisor of the command ended early: %w", errors.Join(waitErr, ctx.Err()))
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("the command was ended: %w", context.Cause(ctx))
	}
	return report, err
}

// makePrivate makes the directory of the attempt and finds out whose it is.
func (c *Command) makePrivate(l *launch) (err error) {
	if l.Private, err = os.MkdirTemp("", "belfry-command-"); err != nil {
		return err
	}
	l.Dir = cmp.Or(l.Dir, l.Private)
	if c.account.Uid == strconv.Itoa(os.Geteuid()) {
		return nil
	}
	texts, err := c.account.GroupIds()
	var ids []int
	for _, text := range append([]string{c.account.Uid, c.account.Gid}, texts...) {
		id, invalid := strconv.Atoi(text)
		err, ids = errors.Join(err, invalid), append(ids, id)
	}
	if err != nil {
		return err
	}
	l.User = &credentials{UID: ids[0], GID: ids[1], Groups: ids[2:]}
	return os.Chown(l.Private, l.User.UID, l.User.GID)
}

// remove removes what is left of an attempt whose supervisor has ended. It has done so
// itself, unless it was killed.
func (l *launch) remove() {
	removeCgroups(l.Cgroups)
	if l.Private == "" || os.RemoveAll(l.Private) == nil {
		return
	}
	_ = filepath.WalkDir(l.Private, func(path string, d fs.DirEntry, err error) error { // directories that cannot be changed
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(l.Private)
}

// memoryFile is a file without a name with the JSON of a launch, which may have secrets.
func memoryFile(l *launch) (*os.File, error) {
	fd, err := unix.MemfdCreate("belfry-command", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "belfry-command")
	return f, json.NewEncoder(f).Encode(l)
}

// readStatus reads what the stages of a launch have said: layers, an error, the end.
func (c *Command) readStatus(status *os.File) (report *belfry.CommandReport, err error) {
	_ = status.SetReadDeadline(time.Now().Add(time.Second)) // for what a killed supervisor left
	layers, ended := []string{}, false
	report = &belfry.CommandReport{ExitStatus: -1, Sandbox: c.Sandbox}
	for lines := bufio.NewScanner(status); lines.Scan(); {
		switch key, text, _ := strings.Cut(lines.Text(), " "); key {
		case sayLayer:
			layers = append(layers, text)
		case sayError:
			err = belfry.Permanent(errors.New("the command cannot be run: " + text))
		case sayExit:
			report.ExitStatus, _ = strconv.Atoi(text)
			ended = true
		case saySignal:
			report.Signal, ended = text, true
		}
	}
	if report.Layers = layers; err != nil || !ended {
		return nil, err
	}
	return report, nil
}

var bubblewraps sync.Map // uid to the path of the program; empty if it does not work for that user

// bubblewrap returns the program if it is there and can make namespaces for a user.
func bubblewrap(as *credentials) string {
	uid := os.Geteuid()
	attr := &syscall.SysProcAttr{}
	if as != nil {
		uid = as.UID
		attr.Credential = &syscall.Credential{Uid: uint32(as.UID), Gid: uint32(as.GID)}
	}
	if known, ok := bubblewraps.Load(uid); ok {
		return known.(string)
	}
	path, err := exec.LookPath("bwrap")
	self, selfErr := os.Readlink(selfPath)
	if err == nil && selfErr == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--ro-bind", self, "/tmp"+inside,
			"--unshare-pid", "--unshare-net", "--proc", "/proc", "--dev", "/dev", "--", "/tmp"+inside, Subcommand, stageProbe)
		cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, "/", attr
		if cmd.Run() != nil {
			path = ""
		}
	}
	bubblewraps.Store(uid, path)
	return path
}

// Subcommand is the hidden command of the program that calls Main.
const Subcommand = "sandbox-exec"

// The stages of a launch, each a process of this program: the supervisor starts one that
// confines itself and becomes the command. With bubblewrap it confines itself in two steps.
const (
	stageSupervise = "supervise"
	stagePrepare   = "prepare"
	stageConfine   = "confine"
	stageProbe     = "probe" // does nothing
)

// Files that a stage inherits.
const (
	configFD = 3 + iota
	statusFD
	controlFD
)

// What stages say on the status pipe, one in a line.
const (
	sayLayer  = "layer"
	sayError  = "error"
	sayExit   = "exit"
	saySignal = "signal"
)

// selfPath is the running program, also after another was installed in its place.
const selfPath = "/proc/self/exe"

const exitNotRun = 125

// Main is the main function of a stage and returns the exit code.
func Main(args []string) int {
	runtime.LockOSThread() // what confines a process is set for its thread, and so is the signal at the parent's death
	if len(args) == 1 && args[0] == stageProbe {
		return 0
	}
	var l launch
	config, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", configFD)) // from its beginning, whoever read it before
	if err == nil {
		err = json.Unmarshal(config, &l)
	}
	if len(args) != 1 || err != nil {
		fmt.Fprintln(os.Stderr, Subcommand, "is used by workers; see: belfry worker --help")
		return exitNotRun
	}
	switch args[0] {
	case stageSupervise:
		err = l.supervise()
	case stagePrepare:
		err = l.prepare()
	case stageConfine:
		err = l.confine(true)
	}
	if err != nil {
		say(sayError, err.Error())
		return exitNotRun
	}
	return 0
}

func say(key, text string) {
	_, _ = unix.Write(statusFD, []byte(key+" "+strings.ReplaceAll(text, "\n", " ")+"\n"))
}

// supervise starts the next stage and ends when none of its descendants is left.
func (l *launch) supervise() error {
	defer l.remove()
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT) // only the worker ends it; a handler is not inherited
	cmd := exec.Command(selfPath, Subcommand, stagePrepare)
	cmd.Env, cmd.Dir = os.Environ(), "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(configFD, "config"), os.NewFile(statusFD, "status")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	var killing sync.Once
	kill := func() { killing.Do(func() { go l.killAll() }) }
	go func() {
		control := os.NewFile(controlFD, "control")
		for b := make([]byte, 1); ; {
			if n, err := control.Read(b); n == 0 || err != nil { // the worker asks for it, or is gone
				kill()
				return
			}
			l.signalAll(unix.SIGTERM)
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // there are no more
			return nil
		case pid == cmd.Process.Pid:
			if status.Signaled() {
				say(saySignal, status.Signal().String())
			} else {
				say(sayExit, strconv.Itoa(status.ExitStatus()))
			}
			kill()
		}
	}
}

// killAll kills all descendants until the process ends. They are stopped first: a stopped
// process cannot fork, and it still counts, so that a fork bomb meets its limit.
func (l *launch) killAll() {
	for {
		stopped := map[int]bool{}
		for found := true; found && len(stopped) < 1<<20; {
			found = false
			for _, p := range descendants() {
				if !stopped[p.pid] {
					stopped[p.pid], found = true, true
					p.signal(unix.SIGSTOP)
				}
			}
		}
		for _, p := range descendants() {
			p.signal(unix.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// signalAll asks all descendants to end, but not bubblewrap, which would kill the others.
func (l *launch) signalAll(s unix.Signal) {
	for _, p := range descendants() {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid)); l.Bubblewrap == "" || string(name) != "bwrap\n" {
			p.signal(s)
		}
	}
}

// process is a process and its parent.
type process struct{ pid, parent int }

// signal sends a signal, unless the process has ended and its number is used again.
func (p process) signal(s unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
		if parent, ok := parentOf(p.pid); ok && (parent == p.parent || parent == os.Getpid()) {
			_ = unix.PidfdSendSignal(fd, s, nil, 0)
		}
	} else if err != unix.ESRCH {
		_ = unix.Kill(p.pid, s)
	}
}

// descendants lists all processes below this one that have not ended.
func descendants() (list []process) {
	entries, _ := os.ReadDir("/proc")
	children := map[int][]int{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if parent, ok := parentOf(pid); ok {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	for next := []int{os.Getpid()}; len(next) > 0; next = next[1:] {
		for _, pid := range children[next[0]] {
			list, next = append(list, process{pid, next[0]}), append(next, pid)
		}
	}
	return list
}

// parentOf returns the parent of a process that has not ended. The name in the file may
// have blanks and brackets.
func parentOf(pid int) (parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, err == nil && fields[0] != "Z" && fields[0] != "X"
}
