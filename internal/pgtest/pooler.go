package pgtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/porttest"
)

// pooler is PgBouncer in transaction mode in front of a server.
type pooler struct {
	once sync.Once
	err  error
	dir  string
	port int
	proc *process

	reservation io.Closer // of the port
}

// sharedPooler is in front of the shared server, for the binary's whole life.
var sharedPooler pooler

// PoolerInstalled reports whether Pooler can be used.
func PoolerInstalled() bool {
	_, err := findPooler()
	return err == nil
}

// findPooler also looks where Debian has it, which may not be in the PATH of a user.
func findPooler() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/pgbouncer")
}

// Pooler returns the address of a database of the shared server through PgBouncer in transaction mode. PgBouncer is
// started on first use and refuses startup parameters that it does not know, as it does by default. A test without
// PgBouncer is skipped.
func Pooler(tb testing.TB, address string) string {
	tb.Helper()
	if !PoolerInstalled() {
		tb.Skip("PgBouncer is not installed: apt-get install pgbouncer")
	}
	u, err := url.Parse(address)
	if err == nil {
		err = sharedPooler.start(u)
	}
	if err != nil {
		tb.Fatal(err)
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(sharedPooler.port))
	return u.String()
}

// start starts PgBouncer once.
func (p *pooler) start(server *url.URL) error {
	p.once.Do(func() { p.err = p.launch(server) })
	return p.err
}

func (p *pooler) launch(server *url.URL) error {
	bin, err := findPooler()
	if err != nil {
		return err
	}
	who, err := unprivileged()
	if err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "belfry-pgbouncer-"); err != nil {
		return err
	}
	if p.port, p.reservation, err = porttest.Reserve(); err != nil {
		return err
	}
	password, _ := server.User.Password()
	config := filepath.Join(p.dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
server_idle_timeout = 5
server_check_delay = 0
`, server.Hostname(), server.Port(), server.User.Username(), password, p.port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	if err := errors.Join(who.own(p.dir), who.own(config)); err != nil {
		return err
	}
	log := filepath.Join(p.dir, "log")
	if p.proc, err = spawn(p.dir, log, who, bin, config); err != nil {
		return fmt.Errorf("start PgBouncer: %w", err)
	}
	for deadline := time.Now().Add(readyLimit); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)), time.Second)
		if err == nil {
			return conn.Close()
		}
		if p.proc.exited() || time.Now().After(deadline) {
			said, _ := os.ReadFile(log)
			return fmt.Errorf("start PgBouncer: %w\n%s", errors.Join(err, p.proc.failure()), said)
		}
	}
}

func (p *pooler) stop() error {
	if p.proc == nil {
		return nil
	}
	p.proc.signal(syscall.SIGTERM)
	return errors.Join(p.proc.wait(stopLimit), p.reservation.Close(), os.RemoveAll(p.dir))
}
