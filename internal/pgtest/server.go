package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-sh/belfry/internal/porttest"
	"github.com/jackc/pgx/v5"
)

const (
	initLimit  = time.Minute     // for initdb
	readyLimit = 2 * time.Minute // for a start, which may have to recover first
	stopLimit  = time.Minute     // for a stop, which may have to write a checkpoint
)

// Every server listens on the loopback interface only and requires its random password, since a client owns the account.
// The unusual time zone is intended: code that depends on the session's zone fails here instead of in production.
var common = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=",
	"max_connections=200",
	"timezone=Asia/Kathmandu",
	"log_timezone=UTC",
	"log_min_messages=warning",
}

// fast is for functional tests: nothing survives a crash.
var fast = []string{
	"shared_buffers=128MB",
	"fsync=off",
	"synchronous_commit=off",
	"full_page_writes=off",
	"wal_level=minimal",
	"max_wal_senders=0",
	"max_wal_size=1GB",
	"checkpoint_timeout=1h",
	"jit=off",
	"deadlock_timeout=200ms",
	"autovacuum=on",
}

// durable is for crashes and benchmarks: what was committed stays.
var durable = []string{
	"fsync=on",
	"synchronous_commit=on",
	"full_page_writes=on",
}

// Server is a PostgreSQL server with its own data directory. It ends with the test binary, however that ends.
// Its methods may be called from several goroutines.
type Server struct {
	bin      string
	dir      string
	account  *account
	password string
	settings []string

	mu          sync.Mutex // guards the fields below
	port        int
	reservation io.Closer // keeps the port, also while the server is stopped
	proc        *process  // nil while stopped
	closed      bool
}

// newServer creates a directory in parent and starts a server on it.
func newServer(bin, parent string, settings ...string) (*Server, error) {
	who, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "belfry-postgres-")
	if err != nil {
		return nil, fmt.Errorf("create the directory of the server: %w", err)
	}
	s := &Server{bin: bin, dir: dir, account: who, password: rand.Text(), settings: slices.Concat(common, settings)}
	if err := errors.Join(who.own(dir), s.initialise()); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := s.startOnFreePort(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// initialise creates the data directory.
func (s *Server) initialise() error {
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return err
	}
	defer os.Remove(secret)
	if err := s.account.own(secret); err != nil {
		return err
	}
	locale := "C" // every system has it
	if runtime.GOOS == "linux" {
		locale = "C.UTF-8"
	}
	p, err := spawn(s.dir, s.log(), s.account, filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "scram-sha-256",
		"--pwfile", secret, "-E", "UTF8", "--locale", locale, "--no-sync")
	if err == nil {
		err = errors.Join(p.wait(initLimit), p.failure())
	}
	if err != nil {
		return fmt.Errorf("initialise PostgreSQL in %s: %w\n%s", s.dir, err, s.logTail())
	}
	return nil
}

// startOnFreePort starts the server on a free port. Another process may take a port before the server does, so a few are
// tried.
func (s *Server) startOnFreePort() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for range 5 {
		if s.port, s.reservation, err = porttest.Reserve(); err != nil {
			return err
		}
		if err = s.start(); err == nil {
			return nil
		}
		s.reservation.Close()
		if !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
	return err
}

// Start starts a stopped server again, with its data and on its port, and waits until it accepts connections.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("start PostgreSQL: the server is closed")
	case s.proc != nil && !s.proc.exited():
		return errors.New("start PostgreSQL: it is running already")
	}
	return s.start()
}

func (s *Server) start() error {
	os.Truncate(s.log(), 0) // the log is of this start
	argv := []string{filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port)}
	for _, setting := range s.settings {
		argv = append(argv, "-c", setting)
	}
	p, err := spawn(s.dir, s.log(), s.account, argv...)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.proc = p
	if err := s.ready(p); err != nil {
		s.stop(syscall.SIGQUIT)
		return fmt.Errorf("start PostgreSQL on port %d: %w\n%s", s.port, err, s.logTail())
	}
	return nil
}

// ready waits until the server accepts a client.
func (s *Server) ready(p *process) error {
	for deadline := time.Now().Add(readyLimit); ; time.Sleep(5 * time.Millisecond) {
		err := s.tryConnect()
		if err == nil {
			return nil
		}
		if p.exited() {
			return errors.Join(errors.New("it ended at once"), p.failure())
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// tryConnect connects once. Its timeout is short because another process may have the port.
func (s *Server) tryConnect() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Stop ends the server and waits until it has ended: cleanly, with its clients disconnected and everything written, or,
// if immediate, as in Crash. A stopped server stays stopped without an error.
func (s *Server) Stop(immediate bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if immediate {
		return s.stop(syscall.SIGQUIT)
	}
	return s.stop(syscall.SIGINT)
}

// Crash ends the server at once, with nothing written that was not written before: the next Start has to recover.
func (s *Server) Crash() error { return s.Stop(true) }

func (s *Server) stop(sig syscall.Signal) error {
	if s.proc == nil {
		return nil
	}
	p := s.proc
	p.signal(sig)
	if err := p.wait(stopLimit); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	s.proc = nil
	return nil
}

// Close ends the server and removes its data.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.stop(syscall.SIGQUIT)
	s.closed = true
	return errors.Join(err, s.reservation.Close(), os.RemoveAll(s.dir))
}

// URL is the address of the server's database postgres, as its superuser. It stays the same over Stop and Start.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url()
}

func (s *Server) url() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

// logTail returns the end of what the server wrote.
func (s *Server) logTail() string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}
