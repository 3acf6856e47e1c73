//go:build unix

// Package examples runs every example with a real server and checks the results.
package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	binDir string // has the programs: belfry and the examples in Go
	group  int    // the process group of all programs
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run builds the programs once for all tests. The shell that leads their process group
// kills the group when the tests end, however they end.
func run(m *testing.M) (code int, err error) {
	if binDir, err = os.MkdirTemp("", "belfry-examples-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(binDir)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binDir+"/", "../cmd/belfry", "./receiver", "./worker-go")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the examples: %w\n%s", err, out)
	}
	guardian := exec.Command("/bin/sh", "-c", "while read -r line; do :; done; kill -KILL 0")
	guardian.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := guardian.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := guardian.Start(); err != nil {
		return 0, err
	}
	defer guardian.Wait()
	defer pipe.Close()
	group = guardian.Process.Pid
	return m.Run(), nil
}

// limit only ends a test that would otherwise hang.
const limit = time.Minute

// program is a process that ends with its test.
type program struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	gone chan struct{}

	mu     sync.Mutex // guards the field below
	output strings.Builder
}

// start runs a program of binDir, or of the machine.
func start(t *testing.T, env []string, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t, name: name, cmd: command(env, name, args...), gone: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.gone)
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, p.text())
		}
	})
	return p
}

// command is a program without the BELFRY_ variables of the environment.
func command(env []string, name string, args ...string) *exec.Cmd {
	if path := filepath.Join(binDir, name); !strings.Contains(name, "/") && exists(path) {
		name = path
	}
	cmd := exec.Command(name, args...)
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "BELFRY_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// says waits until the output of a program matches, and returns what the group in the
// pattern matched.
func (p *program) says(pattern string) (found string) {
	p.t.Helper()
	want := regexp.MustCompile(pattern)
	eventually(p.t, fmt.Sprintf("%s says %q", p.name, pattern), func() bool {
		select {
		case <-p.gone:
			p.t.Fatalf("%s ended with %v", p.name, p.cmd.ProcessState)
		default:
		}
		m := want.FindStringSubmatch(p.text())
		if m != nil {
			found = m[len(m)-1]
		}
		return m != nil
	})
	return found
}

// end sends a signal, waits for the end and returns the exit code.
func (p *program) end(signal syscall.Signal) int {
	p.t.Helper()
	p.cmd.Process.Signal(signal)
	select {
	case <-p.gone:
	case <-time.After(limit):
		p.t.Errorf("%s was still there %v after %v", p.name, limit, signal)
	}
	return p.cmd.ProcessState.ExitCode()
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for start := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > limit {
			t.Fatalf("still waiting after %v: %s", limit, what)
		}
	}
}
