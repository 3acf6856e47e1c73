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
	"path/filepath"
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
