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

// node is a Belfry process that can be killed and started again.
type node struct {
	tb   testing.TB
	args []string
	env  []string
	said output // standard error of all its lives

	mu      sync.Mutex // guards the fields below
	cmd     *exec.Cmd
	base    string        // address of the API; empty while it is down
	gone    chan struct{} // closed when the process was waited for
	meant   bool          // its end was asked for
	ordered bool          // its end was asked for with SIGTERM
}

// onSQLite starts a node with an embedded database in dir.
func onSQLite(tb testing.TB, dir string, args ...string) *node {
	tb.Helper()
	return launch(tb, nil, append([]string{"--data", dir}, args...)...)
}

// onPostgres starts a node of a cluster. The address of the database, which has a
// password in it, is not for the list of processes.
func onPostgres(tb testing.TB, url string, args ...string) *node {
	tb.Helper()
	return launch(tb, []string{"BELFRY_DATABASE_URL=" + url}, append([]string{"--allow-target", "127.0.0.1/32"}, args...)...)
}

func launch(tb testing.TB, env []string, args ...string) *node {
	tb.Helper()
	n := &node{tb: tb, env: environment(env...), args: append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)}
	tb.Cleanup(func() {
		n.kill()
		if tb.Failed() {
			tb.Logf("a node's last words:\n%s", n.said.tail(4000))
		}
	})
	n.start()
	return n
}

// start runs the process and waits until it says where it listens.
func (n *node) start() {
	n.tb.Helper()
	path, err := belfryBinary()
	if err != nil {
		n.tb.Fatal(err)
	}
	guard, err := theGuardian()
	if err != nil {
		n.tb.Fatal(err)
	}
	cmd := exec.Command(path, n.args...)
	cmd.Env, cmd.Stderr = n.env, &n.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: guard.cmd.Process.Pid}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.tb.Fatalf("start a node: %v", err)
	}
	greeting := make(chan string, 1)
	gone := make(chan struct{})
	n.mu.Lock()
	n.cmd, n.gone, n.meant, n.ordered = cmd, gone, false, false
	n.mu.Unlock()
	go n.watch(cmd, stdout, greeting, gone)
	select {
	case base := <-greeting:
		n.mu.Lock()
		n.base = base
		n.mu.Unlock()
	case <-gone:
		n.tb.Fatalf("a node ended at its start: %v\n%s", cmd.ProcessState, n.said.tail(4000))
	case <-time.After(startLimit):
		n.tb.Fatalf("a node did not say where it listens:\n%s", n.said.tail(4000))
	}
}

var address = regexp.MustCompile(`API\s+(http://\S+)/api/v1`)

// watch reads what a process says and waits for its end, which must have been
// asked for.
func (n *node) watch(cmd *exec.Cmd, stdout io.Reader, greeting chan<- string, gone chan<- struct{}) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			greeting <- m[1]
		}
	}
	cmd.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.base = ""
	if !n.meant {
		n.tb.Errorf("a node ended by itself: %v", cmd.ProcessState)
	} else if n.ordered && cmd.ProcessState.ExitCode() != 0 {
		n.tb.Errorf("a node ended after SIGTERM with %v", cmd.ProcessState)
	}
	if strings.Contains(n.said.String(), "DATA RACE") {
		n.tb.Errorf("a node has a data race:\n%s", n.said.tail(8000))
	}
	close(gone)
}

// at is the address of the API; empty while the node is down.
func (n *node) at() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.base
}

// signal sends sig to the process, if it lives, and gives the channel that is
// closed at its end.
func (n *node) signal(sig syscall.Signal) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meant = n.meant || sig == syscall.SIGKILL || sig == syscall.SIGTERM
	n.ordered = n.ordered || sig == syscall.SIGTERM
	if sig == syscall.SIGKILL {
		n.ordered, n.base = false, ""
	}
	n.cmd.Process.Signal(sig)
	return n.gone
}

// kill ends the process at once, in whatever state it is.
func (n *node) kill() { <-n.signal(syscall.SIGKILL) }

// freeze stops the process, thaw lets it go on as if nothing had happened.
func (n *node) freeze() { n.signal(syscall.SIGSTOP) }
func (n *node) thaw()   { n.signal(syscall.SIGCONT) }

// term asks the process to end in good order.
func (n *node) term() <-chan struct{} { return n.signal(syscall.SIGTERM) }

// drain asks the process to end in good order and waits until it has; an exit
// code other than zero is an error of the test.
func (n *node) drain(limit time.Duration) {
	n.tb.Helper()
	select {
	case <-n.term():
	case <-time.After(limit):
		n.tb.Fatalf("a node was still there %v after SIGTERM", limit)
	}
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) tail(n int) string {
	text := o.String()
	return text[max(0, len(text)-n):]
}
