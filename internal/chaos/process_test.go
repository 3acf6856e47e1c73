//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit is for a node's greeting, which may have to wait for a migration on
// a busy machine.
const startLimit = time.Minute

// process is a Belfry node, or a worker, that can be killed and started again.
type process struct {
	tb      testing.TB
	what    string // for people
	program func() (string, error)
	ready   *regexp.Regexp // what it says once it is up; the group is where
	args    []string
	env     []string
	output  processOutput // standard error of all its lives

	mu         sync.Mutex // guards the fields below
	cmd        *exec.Cmd
	base       string        // address of the API, or what a worker serves; empty while it is down
	gone       chan struct{} // closed when the process was waited for
	expected   bool          // its end was requested
	terminated bool          // its end was requested with SIGTERM
}

// onSQLite starts a node with an embedded database in dir.
func onSQLite(tb testing.TB, dir string, args ...string) *process {
	tb.Helper()
	return launch(tb, nil, append([]string{"--data", dir}, args...)...)
}

// onPostgres starts a node of a cluster. The address of the database, which has a
// password in it, is not for the list of processes.
func onPostgres(tb testing.TB, url string, args ...string) *process {
	tb.Helper()
	return launch(tb, []string{"BELFRY_DATABASE_URL=" + url}, append([]string{"--allow-target", "127.0.0.1/32"}, args...)...)
}

func launch(tb testing.TB, env []string, args ...string) *process {
	tb.Helper()
	p := &process{tb: tb, what: "a node", program: belfryBinary, ready: address, env: environment(env...),
		args: append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)}
	p.begin()
	return p
}

// begin starts a process that ends with the test.
func (p *process) begin() {
	p.tb.Helper()
	p.tb.Cleanup(func() {
		p.kill()
		if p.tb.Failed() {
			p.tb.Logf("%s's output:\n%s", p.what, p.output.tail(4000))
		}
	})
	p.start()
}

// start runs the process and waits until it says that it is up.
func (p *process) start() {
	p.tb.Helper()
	path, err := p.program()
	if err != nil {
		p.tb.Fatal(err)
	}
	guard, err := theGuardian()
	if err != nil {
		p.tb.Fatal(err)
	}
	cmd := exec.Command(path, p.args...)
	cmd.Env, cmd.Stderr = p.env, &p.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: guard.cmd.Process.Pid}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.tb.Fatalf("start %s: %v", p.what, err)
	}
	greeting := make(chan string, 1)
	gone := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.gone, p.expected, p.terminated = cmd, gone, false, false
	p.mu.Unlock()
	go p.watch(cmd, stdout, greeting, gone)
	select {
	case base := <-greeting:
		p.mu.Lock()
		p.base = base
		p.mu.Unlock()
	case <-gone:
		p.tb.Fatalf("%s ended at its start: %v\n%s", p.what, cmd.ProcessState, p.output.tail(4000))
	case <-time.After(startLimit):
		p.tb.Fatalf("%s did not say that it is up:\n%s", p.what, p.output.tail(4000))
	}
}

var address = regexp.MustCompile(`API\s+(http://\S+)/api/v1`)

// watch reads what a process says and waits for its end, which must have been
// requested.
func (p *process) watch(cmd *exec.Cmd, stdout io.Reader, greeting chan<- string, gone chan<- struct{}) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if m := p.ready.FindStringSubmatch(lines.Text()); m != nil {
			select {
			case greeting <- m[1]:
			default: // it was said before
			}
		}
	}
	cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base = ""
	if !p.expected {
		p.tb.Errorf("%s ended by itself: %v", p.what, cmd.ProcessState)
	} else if p.terminated && cmd.ProcessState.ExitCode() != 0 {
		p.tb.Errorf("%s ended after SIGTERM with %v", p.what, cmd.ProcessState)
	}
	if strings.Contains(p.output.String(), "DATA RACE") {
		p.tb.Errorf("%s has a data race:\n%s", p.what, p.output.tail(8000))
	}
	close(gone)
}

// address is the address of the API; empty while the node is down.
func (p *process) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.base
}

// signal sends sig to the process, if it lives, and gives the channel that is
// closed at its end.
func (p *process) signal(sig syscall.Signal) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = p.expected || sig == syscall.SIGKILL || sig == syscall.SIGTERM
	p.terminated = p.terminated || sig == syscall.SIGTERM
	if sig == syscall.SIGKILL {
		p.terminated, p.base = false, ""
	}
	p.cmd.Process.Signal(sig)
	return p.gone
}

// kill ends the process at once, in whatever state it is.
func (p *process) kill() { <-p.signal(syscall.SIGKILL) }

// freeze stops the process and waits until it no longer answers: the signal takes
// a moment to reach all its threads.
func (p *process) freeze() {
	p.tb.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.tb, "a node is frozen", time.Minute, func() bool { return !alive(p.address(), time.Second/4) })
}

// thaw lets a frozen process go on as if nothing had happened.
func (p *process) thaw() { p.signal(syscall.SIGCONT) }

// term sends SIGTERM.
func (p *process) term() <-chan struct{} { return p.signal(syscall.SIGTERM) }

// drain sends SIGTERM and waits for the end; an exit
// code other than zero is an error of the test.
func (p *process) drain(limit time.Duration) {
	p.tb.Helper()
	select {
	case <-p.term():
	case <-time.After(limit):
		p.tb.Fatalf("%s was still there %v after SIGTERM", p.what, limit)
	}
}

// processOutput collects what a process writes.
type processOutput struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *processOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *processOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *processOutput) tail(n int) string {
	text := o.String()
	return text[max(0, len(text)-n):]
}

func (o *processOutput) count(text string) int { return strings.Count(o.String(), text) }
