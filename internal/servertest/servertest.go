// Package servertest starts brokers and coordination services for tests: real servers, each
// a process of its own that can be killed and started again with its data.
package servertest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/porttest"
)

// envRequire, if it is 1, makes a missing server a failure instead of a skipped test.
const envRequire = "BELFRY_TEST_REQUIRE_SERVERS"

// readyTimeout is for a server to answer. It only stops a test that would hang: on a busy
// machine RabbitMQ takes more than a minute.
const readyTimeout = 4 * time.Minute

// Server is a server on the loopback interface, until the test ends.
type Server struct {
	Addr string // host:port
	Dir  string // of its data

	tb    testing.TB
	argv  []string
	env   []string
	ready func(ctx context.Context, addr string) error

	mu     sync.Mutex
	cmd    *exec.Cmd // nil: it does not run
	input  *os.File
	output bytes.Buffer
}

// program returns the path of a program; without it the test does not go on.
func program(tb testing.TB, path, debianPackage string) string {
	tb.Helper()
	found, err := exec.LookPath(path)
	if err != nil {
		missing(tb, fmt.Sprintf("%s is not installed: apt-get install %s (it need not be started)", path, debianPackage))
	}
	return found
}

// npmFile returns the path of a file in the npm packages of a folder of test/servers.
func npmFile(tb testing.TB, folder, file string) string {
	tb.Helper()
	_, source, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(source), "..", "..", "test", "servers", folder, "node_modules", file)
	if _, err := os.Stat(path); err != nil {
		missing(tb, fmt.Sprintf("%s is not installed: npm ci in test/servers/%s", file, folder))
	}
	return path
}

// missing skips the test, or fails it if BELFRY_TEST_REQUIRE_SERVERS=1.
func missing(tb testing.TB, text string) {
	tb.Helper()
	if os.Getenv(envRequire) == "1" {
		tb.Fatal(text)
	}
	tb.Skip(text)
}

// start starts a server. In argv and env, {addr}, {host}, {port} and {dir} are replaced. Ready
// returns nil once the server answers.
func start(tb testing.TB, ready func(ctx context.Context, addr string) error, env []string, argv ...string) *Server {
	tb.Helper()
	return startAt(tb, porttest.Addr(tb), ready, env, argv...)
}

func startAt(tb testing.TB, addr string, ready func(ctx context.Context, addr string) error, env []string, argv ...string) *Server {
	tb.Helper()
	s := &Server{Addr: addr, Dir: tb.TempDir(), tb: tb, ready: ready}
	host, port, _ := net.SplitHostPort(s.Addr)
	names := strings.NewReplacer("{addr}", s.Addr, "{host}", host, "{port}", port, "{dir}", s.Dir)
	for _, arg := range argv {
		s.argv = append(s.argv, names.Replace(arg))
	}
	for _, pair := range env {
		s.env = append(s.env, names.Replace(pair))
	}
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			tb.Logf("%s printed:\n%s", s.argv[0], s.output.String())
		}
	})
	s.Start()
	return s
}

// guard runs a command until its own input ends, which it does with the test binary at the
// latest; then the whole process group is killed.
const guard = `"$@" </dev/null & cat >/dev/null; kill -KILL 0`

// Start starts the server again after Kill, and waits until it answers.
func (s *Server) Start() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	read, write, err := os.Pipe()
	if err != nil {
		s.tb.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-c", guard, "sh"}, s.argv...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, &s.output, &s.output
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	read.Close()
	if err != nil {
		s.tb.Fatal(err)
	}
	s.cmd, s.input = cmd, write
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for {
		err := s.ready(ctx, s.Addr)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.tb.Fatalf("%s is not ready after %s: %v", s.argv[0], readyTimeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill kills the server and all processes that it started, as kill -9 does.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	_ = s.cmd.Wait() // It was killed.
	s.input.Close()
	s.cmd = nil
}

// Pause stops the processes of the server, as a frozen machine does, and waits until they
// stand still; Resume continues them.
func (s *Server) Pause() {
	s.signal(syscall.SIGSTOP)
	for s.moves() {
		time.Sleep(time.Millisecond) // The signal is delivered to a process when it runs next.
	}
}

// moves reports whether a thread of the server is not stopped yet. Where there is no /proc it
// is not known.
func (s *Server) moves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	threads, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat")
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil || s.cmd == nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // state, parent, process group
		if fields[2] == strconv.Itoa(s.cmd.Process.Pid) && !strings.Contains("TtZX", fields[0]) {
			return true
		}
	}
	return false
}

// Resume continues the processes of a server that was paused.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = syscall.Kill(-s.cmd.Process.Pid, signal)
	}
}

// accepts reports that a server accepts connections.
func accepts(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		conn.Close()
	}
	return err
}

// built is the program of the module test/servers, which has the current releases of some
// servers. It is built once and kept beside other tools; several test binaries may want it at
// the same time.
var built = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	tools := filepath.Join(root, ".tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(tools, "servers.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(tools, "servers")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = filepath.Join(root, "test", "servers")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build test/servers: %w\n%s", err, out)
	}
	return path, nil
})

func embedded(tb testing.TB, ready func(ctx context.Context, addr string) error, name string, env ...string) *Server {
	tb.Helper()
	path, err := built()
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, ready, env, path, name, "{addr}", "{dir}")
}

// NATS starts the current NATS server, with JetStream.
func NATS(tb testing.TB) *Server { tb.Helper(); return embedded(tb, accepts, "nats") }

// Kafka starts a broker that speaks the protocol of current Kafka releases.
func Kafka(tb testing.TB) *Server { tb.Helper(); return embedded(tb, accepts, "kafka") }

// KafkaSASL starts the same broker for the user belfry with the password secret
// (SCRAM-SHA-256).
func KafkaSASL(tb testing.TB) *Server { tb.Helper(); return embedded(tb, accepts, "kafka-sasl") }

// DebianNATS starts Debian's NATS server, with JetStream. Args are more of its options.
func DebianNATS(tb testing.TB, args ...string) *Server {
	tb.Helper()
	path := program(tb, "nats-server", "nats-server")
	return start(tb, accepts, nil, append([]string{path, "-a", "{host}", "-p", "{port}", "-js", "-sd", "{dir}"}, args...)...)
}
